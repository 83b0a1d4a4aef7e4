"""Watching: what the sidecar knows of the cluster, told as it changes."""
