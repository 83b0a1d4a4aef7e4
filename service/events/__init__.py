"""Event log: reports what the client does and sees, for other systems (docs/events.md).

Off unless `events_topic` or `events_folder` is set. While it is off, only event_metrics.py is loaded.
"""
