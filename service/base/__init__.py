"""Basics that every package of the sidecar may use: settings, logs, names, counters, files."""
