"""Watching by long polling: one request, answered after a change, for callers without event streams.

    neither id nor min_version    the snapshot, at once
    min_version=<boot>-<n>        the changes from number n on, as soon as there is one that the caller may
                                  read. The answer is 412 if the version is of another boot
    last_event_id=<boot>-<n>      the changes from number n + 1 on, in the same way. But if the id is of
                                  another boot, or malformed, the answer has `reset` and a snapshot

The last two wait at most `max_block_ms`, and then answer without changes. If the changes in between are no
longer kept, the answer has `reset` and a snapshot. When the drain begins, they answer without changes; later
ones get a 503. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from service.lookup.lookups import Demands
from service.watch.event_stream import in_turns, number_to_resume, reset_data
from service.watch.feed import ChangeFeed
from service.watch.snapshot import snapshot_pieces
from service.watch.subscription import LoggedChange, Start, Subscription
from service.wire.errors import Problem
from service.wire.freshness import version_text

_encode: Final = msgspec.json.Encoder().encode


class LongPoll:
    """One request that waits for changes, or asks for the snapshot."""

    def __init__(
        self,
        feed: ChangeFeed,
        subscription: Subscription,
        problems: Mapping[str, Problem],
        look_up: Callable[[Demands], Awaitable[Mapping[str, Problem]]],
    ) -> None:
        """`problems`: those of the named topics; `look_up` returns those of another cluster."""
        self._feed = feed
        self._subscription = subscription
        self._problems = problems
        self._look_up = look_up

    async def snapshot(self) -> Sequence[bytes]:
        """Returns the present state of the watched topics, in pieces.

        The other answers here are in pieces, too.
        """
        return await self._body_of(await self._begin())

    async def since(self, last_id: str, max_block_ms: int) -> Sequence[bytes]:
        """Returns the changes after that id; a snapshot and the reason if it cannot resume there."""
        number = number_to_resume(last_id, self._feed.log.boot)
        if isinstance(number, str):
            return await self._reset(number, last_id)
        if number > self._feed.log.number:
            return await self._reset("gap", last_id)
        return await self.reaching(number + 1, max_block_ms)

    async def reaching(self, number: int, max_block_ms: int) -> Sequence[bytes]:
        """Returns the changes from `number` on; waits until there is one."""
        subscription, loop = self._subscription, asyncio.get_running_loop()
        after = version_text(self._feed.log.boot, max(number - 1, 0))
        deadline_s = loop.time() + max_block_ms / 1000
        changes = subscription.resume(min(number - 1, self._feed.log.number))
        while changes is not None:
            wanted = [change for change in changes if change.number >= number]
            left_s = deadline_s - loop.time()
            if wanted or subscription.is_over or left_s <= 0:
                return self._answer(wanted)
            await subscription.wait(left_s)
            start = subscription.take_start()
            if start is not None:
                left_ms = max(round((deadline_s - loop.time()) * 1000), 0)
                self._problems = await self._look_up(Demands(left_ms, until_known=False))
                return await self._answer_reset(start, start.reason or "gap", after)
            changes = subscription.take()
        return await self._reset("gap", after)

    # -- answers ---------------------------------------------------------------------------------------------

    def _answer(self, changes: Sequence[LoggedChange]) -> Sequence[bytes]:
        boot = self._feed.log.boot
        listed = [
            {"id": version_text(boot, change.number), "event": change.event, "data": msgspec.Raw(change.data)}
            for change in changes
        ]
        version = version_text(boot, self._subscription.number)
        return (_encode({"version": version, "reset": False, "changes": listed}),)

    async def _reset(self, reason: str, last_id: str) -> Sequence[bytes]:
        return await self._answer_reset(await self._begin(), reason, last_id)

    async def _answer_reset(self, start: Start, reason: str, last_id: str) -> Sequence[bytes]:
        answer: dict[str, Any] = {
            "version": version_text(self._feed.log.boot, start.number),
            "reset": True,
            **reset_data(reason, self._feed, last_id),
            "changes": [],
        }
        return (_encode(answer)[:-1] + b',"snapshot":', *await self._body_of(start), b"}")

    async def _begin(self) -> Start:
        await self._feed.begin(self._subscription)
        start = self._subscription.take_start()
        assert start is not None, "the feed has just set it"
        return start

    async def _body_of(self, start: Start) -> Sequence[bytes]:
        boot, texts = self._feed.log.boot, self._feed.texts
        pieces = snapshot_pieces(start, self._subscription, self._problems, boot, texts)
        return [chunk async for chunk in in_turns(pieces)]
