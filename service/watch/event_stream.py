"""One watcher's server-sent events: a snapshot or the missed changes, then changes, status and heartbeats.

    retry: 2000
    event: reset       if the watcher cannot resume from its last id
    event: snapshot    or the changes after the last id
    event: …           changes as they happen, `status` at its interval, a comment as a heartbeat
    event: end         the sidecar shuts down, or the watcher is too slow

Pending changes stay in the shared log; a stream holds at most about 64 kB of them. Event loop only. Source:
WHATWG HTML, section 9.2, Server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Final

import msgspec

from service.lookup.lookups import NO_DEMANDS, Demands
from service.watch.feed import CLUSTER_CHANGED, ChangeFeed
from service.watch.snapshot import snapshot_pieces
from service.watch.subscription import Start, Subscription
from service.wire.errors import Problem
from service.wire.freshness import parse_version, version_text
from service.wire.streaming import Outlet

MEDIA_TYPE: Final = b"text/event-stream"

#: Short, so that few changes are missed; long enough for a sidecar to restart.
_RETRY: Final = b"retry: 2000\n\n"
_HEARTBEAT: Final = b": still here\n\n"

#: The size of one write to the connection.
_CHUNK_BYTES: Final = 64 * 1024

_RESETS: Final[Mapping[str, str]] = {
    "other_process": "{id} belongs to another process; this one is {boot}",
    "gap": "the changes after {id} are no longer kept",
    "bad_id": "{id} is not an id of this stream; ids are <boot>-<n>",
    CLUSTER_CHANGED: "the brokers belong to another cluster than before, or have answered for the first time",
}


def event_frame(event: str, data: bytes) -> bytes:
    """Returns an event without an id: a watcher cannot resume from it."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


def reset_data(reason: str, feed: ChangeFeed, last_id: str | None) -> dict[str, str]:
    """Returns why a watcher starts again from a snapshot: a code and a sentence."""
    return {"reason": reason, "detail": _RESETS[reason].format(id=last_id, boot=feed.log.boot)}


def number_to_resume(last_id: str, boot: str) -> int | str:
    """Returns the number of a last id, or the reason why it cannot be used."""
    try:
        own, number = parse_version(last_id)
    except ValueError:
        return "bad_id"
    return number if own == boot else "other_process"


class EventStream:
    """Writes one watcher's events until it disconnects, falls behind, or the sidecar shuts down."""

    def __init__(
        self,
        feed: ChangeFeed,
        subscription: Subscription,
        problems: Mapping[str, Problem],
        look_up: Callable[[Demands], Awaitable[Mapping[str, Problem]]],
        *,
        heartbeat_ms: int,
        status: Callable[[], bytes],
        status_ms: int | None,
    ) -> None:
        """`problems`: those of the named topics; `look_up` returns those of another cluster.

        `status()` is called every `status_ms`, if set.
        """
        self._feed = feed
        self._subscription = subscription
        self._problems = problems
        self._look_up = look_up
        self._heartbeat_s = heartbeat_ms / 1000
        self._status = status
        self._status_s = inf if status_ms is None else status_ms / 1000

    async def write(self, outlet: Outlet, last_id: str | None) -> None:
        """Writes the whole stream. Raises CallerGoneError when the caller stops reading."""
        await outlet.write(_RETRY)
        await self._begin(outlet, last_id)
        loop = asyncio.get_running_loop()
        heartbeat_s = loop.time() + self._heartbeat_s
        status_s = inf if self._status_s == inf else loop.time()
        while not self._subscription.is_over:
            start = self._subscription.take_start()
            if start is not None:
                await self._write_start(outlet, start, last_id)
            changes = self._subscription.take()
            if changes is None:
                await outlet.write(_end("too_slow", "the watcher is too many changes behind"))
                return
            if changes:
                await _write(outlet, (change.frame for change in changes))
            now_s = loop.time()
            if now_s >= status_s:
                await outlet.write(event_frame("status", self._status()))
                status_s = max(status_s + self._status_s, now_s)
                heartbeat_s = now_s + self._heartbeat_s
            elif start is not None or changes:
                heartbeat_s = now_s + self._heartbeat_s
            elif now_s >= heartbeat_s:
                await outlet.write(_HEARTBEAT)
                heartbeat_s = now_s + self._heartbeat_s
            await self._subscription.wait(max(min(heartbeat_s, status_s) - loop.time(), 0))
        await outlet.write(_end("shutting_down", "the sidecar is shutting down"))

    # -- beginning -------------------------------------------------------------------------------------------

    async def _begin(self, outlet: Outlet, last_id: str | None) -> None:
        """Resumes after the last id, or starts with a snapshot."""
        reason = None
        if last_id is not None:
            number = number_to_resume(last_id, self._feed.log.boot)
            missed = self._subscription.resume(number) if isinstance(number, int) else None
            if missed is not None:
                await _write(outlet, (change.frame for change in missed))
                return
            reason = number if isinstance(number, str) else "gap"
        await self._feed.begin(self._subscription, reason)

    async def _write_start(self, outlet: Outlet, start: Start, last_id: str | None) -> None:
        if start.reason is not None:
            data = msgspec.json.encode(reset_data(start.reason, self._feed, last_id))
            await outlet.write(event_frame("reset", data))
        if start.reason == CLUSTER_CHANGED:
            self._problems = await self._look_up(NO_DEMANDS)
        await _write(outlet, self._snapshot_lines(start))

    def _snapshot_lines(self, start: Start) -> Iterable[bytes]:
        boot = self._feed.log.boot
        yield b"event: snapshot\nid: %s\n" % version_text(boot, start.number).encode()
        for piece in snapshot_pieces(start, self._subscription, self._problems, boot, self._feed.texts):
            yield b"data: %s\n" % piece
        yield b"\n"


def _end(reason: str, detail: str) -> bytes:
    return event_frame("end", msgspec.json.encode({"reason": reason, "detail": detail}))


async def in_turns(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Joins pieces into larger chunks, and yields to the event loop after each chunk."""
    chunk: list[bytes] = []
    chunk_bytes = 0
    for piece in pieces:
        chunk.append(piece)
        chunk_bytes += len(piece)
        if chunk_bytes >= _CHUNK_BYTES:
            yield b"".join(chunk)
            await asyncio.sleep(0)
            chunk.clear()
            chunk_bytes = 0
    if chunk:
        yield b"".join(chunk)


async def _write(outlet: Outlet, frames: Iterable[bytes]) -> None:
    async for chunk in in_turns(frames):
        await outlet.write(chunk)
