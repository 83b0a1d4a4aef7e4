"""Order, flush and close treat parked records like appended ones, for every method of the API (ORD-01..03).

Most tests use the fake cluster over loopback, with little memory or with late metadata. Tests that depend on
a precise moment use a producer that is turned by hand.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core import (
    BufferExhaustedError,
    CloseReport,
    IllegalStateError,
    KafkaProducer,
    MetadataResult,
    ProducerClosedError,
    ProducerRecord,
    RecordFailure,
    TimeoutError,
    Unacknowledged,
)
from client_core.clock import FOREVER_MS
from client_core.producer.requests.ordering_gate import OrderingGate
from client_core.producer.requests.pending_request import PendingRequest
from client_core.protocol.api_keys import ApiKey
from client_core.record.record_batch import decode_record_batch
from client_core.testing import FakeCluster
from tests.support.live_producer import (
    PATIENCE_MS,
    PATIENCE_S,
    Outcome,
    live_producer,
    look_up,
    producing,
    submit,
)
from tests.support.mock_clock import MockClock
from tests.support.producer_rig import ProducerRig, Waiting, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from client_core.producer.results.future_record_metadata import FutureRecordMetadata

#: Four batches of 15 kB at most.
LITTLE_MEMORY = {"buffer.memory": 65_536}


def large(n: int) -> bytes:
    return b"%04d" % n + b"x" * 14_996


def numbers(cluster: FakeCluster, topic: str = "orders", partition: int | None = None) -> list[int]:
    return [int(record.value[:4]) for record in cluster.records(topic, partition) if record.value is not None]


def failures(reported: Sequence[Outcome]) -> list[RecordFailure]:
    return [outcome for one in reported for outcome in one.outcomes() if isinstance(outcome, RecordFailure)]


def left(report: CloseReport) -> int:
    return sum(left.records for left in report.unacknowledged)


# -- one request ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-01")
@pytest.mark.parametrize("seed", range(4))
def test_records_of_a_request_keep_their_order_in_a_partition_whatever_chose_it(seed: int) -> None:
    """A key, the record itself, or, for a record with neither, the partitioner."""
    random = Random(seed)
    count = random.choice((20, 2_000))
    records = [
        ProducerRecord(
            "orders",
            b"%d" % n,
            random.choice((None, b"k")),
            partition=random.choice((None, None, random.randrange(2))),
        )
        for n in range(count)
    ]
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        with live_producer(cluster.bootstrap_servers) as producer:
            outcome = Outcome()
            by_ms = producer.clock.now_ms() + PATIENCE_MS
            producer.submit("orders", records, block_deadline_ms=by_ms, deadline_ms=by_ms, done=outcome)
            assert failures([outcome]) == []
        for partition in range(2):
            values = [int(record.value or b"") for record in cluster.records("orders", partition)]
            assert values == sorted(values)
        assert len(cluster.records("orders")) == count


# -- close (ORD-03) ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-03")
@pytest.mark.parametrize("records", [1, 4])
def test_close_sends_what_waits_for_memory(records: int) -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, LITTLE_MEMORY) as producer:
            producer.partitions_for("orders")
            reported = [
                submit(producer, "orders", [large(n * records + i) for i in range(records)], partition=0)
                for n in range(60)
            ]
            report = producer.close(20_000)
            assert failures(reported) == []
            assert report == CloseReport()
            assert report.flushed
        assert numbers(cluster) == list(range(60 * records))


@pytest.mark.behaviour("ORD-03")
def test_close_sends_what_waits_for_metadata() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        reported = [submit(producer, "orders", [large(n)]) for n in range(20)]
        with ThreadPoolExecutor(1) as pool:
            closed = pool.submit(producer.close, PATIENCE_MS)
            wait_until(lambda: producer.status().state == "closing", what="the producer closes")
            cluster.wait_for_requests(ApiKey.METADATA, 3)
            cluster.create_topic("orders")
            assert closed.result(PATIENCE_S) == CloseReport()
        assert failures(reported) == []
        assert numbers(cluster) == list(range(20))


def test_close_in_no_time_reports_each_record_that_it_gives_up() -> None:
    with producing(LITTLE_MEMORY) as (cluster, producer):
        producer.partitions_for("orders")
        hold = cluster.hold_next(ApiKey.PRODUCE, times=1_000)
        reported = [submit(producer, "orders", [large(n), large(n)], partition=0) for n in range(20)]
        missing = [submit(producer, "absent", [b"a", b"b", b"c"]) for _ in range(5)]
        hold.wait_until_held()
        report = producer.close(0)
        assert not report.flushed
        assert left(report) == len(failures([*reported, *missing])) == 55
        hold.release()


def test_a_parked_record_whose_time_is_up_while_the_producer_closes_fails_with_its_own_error() -> None:
    with producing() as (_, producer):
        sent = submit(producer, "orders", [b"a"])
        reported = submit(producer, "absent", [b"a", b"b"], block_in_ms=1_000)
        report = producer.close(PATIENCE_MS)
        assert sent.offsets() == [0]
        assert {type(failure.error) for failure in reported.failures()} == {TimeoutError}
        assert report == CloseReport((Unacknowledged("absent", None, 2),))
        assert not report.flushed


def test_a_record_that_failed_before_close_keeps_the_report_from_saying_flushed() -> None:
    with producing({"max.block.ms": 1}) as (_, producer):
        assert len(submit(producer, "absent", [b"a", b"b"], block_in_ms=1).failures()) == 2
        assert isinstance(producer.send(ProducerRecord("absent", b"a")).exception(0), TimeoutError)
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        report = producer.close(PATIENCE_MS)
        assert report == CloseReport(failed_earlier=3)
        assert not report.flushed


def test_a_record_that_a_broker_refuses_while_the_producer_closes_is_reported_with_its_partition() -> None:
    rig = ProducerRig(topics={"orders": 1}, delivery_timeout_ms=1_000, request_timeout_ms=500, linger_ms=0)
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 100_000)
    waiting = rig.submit("orders", b"a", b"b")
    future = rig.producer.send(ProducerRecord("orders", b"c"))
    rig.producer._accumulator.failed.begin_close()
    rig.turn_after(1_000)
    assert len(waiting.failures) == 2
    assert future.exception(0) is not None
    assert rig.producer.close(0) == CloseReport((Unacknowledged("orders", 0, 3),))


def test_a_record_that_ran_out_of_time_on_its_way_is_counted_once() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", timeout_ms=500, turns=1)
    rig.turn_after(500)
    assert len(waiting.failures) == 1
    assert rig.producer.close(0) == CloseReport(failed_earlier=1)


def test_a_send_that_blocks_is_ended_by_close_while_what_is_parked_goes_on() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, LITTLE_MEMORY) as producer:
            producer.partitions_for("orders")
            hold = cluster.hold_next(ApiKey.PRODUCE, times=1_000)
            reported = [submit(producer, "orders", [large(n)], partition=0) for n in range(20)]
            with ThreadPoolExecutor(2) as pool:
                sent = pool.submit(producer.send, ProducerRecord("orders", large(99), partition=0))
                blocked = producer._parked.gate
                wait_until(lambda: bool(blocked._topics["orders"].waiters), what="the send waits")
                closed = pool.submit(producer.close, PATIENCE_MS)
                with pytest.raises(ProducerClosedError):
                    sent.result(PATIENCE_S)
                hold.release()
                assert closed.result(PATIENCE_S) == CloseReport()
            assert failures(reported) == []
        assert numbers(cluster) == list(range(20))


def test_a_look_up_is_ended_as_soon_as_the_producer_closes() -> None:
    with producing() as (cluster, producer):
        producer.partitions_for("orders")
        hold = cluster.hold_next(ApiKey.PRODUCE)
        reported = submit(producer, "orders", [b"a"])
        hold.wait_until_held()
        looking = look_up(producer, "nowhere", settle=False)
        with ThreadPoolExecutor(1) as pool:
            closed = pool.submit(producer.close, PATIENCE_MS)
            assert isinstance(looking.result(MetadataResult).error, ProducerClosedError)
            assert not closed.done()
            hold.release()
            assert closed.result(PATIENCE_S).flushed
        assert reported.offsets() == [0]


def test_a_look_up_that_is_taken_after_the_close_began_is_ended_in_that_turn() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("orders", b"a", turns=1)
    looking = rig.look_up("nowhere", settle=False)
    rig.producer.io_thread.initiate_close()
    rig.turn()
    assert [type(result.error) for result in looking.reported] == [ProducerClosedError]


def test_a_record_that_is_being_appended_when_the_producer_closes_is_sent() -> None:
    rig = ProducerRig(topics={"orders": 1})
    entered, go_on = threading.Event(), threading.Event()
    try_allocate = rig.producer._pool.try_allocate

    def wait_and_allocate(size_bytes: int) -> bool:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return try_allocate(size_bytes)

    rig.producer._pool.try_allocate = wait_and_allocate  # type: ignore[method-assign]
    rig.client.prepare_response(produced(ORDERS_0, offset=0))
    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(rig.producer.send, ProducerRecord("orders", b"a"))
        assert entered.wait(PATIENCE_S)
        rig.producer.start()
        closed = pool.submit(rig.producer.close, PATIENCE_MS)
        wait_until(lambda: rig.producer.status().state == "closing", what="the producer closes")
        go_on.set()
        assert sent.result(PATIENCE_S).result(PATIENCE_S).offset == 0
        assert closed.result(PATIENCE_S).flushed


class ClosesWhenRead(list[ProducerRecord]):
    """The records of a request whose producer another thread closes while they are checked."""

    def __init__(self, producer: KafkaProducer) -> None:
        super().__init__([ProducerRecord("orders", b"a")])
        self.producer = producer

    def __iter__(self) -> Iterator[ProducerRecord]:
        self.producer.close(0)
        return super().__iter__()


@pytest.mark.behaviour("ORD-03")
def test_records_still_being_checked_when_the_producer_closes_are_refused() -> None:
    producer = ProducerRig(topics={"orders": 1}).producer
    outcome = Outcome()
    with pytest.raises(IllegalStateError):
        producer.submit(
            "orders",
            ClosesWhenRead(producer),
            block_deadline_ms=FOREVER_MS,
            deadline_ms=FOREVER_MS,
            done=outcome,
        )
    assert not outcome.is_reported


def test_nothing_is_accepted_while_the_producer_closes() -> None:
    with producing(LITTLE_MEMORY) as (cluster, producer):
        producer.partitions_for("orders")
        hold = cluster.hold_next(ApiKey.PRODUCE)
        reported = [submit(producer, "orders", [large(n)], partition=0) for n in range(20)]
        with ThreadPoolExecutor(1) as pool:
            closed = pool.submit(producer.close, PATIENCE_MS)
            wait_until(lambda: producer.status().state == "closing", what="the producer closes")
            with pytest.raises(IllegalStateError):
                submit(producer, "orders", [b"late"])
            with pytest.raises(IllegalStateError):
                producer.send(ProducerRecord("orders", b"late"))
            hold.release()
            assert closed.result(PATIENCE_S).flushed
        assert failures(reported) == []


def test_a_close_from_a_callback_reports_what_is_open() -> None:
    reports: list[CloseReport] = []
    with producing(LITTLE_MEMORY) as (cluster, producer):
        producer.partitions_for("orders")
        cluster.hold_next(ApiKey.METADATA, times=1_000)
        closed = threading.Event()

        def close(_: FutureRecordMetadata) -> None:
            reported.extend(submit(producer, "absent", [b"a", b"b"]) for _ in range(10))
            reports.append(producer.close(PATIENCE_MS))
            closed.set()

        reported: list[Outcome] = []
        producer.send(ProducerRecord("orders", b"a"), close)
        assert closed.wait(PATIENCE_S)
        assert len(failures(reported)) == 20
        assert left(reports[0]) == 20
        assert not reports[0].flushed
        assert left(producer.close(PATIENCE_MS)) == 20


# -- flush (ORD-02) ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-02")
def test_a_flush_covers_what_waits_for_memory() -> None:
    with producing(LITTLE_MEMORY) as (_, producer):
        producer.partitions_for("orders")
        reported = [submit(producer, "orders", [large(n)], partition=0) for n in range(40)]
        producer.flush()
        assert [one.is_reported for one in reported] == [True] * 40
        assert failures(reported) == []


@pytest.mark.behaviour("ORD-02")
def test_a_flush_covers_what_waits_for_metadata_and_lets_nothing_linger() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("known")
        with live_producer(
            cluster.bootstrap_servers, {"linger.ms": 300_000, "delivery.timeout.ms": 400_000}
        ) as producer:
            reported = [submit(producer, "orders", [large(n)]) for n in range(12)]
            with ThreadPoolExecutor(3) as pool:
                flushed = [pool.submit(producer.flush) for _ in range(3)]
                cluster.wait_for_requests(ApiKey.METADATA, 3)
                assert not any(one.done() for one in flushed)
                cluster.create_topic("orders")
                for one in flushed:
                    one.result(PATIENCE_S)
            assert all(one.is_reported for one in reported)
        assert numbers(cluster) == list(range(12))


def test_a_flush_ends_when_what_is_parked_has_failed() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        reported = [submit(producer, "absent", [b"a"], block_in_ms=100) for _ in range(3)]
        producer.flush()
        assert [one.is_reported for one in reported] == [True] * 3
        assert len(failures(reported)) == 3


def test_a_flush_ends_when_what_is_parked_is_cancelled() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        reported = submit(producer, "absent", [b"a"])
        with ThreadPoolExecutor(1) as pool:
            flushed = pool.submit(producer.flush)
            wait_until(lambda: bool(producer._parked.gate._flushes), what="the flush waits")
            reported.cancel()
            flushed.result(PATIENCE_S)


def test_a_flush_does_not_wait_for_what_is_parked_after_it() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        first = submit(producer, "absent", [b"a"], block_in_ms=1_000)
        with ThreadPoolExecutor(1) as pool:
            flushed = pool.submit(producer.flush)
            wait_until(lambda: bool(producer._parked.gate._flushes), what="the flush waits", every_s=0.005)
            later = submit(producer, "absent", [b"b"])
            flushed.result(PATIENCE_S)
            assert first.is_reported
            assert not later.is_reported
        producer.close(0)


# -- order (ORD-01) ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-01")
def test_a_send_does_not_overtake_what_waits_for_memory() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, LITTLE_MEMORY) as producer:
            producer.partitions_for("orders")
            reported = [submit(producer, "orders", [large(n)], partition=0) for n in range(40)]
            for n in range(40, 80):
                producer.send(ProducerRecord("orders", b"%04d" % n, partition=0))
            more = [submit(producer, "orders", [large(n), large(n)], partition=0) for n in range(80, 90)]
            producer.send(ProducerRecord("orders", b"%04d" % 90, partition=0))
            producer.flush()
            assert failures([*reported, *more]) == []
        assert numbers(cluster) == sorted(numbers(cluster))
        assert len(numbers(cluster)) == 101


@pytest.mark.behaviour("ORD-01")
def test_a_send_does_not_overtake_what_waits_for_metadata() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        reported = [submit(producer, "orders", [large(n)], partition=0) for n in range(5)]
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(producer.send, ProducerRecord("orders", b"0005", partition=0))
            cluster.wait_for_requests(ApiKey.METADATA, 3)
            # A caller of its own is not in this order: what is sent goes on once the topic is known.
            cluster.create_topic("orders")
            first.result(PATIENCE_S)
        for n in range(6, 12):
            producer.send(ProducerRecord("orders", b"%04d" % n, partition=0))
        producer.flush()
        assert failures(reported) == []
        assert numbers(cluster) == list(range(12))


@pytest.mark.parametrize("key", [None, b"key"])
def test_a_send_waits_for_what_is_parked_although_the_topic_is_known_by_now(key: bytes | None) -> None:
    rig = ProducerRig(topics={}, linger_ms=1_000)
    record = ProducerRecord("orders", b"", key=key)
    for n in range(2):
        rig.submit("orders", record._replace(value=b"%d" % n))
    rig.turn()
    rig.know({"orders": 1})  # the I/O thread has not looked at it yet
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(rig.producer.send, record._replace(value=b"2"))
        while not rig.clock.waiters and not sent.done():
            pass
        assert not sent.done()
        rig.turn()
        sent.result(PATIENCE_S)
    rig.producer.send(record._replace(value=b"3"))  # the short way
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0)
    values = [record.value for record in decode_record_batch(batch.records()).records()]
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_send_that_waits_behind_a_parked_request_fails_after_max_block_ms() -> None:
    rig = full_buffer_rig(max_block_ms=500)
    rig.submit("orders", b"y" * 800, turns=1)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(rig.producer.send, ProducerRecord("orders", b"z"))
        while not rig.clock.waiters:
            pass
        rig.clock.advance(500)
        error = sent.result(PATIENCE_S).exception(0)
    assert isinstance(error, BufferExhaustedError)
    assert "within the configured max blocking time 500 ms" in str(error)
    assert not rig.producer._parked.gate._topics["orders"].waiters


def test_the_wait_of_a_send_behind_a_parked_request_is_not_repeated_for_memory() -> None:
    rig = full_buffer_rig(max_block_ms=500)
    ahead = rig.submit("orders", b"y" * 800, turns=1)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(rig.producer.send, ProducerRecord("orders", b"z"))
        wait_until(lambda: rig.clock.waiters == 1, what="it waits behind the request")
        rig.clock.advance(400)
        ahead.cancel()
        rig.turn()
        wait_until(lambda: rig.producer.status().buffer.waiters == 1, what="it waits for memory")
        rig.clock.advance(100)
        assert isinstance(sent.result(PATIENCE_S).exception(0), BufferExhaustedError)


def test_a_send_to_another_topic_waits_for_nobody() -> None:
    rig = full_buffer_rig(max_block_ms=0)
    rig.submit("unknown", b"y")
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0))
    future = rig.producer.send(ProducerRecord("orders", b"z"))
    assert not future.done()


@pytest.mark.parametrize(("own", "passes"), [(True, False), (False, True)])
def test_a_send_in_a_callback_passes_requests_of_others_and_fails_behind_its_own(
    own: bool, passes: bool
) -> None:
    """It can't wait: no other thread would make room for it."""
    futures: list[FutureRecordMetadata] = []
    with producing({"buffer.memory": 40_000, "batch.size": 10_000}, partitions=2) as (_, producer):
        producer.partitions_for("orders")
        entered, go_on, over = threading.Event(), threading.Event(), threading.Event()

        def submit_much() -> None:
            reported.extend(submit(producer, "orders", [large(n)], partition=0) for n in range(5))

        def send(_: FutureRecordMetadata) -> None:
            producer.send(ProducerRecord("orders", b"opens a batch", partition=1))
            entered.set()
            assert go_on.wait(PATIENCE_S)
            if own:
                submit_much()
            futures.append(producer.send(ProducerRecord("orders", b"small", partition=1)))
            over.set()

        reported: list[Outcome] = []
        producer.send(ProducerRecord("orders", b"first", partition=1), send)
        assert entered.wait(PATIENCE_S)
        if not own:
            submit_much()
        go_on.set()
        assert over.wait(PATIENCE_S)
        producer.flush()
        assert (futures[0].exception(0) is None) == passes
        assert isinstance(futures[0].exception(0), BufferExhaustedError) != passes
        assert failures(reported) == []


