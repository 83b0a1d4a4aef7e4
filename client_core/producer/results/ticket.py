"""Tickets for non-blocking calls, and the path of results to a CompletionSink.

A caller passes `done` and gets a Ticket at once. Later, outside every lock, `done(result)` is posted exactly
once, unless the ticket was cancelled. Java's blocking calls are in `requests/blocking_calls.py`.

`Completions` gathers the results of one turn of the I/O thread, which posts them together at the turn's end.
So an event loop is woken once per turn, not once per record, and no callback runs inside a client lock or
halfway through a turn. Any thread adds to a deque, without a lock. After the I/O thread has ended, the thread
that adds also posts.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from client_core import forks
from client_core.uncaught import is_interrupt

if TYPE_CHECKING:
    from client_core.errors import KafkaError
    from client_core.producer.results.producer_record import RecordMetadata


_log: Final = logging.getLogger(__name__)


class Completions:
    """Finished tickets with their results, in order."""

    def __init__(self, sink: CompletionSink) -> None:
        self._sink = sink
        #: Results that wait to be posted.
        self.finished: Final[deque[tuple[Done, Result]]] = deque()
        #: Functions to call when the results that are finished now have been posted.
        self.waiting: Final[deque[Callable[[], None]]] = deque()
        self._nobody_posts = False
        self._is_posting = False

    @property
    def is_reported(self) -> bool:
        """Returns whether all results are posted. Reads without a lock. Valid while the I/O thread runs."""
        # In this order: a result that left the deque has been posted, or is being posted.
        return not self.finished and not self._is_posting

    def add(self, done: Done, result: Result) -> None:
        """Adds a finished ticket. Any thread, no lock held."""
        self.finished.append((done, result))
        # Read after the append, because post_from_now_on sets this before it reads the deques.
        if self._nobody_posts:
            self.post()

    def call_when_posted(self, call: Callable[[], None]) -> None:
        """Calls `call` when all results that are finished now are posted.

        Any thread, which must then wake the I/O thread.
        """
        self.waiting.append(call)
        if self._nobody_posts:
            self.post()

    def post(self) -> None:
        """Posts all finished results. An exception of the sink is logged, and not raised.

        After a MemoryError the sink gets the same results next time.
        """
        waiting = len(self.waiting)
        if not self._post_finished():
            return
        with contextlib.suppress(IndexError):
            for _ in range(waiting):
                self.waiting.popleft()()

    def _post_finished(self) -> bool:
        """Posts the finished results; returns False if the sink raised MemoryError."""
        finished: list[tuple[Done, Result]] = []
        self._is_posting = True
        try:
            with contextlib.suppress(IndexError):  # another thread may empty it at the same time
                while True:
                    finished.append(self.finished.popleft())
            if finished:
                self._post(finished)
        except MemoryError:
            self.finished.extendleft(reversed(finished))
            _log.exception("%d finished tickets are posted again", len(finished))
            return False
        finally:
            self._is_posting = False
        return True

    def post_from_now_on(self) -> None:
        """Makes later results be posted by the thread that adds them: the I/O thread ends."""
        self.post()  # first, so that no other thread calls `waiting` before these are posted
        self.post_at_once()
        self.post()

    def post_later(self) -> None:
        """Undoes `post_at_once` while the adding thread holds a lock.

        That thread must call `post_at_once` and `post` afterwards.
        """
        self._nobody_posts = False

    def post_at_once(self) -> None:
        """Makes each adding thread post."""
        self._nobody_posts = True

    def _post(self, finished: list[tuple[Done, Result]]) -> None:
        try:
            self._sink.post(finished)
        except BaseException as error:  # user code, with its sys.exit() and CancelledError
            if isinstance(error, MemoryError) or is_interrupt(error):
                raise
            _log.exception("The completion sink failed on %d finished tickets", len(finished))


class Phase(Enum):
    """What a request waited for when its deadline passed, or when it failed."""

    METADATA = "metadata"
    BUFFER = "buffer"
    DELIVERY = "delivery"


class Written(Enum):
    """Whether a failed record may be in the log: NO before it was drained, UNKNOWN once it was sent."""

    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Why one record was not acknowledged. `partition`: that of its batch, if it was in one."""

    error: KafkaError
    phase: Phase
    written: Written
    waited_ms: int
    partition: int | None = field(default=None, compare=False)


class Result(Protocol):
    """A ticket's result.

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
        """Returns why the whole request failed; None if it did not, or if `outcomes` differ."""
        ...


Done = Callable[[Result], None]


class Ticket(Protocol):
    """The handle of a non-blocking call. Any thread."""

    def cancel(self) -> None:
        """Cancels the call. `done` is not called any more, unless its result is already being posted.

        Sent records are still delivered. Idempotent.
        """
        ...


class CancelTicket:
    """A ticket whose `cancel` calls a function. In the child of a fork it does nothing."""

    __slots__ = ("_cancel", "_made_at")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._made_at = forks.count

    def cancel(self) -> None:
        if self._made_at == forks.count:
            self._cancel()


class CompletionSink(Protocol):
    """Receives finished tickets: once per turn of the I/O thread, outside every lock.

    A MemoryError means that it took none of them.
    """

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None: ...


class CallInline:
    """Calls each `done` on the thread that posts. For plain library use and tests.

    A callback that fails is logged; the others still run.
    """

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        for done, result in finished:
            try:
                done(result)
            except BaseException as error:  # user code, with its sys.exit() and CancelledError
                if is_interrupt(error):
                    raise
                _log.exception("A callback failed on %r", result)
