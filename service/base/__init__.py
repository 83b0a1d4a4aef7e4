"""What every part of the sidecar may use: settings, logs, names, counters, files."""
