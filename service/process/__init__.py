"""One running sidecar: the server, the admin listener, the app's assembly, the shutdown."""
