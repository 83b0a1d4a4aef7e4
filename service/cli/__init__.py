"""The `pilotfish` commands: most of them call a running sidecar over HTTP."""
