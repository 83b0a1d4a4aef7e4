"""The queues of the event log, bounded and counted: events of the client's threads, and lines for a sink."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from client_core import Node
from client_core import events as e
from service.events.inbox import (
    CROWDED,
    MOST_FINISHED,
    MOST_GONE,
    MOST_NOTICES,
    MOST_SNAPSHOTS,
    EventNotice,
    Inbox,
    LeftOut,
    Notice,
    SnapshotNotice,
)
from service.events.outbox import MOST_UNREPORTED, EveryTopic, Line, Outbox, all_unreported
from tests.support.event_log_rig import finished
from tests.support.fake_producer import FakeProducer


class Desk:
    """An inbox that a fake producer's events go to, and how often it has called for help."""

    def __init__(self) -> None:
        self.calls = 0
        self.producer = FakeProducer()
        self.inbox = Inbox(self.producer.clock, self._call)
        self.inbox.follow(lambda: self.producer.cache)
        self.producer.events = self.inbox

    def _call(self) -> None:
        self.calls += 1

    def notices(self) -> list[Notice]:
        taken = []
        while (notice := self.inbox.take_notice()) is not None:
            taken.append(notice)
        return taken

    def snapshots(self) -> list[SnapshotNotice]:
        return [notice for notice in self.notices() if isinstance(notice, SnapshotNotice)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_it_wants_what_events_are_made_of_and_nothing_else(desk: Desk) -> None:
    wanted = (e.ProduceFinished, e.MetadataRefreshed, e.LeadersChanged, e.PartitionCountChanged, e.NodeReady)
    assert all(map(desk.inbox.wants, wanted))
    assert desk.inbox.wants(e.MetadataRefreshFailed)
    assert desk.inbox.wants(e.NodeDisconnected)
    assert not any(map(desk.inbox.wants, (e.RequestCompleted, e.BatchSent, e.WaitFinished, e.NodeConnecting)))
    desk.inbox.emit(e.NodeConnecting(1))
    assert desk.notices() == []


def test_batches_come_out_in_their_order_and_so_many_at_once(desk: Desk) -> None:
    for n in range(5):
        desk.inbox.emit(finished(partition=n))
    assert [event.partition for event in desk.inbox.take_finished(3)] == [0, 1, 2]
    assert [event.partition for event in desk.inbox.take_finished(3)] == [3, 4]
    assert desk.inbox.take_finished(3) == []


def test_a_crowd_of_batches_calls_the_log_once_until_it_has_come(desk: Desk) -> None:
    for _ in range(CROWDED):
        desk.inbox.emit(finished())
    assert desk.calls == 0
    for _ in range(10):
        desk.inbox.emit(finished())
    assert desk.calls == 1
    desk.inbox.take_finished(5)
    desk.inbox.emit(finished())
    assert desk.calls == 2


def test_of_too_many_batches_the_oldest_are_left_out_and_counted(desk: Desk) -> None:
    for n in range(MOST_FINISHED + 7):
        desk.inbox.emit(finished(partition=n))
    assert desk.inbox.left_out == LeftOut(batches=7, snapshots=0, notices=0)
    assert desk.inbox.take_finished(1)[0].partition == 7


def test_a_refresh_brings_the_snapshot_that_it_made_and_when(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3})
    desk.producer.clock.advance(5)
    first = desk.producer.cache
    desk.producer.set_topics({"orders": 4})
    one, other = desk.snapshots()
    assert (one.cache, other.cache) == (first, desk.producer.cache)
    assert other.wall_ms - one.wall_ms == 5
    assert one.refreshed is not None
    assert one.refreshed.update_version == first.update_version


def test_a_refresh_for_the_age_of_look_ups_brings_a_snapshot_only_where_something_changed(desk: Desk) -> None:
    def refreshed(reason: str) -> int:
        version = desk.producer.cache.update_version
        desk.inbox.emit(e.MetadataRefreshed(reason, version, 0, True, 1, 1, 3, 0, "cluster"))
        return len(desk.snapshots())

    desk.producer.events = e.NO_EVENTS
    desk.producer.set_topics({"orders": 3, "audit": 1})
    assert refreshed("expired") == 1
    desk.producer.set_topics({"orders": 3}, partial=True)
    assert refreshed("age") == 0
    assert refreshed("expired") == 1
    desk.producer.set_topics({"orders": 4}, partial=True)
    assert refreshed("age") == 1
    desk.producer.set_topics({"orders": 4})
    assert refreshed("age") == 1
    desk.producer.nodes = desk.producer.nodes[:2]
    desk.producer.set_topics({"orders": 4}, partial=True)
    assert refreshed("age") == 1
    cache = desk.producer.cache  # the same tables, with another broker
    nodes = {**cache.nodes_by_id, 7: Node(7, "new", 9092)}
    desk.producer.cache = replace(cache, cluster=replace(cache.cluster, nodes_by_id=nodes))
    assert [refreshed("age"), refreshed("age")] == [1, 0]


