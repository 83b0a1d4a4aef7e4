"""Kafka's protocol: generated typed message modules, and their building blocks."""
