"""Requests that wait less long for what brokers report missing than for other metadata."""

from __future__ import annotations

from client_core.cluster import TopicPartition
from client_core.errors import UnknownTopicOrPartitionError
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Phase, Written
from tests.support.producer_rig import ProducerRig, Waiting
from tests.support.sender_rig import ORDERS_0, produced

ORDERS_1 = TopicPartition("orders", 1)


def waits_from(rig: ProducerRig, *records: bytes | ProducerRecord, create: bool = False) -> Waiting:
    """A request that waits a second for a missing topic or partition, and a minute for other metadata."""
    return rig.submit("orders", *records, missing_ms=1_000, create=create, turns=2)


def test_a_topic_that_brokers_report_missing_is_waited_for_until_its_own_deadline() -> None:
    rig = ProducerRig(topics={})
    waiting = waits_from(rig, b"a", b"b")
    for _ in range(2):
        rig.learn({}, errors={"orders": 3}, turns=2)
    rig.turn_after(999)
    assert waiting.reported == []
    rig.turn_after(1)
    failures = waiting.failures
    assert [(f.waited_ms, f.phase, f.written) for f in failures] == [(1_000, Phase.METADATA, Written.NO)] * 2
    assert str(failures[0].error) == "Topic orders not present in metadata after 1000 ms."
    assert isinstance(failures[0].error.__cause__, UnknownTopicOrPartitionError)


def test_without_an_answer_of_the_brokers_it_waits_on_and_ends_when_they_report_it_missing() -> None:
    rig = ProducerRig(topics={})
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.backoff(node, 20_000)
    waiting = waits_from(rig, b"a")
    rig.turn_after(10_000, times=2)
    assert waiting.reported == []
    rig.clock.advance(10_000)
    rig.learn({}, errors={"orders": 3}, turns=2)
    rig.learn({}, errors={"orders": 3}, turns=2)
    assert [failure.waited_ms for failure in waiting.failures] == [20_000]


def test_a_topic_that_may_be_created_is_waited_for_as_long_as_java_does() -> None:
    rig = ProducerRig(topics={})
    waiting = waits_from(rig, b"a", create=True)
    for _ in range(30):
        rig.clock.advance(1_000)
        rig.learn({}, errors={"orders": 3}, turns=2)
    assert waiting.reported == []


def test_a_request_without_such_a_deadline_waits_as_long_as_java_does() -> None:
    rig = ProducerRig(topics={})
    patient = rig.submit("orders", b"a", create=False, turns=2)
    impatient = waits_from(rig, b"b")
    for _ in range(30):
        rig.clock.advance(1_000)
        rig.learn({}, errors={"orders": 3}, turns=2)
    assert (len(impatient.failures), patient.reported) == (1, [])
    rig.clock.advance(1_000)
    rig.learn({"orders": 1}, turns=2)
    rig.answer(produced(ORDERS_0, offset=7), turns=2)
    assert patient.offsets == [7]


def test_a_partition_beyond_a_fresh_count_is_waited_for_until_that_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.clock.advance(1_000)
    rig.will_know({"orders": 1})
    waiting = waits_from(rig, ProducerRecord("orders", b"a", partition=5))
    rig.turn_after(999)
    assert waiting.reported == []
    rig.turn_after(1)
    (failure,) = waiting.failures
    assert failure.waited_ms == 1_000
    assert "Partition 5 of topic orders with partition count 1" in str(failure.error)


def test_a_partition_beyond_an_old_count_is_waited_for_until_a_broker_confirms_it() -> None:
    rig = ProducerRig(topics={"orders": 1})
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.clock.advance(1_000)
    rig.client.set_unreachable(node, 60_000)
    rig.client.backoff(node, 10_000)
    waiting = waits_from(rig, ProducerRecord("orders", b"a", partition=5))
    rig.turn_after(5_000, times=2)
    assert waiting.reported == []
    rig.clock.advance(5_000)
    rig.learn({"orders": 2}, turns=3)
    assert [failure.waited_ms for failure in waiting.failures] == [10_000]


def test_a_partition_that_is_added_in_time_gets_its_record() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.will_know({"orders": 1})
    waiting = waits_from(rig, ProducerRecord("orders", b"a", partition=1))
    rig.clock.advance(500)
    rig.learn({"orders": 2}, turns=3)
    rig.answer(produced(ORDERS_1, offset=7), turns=2)
    assert waiting.offsets == [7]
    assert rig.producer.io_thread._parked._missing_deadlines.pop_all() == []
