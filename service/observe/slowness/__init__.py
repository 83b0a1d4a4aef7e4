"""Diagnoses slowness from the client's events and status, by node and phase."""
