"""The feed: one post per swap, rounds in slices, and watchers over real sockets with small buffers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from client_core import NO_EVENTS, LeadersChanged, MetadataRefreshed, NodeReady
from service.admission.caller import ANYONE
from service.lookup.lookups import Lookups
from service.watch.feed import CLUSTER_CHANGED, LOOKED_UP_AT_ONCE, WOKEN_AT_ONCE, WatchedTopics
from service.watch.notice import SnapshotNotice
from service.wire.errors import Problem
from tests.support.coroutine_tests import PATIENCE_S, run, until
from tests.support.event_stream import EventReader, watching
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import NativeApp
from tests.support.metadata_responses import partition, topic
from tests.support.served import LOOPS, Caller, Served, limits, on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from service.admission.caller import Caller as Caller_
    from service.lookup.lookups import Demands
    from service.watch.subscription import Subscription
    from service.wire.asgi import Receive
    from tests.support.event_stream import ServerSentEvent

REFRESHED = MetadataRefreshed("manual", 2, 2, False, 1, 1, 1, 0, "cluster")


def topics(count: int, partitions: int, epoch: int = 0) -> list[Any]:
    return [
        topic(f"t{t}", [partition(p, leader=1, epoch=epoch, replicas=(1,)) for p in range(partitions)])
        for t in range(count)
    ]


# -- watched topics that do not exist ------------------------------------------------------------------------


class Asked(Lookups):
    """Look-ups that find all topics but the `missing` ones, and note what they were asked for."""

    def __init__(self, producer: FakeProducer, missing: set[str]) -> None:
        self._fake = producer
        self._missing = missing
        self.asked: list[int] = []

    async def know(
        self, topics: Iterable[str], demands: Demands, receive: Receive, caller: Caller_ = ANYONE
    ) -> dict[str, Problem]:
        names = list(topics)
        self.asked.append(len(names))
        found = [name for name in names if name not in self._missing]
        known = [*self._fake.cache.topics, *found]
        self._fake.set_topics([topic(name, [partition(0, leader=1)]) for name in known])
        return {name: Problem(404, "missing") for name in names if name in self._missing}


@pytest.mark.parametrize(
    ("missing", "exist", "asked"),
    [(5_000, 0, [1_000] * 2), (500, 2_000, [1_000, 1_000, 500, 500]), (0, 2_500, [1_000, 1_000, 500])],
)
async def test_missing_topics_of_many_watchers_are_looked_up_in_parts(
    missing: int, exist: int, asked: list[int]
) -> None:
    """All at once would keep the event loop for seconds, where a hundred watchers name a thousand each."""
    assert LOOKED_UP_AT_ONCE == 1_000
    producer = FakeProducer()
    names = [f"here-{n}" for n in range(exist)] + [f"none-{n}" for n in range(missing)]
    lookups = Asked(producer, set(names[exist:]))
    watched = WatchedTopics(producer, lookups, look_up_ms=1)
    watched.add(names)
    await until(lambda: len(lookups.asked) >= len(asked))
    watched.remove(names)
    assert lookups.asked[: len(asked)] == asked


async def test_a_topic_is_looked_up_until_its_last_watcher_has_left() -> None:
    lookups = Asked(FakeProducer(), {"none"})
    watched = WatchedTopics(FakeProducer(), lookups, look_up_ms=1)
    watched.add(["none"])
    watched.add(["none"])
    watched.remove(["none", "never-watched"])
    await until(lambda: lookups.asked)
    watched.remove(["none"])
    assert not watched._next_missing()


# -- the notice ----------------------------------------------------------------------------------------------


def test_a_refresh_is_posted_once_however_much_it_changes() -> None:
    posted: list[Callable[[], None]] = []
    heard: list[int] = []
    notice = SnapshotNotice()
    notice.begin(posted.append, lambda: heard.append(1))
    for number in range(1_000):
        notice.emit(LeadersChanged(f"orders-{number}", [(0, (1, 2), (2, 3))]))
    notice.emit(REFRESHED)
    assert len(posted) == 1
    posted[0]()
    assert heard == [1]
    notice.emit(REFRESHED)
    assert len(posted) == 2, "what comes after the loop took notice is posted again"


def test_events_of_other_kinds_are_not_posted_and_none_is_without_watchers() -> None:
    posted: list[Callable[[], None]] = []
    notice = SnapshotNotice()
    notice.emit(REFRESHED)
    notice.begin(posted.append, lambda: None)
    notice.emit(NodeReady(1))
    notice.end()
    notice.emit(REFRESHED)
    assert not posted


def test_a_swap_after_the_loop_was_closed_is_nobodys_business() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    notice = SnapshotNotice()
    notice.begin(closed.call_soon_threadsafe, lambda: None)
    notice.emit(REFRESHED)


def test_a_swap_while_the_loop_takes_notice_is_posted_again() -> None:
    posted: list[Callable[[], None]] = []
    notice = SnapshotNotice()
    notice.begin(posted.append, lambda: notice.emit(REFRESHED))
    notice.emit(REFRESHED)
    posted[0]()
    assert len(posted) == 2


def test_a_notice_that_a_loop_never_took_does_not_keep_the_next_loop_from_it() -> None:
    posted: list[Callable[[], None]] = []
    notice = SnapshotNotice()
    notice.begin(lambda _: None, lambda: None)
    notice.emit(REFRESHED)
    notice.begin(posted.append, lambda: None)
    notice.emit(REFRESHED)
    assert len(posted) == 1


def test_a_swap_that_could_not_be_posted_does_not_keep_the_next_one_from_it() -> None:
    posted: list[Callable[[], None]] = []

    def post(call: Callable[[], None]) -> None:
        posted.append(call)
        if len(posted) == 1:
            raise MemoryError("no room for a handle")

    notice = SnapshotNotice()
    notice.begin(post, lambda: None)
    with pytest.raises(MemoryError):
        notice.emit(REFRESHED)
    notice.emit(REFRESHED)
    assert len(posted) == 2


# -- rounds --------------------------------------------------------------------------------------------------


async def test_others_have_their_turn_while_many_partitions_are_compared() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(2, 10_000))
    async with watching(web.app, "/v1/watch?topics=none") as watch:
        await until(lambda: web.producer.waiting)
        web.producer.say_unknown(web.producer.waiting[0])
        await watch.next("snapshot")
        feed = web.app.sidecar.feed
        before = feed.log.number
        web.producer.set_topics(topics(2, 10_000, epoch=1))
        turns = 0
        while feed.log.number < before + 200:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        assert not watch.events


async def test_a_watcher_that_comes_in_the_middle_of_a_round_begins_after_it() -> None:
    """With a snapshot that has all of the round's changes, and none of them again."""
    web = NativeApp()
    web.producer.set_topics(topics(2, 5_000))
    async with watching(web.app, "/v1/watch?topics=t0") as first:
        await first.next("snapshot")
        feed = web.app.sidecar.feed
        web.producer.set_topics(topics(2, 5_000, epoch=1))
        await until(lambda: feed.log.number > 1)
        assert feed.log.number < 101
        async with watching(web.app, "/v1/watch?topics=t1") as second:
            snapshot = await second.next("snapshot")
            assert snapshot.last_id.endswith("-101")
            partitions = snapshot.data["topics"][0]["partitions"]
            assert {found["leader_epoch"] for found in partitions} == {1}
            web.producer.set_topics([*topics(1, 5_000, epoch=1), topic("t1", [partition(0, leader=1)])])
            assert (await second.next("topic")).data["change"] == "shrank"


