"""What changes, told as it happens: server-sent events, and answers that wait for a change."""