def test_a_request_whose_partition_has_come_is_not_overtaken_by_later_ones() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000, max_block_ms=100)
    record = ProducerRecord("orders", b"", partition=1)
    for n in range(2):
        rig.submit("orders", record._replace(value=b"%d" % n))
    rig.learn({"orders": 1})
    assert rig.producer.status().waiting_for_metadata == 2
    rig.know({"orders": 2})  # the I/O thread has not looked at it yet
    rig.submit("orders", record._replace(value=b"2"))
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(rig.producer.send, record._replace(value=b"3"))
        while not rig.clock.waiters and not sent.done():
            pass
        rig.turn()
        sent.result(PATIENCE_S)
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0._replace(partition=1))
    values = [record.value for record in decode_record_batch(batch.records()).records()]
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_request_whose_partition_comes_after_its_topic_had_gone_is_not_overtaken() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    record = ProducerRecord("orders", b"0", partition=1)
    rig.submit("orders", record)
    rig.learn({"orders": 1})
    rig.know({}, errors={"orders": 3})
    rig.submit("orders", record._replace(value=b"1"), turns=1)  # it queues, since its topic is gone
    rig.know({"orders": 2})
    rig.turn()
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0._replace(partition=1))
    values = [record.value for record in decode_record_batch(batch.records()).records()]
    assert values == [b"0", b"1"]


