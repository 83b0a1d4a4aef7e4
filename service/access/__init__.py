"""Who calls, and what they may do: callers, their tokens, the topics that they may read and produce to."""
