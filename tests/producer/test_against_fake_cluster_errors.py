"""The whole producer over loopback against brokers that refuse, hang up, stall, and send garbage.

It covers every error code that a broker can return for a batch, and every fault of the answer's bytes. In
each case an acknowledged record is stored, once if the producer is idempotent. Any other record has an error.
The next record is written as usual.
"""

from __future__ import annotations

import itertools

from client_core import Errors, KafkaError, MetadataResult, TimeoutError, Written
from client_core.protocol.api_keys import ApiKey
from client_core.testing import (
    Delay,
    Disconnect,
    FakeCluster,
    Garbage,
    HalfFrame,
    InPieces,
    Silence,
    TopicConfig,
    WrongCorrelationId,
    WrongSize,
)
from tests.support.live_producer import live_producer, look_up, producing, submit

RETRIED = [error for error in Errors if error.retriable]
#: Of these a batch has its own story: success, duplicate, sequence, split.
SPECIAL = {
    Errors.NONE,
    Errors.DUPLICATE_SEQUENCE_NUMBER,
    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Errors.UNKNOWN_PRODUCER_ID,
    Errors.MESSAGE_TOO_LARGE,
}
#: A producer without rights, or one that speaks another language, gives up for good.
GIVE_UP = (
    Errors.CLUSTER_AUTHORIZATION_FAILED,
    Errors.UNSUPPORTED_VERSION,
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Errors.PRODUCER_FENCED,
    Errors.INVALID_PRODUCER_ID_MAPPING,
)
REFUSED = [error for error in Errors if not error.retriable and error not in {*SPECIAL, *GIVE_UP}]

SPOILT_ANSWERS = [
    Disconnect(applied=False),
    Disconnect(applied=True),
    HalfFrame(then_close=True),
    InPieces(1),
    WrongCorrelationId(),
    Garbage(0xFF),
    Garbage(0x00),
    Garbage(0x7F),
    WrongSize(),
    WrongSize(-1),
    Delay(5),
]
#: One that lists no API at all can be read, and is believed: such a node supports nothing.
SPOILT_VERSIONS = [reaction for reaction in SPOILT_ANSWERS if reaction != Garbage(0x00)]
#: Whose answers are spoilt.
ASKED = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID)
SILENT_ANSWERS = [Silence(), HalfFrame(then_close=False), WrongSize(9_999)]