def _parked(gate: OrderingGate) -> PendingRequest:
    made = PendingRequest(
        "orders",
        [ProducerRecord("orders", b"")],
        Waiting(),
        lambda ended, done, then: None,
        submitted_ms=0,
        block_deadline_ms=0,
        deadline_ms=0,
    )
    gate.block(made)
    return made


def test_a_flush_does_not_wait_for_what_a_later_flush_waits_for() -> None:
    """Flushes read the last number first, and come to the gate in any order."""
    gate = OrderingGate(lambda _: 1)
    ended: list[str] = []
    first, number = _parked(gate), gate.last_number
    second = _parked(gate)
    gate.call_after_parked(gate.last_number, partial(ended.append, "later flush"))
    gate.call_after_parked(number, partial(ended.append, "earlier flush"))
    gate.remove(first)
    assert ended == ["earlier flush"]
    gate.remove(second)
    assert ended == ["earlier flush", "later flush"]
    gate.call_after_parked(gate.last_number, partial(ended.append, "with nothing parked"))
    assert ended[-1] == "with nothing parked"


def test_a_request_that_comes_back_to_the_queue_goes_before_a_thread_that_came_after_it() -> None:
    """Also where one behind the thread leaves the queue."""
    gate = OrderingGate(lambda _: 2)
    request = partial(_parked, gate)
    other = request()
    gate.unblock(other, 1)

    class Meanwhile(MockClock):
        def wait_for(
            self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
        ) -> bool:
            condition.release()
            behind, last = request(), request()
            gate.block_again("orders")
            gate.remove(last)
            assert behind.blocks_others
            condition.acquire()
            return predicate()

    assert not gate.wait_behind("orders", Meanwhile(), 0)


def test_a_request_for_another_partition_holds_up_nobody_else() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000, max_block_ms=0)
    rig.submit("orders", ProducerRecord("orders", b"a", partition=1), turns=1)
    rig.submit("orders", b"b")
    future = rig.producer.send(ProducerRecord("orders", b"c"))
    assert not future.done()
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0)
    assert batch.record_count == 2
