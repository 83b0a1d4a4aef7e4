"""SASL, the client's side: authenticates us to each broker. `SaslAuthenticators` is the entry point."""

from client_core.network.sasl.sasl_authenticators import SaslAuthenticators

__all__ = ["SaslAuthenticators"]