def test_a_produce_answer_that_names_leaders_brings_one_snapshot_without_a_refresh(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3, "refunds": 1})
    desk.notices()
    desk.producer.name_leader("orders", 0, 2, 9)
    desk.inbox.emit(e.LeadersChanged("refunds", [(0, (1, 0), (2, 1))]))
    (named,) = desk.snapshots()
    assert (named.cache is desk.producer.cache, named.refreshed) == (True, None)


def test_leaders_that_change_with_a_refresh_bring_one_snapshot(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3})
    desk.notices()
    desk.producer.nodes = desk.producer.nodes[1:]
    desk.producer.set_topics({"orders": 3}, epoch=1)
    (snapshot,) = desk.snapshots()
    assert snapshot.refreshed is not None


def test_a_topic_that_is_gone_comes_with_the_snapshot_that_lacks_it(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3, "refunds": 1})
    desk.producer.set_topics({"orders": 3})
    desk.producer.set_topics({"orders": 3})
    assert [snapshot.gone for snapshot in desk.snapshots()] == [set(), {"refunds"}, set()]


def test_of_too_many_snapshots_the_newest_wait_and_what_was_gone_is_not_forgotten(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3, "refunds": 1})
    for _ in range(MOST_SNAPSHOTS + 2):
        desk.producer.set_topics({"orders": 3})
    taken = desk.snapshots()
    assert [snapshot.cache is None for snapshot in taken] == [True] * 3 + [False] * MOST_SNAPSHOTS
    assert taken[3].gone == {"refunds"}
    assert all(snapshot.refreshed is not None for snapshot in taken)  # each refresh is written all the same
    assert desk.inbox.left_out == LeftOut(batches=0, snapshots=3, notices=0)


def test_of_topics_that_are_gone_so_many_are_remembered(desk: Desk) -> None:
    for number in range(MOST_GONE + 3):
        desk.inbox.emit(e.PartitionCountChanged(f"topic-{number}", 1, None))
    desk.producer.set_topics({"orders": 1})
    (taken,) = desk.snapshots()
    assert len(taken.gone) == MOST_GONE


def test_a_snapshot_that_was_taken_is_not_passed_over_any_more(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 1})
    taken = desk.inbox.take_notice()
    for _ in range(MOST_SNAPSHOTS):
        desk.producer.set_topics({"orders": 3})
    assert isinstance(taken, SnapshotNotice)
    assert taken.cache is not None
    assert desk.inbox.left_out.snapshots == 0


def test_failures_and_connections_are_noticed_in_their_order(desk: Desk) -> None:
    failed = e.MetadataRefreshFailed("expired", "timeout", "late", 30_000, 2)
    lost = e.NodeDisconnected(1, "closed", "it closed the connection", 50)
    for event in (e.NodeReady(1), failed, lost):
        desk.inbox.emit(event)
    wall_ms = desk.producer.clock.wall_ms()
    assert desk.notices() == [
        EventNotice(wall_ms, e.NodeReady(1)),
        EventNotice(wall_ms, failed),
        EventNotice(wall_ms, lost),
    ]


def test_of_too_many_notices_the_oldest_are_left_out_but_no_snapshot(desk: Desk) -> None:
    desk.producer.set_topics({"orders": 3})
    for n in range(MOST_NOTICES + 9):
        desk.inbox.emit(e.NodeReady(n))
    taken = desk.notices()
    assert isinstance(taken[0], SnapshotNotice)
    assert taken[1:] == [
        EventNotice(desk.producer.clock.wall_ms(), e.NodeReady(n)) for n in range(10, MOST_NOTICES + 9)
    ]
    assert desk.inbox.left_out == LeftOut(batches=0, snapshots=0, notices=10)


def line(text: str, topic: str | None = None) -> Line:
    return Line(text.encode(), topic)


