"""Benchmarks: one file for each performance claim. `make bench` runs all, `python -m benchmarks.NAME` one.

Each figure is a ratio against a peer or a ceiling in the same run: rounds in turn, medians. See README.md.
"""
