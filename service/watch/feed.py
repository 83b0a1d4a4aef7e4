"""Compares the client's snapshots while there are watchers, and logs each change once for all of them.

    I/O thread      swaps a snapshot ──▶ SnapshotNotice ──▶ one call on the loop
    event loop      a round: compares the last reported snapshot with the present one, in slices; each change
                    is numbered and logged once; watchers are woken after each slice
    watchers        read from the log, each at its own pace (`subscription.py`)

Changes come from snapshots only, whatever replaced them: a refresh, or a produce response that names a
leader. A watcher starts between two rounds, with a snapshot and the number of the change that led to it. The
feed stops `linger_ms` after the last watcher left; a later watcher starts from a new snapshot.

Topics that are watched by name stay in the client's metadata, or are looked up until they exist. The client
drops unused topics, so each new snapshot marks the watched ones as used. Topics that the brokers do not know
are looked up again every `look_up_ms`, those of all watchers in one look-up. As in any look-up they are not
created, and they count against the limit of unknown names. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, NamedTuple

from client_core import MetadataCache
from service.admission.admission_control import FAIR_SHARE, is_one_too_many
from service.admission.caller import Caller
from service.admission.drain import Drain
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.topic_names import fault_of_topic_name
from service.lookup.lookups import NO_DEMANDS, Lookups
from service.watch.changes import changes_between
from service.watch.notice import SnapshotNotice
from service.watch.snapshot import TopicTexts
from service.watch.subscription import ChangeLog, Start, Subscription
from service.wire.asgi import Message
from service.wire.errors import Problem, ProblemError
from service.wire.freshness import rfc3339

#: How long a round runs before it yields to the event loop: short, so that look-ups are not delayed.
SLICE_S: Final = 0.002
#: Watchers that are woken in one turn of the event loop. One takes some 0.1 ms to read and write its changes.
WOKEN_AT_ONCE: Final = 32

#: Missing topics of one look-up: those of one watcher. Each that is refused costs some 10 µs.
LOOKED_UP_AT_ONCE: Final = 1_000

#: The reason for a new start that the watcher did not request.
CLUSTER_CHANGED: Final = "cluster_changed"


_log: Final = logging.getLogger(__name__)


class WatchedTopics:
    """The watched names, and the number of watchers of each."""

    def __init__(self, producer: Producer, lookups: Lookups, look_up_ms: int) -> None:
        self._producer = producer
        self._lookups = lookups
        self._look_up_ms = look_up_ms
        #: In the order in which they will be looked up.
        self._watchers: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def add(self, names: Iterable[str]) -> None:
        """Adds one watcher of these names."""
        added = [name for name in names if fault_of_topic_name(name) is None]
        self._watchers.update(added)
        self._touch(added)
        self._ask_later()

    def remove(self, names: Iterable[str]) -> None:
        """Removes one watcher of these names."""
        for name in names:
            if self._watchers[name] > 1:
                self._watchers[name] -= 1
            else:
                self._watchers.pop(name, None)

    def touch(self) -> None:
        """Marks the watched topics as used, after a new snapshot."""
        self._touch(self._watchers)

    def _touch(self, names: Iterable[str]) -> None:
        topics = self._producer.cache.topics
        for name in names:
            table = topics.get(name)
            if table is not None:
                table.use.touched = True

    def begin_anew(self) -> None:
        """Resets for another event loop: timers and tasks of the old loop never run."""
        self._watchers.clear()
        self._timer = self._asking = None

    # -- asking ----------------------------------------------------------------------------------------------

    def _ask_later(self) -> None:
        if self._timer is None and self._asking is None and self._watchers:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._look_up_ms / 1000, self._begin_to_ask)

    def _begin_to_ask(self) -> None:
        self._timer = None
        missing = self._next_missing()
        if missing:
            self._asking = asyncio.get_running_loop().create_task(self._ask(missing))
        else:
            self._ask_later()

    def _next_missing(self) -> list[str]:
        topics = self._producer.cache.topics
        return list(islice((name for name in self._watchers if name not in topics), LOOKED_UP_AT_ONCE))

    async def _ask(self, missing: list[str]) -> None:
        """Looks topics up; goes on with the next ones at once while some are found, as after an outage."""
        try:
            while missing:
                problems = await self._lookups.know(missing, NO_DEMANDS, never_disconnects)
                for name in missing:
                    if name in self._watchers and (name not in problems or problems[name].status != 429):
                        self._watchers[name] = self._watchers.pop(name)
                missing = self._next_missing() if len(problems) < len(missing) else []
        except ProblemError as e:
            _log.debug("topics that are watched could not be looked up: %s", e.problem.detail)
        finally:
            self._asking = None
            self._ask_later()  # also after a failure: nothing else repeats the look-up


async def never_disconnects() -> Message:
    """A `receive` for look-ups that no caller ends: they are for all watchers, or end with their task."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable: the future never completes")


