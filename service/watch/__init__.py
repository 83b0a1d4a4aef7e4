"""Sends changes of the cluster to callers as they happen."""
