"""When a token that expires is to be fetched again.

    valid from                     refresh here: 80 to 85 % of its life        expires
        ├───────────────────────────────────┼──────────────────────────────────────┤
    now ├── min period ──┤  not before                    not after  ├── buffer ───┤

Where the life is too short for period and buffer, the same part of what is left of it counts alone. Pure.
Source: ExpiringCredentialRefreshingLogin.refreshMs, ExpiringCredentialRefreshConfig, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from client_core.network.sasl.oauth_bearer_token import OAuthBearerToken

#: An issuer may go on giving the same token until it expires: it is not asked more often than this. Java asks
#: ever faster then.
_MIN_PAUSE_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ExpiringCredentialRefresh:
    """The settings sasl.login.refresh.*, applied."""

    window_factor: float
    window_jitter: float
    min_period_ms: int
    buffer_ms: int
    random: Random

    def refresh_ms(self, token: OAuthBearerToken, wall_ms: int) -> int:
        """When to fetch the next token, on the same clock as `wall_ms`, which is now."""
        return max(self._proposed_ms(token, wall_ms), wall_ms + _MIN_PAUSE_MS)

    def _proposed_ms(self, token: OAuthBearerToken, wall_ms: int) -> int:
        expires_ms = token.lifetime_ms
        part = self.window_factor + self.window_jitter * self.random.random()
        if wall_ms + self.min_period_ms + self.buffer_ms > expires_ms:
            return wall_ms + int((expires_ms - wall_ms) * part)
        start_ms = wall_ms if token.start_time_ms is None else token.start_time_ms
        proposed_ms = start_ms + int((expires_ms - start_ms) * part)
        if proposed_ms > expires_ms - self.buffer_ms:
            return expires_ms - self.buffer_ms
        return max(proposed_ms, wall_ms + self.min_period_ms)
