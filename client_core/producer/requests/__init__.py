"""A producer's requests: sends, submits and look-ups, and their waits for metadata and memory."""
