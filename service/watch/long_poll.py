"""Watching by long polling: one request, answered after a change, for callers without event streams.

    neither id nor min_version    the snapshot, at once
    min_version=<boot>-<n>        the changes from number n on, as soon as there is one that the caller may
                                  read. The answer is 412 if the version is of another boot
    last_event_id=<boot>-<n>      the changes from number n + 1 on, in the same way. But if the id is of
                                  another boot, or malformed, the answer has `reset` and a snapshot

The last two wait at most `max_block_ms`, and then answer without changes. If the changes in between are no
longer kept, the answer has `reset` and a snapshot. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from service.watch.event_stream import in_turns, number_to_resume, reset_data, snapshot_of
from service.watch.feed import ChangeFeed
from service.watch.subscription import LoggedChange, Start, Subscription
from service.wire.errors import Problem, refused
from service.wire.freshness import parse_version, version_text

_encode: Final = msgspec.json.Encoder().encode
_PLACE: Final = "query.min_version"


class LongPoll:
    """One request that waits for changes, or asks for the snapshot."""

    def __init__(self, feed: ChangeFeed, subscription: Subscription, problems: Mapping[str, Problem]) -> None:
        """`problems`: those of the named topics."""
        self._feed = feed
        self._subscription = subscription
        self._problems = problems

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
        return await self._from(number + 1, last_id, max_block_ms)

    async def reaching(self, min_version: str, max_block_ms: int) -> Sequence[bytes]:
        """Returns the changes from that number on.

        Raises ProblemError: 422 for a malformed version, 412 for that of another boot.
        """
        return await self._from(number_of(min_version, self._feed.log.boot), min_version, max_block_ms)

    async def _from(self, number: int, asked: str, max_block_ms: int) -> Sequence[bytes]:
        """Returns the changes from `number` on; waits until there is one."""
        subscription, loop = self._subscription, asyncio.get_running_loop()
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
                return await self._answer_reset(start, start.reason or "gap", asked)
            changes = subscription.take()
        return await self._reset("gap", asked)

    # -- answers ---------------------------------------------------------------------------------------------

    def _answer(self, changes: Sequence[LoggedChange]) -> Sequence[bytes]:
        boot = self._feed.log.boot
        listed = [
            {"id": version_text(boot, change.number), "event": change.event, "data": msgspec.Raw(change.data)}
            for change in changes
        ]
        version = version_text(boot, self._subscription.number)
        return (_encode({"version": version, "reset": False, "changes": listed}),)

    async def _reset(self, reason: str, asked: str) -> Sequence[bytes]:
        return await self._answer_reset(await self._begin(), reason, asked)

    async def _answer_reset(self, start: Start, reason: str, asked: str) -> Sequence[bytes]:
        answer: dict[str, Any] = {
            "version": version_text(self._feed.log.boot, start.number),
            "reset": True,
            **reset_data(reason, self._feed, asked),
            "changes": [],
        }
        return (_encode(answer)[:-1] + b',"snapshot":', *await self._body_of(start), b"}")

    async def _begin(self) -> Start:
        await self._feed.begin(self._subscription)
        start = self._subscription.take_start()
        assert start is not None, "the feed has just set it"
        return start

    async def _body_of(self, start: Start) -> Sequence[bytes]:
        pieces = snapshot_of(self._feed, self._subscription, start, self._problems)
        return [chunk async for chunk in in_turns(pieces)]


def number_of(min_version: str, boot: str) -> int:
    """Returns the number of a version of this process; raises ProblemError."""
    try:
        own, number = parse_version(min_version)
    except ValueError as e:
        raise refused(422, "must be <boot>-<n>, as the ids of changes are", place=_PLACE) from e
    if own != boot:
        raise refused(412, f"{min_version} belongs to another process; this one is {boot}", place=_PLACE)
    return number
