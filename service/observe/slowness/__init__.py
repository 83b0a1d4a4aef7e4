"""Why is it slow: what the client's events and status say of nodes and phases, and the judgement on it."""
