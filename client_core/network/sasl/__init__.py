"""SASL, the client's side: who we are, proved to each broker. `SaslAuthenticators` is the door."""

from client_core.network.sasl.sasl_authenticators import SaslAuthenticators

__all__ = ["SaslAuthenticators"]
