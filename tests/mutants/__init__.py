"""Planted faults, and which suite finds them."""