def put(outbox: Outbox, *texts: str) -> None:
    for text in texts:
        outbox.put(line(text))


def test_lines_come_out_in_their_order_up_to_so_many_bytes_or_alone() -> None:
    outbox = Outbox(100)
    put(outbox, "aa", "bb", "cc", "a" * 50, "b")
    taken = [outbox.take(5) for _ in range(5)]
    assert taken == [[line("aa"), line("bb")], [line("cc")], [line("a" * 50)], [line("b")], []]


def test_the_oldest_make_room_and_a_line_that_no_outbox_holds_is_given_up_itself() -> None:
    outbox = Outbox(6)
    put(outbox, "aa", "bb", "cc", "dd")
    assert outbox.dropped == 1
    assert outbox.take(100) == [line("bb"), line("cc"), line("dd")]
    outbox = Outbox(4)
    put(outbox, "aa", "b" * 5)
    assert (len(outbox), outbox.dropped, outbox.waiting_bytes) == (0, 2, 0)


def test_half_of_it_is_kept_for_what_can_not_wait() -> None:
    outbox = Outbox(10)
    put(outbox, "aaaa")
    assert outbox.has_room
    put(outbox, "a")
    assert not outbox.has_room


def test_lines_that_are_put_back_are_the_oldest_again() -> None:
    outbox = Outbox(6)
    put(outbox, "aa", "bb", "cc")
    taken = outbox.take(4)
    put(outbox, "dd")
    outbox.put_back(taken)
    assert outbox.dropped == 1
    assert outbox.take(100) == [line("bb"), line("cc"), line("dd")]


def test_the_topic_of_a_lost_line_is_written_once_there_is_room() -> None:
    outbox = Outbox(6)
    for text, topic in (("aa", "orders"), ("bb", None), ("cc", "refunds"), ("dd", "orders")):
        outbox.put(line(text, topic))
    assert outbox.take_unreported() == set()  # there is no room yet
    outbox.lose(outbox.take(100)[1:2])
    assert outbox.take_unreported() == {"orders", "refunds"}
    assert outbox.take_unreported() == set()
    assert outbox.dropped == 2


def test_where_lines_of_too_many_topics_were_lost_all_topics_are_written_anew() -> None:
    outbox = Outbox(6)
    outbox.lose(line("a", f"topic-{number}") for number in range(MOST_UNREPORTED + 1))
    assert isinstance(outbox._unreported, EveryTopic)  # and no names are kept
    unreported = all_unreported([outbox.take_unreported(), {"orders"}])
    assert {"topic-0" in unreported, "never-heard-of" in unreported} == {True}
    assert outbox.take_unreported() == set()
    assert all_unreported([{"orders"}, set(), {"refunds"}]) == {"orders", "refunds"}


class AnyOutbox(RuleBasedStateMachine):
    """For any puts, takes and returns: the bound holds, and each lost line is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(40)
        self.count = 0
        self.taken: list[Line] = []
        self.gone = 0

    @rule(length=st.integers(0, 60))
    def put(self, length: int) -> None:
        self.count += 1
        self.outbox.put(line(f"{self.count:03d}{'.' * length}"))

    @rule(most=st.integers(0, 80))
    def take(self, most: int) -> None:
        self.taken += self.outbox.take(most)

    @rule()
    def give_back(self) -> None:
        self.outbox.put_back(self.taken)
        self.taken = []

    @rule()
    def hand_on(self) -> None:
        self.gone += len(self.taken)
        self.taken = []

    @invariant()
    def it_is_bounded_and_counts(self) -> None:
        assert 0 <= self.outbox.waiting_bytes <= 40
        assert self.count == len(self.outbox) + len(self.taken) + self.gone + self.outbox.dropped


TestAnyOutbox = AnyOutbox.TestCase


@given(st.lists(st.integers(1, 30), max_size=30))
def test_the_remaining_lines_are_the_youngest_that_fit(lengths: list[int]) -> None:
    outbox = Outbox(60)
    lines = [line(f"{n:02d}".ljust(length, ".")) for n, length in enumerate(lengths)]
    for one in lines:
        outbox.put(one)
    left = outbox.take(1_000)
    assert left == lines[len(lines) - len(left) :]
    weights = [len(one.data) for one in lines]
    assert len(left) == len(lines) or sum(weights[len(lines) - len(left) - 1 :]) > 60
