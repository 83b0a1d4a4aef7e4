"""Basics for every package: settings, logs, names, counters, files."""
