"""Hostile input by the hundred thousand: decoders, brokers, HTTP.

    python -m tests.fuzz --seed 1 --minutes 5

Each part has a short form among the tests, and says how many inputs it tried. An input depends on a seed
alone, so that findings can be repeated.
"""
