"""The sidecar: HTTP in front of client_core, which it uses by its face only."""
