"""A bearer token and what it says of itself. Immutable, any thread. Source: OAuthBearerToken, Kafka 4.3."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class OAuthBearerToken:
    """`value` is the secret. Times are milliseconds since 1970, as an issuer's clock has them."""

    value: str
    scopes: frozenset[str]
    lifetime_ms: int  # when it ends; Java's name
    principal_name: str
    start_time_ms: int | None

    def is_valid_at(self, wall_ms: int) -> bool:
        return wall_ms < self.lifetime_ms

    def __repr__(self) -> str:
        return f"<OAuthBearerToken valid until {self.lifetime_ms}>"