def values(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def alone(n: int) -> bytes:
    """A value so long that, at batch.size 1, it has a batch for itself."""
    return b"%03d" % n + b"." * 60


# -- codes ---------------------------------------------------------------------------------------------------


def test_every_retriable_code_is_retried_until_the_record_is_stored_once_and_in_order() -> None:
    for idempotent in (True, False):
        settings = {"enable.idempotence": idempotent, "max.in.flight.requests.per.connection": 1}
        with producing(settings, brokers=2, replication_factor=2) as (cluster, producer):
            for n, error in enumerate(RETRIED):
                cluster.fail_next_produces(error, times=2)
                assert submit(producer, "orders", [b"%d" % n]).offsets() == [n], error
        assert values(cluster) == [b"%d" % n for n in range(len(RETRIED))], idempotent


def test_codes_that_are_said_of_what_was_stored_make_no_duplicates() -> None:
    with producing(brokers=2, replication_factor=2) as (cluster, producer):
        for n, error in enumerate(RETRIED):
            cluster.fail_next_produces(error, times=2, appended=True)
            assert submit(producer, "orders", [b"%d" % n]).offsets() == [n], error
    assert values(cluster) == [b"%d" % n for n in range(len(RETRIED))]


def test_every_fatal_code_fails_its_record_and_no_other() -> None:
    for idempotent in (True, False):
        with producing({"enable.idempotence": idempotent}, brokers=2, replication_factor=2) as (
            cluster,
            producer,
        ):
            for n, error in enumerate(REFUSED):
                cluster.fail_next_produces(error)
                (failure,) = submit(producer, "orders", [b"refused"]).failures()
                assert failure.error.error is error, idempotent
                may_be_stored = error is Errors.UNKNOWN_SERVER_ERROR
                assert failure.written is (Written.UNKNOWN if may_be_stored else Written.NO), error
                assert submit(producer, "orders", [b"%d" % n]).offsets() == [n], error
        assert values(cluster) == [b"%d" % n for n in range(len(REFUSED))], idempotent


def test_a_code_that_no_kafka_knows_yet_fails_its_record_and_no_other() -> None:
    with producing() as (cluster, producer):
        cluster.fail_next_produces(12_345)
        assert submit(producer, "orders", [b"refused"]).error().error is Errors.UNKNOWN_SERVER_ERROR
        assert submit(producer, "orders", [b"a"]).offsets() == [0]


def test_an_idempotent_producer_that_is_refused_as_such_fails_all_records_from_then_on() -> None:
    for error in GIVE_UP:
        with producing() as (cluster, producer):
            cluster.fail_next_produces(error)
            assert submit(producer, "orders", [b"a"]).error().error is error, error
            assert submit(producer, "orders", [b"b"]).error().error is error, error
            assert producer.status().buffer.available_bytes == producer.status().buffer.total_bytes, error
        assert values(cluster) == [], error


def test_a_batch_that_fails_with_others_behind_it_keeps_their_order() -> None:
    for error in (*RETRIED[:6], Errors.INVALID_RECORD):
        with producing({"batch.size": 1}) as (cluster, producer):
            assert submit(producer, "orders", [alone(100)]).offsets() == [0], error
            hold = cluster.hold_next(ApiKey.PRODUCE)
            reported = [submit(producer, "orders", [alone(99)])]
            hold.wait_until_held()
            cluster.fail_next_produces(error)  # for the second of those in flight
            reported += [submit(producer, "orders", [alone(n)]) for n in range(10)]
            cluster.wait_for_requests(ApiKey.PRODUCE, 2)
            hold.release()
            refused = not error.retriable
            if refused:
                assert reported.pop(1).error().error is error, error
            assert [one.offsets() for one in reported] == [[n + 1] for n in range(len(reported))], error
        assert values(cluster) == [alone(100), alone(99), *(alone(n) for n in range(int(refused), 10))], error


def test_a_very_first_batch_that_is_refused_with_others_in_flight_costs_only_itself() -> None:
    """The broker doesn't know the producer yet, so it accepts any sequence of the next batch."""
    for error in (Errors.INVALID_RECORD, Errors.MESSAGE_TOO_LARGE):
        with producing({"batch.size": 1}) as (cluster, producer):
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}, error
            hold = cluster.hold_next(ApiKey.PRODUCE)
            cluster.fail_next_produces(error)
            refused = submit(producer, "orders", [alone(13)])
            hold.wait_until_held()
            reported = [submit(producer, "orders", [alone(n)]) for n in range(12)]
            hold.release()
            assert refused.error().error is error, error
            assert [one.offsets() for one in reported] == [[n] for n in range(12)], error
            assert submit(producer, "orders", [alone(12)]).offsets() == [12], error
        assert values(cluster) == [alone(n) for n in range(13)], error


def test_a_batch_too_large_for_the_broker_is_sent_in_parts_with_others_in_flight() -> None:
    config = TopicConfig(max_message_bytes=400)
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders", config=config)
        with live_producer(cluster.bootstrap_servers, {"batch.size": 1_000}) as producer:
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
            hold = cluster.hold_next(ApiKey.PRODUCE)
            sent = [b"%03d" % n + b"." * 50 for n in range(120)]
            reported = [submit(producer, "orders", sent[at : at + 10]) for at in range(0, 120, 10)]
            hold.wait_until_held()
            hold.release()
            assert [offset for one in reported for offset in one.offsets()] == list(range(120))
            assert producer.status().buffer.available_bytes == producer.status().buffer.total_bytes
        assert values(cluster) == sent


# -- the answer's bytes --------------------------------------------------------------------------------------


def test_a_spoilt_answer_is_survived_without_loss_or_duplicate() -> None:
    for case in itertools.product(ASKED, SPOILT_ANSWERS):
        api, reaction = case
        with FakeCluster(brokers=2) as cluster:
            cluster.create_topic("orders", partitions=2, replication_factor=2)
            cluster.react_next(api, reaction, times=3)
            with live_producer(cluster.bootstrap_servers, {"batch.size": 1}) as producer:
                reported = [submit(producer, "orders", [alone(n)], partition=0) for n in range(12)]
                assert [one.offsets() for one in reported] == [[n] for n in range(12)], case
                assert producer.status().buffer.available_bytes == producer.status().buffer.total_bytes, case
            assert values(cluster) == [alone(n) for n in range(12)], case


def test_a_spoilt_answer_on_versions_is_survived() -> None:
    for reaction in SPOILT_VERSIONS:
        with FakeCluster(brokers=2) as cluster:
            cluster.create_topic("orders")
            cluster.react_next(ApiKey.API_VERSIONS, reaction, times=3)
            with live_producer(cluster.bootstrap_servers) as producer:
                assert submit(producer, "orders", [b"a"]).offsets() == [0], reaction


