"""The differences of two snapshots as events; and snapshots in pieces."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from client_core import MetadataCache
from service.admission.caller import ANYONE
from service.watch.changes import PARTITIONS_PER_EVENT, PIECE, Change, changes_between
from service.watch.event_stream import in_turns
from service.watch.snapshot import TopicTexts, snapshot_pieces, topic_pieces
from service.watch.subscription import ChangeLog, Start, Subscription
from tests.support.event_stream import KnownCluster
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import NativeApp
from tests.support.metadata_responses import node, partition, topic

AT = "2026-01-31T09:26:53.589Z"


def topics(count: int, partitions: int, *, leader: int = 1, epoch: int = 0) -> list[Any]:
    return [
        topic(f"t{t}", [partition(p, leader=leader, epoch=epoch, replicas=(1, 2)) for p in range(partitions)])
        for t in range(count)
    ]


def two(before: Any, after: Any) -> tuple[MetadataCache, MetadataCache]:
    """The snapshots of two refreshes."""
    producer = FakeProducer()
    producer.set_topics(before)
    earlier = producer.cache
    producer.set_topics(after)
    return earlier, producer.cache


def reported(before: MetadataCache, after: MetadataCache) -> list[tuple[str, Any]]:
    found = [change for change in changes_between(before, after, AT) if change is not None]
    return [(change.event, json.loads(change.data)) for change in found]


def test_a_snapshot_differs_from_itself_in_nothing() -> None:
    before, after = two({"orders": 3}, {"orders": 3})
    assert reported(before, after) == []
    assert reported(after, after) == []


def test_many_partitions_of_a_topic_are_sent_in_events_of_bounded_size() -> None:
    before, after = two(topics(1, 1_250), topics(1, 1_250, leader=2, epoch=1))
    events = reported(before, after)
    assert {event for event, _ in events} == {"leader"}
    sizes = [len(data["partitions"]) for _, data in events]
    assert max(sizes) == 100, "docs/watch.md says so"
    assert sum(sizes) == 1_250
    assert [p["partition"] for _, data in events for p in data["partitions"]] == list(range(1_250))


def test_the_comparison_pauses_after_each_piece_of_work() -> None:
    before, after = two(topics(1, 4 * PIECE), topics(1, 4 * PIECE, leader=2, epoch=1))
    events_since_a_pause = longest = pauses = 0
    for change in changes_between(before, after, AT):
        events_since_a_pause = 0 if change is None else events_since_a_pause + 1
        longest = max(longest, events_since_a_pause)
        pauses += change is None
    assert pauses >= 4
    assert longest * PARTITIONS_PER_EVENT <= PIECE


def test_topics_that_did_not_change_are_passed_over_with_pauses() -> None:
    before, after = two(topics(3 * PIECE, 1), topics(3 * PIECE, 1))
    steps = list(changes_between(before, after, AT))
    assert steps.count(None) == len(steps)
    assert len(steps) == 3 + 3, "of the topics now, and of those before"


def test_a_topic_that_lost_partitions_begins_anew_under_its_own_word() -> None:
    before, after = two(topics(1, 3), topics(1, 2))
    first, second = reported(before, after)
    assert (first[1]["change"], first[1]["partition_count"]) == ("shrank", 2)
    assert [p["partition"] for p in second[1]["partitions"]] == [0, 1]


def test_brokers_that_are_mere_addresses_do_not_join_or_leave() -> None:
    producer = FakeProducer()
    before = producer.cache
    producer.set_topics({})
    events = reported(before, producer.cache)
    assert [(data["change"], data["broker"]["id"]) for _, data in events] == [
        ("joined", 1),
        ("joined", 2),
        ("joined", 3),
    ]


# -- the log -------------------------------------------------------------------------------------------------


def log_of(changes: int, *, max_changes: int = 100, max_bytes: int = 1_000_000) -> ChangeLog:
    log = ChangeLog("boot", max_changes, max_bytes)
    for _ in range(changes):
        log.append(Change("leader", "orders", b"{}"))
    return log


def test_a_change_is_a_server_sent_event_with_its_number() -> None:
    (change,) = log_of(1).after(0) or []
    assert change.frame == b"event: leader\nid: boot-1\ndata: {}\n\n"
    assert change.data == b"{}"


def test_the_log_gives_what_came_after_a_number() -> None:
    log = log_of(5)
    assert [change.number for change in log.after(3) or []] == [4, 5]
    # After the last there is nothing, and one that was not given yet leads nowhere.
    assert [log.after(number) for number in (5, 6, 1_000_000)] == [[], None, None]
    log.begin_anew()  # nobody resumes from before that
    assert [log.after(number) for number in (5, 6)] == [None, []]


def test_who_resumes_needs_no_snapshot_any_more() -> None:
    subscription = Subscription(log_of(5), ANYONE, None, 10)
    subscription.begin_at(Start(MetadataCache.empty(), 5, "cluster_changed"))
    assert subscription.resume(5) == []
    assert subscription.take_start() is None


def test_a_watcher_of_one_topic_may_be_no_more_changes_behind_than_one_of_all() -> None:
    for names in (None, frozenset({"nope"})):
        log = log_of(5)
        subscription = Subscription(log, ANYONE, names, 2)
        for _ in range(3):
            log.append(Change("topic", "orders", b"{}"))
        assert subscription.take() is None, names


def test_the_log_is_bounded_in_number_and_in_bytes() -> None:
    for log in (log_of(1_000, max_changes=40), log_of(1_000, max_bytes=40 * 36)):
        assert 20 <= len(log) <= 40
        assert log.number == 1_000
        assert log.after(0) is None
        assert [change.number for change in log.after(999) or []] == [1_000]
    assert len(log_of(9, max_bytes=9 * 35)) == 9
    assert len(log_of(41, max_changes=40)) == 31, "a quarter is dropped at once"


def test_one_change_larger_than_the_log_is_numbered_and_not_kept() -> None:
    log = log_of(0, max_bytes=10)
    log.append(Change("leader", "orders", b"{}" * 100))
    assert (len(log), log.number) == (0, 1)
    assert log.after(0) is None
    assert log.after(1) == []


# -- snapshots -----------------------------------------------------------------------------------------------


def test_a_topic_in_pieces_is_one_json_object() -> None:
    for partitions in (1, PIECE, PIECE + 1, 3 * PIECE):
        producer = FakeProducer()
        producer.set_topics(topics(1, partitions))
        table = producer.cache.topics["t0"]
        whole = json.loads(b"".join(topic_pieces(table)))
        assert [p["partition"] for p in whole["partitions"]] == list(range(partitions))
        assert b"".join(TopicTexts().of(table)) == b"".join(topic_pieces(table))


def test_a_topics_text_is_made_once_for_all_watchers_until_it_changes() -> None:
    producer = FakeProducer()
    producer.set_topics(topics(2, 2))
    texts = TopicTexts()
    (first,) = texts.of(producer.cache.topics["t0"])
    (other,) = texts.of(producer.cache.topics["t1"])
    (again,) = texts.of(producer.cache.topics["t0"])
    assert again is first != other
    producer.set_topics(topics(2, 2, leader=2, epoch=1))
    (changed,) = texts.of(producer.cache.topics["t0"])
    assert changed != first


def test_the_texts_of_topics_are_kept_up_to_a_size_in_all() -> None:
    producer = FakeProducer()
    producer.set_topics(topics(2, 2))
    before = producer.cache.topics
    producer.set_topics(topics(2, 2, leader=2, epoch=1))
    size = len(b"".join(topic_pieces(before["t0"])))
    for max_bytes, is_kept in ((2 * size, True), (2 * size - 1, False)):
        texts = TopicTexts(max_bytes)
        made = [list(texts.of(table)) for table in (before["t0"], before["t1"], producer.cache.topics["t1"])]
        assert [len(text) for (text,) in made] == [size] * 3
        (again,) = texts.of(before["t0"])
        assert (again is made[0][0]) == is_kept


async def test_pieces_are_joined_into_writes_and_others_have_their_turn_after_each() -> None:
    had_turn: list[int] = []
    written: list[tuple[int, int]] = []
    async for chunk in in_turns([bytes(32 * 1024)] * 5):
        written.append((len(chunk) // 1024, len(had_turn)))
        asyncio.get_running_loop().call_soon(had_turn.append, 1)
    assert written == [(64, 0), (64, 1), (32, 2)]


def test_a_snapshot_says_what_the_api_says() -> None:
    web = NativeApp()
    lagging = partition(0, leader=1, epoch=4, replicas=(1, 2), isr=(1,), offline=(2,), error=9)
    leaderless = partition(0, leader=None, epoch=None, replicas=(1, 2), error=5)
    web.producer.set_topics([topic("orders", [lagging]), topic("payments", [leaderless])])
    snapshot = snapshot_of(web.producer.cache)
    for found in snapshot["topics"]:
        answer = web.get(f"/v1/topics/{found['name']}").json()
        for one in answer["partitions"]:
            one["leader"] = None if one["leader"] is None else one["leader"]["id"]
        assert found == answer
    cluster = {"cluster_id": snapshot["cluster_id"], "brokers": snapshot["brokers"]}
    assert cluster == web.get("/v1/cluster").json()


partitions = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]),  # leader
        st.integers(0, 3),  # epoch
        st.sampled_from([(1,), (1, 2), (2, 1, 3)]),  # replicas
        st.sampled_from([1, 3]),  # how many of them are in sync
        st.sampled_from([0, 5]),  # error
    ),
    max_size=4,
)
#: A topic by its partitions, and by its number among the topics of its name.
described_topics = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(1, 2), partitions), max_size=3
)
brokers = st.dictionaries(st.integers(1, 4), st.integers(9_000, 9_001), min_size=1)
#: What a produce answer may say in between.
hint = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.integers(1, 3), st.integers(4, 9))
steps = st.lists(st.tuples(brokers, described_topics, st.none() | hint), min_size=1, max_size=4)


def snapshot_of(cache: MetadataCache) -> Any:
    subscription = Subscription(ChangeLog("boot", 1, 1), ANYONE, None, 1)
    pieces = snapshot_pieces(Start(cache, 1, None), subscription, {}, "boot", TopicTexts())
    return json.loads(b"\n".join(pieces))


def refresh(producer: FakeProducer, nodes: dict[int, int], topics: dict[str, tuple[int, Any]]) -> None:
    producer.nodes = [node(node_id, port=port) for node_id, port in nodes.items()]
    producer.set_topics(
        [
            topic(name, [numbered(n, one) for n, one in enumerate(described)], topic_id=UUID(int=which))
            for name, (which, described) in topics.items()
        ]
    )


def numbered(number: int, described: Any) -> Any:
    leader, epoch, replicas, in_sync, error = described
    isr = replicas[:in_sync]
    return partition(number, leader=leader, epoch=epoch, replicas=replicas, isr=isr, error=error)


@settings(max_examples=200)
@given(steps)
def test_a_snapshot_and_the_changes_after_it_are_the_next_snapshot(history: Any) -> None:
    producer = FakeProducer()
    refresh(producer, {1: 9_000}, {})
    known = KnownCluster(snapshot_of(producer.cache))
    for nodes, topics, named in history:
        before = producer.cache
        refresh(producer, nodes, topics)
        if named is not None and named[1] < len(topics.get(named[0], (0, []))[1]):
            producer.name_leader(*named)
        for change in changes_between(before, producer.cache, "now"):
            if change is not None:
                known.apply(change.event, json.loads(change.data))
        assert known == KnownCluster(snapshot_of(producer.cache))
