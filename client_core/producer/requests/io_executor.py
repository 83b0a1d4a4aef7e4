"""What requests need of the I/O thread: work that it does for them, and whether they run on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.producer.requests.pending_request import PendingRequest

#: The message of ProducerClosedError where a call waits when the producer is closed. Source: KafkaProducer.
CLOSED_WHILE_WAITING: Final = "Producer closed while send in progress"


class IoExecutor(Protocol):
    """The I/O thread, as requests see it. Any thread."""

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the I/O thread: in a callback."""
        ...

    def take(self, request: PendingRequest, *, wake: bool) -> None:
        """Hands a request over to be watched and, where it must wait, parked."""
        ...

    def do(self, command: Callable[[int], None]) -> None:
        """Has `command(now_ms)` done at the next turn."""
        ...

    def wakeup(self) -> None:
        """Lets the present or the next poll return."""
        ...
