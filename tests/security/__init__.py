"""What SECURITY.md promises, tried on a sidecar: each of its lines names the test that shows it."""
