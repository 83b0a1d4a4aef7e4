"""Who may ask and how much waits: callers and their tokens, the guards, limits, the drain."""
