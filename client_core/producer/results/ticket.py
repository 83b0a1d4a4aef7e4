"""The one way to wait for the client: a ticket, a result, and a sink that carries results across threads.

A caller hands in `done` and gets a Ticket back at once. Later, outside every lock, `done(result)` is posted
exactly once: all that one turn of the I/O thread finished goes to the CompletionSink together, so an event
loop is woken once per turn and not once per record. Blocking callers wrap a ticket into a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from client_core import forks

if TYPE_CHECKING:
    from client_core.errors import KafkaError
    from client_core.producer.results.producer_record import RecordMetadata

_log: Final = logging.getLogger(__name__)


class Phase(Enum):
    """What a request waited for when its deadline ran out, or was waiting for when it failed."""

    METADATA = "metadata"
    BUFFER = "buffer"
    DELIVERY = "delivery"


class Written(Enum):
    """Whether a failed record may be in the log: NO before it was drained, UNKNOWN once it was on its way."""

    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Why one record was not acknowledged."""

    error: KafkaError
    phase: Phase
    written: Written
    waited_ms: int


class Result(Protocol):
    """What a ticket ends with.

    `outcomes`: one per record of the request, in order (empty for metadata tickets).
    """

    @property
    def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]: ...

    @property
    def any_acknowledged(self) -> bool:
        """Whether brokers acknowledged any of the records."""
        ...

    @property
    def error(self) -> KafkaError | None:
        """Why the request failed as a whole; None where it did not, or where `outcomes` tell one by one."""
        ...


Done = Callable[[Result], None]


class Ticket(Protocol):
    """A place in the client. Any thread."""

    def cancel(self) -> None:
        """Frees the place. `done` is not called any more, unless the request has ended and it is on its way.

        What was sent is still delivered. Idempotent.
        """
        ...


class CancelTicket:
    """A place that a function gives up. In the child of a fork there is none, and nothing happens."""

    __slots__ = ("_cancel", "_made_at")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._made_at = forks.count

    def cancel(self) -> None:
        if self._made_at == forks.count:
            self._cancel()


class CompletionSink(Protocol):
    """Where finished tickets go: once per turn of the I/O thread, outside every lock."""

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None: ...


class CallInline:
    """Calls each `done` on the thread that posts. For plain library use and tests.

    A callback that fails is logged; the others still run.
    """

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        for done, result in finished:
            try:
                done(result)
            except KeyboardInterrupt:  # which only the main thread gets, and never the I/O thread
                raise
            except BaseException:  # noqa: BLE001 -- a user's code, its sys.exit() and CancelledError too
                _log.exception("A callback failed on %r", result)
