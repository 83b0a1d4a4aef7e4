"""What the sidecar says of itself: metrics, traces, and why it is slow."""
