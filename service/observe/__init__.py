"""The sidecar's metrics and traces, and the diagnosis of slowness."""
