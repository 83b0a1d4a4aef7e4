"""Whether a client works, is closing or is closed.

    ACTIVE -> CLOSING (initiate_close, any thread) -> CLOSED (close); close may skip CLOSING

One lock, since closing may be asked for while the I/O thread closes. Source: NetworkClient.State, Kafka 4.3.
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import Final

from client_core.errors import DisconnectError


class Life(Enum):
    """The states of a client."""

    ACTIVE = "ACTIVE"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


_ALLOWED_MOVES: Final = {
    Life.ACTIVE: frozenset({Life.CLOSING, Life.CLOSED}),
    Life.CLOSING: frozenset({Life.CLOSED}),
    Life.CLOSED: frozenset[Life](),
}


class ClientLife:
    """One client's state. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = Life.ACTIVE

    def __str__(self) -> str:
        return self._state.value

    @property
    def is_active(self) -> bool:
        return self._state is Life.ACTIVE

    def move_to(self, state: Life) -> bool:
        """Changes the state; whether the move was allowed: of several who ask for one, one is told so."""
        with self._lock:
            is_allowed = state in _ALLOWED_MOVES[self._state]
            if is_allowed:
                self._state = state
            return is_allowed

    def ensure_active(self) -> None:
        """Raises DisconnectError when closing has begun (NET-25)."""
        if self._state is not Life.ACTIVE:
            raise DisconnectError(f"NetworkClient is no longer active, state is {self._state.value}")
