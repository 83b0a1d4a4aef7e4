"""Metadata look-ups: prepared answers, waits for unknown topics, and the list of all topics."""
