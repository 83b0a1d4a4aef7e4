"""Parts of the fake cluster (client_core.testing) for this project's own tests."""
