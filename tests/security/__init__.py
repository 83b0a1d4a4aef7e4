"""The promises of SECURITY.md, tried on a sidecar: each of its lines names its test."""