async def test_a_change_in_the_middle_of_a_round_is_sent_after_it() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(2, 5_000))
    async with watching(web.app, "/v1/watch?topics=late") as watch:
        await until(lambda: web.producer.waiting)
        web.producer.say_unknown(web.producer.waiting[0])
        await watch.next("snapshot")
        feed = web.app.sidecar.feed
        before = feed.log.number
        changed = topics(2, 5_000, epoch=1)
        web.producer.set_topics(changed)
        await until(lambda: feed.log.number > before)
        assert feed.log.number < before + 100
        web.producer.set_topics([*changed, topic("late", [partition(0, leader=1)])])
        assert (await watch.next("topic")).data["change"] == "appeared"


async def test_a_watcher_begins_with_what_the_client_knows_even_before_any_notification() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(1, 1))
    async with watching(web.app, "/v1/watch") as first:
        await first.next("snapshot")
        web.producer.events = NO_EVENTS
        web.producer.set_topics(topics(1, 1, epoch=3))
        async with watching(web.app, "/v1/watch") as second:
            snapshot = await second.next("snapshot")
            assert snapshot.data["topics"][0]["partitions"][0]["leader_epoch"] == 3
            assert (await first.next("leader")).last_id == snapshot.last_id


async def test_a_watcher_who_waits_for_a_round_that_fails_gets_an_error_and_may_come_again() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(1, 1))
    feed = web.app.sidecar.feed
    with feed.subscribe(ANYONE, None) as subscription:
        web.producer.events = NO_EVENTS
        web.producer.set_topics(topics(1, 1, epoch=1))
        web.producer.clock.advance(1 << 60)  # no time that can be written
        with pytest.raises(RuntimeError, match="could not be compared"):
            await feed.begin(subscription)
        web.producer.clock.advance(-(1 << 60))
        await feed.begin(subscription)
        assert subscription.take_start() is not None


