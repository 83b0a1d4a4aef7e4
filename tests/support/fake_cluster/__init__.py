"""What the fake cluster (client_core.testing) does only for the tests of this project."""
