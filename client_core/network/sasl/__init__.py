"""SASL, the client's side: authenticates us to each broker. `sasl_authenticators.py` is the entry point."""
