"""A sidecar, its brokers and its callers in one deterministic simulation: `make simulate`."""
