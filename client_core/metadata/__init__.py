"""What is known of the cluster: metadata as it came, when it is asked for again, who waits for it."""
