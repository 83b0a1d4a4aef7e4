"""The contestants of `produce_library.py`, each a program, so that they do not affect each other.

Arguments: a topic and Kafka's settings as `name=value`. Commands come line by line; see `line_protocol.py`.
"""