class _Beginner(NamedTuple):
    """A watcher that waits for the end of a round to start."""

    subscription: Subscription
    reason: str | None
    begun: asyncio.Future[None]


class ChangeFeed:
    """The log of changes, and the watchers that read it."""

    def __init__(
        self,
        producer: Producer,
        lookups: Lookups,
        drain: Drain,
        settings: Settings,
        boot: str,
        notice: SnapshotNotice,
    ) -> None:
        """`notice` must be one of the client's event sinks."""
        internal = settings.internal
        self.log: Final = ChangeLog(boot, internal.watch_history_events, internal.watch_history_bytes)
        self.texts: Final = TopicTexts()
        self._producer = producer
        self._topics = WatchedTopics(producer, lookups, internal.watch_look_up_ms)
        self._drain = drain
        self._notice = notice
        self._max_watchers = settings.max_watchers
        self._max_behind = internal.watch_queue_events
        self._linger_ms = internal.watch_linger_ms
        #: The loop that the feed runs on; None while it is stopped.
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The number of the last change that watchers were woken for.
        self._woken_for = 0
        #: The snapshot after the last logged change.
        self._reported = MetadataCache.empty()
        self._subscriptions: set[Subscription] = set()
        self._by_caller: Counter[str] = Counter()
        self._beginners: list[_Beginner] = []
        self._round: asyncio.Task[None] | None = None
        self._rest: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return len(self._subscriptions)

    # -- coming and going ------------------------------------------------------------------------------------

    @contextmanager
    def subscribe(self, caller: Caller, names: frozenset[str] | None) -> Iterator[Subscription]:
        """Yields a watcher's subscription, which ends with the block. Raises ProblemError (429) at a limit.

        `names` None: all topics. The subscription gets nothing before `begin`, or before its `resume`.
        """
        self._check_room(caller)
        self._wake_up()
        subscription = Subscription(self.log, caller, names, self._max_behind)
        readable, _ = caller.split(names or ())
        self._subscriptions.add(subscription)
        self._by_caller[caller.name] += 1
        self._topics.add(readable)
        self._drain.listen(subscription.end)
        try:
            yield subscription
        finally:
            self._drain.unlisten(subscription.end)
            self._topics.remove(readable)
            self._subscriptions.discard(subscription)
            self._by_caller[caller.name] -= 1
            self._by_caller = +self._by_caller
            self._rest_later()

    async def begin(self, subscription: Subscription, reason: str | None = None) -> None:
        """Starts a watcher with the present snapshot; `reason`: why it starts again, if it does."""
        if self._round is None and self._producer.cache is self._reported:
            subscription.begin_at(Start(self._reported, self.log.number, reason))
            return
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beginners.append(_Beginner(subscription, reason, begun))
        self._begin_round()
        await begun

    def _check_room(self, caller: Caller) -> None:
        most, own = self._max_watchers, caller.max_waiting_requests
        if len(self._subscriptions) >= most:
            raise _full(f"{most} watchers are connected already (max_watchers)")
        if own is not None and self._by_caller[caller.name] >= own:
            raise _full(f"{own} watchers of {caller.name} are connected already")
        if is_one_too_many(caller, self._by_caller[caller.name], len(self._subscriptions), most):
            raise _full(
                f"{self._by_caller[caller.name]} watchers of {caller.name} are connected already: "
                f"{FAIR_SHARE}"
            )

    def _wake_up(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop = loop
        self._round = None
        self._beginners.clear()
        self._topics.begin_anew()
        # Before the snapshot is read: a swap in between is in that snapshot, and a later one is notified.
        self._notice.begin(loop.call_soon_threadsafe, self._begin_round)
        self._reported = self._producer.cache
        self.log.begin_anew()
        self._woken_for = self.log.number

    def _rest_later(self) -> None:
        if not self._subscriptions and self._loop is not None:
            self._rest = self._loop.call_later(self._linger_ms / 1000, self._rest_now)

    def _rest_now(self) -> None:
        self._notice.end()
        if self._round is not None:
            self._round.cancel()
        self._loop = self._rest = None
        self._reported = MetadataCache.empty()
        self.texts.clear()

    # -- rounds ----------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        """Starts a round, for a new snapshot or a waiting watcher."""
        if self._round is None and self._loop is not None:
            self._round = self._loop.create_task(self._rounds())

    async def _rounds(self) -> None:
        """Runs rounds until the present snapshot is reported; waiting watchers start after a round."""
        beginners: list[_Beginner] = []
        try:
            while self._beginners or self._producer.cache is not self._reported:
                # In one step with the snapshot, so that it is not older than their requests.
                beginners, self._beginners = self._beginners, []
                await self._report(self._producer.cache)
                for subscription, reason, begun in beginners:
                    if not begun.done():
                        subscription.begin_at(Start(self._reported, self.log.number, reason))
                        begun.set_result(None)
        finally:
            if self._round is asyncio.current_task():
                self._round = None
                # Also those who came meanwhile: who knows when the next round begins?
                beginners, self._beginners = [*beginners, *self._beginners], []
            for _, _, begun in beginners:
                if not begun.done():
                    begun.set_exception(RuntimeError("the snapshots could not be compared"))

    async def _report(self, present: MetadataCache) -> None:
        """Logs the changes from the last reported snapshot to the present one."""
        if present is self._reported:
            return
        self._topics.touch()
        if present.cluster_id != self._reported.cluster_id:
            self._report_cluster(present)
            await self._wake_watchers()
            return
        loop = asyncio.get_running_loop()
        at = rfc3339(self._producer.clock.wall_ms())
        slice_ends = loop.time() + SLICE_S
        for change in changes_between(self._reported, present, at):
            if change is not None:
                self.log.append(change)
            if loop.time() >= slice_ends:
                await self._wake_watchers()
                await asyncio.sleep(0)
                slice_ends = loop.time() + SLICE_S
        self._reported = present
        await self._wake_watchers()

    def _report_cluster(self, present: MetadataCache) -> None:
        """Starts all watchers again: this is another cluster, or the first that has answered."""
        self._reported = present
        self.log.begin_anew()
        start = Start(present, self.log.number, CLUSTER_CHANGED)
        for subscription in self._subscriptions:
            subscription.begin_at(start)

    async def _wake_watchers(self) -> None:
        """Wakes all watchers if there are new changes.

        Few in a turn of the event loop: each reads and writes in the next one.
        """
        last = self.log.number
        if last == self._woken_for:
            return
        for number, subscription in enumerate(list(self._subscriptions), 1):
            subscription.wake()
            if number % WOKEN_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._woken_for = last


def _full(detail: str) -> ProblemError:
    return ProblemError(Problem(429, f"{detail}; try again later", retriable=True, written="no"))