def test_silence_is_broken_off_after_the_request_timeout() -> None:
    for case in itertools.product(ASKED, SILENT_ANSWERS):
        api, reaction = case
        with FakeCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            cluster.react_next(api, reaction)
            settings = {"request.timeout.ms": 60, "batch.size": 1}
            with live_producer(cluster.bootstrap_servers, settings) as producer:
                reported = [submit(producer, "orders", [alone(n)]) for n in range(8)]
                assert [one.offsets() for one in reported] == [[n] for n in range(8)], case
            assert values(cluster) == [alone(n) for n in range(8)], case


def test_a_broker_that_is_silent_for_ever_fails_the_records_at_the_delivery_timeout() -> None:
    with producing({"request.timeout.ms": 1_000, "delivery.timeout.ms": 3_500, "batch.size": 1}) as (
        cluster,
        producer,
    ):
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        cluster.react_next(ApiKey.PRODUCE, Silence(), times=1_000)
        # Of one request, and so of one age: of younger batches some would be sent in the last moment.
        failures = submit(producer, "orders", [alone(n) for n in range(10)]).failures()
        # Its last request may time out in the very turn in which the records do: then that is the reason.
        assert {type(failure.error) for failure in failures} == {TimeoutError}
        assert [each.written for each in failures] == [Written.UNKNOWN] * 5 + [Written.NO] * 5


def test_a_throttle_is_waited_out() -> None:
    for api in (ApiKey.PRODUCE, ApiKey.METADATA):
        with producing() as (cluster, producer):
            cluster.throttle_next(api, 30, times=3)
            for n in range(5):
                assert submit(producer, "orders", [b"%d" % n]).offsets() == [n], api


def test_answers_of_several_brokers_may_come_in_any_order() -> None:
    with producing({"batch.size": 1}, brokers=3, partitions=3) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        holds = [cluster.hold_next(ApiKey.PRODUCE, broker_id=broker) for broker in (1, 2, 3)]
        reported = [submit(producer, "orders", [alone(n)], partition=n % 3) for n in range(30)]
        for hold in reversed(holds):
            hold.wait_until_held()
            hold.release()
        assert [one.offsets() for one in reported] == [[n // 3] for n in range(30)]


def test_connections_that_drop_again_and_again_cost_no_record_and_make_no_duplicate() -> None:
    with producing({"batch.size": 1}, brokers=2, partitions=2, replication_factor=2) as (cluster, producer):
        reported = []
        for n in range(60):
            reported.append(submit(producer, "orders", [alone(n)], partition=0))
            if n % 5 == 0:
                cluster.drop_connections(1 + n % 2)
        assert [one.offsets() for one in reported] == [[n] for n in range(60)]


# -- the producer's id ---------------------------------------------------------------------------------------


def test_a_producer_id_that_is_not_to_be_had_yet_is_asked_for_again() -> None:
    for error in (
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
    ):
        with FakeCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            cluster.fail_next_init_producer_ids(error, times=4)
            with live_producer(cluster.bootstrap_servers) as producer:
                assert submit(producer, "orders", [b"a"]).offsets() == [0], error


def test_a_producer_id_that_is_refused_fails_what_waits_and_may_be_granted_later() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.fail_next_init_producer_ids(Errors.CLUSTER_AUTHORIZATION_FAILED, times=2)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
            cluster.wait_for_requests(ApiKey.INIT_PRODUCER_ID, 1)
            errors = [submit(producer, "orders", [b"a"]).outcomes()[0] for _ in range(2)]
            assert submit(producer, "orders", [b"b"]).offsets() == [len(values(cluster)) - 1]
            assert any(hasattr(outcome, "error") for outcome in errors)


def test_a_producer_id_that_can_never_be_had_fails_every_record_soon() -> None:
    for error in (
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Errors.INVALID_REQUEST,
    ):
        with FakeCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            cluster.fail_next_init_producer_ids(error)
            with live_producer(cluster.bootstrap_servers) as producer:
                for _ in range(3):
                    failed = submit(producer, "orders", [b"a"]).error()
                    assert isinstance(failed, KafkaError), error
                    assert not failed.retriable, error
                assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}, error
            assert values(cluster) == [], error
            assert len(cluster.requests(ApiKey.INIT_PRODUCER_ID)) == 1, error


def test_a_broker_that_forgot_the_producer_is_written_to_all_the_same() -> None:
    with producing({"batch.size": 1}) as (cluster, producer):
        for n in range(20):
            if n % 4 == 0:
                cluster.forget_producers()
            if n % 5 == 0:
                cluster.fail_next_produces(Errors.UNKNOWN_PRODUCER_ID)
            if n % 6 == 0:
                cluster.fail_next_produces(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
            assert submit(producer, "orders", [b"%02d" % n]).offsets() == [n]
    assert values(cluster) == [b"%02d" % n for n in range(20)]
