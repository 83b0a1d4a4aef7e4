"""Cluster metadata: snapshots, refresh schedule, wanted topics, and callers that wait for updates."""