async def test_a_watcher_who_comes_in_the_middle_of_a_round_that_fails_gets_an_error_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory() -> None:
        raise MemoryError

    web = NativeApp()
    web.producer.set_topics(topics(2, 5_000))
    feed = web.app.sidecar.feed
    with feed.subscribe(ANYONE, None) as first, feed.subscribe(ANYONE, None) as second:
        await feed.begin(first)
        before = feed.log.number
        web.producer.set_topics(topics(2, 5_000, epoch=1))
        beginning = asyncio.create_task(feed.begin(first))
        await until(lambda: feed.log.number > before)
        assert not beginning.done()
        late = asyncio.create_task(feed.begin(second))
        await asyncio.sleep(0)
        monkeypatch.setattr(first, "wake", no_memory)
        for task in (beginning, late):
            with pytest.raises(RuntimeError, match="could not be compared"):
                await task


def test_a_hundred_watchers_get_the_same_bytes() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(20, 50))

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(watcher())
            await until(lambda: web.app.sidecar.feed.watchers == 100)
            await asyncio.sleep(0)
            web.producer.set_topics(topics(20, 50, epoch=1))
        frames = {bytes(raw[raw.index(b"event: leader") :]) for raw in reported}
        assert len(frames) == 1
        assert frames.pop().count(b"event: leader") == 20

    reported: list[bytes] = []

    async def watcher() -> None:
        async with watching(web.app, "/v1/watch") as watch:
            await watch.next("snapshot")
            for _ in range(20):
                await watch.next("leader")
            reported.append(watch.raw)

    run(scenario())


def test_a_feed_that_rests_holds_nothing_and_wakes_up_on_another_loop() -> None:
    web = NativeApp(watch_linger_ms=0)
    web.producer.set_topics(topics(1, 1))

    async def scenario() -> None:
        async with watching(web.app, "/v1/watch") as watch:
            await watch.next("snapshot")
        await asyncio.sleep(0)

    run(scenario())
    run(scenario())
    assert web.app.sidecar.feed.log.number == 2


async def test_a_watcher_who_comes_before_the_feed_rests_receives_changes() -> None:
    web = NativeApp(watch_linger_ms=0)
    web.producer.set_topics(topics(1, 1))
    feed = web.app.sidecar.feed
    with feed.subscribe(ANYONE, None):
        pass
    with feed.subscribe(ANYONE, None) as subscription:
        await feed.begin(subscription)
        assert subscription.take_start() is not None
        for epoch in (1, 2):  # by then the feed would rest
            await turns()
            web.producer.set_topics(topics(1, 1, epoch))
        await turns()
        assert [change.event for change in subscription.take() or ()] == ["leader", "leader"]


async def test_a_watcher_who_comes_as_the_feed_rests_in_the_middle_of_a_round_is_served() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(2, 5_000))
    feed = web.app.sidecar.feed
    with feed.subscribe(ANYONE, None) as subscription:
        await feed.begin(subscription)
        before = feed.log.number
        web.producer.set_topics(topics(2, 5_000, epoch=1))
        await until(lambda: feed.log.number > before)
    feed._rest_now()
    with feed.subscribe(ANYONE, None) as subscription:
        web.producer.set_topics(topics(2, 5_000, epoch=2))
        await feed.begin(subscription)
        assert subscription.take_start() is not None


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nobody_is_woken_by_a_refresh_that_changed_nothing() -> None:
    web = NativeApp()
    web.producer.set_topics(topics(1, 1))
    feed = web.app.sidecar.feed
    with feed.subscribe(ANYONE, None) as subscription:
        await feed.begin(subscription)
        waiting = asyncio.create_task(subscription.wait(PATIENCE_S))
        for _ in range(3):
            web.producer.set_topics(topics(1, 1))
            await turns()
        assert not waiting.done()
        web.producer.set_topics(topics(1, 1, epoch=1))
        await waiting


async def test_a_sidecar_that_runs_on_keeps_nothing_of_a_watcher_who_left() -> None:
    feed = NativeApp().app.sidecar.feed
    with feed.subscribe(ANYONE, None) as subscription:
        left = weakref.ref(subscription)
    del subscription
    gc.collect()
    assert left() is None


WATCH = b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMALL_BUFFERS = 4_096

#: More in one snapshot than the kernel's buffers and the connection's own hold.
PARTITIONS = 4_000


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def large() -> list[Any]:
    partitions = [partition(p, leader=1, replicas=(1, 2, 3)) for p in range(PARTITIONS)]
    return [topic("large", partitions)]


