"""Parts of the fake cluster (client_core.testing) that only the tests of this project use."""
