"""The contestants of `produce_library.py`, a program each: nobody's threads or memory bend another's.

They take a topic and Kafka's settings as `name=value`, and are asked line by line; see `line_protocol.py`.
"""
