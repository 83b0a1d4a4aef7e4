"""The whole producer over loopback while requests wait: for metadata, memory, a deadline, the close.

Each ticket ends once and in time, whatever it waits for. Memory is released. A closed producer leaves no
thread and no descriptor. An idle producer does not spin.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from typing import Any

import pytest

from client_core import (
    IO_THREAD_NAME,
    BufferExhaustedError,
    CloseReport,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaProducer,
    MetadataResult,
    Phase,
    ProducerClosedError,
    ProducerConfig,
    ProduceResult,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    TimeoutError,
    Unacknowledged,
    Written,
)
from client_core.protocol.api_keys import ApiKey
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
from tests.support.waiting import wait_until


def values(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def value(n: int) -> bytes:
    """So long that two of them don't fit into a batch of batch.size 1."""
    return b"%04d" % n + b"." * 60


def memory_is_back(producer: KafkaProducer) -> bool:
    buffer = producer.status().buffer
    return buffer.available_bytes == buffer.total_bytes and buffer.batches == 0


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- for metadata --------------------------------------------------------------------------------------------


def test_a_record_for_an_unknown_topic_fails_when_it_has_waited_for_as_long_as_it_may() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        (failure,) = submit(producer, "absent", [b"a"], block_in_ms=80).failures()
        assert isinstance(failure.error, TimeoutError)
        assert failure.error.message.startswith("Topic absent not present in metadata after ")
        assert (failure.phase, failure.written) == (Phase.METADATA, Written.NO)


@pytest.mark.behaviour("PROD-02", "PROD-06")
def test_brokers_that_answer_api_versions_with_an_error_are_the_cause_of_the_timeout() -> None:
    with producing() as (cluster, _):
        cluster.change_next(ApiKey.API_VERSIONS, lambda r: r._replace(error_code=-1), times=1_000_000)
        with live_producer(cluster.bootstrap_servers) as producer:
            error = look_up(producer, "orders", deadline_in_ms=200).result(MetadataResult).error
    assert error is not None
    assert error.cause is not None
    assert error.cause.detail == "the node answered error UNKNOWN_SERVER_ERROR (-1) to ApiVersions"


def test_send_blocks_for_max_block_ms_and_then_gives_a_failed_future() -> None:
    with (
        FakeCluster(brokers=1) as cluster,
        live_producer(cluster.bootstrap_servers, {"max.block.ms": 80}) as producer,
    ):
        error = producer.send(ProducerRecord("absent", b"a")).exception(0)
        assert isinstance(error, TimeoutError)
        assert error.message == "Topic absent not present in metadata after 80 ms."


def test_requests_that_waited_for_a_topic_are_written_in_their_order_when_it_comes() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        reported = [submit(producer, "orders", [b"%d" % n]) for n in range(300)]
        cluster.wait_for_requests(ApiKey.METADATA, 3)
        cluster.create_topic("orders")
        assert [one.offsets() for one in reported] == [[n] for n in range(300)]


def test_five_thousand_requests_for_an_unknown_topic_end_each_at_its_own_deadline() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        cluster.create_topic("orders")
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        ended: list[int] = []  # the deadlines of the reported requests, in the order of reports
        all_ended = threading.Event()

        def settle(deadline_ms: int) -> None:
            ended.append(deadline_ms)
            if len(ended) == 5_000:
                all_ended.set()

        now_ms = producer.clock.now_ms()
        for n in range(5_000):
            # Far enough away that all of them wait before the first has its time, on a busy machine too.
            deadline_ms = now_ms + 6_000 + (n * 7) % 500
            producer.submit(
                "absent",
                [ProducerRecord("absent", b"a")],
                block_deadline_ms=deadline_ms,
                deadline_ms=deadline_ms + PATIENCE_MS,
                done=lambda _, deadline_ms=deadline_ms: settle(deadline_ms),  # type: ignore[misc]
            )
        asked_before = len(cluster.requests(ApiKey.METADATA))
        assert submit(producer, "orders", [b"b"]).offsets() == [1]  # nobody is held up by them
        assert all_ended.wait(PATIENCE_S)
        assert ended == sorted(ended)
        assert producer.clock.now_ms() >= ended[-1]
        # They are asked for together, at the pace of one of them: every 16 ms, give or take a fifth.
        asked = len(cluster.requests(ApiKey.METADATA)) - asked_before
        assert asked < 2_000
        assert producer.status().waiting_for_metadata == 0


