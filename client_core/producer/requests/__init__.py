"""What callers ask of a producer: sends, submits and look-ups, and how they wait for metadata and memory."""
