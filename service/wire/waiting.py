"""Waits for a request's result without a thread; cancels when the caller leaves.

`wait_for_result` takes the ticket, awaits its result, and watches for the caller's disconnect. The watch
starts late: each one costs a task, and most requests are answered before. All waits of a loop share one
timer. Event loop only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from client_core import IllegalStateError, KafkaError, ProducerClosedError, Ticket
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError, problem_of

#: Longer than nearly every acknowledgement takes; short enough that a caller who left does not hold its
#: permit for a noticeable time.
_WATCH_AFTER_S: Final = 0.05

#: A wait of more than an hour is a mistake in units.
MAX_WAIT_MS: Final = 3_600_000

#: The status to log for a request whose caller left.
CALLER_GONE: Final = 499

_Result = TypeVar("_Result")


class CallerGoneError(Exception):
    """The caller closed the connection while it waited."""


async def wait_for_result(
    take_ticket: Callable[[Callable[[_Result], None]], Ticket], receive: Receive
) -> _Result:
    """Returns the ticket's result. Raises CallerGoneError, or ProblemError if the client refuses the request.

    If the caller leaves or the task is cancelled, the ticket is cancelled. `receive` must have returned the
    whole body already.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def done(result: _Result) -> None:
        if not future.done():
            future.set_result(result)

    try:
        ticket = take_ticket(done)
    except (KafkaError, IllegalStateError) as e:
        raise ProblemError(refusal_of(e)) from e
    if future.done():
        return future.result()
    unwatched = _unwatched_of(loop)
    unwatched.add(future, receive)
    try:
        return await future
    except BaseException:
        ticket.cancel()
        raise
    finally:
        unwatched.waits.pop(future, None)


def refusal_of(error: KafkaError | IllegalStateError) -> Problem:
    """Returns why the client gave no ticket: a record is too large, or the client is closed."""
    known = error if isinstance(error, KafkaError) else ProducerClosedError("the sidecar is shutting down")
    return replace(problem_of(known), written="no")


class _Unwatched:
    """The waits of one loop whose callers are not watched yet, oldest first, with the time to begin."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waits: dict[asyncio.Future[Any], tuple[float, Receive]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: asyncio.Future[Any], receive: Receive) -> None:
        """Watches the caller later, unless the wait is removed from `waits` before."""
        self.waits[future] = (self.loop.time() + _WATCH_AFTER_S, receive)
        if self._timer is None:
            self._timer = self.loop.call_later(_WATCH_AFTER_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        while self.waits:
            future, (at_s, receive) = next(iter(self.waits.items()))
            left_s = at_s - self.loop.time()
            if left_s > 0:
                self._timer = self.loop.call_later(left_s, self._begin)
                return
            del self.waits[future]
            watch = self.loop.create_task(_end_when_gone(receive, future))
            future.add_done_callback(partial(_end, watch))


#: Per thread, `unwatched`: the waits of its running loop.
_own: Final = threading.local()


def _unwatched_of(loop: asyncio.AbstractEventLoop) -> _Unwatched:
    found: _Unwatched | None = getattr(_own, "unwatched", None)
    if found is None or found.loop is not loop:
        found = _own.unwatched = _Unwatched(loop)
    return found


def _end(watch: asyncio.Task[None], _: object) -> None:
    watch.cancel()


async def until_gone(receive: Receive) -> None:
    """Returns when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end_when_gone(receive: Receive, future: asyncio.Future[_Result]) -> None:
    await until_gone(receive)
    if not future.done():
        future.set_exception(CallerGoneError("the caller closed the connection"))
