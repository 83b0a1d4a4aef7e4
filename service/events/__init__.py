"""What the client does and sees, as a log of events for others to read: docs/events.md.

Off unless `events_topic` or `events_folder` is set, and nothing of it is loaded then but its metrics' names.
"""
