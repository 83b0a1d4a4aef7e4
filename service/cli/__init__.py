"""`pilotfish` as a client for people: commands that ask a running sidecar over HTTP, as any caller does."""
