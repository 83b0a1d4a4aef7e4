"""The feed: one post per swap, rounds in slices, and nothing at all while nobody watches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from client_core import NO_EVENTS, LeadersChanged, MetadataRefreshed, NodeReady
from service.watch.notice import SnapshotNotice
from tests.support.coroutine_tests import run, until
from tests.support.event_stream import watching
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import partition, topic

if TYPE_CHECKING:
    from collections.abc import Callable

REFRESHED = MetadataRefreshed("manual", 2, 2, False, 1, 1, 1, 0, "cluster")


def topics(count: int, partitions: int, epoch: int = 0) -> list[Any]:
    return [
        topic(f"t{t}", [partition(p, leader=1, epoch=epoch, replicas=(1,)) for p in range(partitions)])
        for t in range(count)
    ]


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


def test_events_of_other_kinds_are_not_posted() -> None:
    posted: list[Callable[[], None]] = []
    notice = SnapshotNotice()
    notice.begin(posted.append, lambda: None)
    notice.emit(NodeReady(1))
    assert not posted


def test_nothing_is_posted_while_nobody_watches() -> None:
    posted: list[Callable[[], None]] = []
    notice = SnapshotNotice()
    notice.emit(REFRESHED)
    notice.begin(posted.append, lambda: None)
    notice.end()
    notice.emit(REFRESHED)
    assert not posted


def test_a_swap_after_the_loop_was_closed_is_nobodys_business() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    notice = SnapshotNotice()
    notice.begin(closed.call_soon_threadsafe, lambda: None)
    notice.emit(REFRESHED)


# -- rounds --------------------------------------------------------------------------------------------------


async def test_others_have_their_turn_while_many_partitions_are_compared() -> None:
    web = HttpApp()
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
    web = HttpApp()
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


async def test_what_changes_in_the_middle_of_a_round_is_told_behind_it() -> None:
    web = HttpApp()
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


async def test_a_watcher_begins_with_what_the_client_knows_even_if_nobody_told_of_it() -> None:
    web = HttpApp()
    web.producer.set_topics(topics(1, 1))
    async with watching(web.app, "/v1/watch") as first:
        await first.next("snapshot")
        web.producer.events = NO_EVENTS
        web.producer.set_topics(topics(1, 1, epoch=3))
        async with watching(web.app, "/v1/watch") as second:
            snapshot = await second.next("snapshot")
            assert snapshot.data["topics"][0]["partitions"][0]["leader_epoch"] == 3
            assert (await first.next("leader")).last_id == snapshot.last_id


def test_a_hundred_watchers_are_told_the_same_bytes() -> None:
    web = HttpApp()
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
    web = HttpApp(watch_linger_ms=0)
    web.producer.set_topics(topics(1, 1))

    async def scenario() -> None:
        async with watching(web.app, "/v1/watch") as watch:
            await watch.next("snapshot")
        await asyncio.sleep(0)

    run(scenario())
    run(scenario())
    assert web.app.sidecar.feed.log.number == 2
