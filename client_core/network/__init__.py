"""Bytes over sockets: channels, the selector, TLS and SASL. Knows no request but SASL's."""
