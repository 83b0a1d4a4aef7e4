"""What the pipeline found out about a fleet, for a sidecar that starts: topics to know, when to ask anew."""
