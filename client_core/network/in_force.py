"""What is made of texts that may change: made anew when they do, and the last good one where that fails.

Operators replace a key and its certificate, or a name and its password, one after the other. What is there in
between is complained of once and not used. It is not tried again until it has changed once more.

For everything that is read from files while the client runs: an SSLContext, credentials, a token. One owner
thread. No Java counterpart: its clients read such files once, but for keystores that a broker's admin renews.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from client_core.errors import ConfigError
from client_core.events import SecretReloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.events import EventSink

log = logging.getLogger(__name__)

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class InForce(Generic[_Given, _Made]):
    """The last good thing, and what it was made of."""

    __slots__ = ("_events", "_made", "_made_of", "_make", "_read", "_refused", "_version")

    def __init__(
        self, read: Callable[[], _Given], make: Callable[[_Given], _Made], events: EventSink
    ) -> None:
        """`read` gives what there is now and never raises; `make` raises ConfigError where it won't do.

        Makes the first one. Raises ConfigError: there is nothing yet that could stay in force.
        """
        self._read = read
        self._make = make
        self._events = events
        self._made_of = read()
        self._made = make(self._made_of)
        self._refused: _Given | None = None
        self._version = 0

    def now(self) -> _Made:
        """What is in force: made of what there is now, if that can be. Never raises."""
        given = self._read()
        if given not in (self._made_of, self._refused):
            try:
                self._made, self._made_of, self._refused = self._make(given), given, None
                self._version += 1
            except ConfigError as error:
                self._refused = given
                self._complain(error)
        return self._made

    def version(self) -> int:
        """Which one is in force: a number that grows when another one comes into force. Never raises."""
        self.now()
        return self._version

    def _complain(self, error: ConfigError) -> None:
        log.warning("%s; what was read before stays in force", error)
        self._events.emit(SecretReloaded(error.name or "", error.message))

    def __repr__(self) -> str:
        return f"<InForce {type(self._made).__name__}>"
