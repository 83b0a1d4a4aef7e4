"""Admission of requests: callers and their tokens, guards, limits, shutdown."""
