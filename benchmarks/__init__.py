"""Each claim of speed has its file here. `make bench` runs all, `python -m benchmarks.NAME` one.

A figure is a ratio against a peer or a ceiling of the same run: rounds in turn, medians. See README.md here.
"""
