"""Tickets for non-blocking calls, and the path of results to a CompletionSink.

A caller passes `done` and gets a Ticket at once. Later, outside every lock, `done(result)` is posted exactly
once. Blocking callers wrap a ticket into a wait.

`Completions` gathers the results of one turn of the I/O thread, which posts them together at the turn's end.
So an event loop is woken once per turn, not once per record, and no callback runs inside a client lock or
halfway through a turn. Any thread adds, without a lock: a deque. After the I/O thread has ended, the adding
thread posts.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from client_core import forks

if TYPE_CHECKING:
    from client_core.errors import KafkaError
    from client_core.producer.results.producer_record import RecordMetadata


_log: Final = logging.getLogger(__name__)


class Completions:
    """Finished tickets with their results, in the order in which they were finished."""

    def __init__(self, sink: CompletionSink) -> None:
        self._sink = sink
        self._finished: deque[tuple[Done, Result]] = deque()
        self._nobody_posts = False
        self._is_posting = False

    def __bool__(self) -> bool:
        """Whether something waits to be posted."""
        return bool(self._finished)

    @property
    def is_reported(self) -> bool:
        """Whether all that was added is with the sink. A plain read; I/O thread running."""
        # In this order: what is not in the deque any more has been posted, or is being posted.
        return not self._finished and not self._is_posting

    def add(self, done: Done, result: Result) -> None:
        """Puts a finished ticket in. Any thread, no lock held."""
        self._finished.append((done, result))
        # Looked at after the append: post_from_now_on looks into the deque after it has set this.
        if self._nobody_posts:
            self.post()

    def post(self) -> None:
        """Posts all finished results. A failing sink is logged and affects no other."""
        if not self._finished:
            return
        finished: list[tuple[Done, Result]] = []
        self._is_posting = True
        try:
            with contextlib.suppress(IndexError):  # another thread may empty it at the same time
                while True:
                    finished.append(self._finished.popleft())
            if finished:
                self._post(finished)
        finally:
            self._is_posting = False

    def post_from_now_on(self) -> None:
        """The I/O thread ends: later results are posted by the thread that adds them."""
        self._nobody_posts = True
        self.post()

    def _post(self, finished: list[tuple[Done, Result]]) -> None:
        try:
            self._sink.post(finished)
        except KeyboardInterrupt:  # which only the main thread gets, and never the I/O thread
            raise
        except BaseException:  # noqa: BLE001 -- a user's code, its sys.exit() and CancelledError too
            _log.exception("The completion sink failed on %d finished tickets", len(finished))


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
        """Why the whole request failed; None if it did not, or if `outcomes` differ."""
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
