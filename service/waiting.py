"""How a request waits: parked as a ticket, never as a thread; a caller who leaves frees its place.

`wait_for_result` takes the ticket, awaits its result, and watches meanwhile whether the caller is still
there. The watch begins a moment late, since most requests are answered before it would be of use and each
watch is a task.

`WaitingRoom` counts who waits, in requests and in bytes of their bodies, and turns away what does not fit.
The bytes of records count until the client has none of them any more, whether or not somebody still waits.
Event loop only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from client_core import Done, IllegalStateError, KafkaError, ProducerClosedError, Result, Ticket
from service.asgi import Receive
from service.errors import Problem, ProblemError, problem_of

#: Longer than nearly every acknowledgement, shorter than anyone notices a place that nobody needs any more.
_WATCH_AFTER_S: Final = 0.05


class CallerGoneError(Exception):
    """The caller closed the connection while it waited: there is nobody to answer."""


async def wait_for_result(take_ticket: Callable[[Done], Ticket], receive: Receive) -> Result:
    """The ticket's result. Raises CallerGoneError, or ProblemError where the client takes no ticket.

    A caller who leaves and a task that is cancelled cancel the ticket.

    `receive` must have given the whole body already.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def done(result: Result) -> None:
        if not future.done():
            future.set_result(result)

    try:
        ticket = take_ticket(done)
    except (KafkaError, IllegalStateError) as e:
        # Refused at the door: a record that is too large, or a client that was closed meanwhile.
        error = e if isinstance(e, KafkaError) else ProducerClosedError("the sidecar is shutting down")
        raise ProblemError(replace(problem_of(error), written="no")) from e
    if future.done():
        return future.result()
    watch: asyncio.Task[None] | None = None

    def begin_to_watch() -> None:
        nonlocal watch
        watch = loop.create_task(_until_gone(receive, future))

    timer = loop.call_later(_WATCH_AFTER_S, begin_to_watch)
    try:
        return await future
    except BaseException:
        ticket.cancel()
        raise
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()


async def _until_gone(receive: Receive, future: asyncio.Future[Result]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not future.done():
        future.set_exception(CallerGoneError("the caller closed the connection"))


class WaitingRoom:
    """Bounds what waits in this sidecar, and knows how fast it empties."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._drain = _DrainRate()
        self.requests = 0
        self.bytes = 0

    def enter(self, body_bytes: int, now_ms: int) -> Place:
        """Takes a place. Raises a 429 where there is none: nothing was written, and Retry-After says when."""
        if self.requests >= self._max_requests:
            raise self._full(f"{self.requests} requests are waiting already", 0, now_ms)
        self.count(body_bytes, now_ms)
        self.requests += 1
        return Place(self, body_bytes)

    def count(self, body_bytes: int, now_ms: int) -> None:
        """Counts bytes in. One body always fits, however large, or it could never be sent. Raises a 429."""
        if self.bytes and body_bytes and self.bytes + body_bytes > self._max_bytes:
            raise self._full(f"{self.bytes} bytes are waiting already", body_bytes, now_ms)
        self.bytes += body_bytes

    def release(self, body_bytes: int, now_ms: int) -> None:
        """Bytes are gone; Place calls this."""
        self.bytes -= body_bytes
        self._drain.add(body_bytes, now_ms)

    def _full(self, detail: str, body_bytes: int, now_ms: int) -> ProblemError:
        too_many = self.bytes + body_bytes - self._max_bytes
        after_s = self._drain.seconds_for(too_many, now_ms)
        headers = ((b"retry-after", b"%d" % after_s),)
        return ProblemError(
            Problem(429, f"{detail}; try again", retriable=True, written="no", headers=headers)
        )


class Place:
    """One request's place in the room, and the bytes that it holds there, perhaps for longer."""

    __slots__ = ("_handed_on", "_room", "bytes")

    def __init__(self, room: WaitingRoom, body_bytes: int) -> None:
        self._room = room
        self._handed_on = False
        self.bytes = body_bytes

    def grow_to(self, body_bytes: int, now_ms: int) -> None:
        """A body turned out to be longer than its head said, or its head said nothing. Raises a 429."""
        if body_bytes > self.bytes:
            self._room.count(body_bytes - self.bytes, now_ms)
            self.bytes = body_bytes

    def hand_on(self) -> None:
        """The client has the bytes now: they count until `settled`, though the request may leave before."""
        self._handed_on = True

    def settled(self, now_ms: int) -> None:
        """Nothing of the request is in the client any more."""
        self._room.release(self.bytes, now_ms)
        self.bytes = 0

    def leave(self, now_ms: int) -> None:
        """The request has its answer, or nobody waits for one."""
        self._room.requests -= 1
        if not self._handed_on:
            self.settled(now_ms)


class _DrainRate:
    """Bytes that left in the last whole second and in the present one."""

    _LONGEST_S: Final = 30

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def add(self, left_bytes: int, now_ms: int) -> None:
        self._turn(now_ms)
        self._now += left_bytes

    def seconds_for(self, too_many_bytes: int, now_ms: int) -> int:
        """When so many bytes will have left, as things go; at least a second, at most half a minute."""
        self._turn(now_ms)
        bytes_per_s = max(self._now, self._before)
        if too_many_bytes <= 0:
            return 1
        if not bytes_per_s:
            return self._LONGEST_S
        return min(max(math.ceil(too_many_bytes / bytes_per_s), 1), self._LONGEST_S)

    def _turn(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now = 0
            self._second = second
