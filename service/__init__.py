"""The sidecar: HTTP in front of client_core, of which it uses only the public API."""