class Stream:
    """Reads the chunks of one answer, as events."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reader = EventReader()
        self._events: list[ServerSentEvent] = []

    async def begin(self) -> None:
        self._caller.send(WATCH)
        head = await self._caller.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    async def next(self) -> ServerSentEvent:
        while not self._events:
            size = int(await self._caller.reader.readuntil(b"\r\n"), 16)
            assert size, "the stream has ended"
            self._events += self._reader.feed((await self._caller.reader.readexactly(size + 2))[:-2])
        return self._events.pop(0)


def test_a_watcher_that_takes_nothing_is_cut_off_and_others_go_on(loop: str) -> None:
    web = NativeApp(stall_timeout_ms=1_000)
    web.producer.set_topics(large())

    async def scenario() -> None:
        feed = web.app.sidecar.feed
        async with Served(web.app, limits=limits(), send_buffer_bytes=SMALL_BUFFERS) as served:
            (await served.call(receive_buffer_bytes=SMALL_BUFFERS)).send(WATCH)
            await until(lambda: feed.watchers == 1)
            quick = Stream(await served.call())
            await quick.begin()
            assert (await quick.next()).event == "snapshot"
            await until(lambda: feed.watchers == 1)
            web.producer.set_topics([*large(), topic("new", 1, nodes=(1,))])
            assert (await quick.next()).data["change"] == "appeared"

    on_loop(loop, scenario())


def test_a_watcher_that_takes_too_little_gets_the_reason_and_resumes_where_it_was(loop: str) -> None:
    web = NativeApp(watch_queue_events=3)
    web.producer.set_topics(large())

    async def scenario() -> list[str]:
        async with Served(web.app, limits=limits(), send_buffer_bytes=SMALL_BUFFERS) as served:
            slow_caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            slow_caller.send(WATCH)
            feed = web.app.sidecar.feed
            await until(lambda: any(p.transport.get_write_buffer_size() for p in served.protocols))
            for epoch in range(1, 6):
                web.producer.set_topics([*large(), topic("small", [partition(0, leader=1, epoch=epoch)])])
                await until(lambda: feed.log.number >= 2 + epoch)  # noqa: B023 - awaited in the loop
            # With so small a window the kernel would take seconds for the rest.
            own = slow_caller.writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            await slow_caller.reader.readuntil(b"\r\n\r\n")
            slow = Stream(slow_caller)
            snapshot, end = await slow.next(), await slow.next()
            assert (snapshot.event, end.event, end.data["reason"]) == ("snapshot", "end", "too_slow")
            again = await served.call()
            again.send(WATCH[:-2] + b"Last-Event-ID: %s\r\n\r\n" % end.last_id.encode())
            head = await again.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            resumed = Stream(again)
            return [(await resumed.next()).event for _ in range(6)]

    assert on_loop(loop, scenario()) == ["topic", *["leader"] * 5]


def test_a_watcher_that_hangs_up_leaves_nothing_behind(loop: str) -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 1})

    async def scenario() -> None:
        async with Served(web.app, limits=limits()) as served:
            caller = await served.call()
            stream = Stream(caller)
            await stream.begin()
            await stream.next()
            await caller.hang_up()
            await until(lambda: web.app.sidecar.feed.watchers == 0)

    on_loop(loop, scenario())


@pytest.mark.parametrize("cluster", ["cluster", "another"])
async def test_many_watchers_are_woken_a_few_in_a_turn_of_the_loop(cluster: str) -> None:
    """So that a look-up among thousands of watchers waits for a few of them, and not for all."""
    count = 10 * WOKEN_AT_ONCE + 1
    web = NativeApp(max_watchers=count)
    web.producer.set_topics(topics(1, 1))
    feed = web.app.sidecar.feed
    woken_in: list[int] = []
    turn = 0

    async def wait(subscription: Subscription) -> None:
        await feed.begin(subscription)
        assert subscription.take_start() is not None
        await subscription.wait(PATIENCE_S)
        woken_in.append(turn)
        if cluster == "cluster":
            assert [change.event for change in subscription.take() or ()] == ["leader"]
        else:
            start = subscription.take_start()
            assert start is not None
            assert start.reason == CLUSTER_CHANGED

    with contextlib.ExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(wait(stack.enter_context(feed.subscribe(ANYONE, None))))
            await turns()
            web.producer.set_topics(topics(1, 1, epoch=1), cluster_id=cluster)
            while len(woken_in) < count:
                turn += 1
                await asyncio.sleep(0)
    assert max(Counter(woken_in).values()) == WOKEN_AT_ONCE