def test_a_cancelled_ticket_is_not_reported_and_frees_its_place() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        first, second, third = (submit(producer, "orders", [b"%d" % n]) for n in range(3))
        second.cancel()
        second.cancel()
        cluster.create_topic("orders")
        assert (first.offsets(), third.offsets()) == ([0], [1])
        assert second.results == []
        assert values(cluster) == [b"0", b"2"]
        third.cancel()  # too late, and harmless
        assert memory_is_back(producer)


# -- for memory ----------------------------------------------------------------------------------------------


def test_requests_that_wait_for_memory_are_written_in_their_order_and_memory_comes_back() -> None:
    with producing({"buffer.memory": 2_000, "batch.size": 200}) as (cluster, producer):
        hold = cluster.hold_next(ApiKey.PRODUCE)
        reported = [submit(producer, "orders", [value(n), value(n)], partition=0) for n in range(200)]
        hold.wait_until_held()
        wait_until(lambda: producer.status().waiting_for_buffer > 100, what="requests wait", every_s=0.005)
        hold.release()
        assert [one.offsets() for one in reported] == [[2 * n, 2 * n + 1] for n in range(200)]
        wait_until(lambda: memory_is_back(producer), what="memory is back", every_s=0.005)


def test_requests_for_several_topics_share_the_memory_first_come_first_served() -> None:
    with FakeCluster(brokers=2) as cluster:
        for topic in ("a", "b", "c"):
            cluster.create_topic(topic)
        settings = {"buffer.memory": 1_000, "batch.size": 200}
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            reported = [submit(producer, "abc"[n % 3], [value(n)] * 3, partition=0) for n in range(300)]
            assert [one.offsets()[0] for one in reported] == [n // 3 * 3 for n in range(300)]
            wait_until(lambda: memory_is_back(producer), what="memory is back", every_s=0.005)


def test_a_request_that_gets_no_memory_in_time_fails_and_those_behind_it_go_on() -> None:
    with producing({"buffer.memory": 400, "batch.size": 200}) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        hold = cluster.hold_next(ApiKey.PRODUCE)
        first = submit(producer, "orders", [value(n) for n in range(4)])
        hold.wait_until_held()
        hasty = submit(producer, "orders", [b"x" * 300], block_in_ms=60)
        patient = submit(producer, "orders", [value(9)])
        (failure,) = hasty.failures()
        assert isinstance(failure.error, BufferExhaustedError)
        assert (failure.phase, failure.written) == (Phase.BUFFER, Written.NO)
        assert not patient.is_reported
        hold.release()
        assert first.offsets() == [0, 1, 2, 3]
        assert patient.offsets() == [4]
        wait_until(lambda: memory_is_back(producer), what="memory is back", every_s=0.005)


def test_threads_that_block_and_requests_that_are_parked_wait_in_one_queue_for_memory() -> None:
    with producing({"buffer.memory": 600, "batch.size": 200}) as (cluster, producer):

        def send_many(name: int) -> None:
            for n in range(60):
                producer.send(ProducerRecord("orders", value(name * 100 + n), partition=0))

        threads = [threading.Thread(target=send_many, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        reported = [submit(producer, "orders", [value(900 + n)], partition=0) for n in range(60)]
        for thread in threads:
            thread.join(PATIENCE_S)
        producer.flush()
        assert len({one.offsets()[0] for one in reported}) == 60
    stored = [int(stored[:4]) for stored in values(cluster) if stored is not None]
    for name in (0, 1, 2, 9):
        mine = [number for number in stored if number // 100 == name]
        assert mine == list(range(name * 100, name * 100 + 60))


# -- for the deadline ----------------------------------------------------------------------------------------


def test_at_the_deadline_what_was_not_sent_is_taken_back_and_what_was_is_unknown() -> None:
    with producing({"batch.size": 1, "max.in.flight.requests.per.connection": 1}) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        wait_until(lambda: producer.status().producer_id is not None, what="a producer id")
        hold = cluster.hold_next(ApiKey.PRODUCE)
        reported = submit(producer, "orders", [value(n) for n in range(3)], partition=0, deadline_in_ms=1_000)
        behind = submit(producer, "orders", [value(7)], partition=0)
        failures = reported.failures()
        hold.release()
        assert behind.offsets() == [1]
        assert [failure.written for failure in failures] == [Written.UNKNOWN, Written.NO, Written.NO]
        assert {failure.phase for failure in failures} == {Phase.DELIVERY}
        assert memory_is_back(producer)
    assert values(cluster) == [value(0), value(7)]


def test_many_deadlines_on_shared_batches_take_back_only_their_own_records() -> None:
    with producing({"max.in.flight.requests.per.connection": 1}) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        hold = cluster.hold_next(ApiKey.PRODUCE)
        first = submit(producer, "orders", [value(0)], partition=0)
        hold.wait_until_held()
        hasty, patient = [], []
        for n in range(200):
            hasty.append(submit(producer, "orders", [value(1_000 + n)], deadline_in_ms=60, partition=0))
            patient.append(submit(producer, "orders", [value(1 + n)], partition=0))
        for one in hasty:
            assert [failure.written for failure in one.failures()] == [Written.NO]
        hold.release()
        assert first.offsets() == [0]
        assert [one.offsets() for one in patient] == [[n + 1] for n in range(200)]
        assert memory_is_back(producer)
    assert values(cluster) == [value(n) for n in range(201)]


def test_a_deadline_that_is_over_before_the_request_begins_ends_it_all_the_same() -> None:
    with FakeCluster(brokers=1) as cluster, live_producer(cluster.bootstrap_servers) as producer:
        assert isinstance(submit(producer, "absent", [b"a"], deadline_in_ms=-5).error(), TimeoutError)
        assert isinstance(submit(producer, "absent", [b"a"], block_in_ms=-5).error(), TimeoutError)


# -- callbacks and bad records -------------------------------------------------------------------------------


def test_a_callback_that_raises_or_misbehaves_does_no_other_harm() -> None:
    refusals: list[BaseException] = []

    def misbehave(producer: KafkaProducer) -> None:
        for call in (producer.flush, lambda: 1 // 0):
            try:
                call()
            except (KafkaError, ZeroDivisionError) as error:
                refusals.append(error)
        raise RuntimeError("a user's bug")

    with producing() as (_, producer):
        futures = [
            producer.send(ProducerRecord("orders", b"%d" % n), lambda _: misbehave(producer))
            for n in range(5)
        ]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(5))
        assert len(refusals) == 10


def test_a_callback_may_send_the_next_record() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        done = threading.Event()
        with live_producer(cluster.bootstrap_servers) as producer:

            def send_next(left: int) -> None:
                if left:
                    producer.send(ProducerRecord("orders", b"%d" % left), lambda _: send_next(left - 1))
                else:
                    done.set()

            send_next(50)
            assert done.wait(PATIENCE_S)
        assert values(cluster) == [b"%d" % n for n in range(50, 0, -1)]


#: What no record may hold.
NO_RECORDS: list[Any] = [
    ProducerRecord("orders", "text"),
    ProducerRecord("orders", b"", key="text"),
    ProducerRecord("orders", 5),
    ProducerRecord("orders", b"", headers=(("h", "text"),)),  # type: ignore[arg-type]
    ProducerRecord("orders", b"", headers=((None, b""),)),  # type: ignore[arg-type]
    ProducerRecord("orders", b"", headers=(("\ud800", b""),)),
    ProducerRecord("orders", b"", timestamp_ms=2**63),
    ProducerRecord("orders", b"", partition=0.0),  # type: ignore[arg-type]
    ProducerRecord("orders", b"", partition="0"),  # type: ignore[arg-type]
    ProducerRecord("orders", b"", timestamp_ms="now"),  # type: ignore[arg-type]
]


def test_a_record_that_is_none_is_refused_whole_before_it_can_do_harm() -> None:
    for case in itertools.product(NO_RECORDS, (True, False)):
        record, known = case
        with FakeCluster(brokers=1) as cluster:
            if known:
                cluster.create_topic("orders")
            with live_producer(cluster.bootstrap_servers) as producer:
                look_up(producer, "orders").result(MetadataResult)
                now_ms = producer.clock.now_ms()
                reported = Outcome()
                with pytest.raises((KafkaError, IllegalArgumentError)):
                    producer.submit(
                        "orders",
                        [ProducerRecord("orders", b"good"), record],
                        block_deadline_ms=now_ms + PATIENCE_MS,
                        deadline_ms=now_ms + PATIENCE_MS,
                        done=reported,
                    )
                if not known:
                    cluster.create_topic("orders")
                assert submit(producer, "orders", [b"a"]).offsets() == [0], case
                assert reported.results == [], case
                assert memory_is_back(producer), case


def test_a_topic_that_can_t_be_asked_for_is_refused_before_it_spoils_every_question() -> None:
    topics: list[Any] = [None, 7, "\ud800", "x" * 40_000]
    for topic in topics:
        with producing({"max.block.ms": 100}) as (_, producer):
            with pytest.raises((KafkaError, IllegalArgumentError)):
                submit(producer, topic, [b"a"])
            with pytest.raises((KafkaError, IllegalArgumentError)):
                look_up(producer, topic)
            with pytest.raises((KafkaError, IllegalArgumentError)):
                producer.configure_topics([topic])
            with pytest.raises((KafkaError, IllegalArgumentError)):
                producer.send(ProducerRecord(topic, b"a")).result(0)
            assert submit(producer, "orders", [b"a"]).offsets() == [0], topic


# -- the end -------------------------------------------------------------------------------------------------


def test_close_sends_what_was_appended_and_reports_nothing() -> None:
    with producing({"linger.ms": 5_000}) as (_, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        reported = [submit(producer, "orders", [value(n)]) for n in range(100)]
        assert producer.close(PATIENCE_MS) == CloseReport()
        assert producer.close(0) == CloseReport()
        assert all(one.is_reported for one in reported)
        assert [one.offsets() for one in reported] == [[n] for n in range(100)]
        with pytest.raises(IllegalStateError):
            submit(producer, "orders", [b"late"])


def test_close_with_everything_in_flight_completes_every_call_and_leaves_nothing_behind() -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        threads_before, descriptors_before = threading.active_count(), open_descriptors()
        settings = {"batch.size": 1, "buffer.memory": 4_000}
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
            hold = cluster.hold_next(ApiKey.PRODUCE, times=1_000)
            reported = [submit(producer, "orders", [value(n)], partition=n % 2) for n in range(100)]
            unknown = [submit(producer, "absent", [b"a", b"b"]) for _ in range(10)]
            hold.wait_until_held()
            updates = [look_up(producer, "nowhere", settle=False) for _ in range(10)]
            report = producer.close(0)
            by_topic: dict[str, int] = {}
            for left in report.unacknowledged:
                assert isinstance(left, Unacknowledged)
                by_topic[left.topic] = by_topic.get(left.topic, 0) + left.records
            assert by_topic == {"orders": 100, "absent": 20}
            for one in (*reported, *unknown):
                for failure in one.failures():
                    assert isinstance(failure.error, ProducerClosedError)
            for lookup in updates:
                assert isinstance(lookup.result(MetadataResult).error, ProducerClosedError)
            wait_until(
                lambda: not [t for t in threading.enumerate() if t.name == IO_THREAD_NAME],
                what="the end of the I/O thread",
            )
            hold.release()
        wait_until(
            lambda: open_descriptors() <= descriptors_before,
            what="descriptors are freed",
            every_s=0.005,
            last_seen=open_descriptors,
        )
        assert threading.active_count() <= threads_before


@pytest.mark.parametrize("seed", range(6))
def test_close_may_run_into_callers_of_every_kind_and_each_gets_one_result(seed: int) -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        reported: list[Outcome] = []
        futures: list[object] = []
        with live_producer(cluster.bootstrap_servers, {"buffer.memory": 3_000, "batch.size": 1}) as producer:
            under_way = threading.Barrier(4)

            def submit_on() -> None:
                under_way.wait()
                with contextlib.suppress(IllegalStateError):
                    for n in range(500):
                        reported.append(submit(producer, ("orders", "absent")[n % 2], [value(n)]))  # noqa: PERF401 -- it ends in an error

            def send_on() -> None:
                under_way.wait()
                with contextlib.suppress(IllegalStateError, ProducerClosedError):
                    for n in range(500):
                        futures.append(producer.send(ProducerRecord("orders", value(n))))  # noqa: PERF401 -- it ends in an error

            def look_up_on() -> None:
                under_way.wait()
                with contextlib.suppress(IllegalStateError):
                    for _ in range(500):
                        reported.append(look_up(producer, "nowhere", settle=False))  # noqa: PERF401 -- it ends in an error

            threads = [threading.Thread(target=each) for each in (submit_on, send_on, look_up_on)]
            for thread in threads:
                thread.start()
            under_way.wait()
            if seed % 3:
                cluster.wait_for_requests(ApiKey.PRODUCE, seed)
            producer.close((0, 1, 500)[seed % 3])
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            for one in reported:
                assert one.is_reported
                assert len(one.results) == 1
            for future in futures:
                assert future.done()  # type: ignore[attr-defined]


def test_a_producer_that_was_never_started_can_be_closed() -> None:
    with FakeCluster(brokers=1) as cluster:
        config = ProducerConfig.from_mapping({"bootstrap.servers": cluster.bootstrap_servers})
        producer = KafkaProducer(config)
        reported = submit(producer, "orders", [b"a"])
        assert producer.close(0) == CloseReport((Unacknowledged("orders", None, 1),))
        assert isinstance(reported.error(), ProducerClosedError)


# -- nothing to do -------------------------------------------------------------------------------------------


def turns_of_a_moment(producer: KafkaProducer) -> int:
    """How often the thread turns in 120 ms, counted while another one does nothing for as long at least."""
    before, began_s = producer.status().loop_turns, time.monotonic()
    idle = threading.Event()
    idle.wait(0.12)
    turns = producer.status().loop_turns - before
    return int(turns * 0.12 / (time.monotonic() - began_s))


def test_an_idle_producer_sleeps() -> None:
    with producing() as (_, producer):
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        assert turns_of_a_moment(producer) <= 4


def test_a_producer_that_waits_turns_no_more_often_than_its_pauses_say() -> None:
    """The pauses are 16 ms at most and 12.8 at least; what waits may look twice in each, and no more."""
    with producing({"batch.size": 1}, brokers=2, close_in_ms=0) as (cluster, producer):
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        hold = cluster.hold_next(ApiKey.PRODUCE, times=5)
        for n in range(30):  # more than may be in flight
            submit(producer, "orders", [value(n)])
        hold.wait_until_held()
        assert turns_of_a_moment(producer) <= 45
        cluster.move_leader("orders", 0, None)
        hold.release()
        wait_until(lambda: producer.status().in_flight_batches == 0, what="answers", every_s=0.005)
        assert turns_of_a_moment(producer) <= 100  # no leader
        cluster.kill(1)
        cluster.kill(2)
        assert turns_of_a_moment(producer) <= 150  # no brokers
        cluster.revive(1)
        cluster.throttle_next(ApiKey.METADATA, 5_000)
        assert turns_of_a_moment(producer) <= 100  # a pause that a broker asked for


def test_all_outcomes_are_there_exactly_once_under_load_from_several_threads() -> None:
    with producing({"buffer.memory": 60_000, "batch.size": 400}, brokers=3, partitions=3) as (_, producer):
        reported: list[list[Outcome]] = [[] for _ in range(4)]

        def hammer(name: int) -> None:
            for n in range(150):
                reported[name].append(submit(producer, "orders", [value(name * 1_000 + n)], key=b"%d" % name))

        threads = [threading.Thread(target=hammer, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        for name in range(4):
            outcomes = [one.result(ProduceResult).outcomes[0] for one in reported[name]]
            assert not [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]
            offsets = [outcome.offset or 0 for outcome in outcomes if isinstance(outcome, RecordMetadata)]
            assert offsets == sorted(offsets)
            assert len(set(offsets)) == 150
        assert memory_is_back(producer)
