"""One running sidecar: the server, the admin listener, the app put together, an orderly end."""
