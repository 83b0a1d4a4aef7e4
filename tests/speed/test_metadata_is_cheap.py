"""The cost of a metadata refresh depends on what changed, not on what is known. Calls are counted, not timed.

Each test guards a goal: unchanged topics, a first answer, a broker that is down, the bytes of a partition,
and other threads that want to run. Times are in `benchmarks/`.
"""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from client_core.clock import SystemClock
from client_core.events import NO_EVENTS, LeadersChanged
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.speed.counted_calls import calls_of
from tests.support.counted_work import python_calls, python_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from client_core.events import Event, EventSink
    from client_core.metadata.topic_table import TopicTable

VERSION: Final = 13
LOST: Final = 1
#: Functions entered for an unchanged topic: three when this was written.
CALLS_A_TOPIC: Final = 5
#: For a topic of a run: about eight and nineteen when this was written.
CALLS_A_NEW_TOPIC: Final = 11
CALLS_A_CHANGED_TOPIC: Final = 22
#: To emit that a topic's leaders moved: three, one of them making the event.
CALLS_A_TOPIC_WITH_MOVES: Final = 5
#: The cost of equal responses may vary a little, by what is cached between calls.
SOME_CALLS: Final = 40
BYTES_A_PARTITION: Final = 100


class Outcome:
    """An EventSink that keeps events and calls nothing in Python to do so."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.emit: Callable[[Event], None] = self.events.append


class Refreshed:
    """ProducerMetadata that holds topics `t0`, `t1`, ... and receives answers about them."""

    def __init__(self, topics: int, partitions: int = 100, events: EventSink = NO_EVENTS) -> None:
        self._topics, self._partitions = topics, partitions
        self._metadata = ProducerMetadata(MetadataConfig(), Random(1), SystemClock(), events)
        self._metadata.bootstrap([("broker-1", 9092)])
        for number in range(topics):
            self._metadata.add(f"t{number}", 0)

    def answer(self, *, moved: Collection[int] = (), lost: bool = False, broker: int = 1) -> bytes:
        """A response; in the topics `moved` all partitions have another leader and a greater epoch."""
        return _answer(self._topics, self._partitions, moved, lost, broker)

    def refresh(self, body: bytes) -> None:
        metadata = self._metadata
        metadata.request_update(False)
        asked = metadata.new_metadata_request_and_version(0)
        metadata.update(
            asked.request_version, asked.builder.decode_response(body, VERSION), asked.is_partial, 0
        )

    def refresh_some(self, *, moved: Collection[int] = (), lost: bool = False) -> None:
        """Asks for the first ten topics, as look-ups do to bound their age."""
        body, metadata = _answer(10, self._partitions, moved, lost), self._metadata
        names = tuple(f"t{number}" for number in range(10))
        asked = MetadataRequestBuilder(names, False, lambda: metadata.cache.topics)
        metadata.update_topics(asked.decode_response(body, VERSION), 0)

    @property
    def tables(self) -> Mapping[str, TopicTable]:
        return self._metadata.cache.topics


def _answer(topics: int, partitions: int, moved: Collection[int], lost: bool, broker: int = 1) -> bytes:
    """A response of a broker, which lists itself first and names itself as controller."""
    numbers = [broker, *(n for n in (1, 2, 3) if n != broker)]
    brokers = tuple(
        MetadataResponseBroker(n, f"broker-{n}", 9092) for n in numbers if not (lost and n == LOST)
    )
    of_topics = tuple(
        MetadataResponseTopic(
            name=f"t{number}",
            topic_id=UUID(int=number + 1),
            partitions=tuple(_partition(p, int(number in moved), lost) for p in range(partitions)),
        )
        for number in range(topics)
    )
    message = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=broker, topics=of_topics)
    return message.encode(VERSION)


def _partition(number: int, step: int, lost: bool) -> MetadataResponsePartition:
    leader = (number + step) % 3 + 1
    orphaned = lost and leader == LOST
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=2 if orphaned else leader,
        leader_epoch=5 + step + orphaned,
        replica_nodes=(1, 2, 3),
        isr_nodes=(2, 3) if lost else (1, 2, 3),
        offline_replicas=(LOST,) if lost else (),
    )


def _calls_of_a_refresh(refreshed: Refreshed, body: bytes) -> int:
    return python_calls(lambda: refreshed.refresh(body))


def test_an_unchanged_refresh_keeps_every_table() -> None:
    refreshed = Refreshed(100)
    body = refreshed.answer()
    refreshed.refresh(body)
    before = dict(refreshed.tables)

    refreshed.refresh(bytes(bytearray(body)))

    assert refreshed.tables.keys() == before.keys()
    assert all(table is before[name] for name, table in refreshed.tables.items())


def test_an_unchanged_refresh_looks_into_no_partition() -> None:
    refreshed = Refreshed(100)
    body = refreshed.answer()

    first = calls_of(lambda: refreshed.refresh(body))
    again = calls_of(lambda: refreshed.refresh(body))

    # What a version's topics are made of is asked once a response.
    assert first.into("topic_runs") >= 2
    assert again.into("topic_layout") <= 2
    assert again.into("topic_table") == 0


def test_an_equal_response_costs_no_calls_for_its_topics() -> None:
    """Even from another broker: it names another controller, and lists the brokers in another order."""
    few, many = Refreshed(100, partitions=3), Refreshed(600, partitions=3)
    for refreshed in (few, many):
        refreshed.refresh(refreshed.answer())
    before = many.tables

    in_few = _calls_of_a_refresh(few, few.answer(broker=2))
    in_many = _calls_of_a_refresh(many, many.answer(broker=2))

    may_create = 500  # each topic is asked whether it may be created
    assert in_many - in_few <= may_create + SOME_CALLS
    assert many.tables is before


@pytest.mark.parametrize("partitions", [1, 10, 50])
def test_topics_of_few_partitions_are_read_by_a_few_calls_each(partitions: int) -> None:
    few, many = Refreshed(64, partitions), Refreshed(256, partitions)
    first = [_calls_of_a_refresh(refreshed, refreshed.answer()) for refreshed in (few, many)]
    down = [_calls_of_a_refresh(refreshed, refreshed.answer(lost=True)) for refreshed in (few, many)]

    assert first[1] - first[0] <= CALLS_A_NEW_TOPIC * 192
    assert down[1] - down[0] <= CALLS_A_CHANGED_TOPIC * 192


def test_a_refresh_of_some_topics_does_no_work_for_all_that_are_known() -> None:
    few, many = Refreshed(50, partitions=3), Refreshed(2_000, partitions=3)
    lines: list[int] = []
    for refreshed in (few, many):
        refreshed.refresh(refreshed.answer())
        before = refreshed.tables
        refreshed.refresh_some()  # also what is made once
        lines.append(python_lines(refreshed.refresh_some))
        assert refreshed.tables is before
    assert lines[1] <= lines[0] + SOME_CALLS


def test_a_refresh_of_some_topics_that_changed_is_not_read_against_all_that_are_known() -> None:
    """The tables of all topics are copied, by C, and the partitions without a leader counted."""
    few, many = Refreshed(50, partitions=3), Refreshed(2_000, partitions=3)
    lines: list[int] = []
    for refreshed in (few, many):
        refreshed.refresh(refreshed.answer())
        before = dict(refreshed.tables)
        lines.append(python_lines(lambda r=refreshed: r.refresh_some(moved=[4])))  # type: ignore[misc]
        assert [name for name, table in refreshed.tables.items() if table is not before[name]] == ["t4"]
    assert lines[1] <= lines[0] + 3 * 1_950 + SOME_CALLS


def test_a_refresh_with_one_changed_topic_makes_one_new_table() -> None:
    refreshed = Refreshed(100)
    refreshed.refresh(refreshed.answer())
    before = dict(refreshed.tables)

    refreshed.refresh(refreshed.answer(moved=[42]))

    assert [name for name, table in refreshed.tables.items() if table is not before[name]] == ["t42"]


def test_an_unchanged_topic_costs_a_refresh_a_handful_of_calls() -> None:
    few, many = Refreshed(100, partitions=3), Refreshed(300, partitions=3)
    for refreshed in (few, many):
        refreshed.refresh(refreshed.answer())

    in_few = _calls_of_a_refresh(few, few.answer())
    in_many = _calls_of_a_refresh(many, many.answer())

    assert in_many - in_few <= CALLS_A_TOPIC * 200


@pytest.mark.parametrize("partitions", [(10, 100), (150, 1_000)], ids=["few", "many"])
def test_a_first_answer_costs_no_calls_for_its_partitions(partitions: tuple[int, int]) -> None:
    narrow, wide = (Refreshed(10, count) for count in partitions)

    in_narrow = _calls_of_a_refresh(narrow, narrow.answer())
    in_wide = _calls_of_a_refresh(wide, wide.answer())

    assert in_wide <= in_narrow + SOME_CALLS


@pytest.mark.parametrize("partitions", [(12, 120), (150, 1_500)], ids=["few", "many"])
def test_a_broker_that_is_down_costs_no_calls_for_its_partitions_without_listeners(
    partitions: tuple[int, int],
) -> None:
    narrow, wide = (Refreshed(10, count) for count in partitions)
    for refreshed in (narrow, wide):
        refreshed.refresh(refreshed.answer())

    in_narrow = _calls_of_a_refresh(narrow, narrow.answer(lost=True))
    in_wide = _calls_of_a_refresh(wide, wide.answer(lost=True))

    assert in_wide <= in_narrow + SOME_CALLS


def test_a_broker_that_is_down_is_reported_once_a_topic() -> None:
    reported = Outcome()
    refreshed = Refreshed(10, 300, reported)
    refreshed.refresh(refreshed.answer())
    reported.events.clear()
    without_listener = Refreshed(10, 300)
    without_listener.refresh(without_listener.answer())

    in_silence = _calls_of_a_refresh(without_listener, without_listener.answer(lost=True))
    in_all = _calls_of_a_refresh(refreshed, refreshed.answer(lost=True))

    moves = [event for event in reported.events if isinstance(event, LeadersChanged)]
    assert len(moves) == 10
    assert sum(map(len, moves)) == 10 * 300 // 3
    assert in_all - in_silence <= CALLS_A_TOPIC_WITH_MOVES * 10 + SOME_CALLS


def test_of_a_topic_only_the_partitions_that_changed_are_read() -> None:
    # So no call into C, which is not interrupted, does more than copy or compare bytes.
    topic = Refreshed(1, partitions=4_000)
    topic.refresh(topic.answer())

    answer = topic.answer(lost=True)
    reads = calls_of(lambda: topic.refresh(answer)).c["unpack_from"]

    moved = len(range(0, 4_000, 3))
    assert 2 * moved <= reads <= 2 * moved + SOME_CALLS


def test_a_partition_at_rest_takes_less_than_a_hundred_bytes() -> None:
    topics, partitions = 200, 100
    body = _answer(topics, partitions, (), False)
    Refreshed(1).refresh(_answer(1, partitions, (), False))  # what is made once for all

    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        refreshed = Refreshed(topics, partitions)
        refreshed.refresh(bytes(bytearray(body)))  # a copy: were it kept whole, it would count
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(refreshed.tables) == topics
    assert after - before <= BYTES_A_PARTITION * topics * partitions
