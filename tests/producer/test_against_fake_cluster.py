"""The whole producer over loopback against a fake cluster: versions, leaders, topics that change.

Brokers do what happens in ordinary operation. They speak old versions, lose a leadership while a batch is on
its way, answer with stale metadata, and delete a topic and create one of the same name.
"""

from __future__ import annotations

import copy
import gc
import pickle
from typing import TYPE_CHECKING

import pytest

from client_core import (
    Errors,
    InvalidTopicError,
    KafkaProducer,
    ListingResult,
    MetadataResult,
    NoBrokersError,
    ProducerRecord,
    TimeoutError,
    TopicAuthorizationError,
    TopicConfig,
    TopicConfigsResult,
    UnknownTopicOrPartitionError,
    Written,
)
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.testing import KAFKA_2_1, KAFKA_4_3, Disconnect, FakeCluster, HalfFrame, Reaction
from client_core.testing import TopicConfig as ClusterTopicConfig
from tests.support.live_producer import (
    PATIENCE_MS,
    PATIENCE_S,
    Outcome,
    live_producer,
    look_up,
    producing,
    submit,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.protocol.messages.metadata_response import MetadataResponse
    from client_core.testing.api_versions import Versions


@pytest.mark.behaviour("BAT-02")
def test_a_callback_that_raises_keyboard_interrupt_costs_the_other_records_nothing() -> None:
    """No signal is raised on the I/O thread: it is the callback's own, such as another future's error."""
    seen: list[int | None] = []

    def leave(_: object) -> None:
        raise KeyboardInterrupt

    with producing({"linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as (_, producer):
        futures = [producer.send(ProducerRecord("orders", b"x"), leave) for _ in range(3)]
        for future in futures:
            future.add_done_callback(lambda ended: seen.append(ended.result(0).offset))
        producer.flush()
        assert [future.result(PATIENCE_S).offset for future in futures] == seen == [0, 1, 2]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_producer_is_not_copied_and_goes_on(copied: Callable[[KafkaProducer], object]) -> None:
    with producing({}) as (_, producer):
        with pytest.raises(TypeError, match="can't be copied or pickled: create another one"):
            copied(producer)
        gc.collect()
        assert producer.send(ProducerRecord("orders", b"x")).result(PATIENCE_S).offset == 0


def values(cluster: FakeCluster, topic: str, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


def listing(producer: KafkaProducer) -> Outcome:
    reported = Outcome()
    producer.list_topics(deadline_ms=producer.clock.now_ms() + PATIENCE_MS, done=reported)
    return reported


def refresh(producer: KafkaProducer) -> Outcome:
    reported = Outcome()
    producer.request_update(deadline_ms=producer.clock.now_ms() + PATIENCE_MS, done=reported)
    return reported


# -- versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
def test_brokers_as_old_as_2_1_are_produced_to_and_looked_up(idempotent: bool) -> None:
    with FakeCluster(brokers=3, versions=KAFKA_2_1) as cluster:
        cluster.create_topic("orders", partitions=3)
        with live_producer(cluster.bootstrap_servers, {"enable.idempotence": idempotent}) as producer:
            reported = [submit(producer, "orders", [b"%d" % p], partition=p) for p in range(3)]
            assert [one.offsets() for one in reported] == [[0], [0], [0]]
            assert (
                producer.send(ProducerRecord("orders", b"last", partition=0)).result(PATIENCE_S).offset == 1
            )
            found = look_up(producer, "orders", "absent").result(MetadataResult)
            assert found.cache.partition_count("orders") == 3
            assert isinstance(found.topic_errors["absent"], UnknownTopicOrPartitionError)
            listed = listing(producer).result(ListingResult).listing
            assert listed is not None
            assert [topic.name for topic in listed.topics.values()] == ["orders"]
        assert {seen.version for seen in cluster.requests(ApiKey.PRODUCE)} == {7}
        assert values(cluster, "orders") == [b"0", b"last", b"1", b"2"]


def test_a_leader_that_moves_is_found_by_brokers_of_2_1_too() -> None:
    with FakeCluster(brokers=3, versions=KAFKA_2_1) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert submit(producer, "orders", [b"a"]).offsets() == [0]
            cluster.move_leader("orders", 0, 3)
            assert submit(producer, "orders", [b"b"]).offsets() == [1]


def test_a_cluster_of_mixed_versions_is_spoken_to_by_each_brokers_own() -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.set_versions(KAFKA_2_1, broker_id=1)
        cluster.create_topic("orders", partitions=2)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert submit(producer, "orders", [b"old"], partition=0).offsets() == [0]
            assert submit(producer, "orders", [b"new"], partition=1).offsets() == [0]
        assert {s.version for s in cluster.requests(ApiKey.PRODUCE, broker_id=1)} == {7}
        assert {s.version for s in cluster.requests(ApiKey.PRODUCE, broker_id=2)} == {13}


def test_brokers_that_are_upgraded_are_spoken_to_in_the_new_version_after_the_next_connect() -> None:
    with FakeCluster(brokers=1, versions=KAFKA_2_1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers) as producer:
            assert submit(producer, "orders", [b"a"]).offsets() == [0]
            cluster.kill(1)
            cluster.set_versions(KAFKA_4_3)
            cluster.revive(1)
            assert submit(producer, "orders", [b"b"]).offsets() == [1]
        assert [s.version for s in cluster.requests(ApiKey.PRODUCE)][-1] == 13


# -- leaders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hints", [True, False], ids=["leader named", "no leader named"])
def test_a_leader_that_moves_between_batches_costs_no_record(hints: bool) -> None:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        if not hints:
            cluster.set_versions({**KAFKA_4_3, ApiKey.PRODUCE.id: (3, 9)})
        with live_producer(cluster.bootstrap_servers) as producer:
            for n in range(9):
                cluster.move_leader("orders", 0, n % 3 + 1)
                assert submit(producer, "orders", [b"%d" % n], partition=0).offsets() == [n]
        assert values(cluster, "orders") == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize("hints", [True, False], ids=["leader named", "no leader named"])
def test_a_leader_that_moves_with_five_batches_in_flight_costs_neither_order_nor_record(hints: bool) -> None:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        if not hints:
            cluster.set_versions({**KAFKA_4_3, ApiKey.PRODUCE.id: (3, 9)})
        with live_producer(cluster.bootstrap_servers, {"batch.size": 1}) as producer:
            assert submit(producer, "orders", [b"first"], partition=0).offsets() == [0]
            hold = cluster.hold_next(ApiKey.PRODUCE, broker_id=1)
            reported = [submit(producer, "orders", [b"%060d" % n], partition=0) for n in range(20)]
            hold.wait_until_held()
            cluster.move_leader("orders", 0, 2)  # the first of them is stored, the others are not
            hold.release()
            assert [one.offsets() for one in reported] == [[n + 1] for n in range(20)]
        assert values(cluster, "orders") == [b"first", *(b"%060d" % n for n in range(20))]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    with producing(brokers=2, replication_factor=2) as (cluster, producer):
        assert submit(producer, "orders", [b"a"], partition=0).offsets() == [0]
        cluster.move_leader("orders", 0, None)
        reported = submit(producer, "orders", [b"b"], partition=0)
        seen = len(cluster.requests(ApiKey.METADATA))
        cluster.wait_for_requests(ApiKey.METADATA, seen + 3)
        assert not reported.is_reported
        cluster.move_leader("orders", 0, 2)
        assert reported.offsets() == [1]


def test_a_broker_with_stale_metadata_is_not_believed() -> None:
    with producing(brokers=3, replication_factor=3) as (cluster, producer):
        assert submit(producer, "orders", [b"0"], partition=0).offsets() == [0]
        cluster.freeze_metadata(3)
        cluster.move_leader("orders", 0, 2)
        for n in range(1, 10):
            assert submit(producer, "orders", [b"%d" % n], partition=0).offsets() == [n]
            assert refresh(producer).result(MetadataResult).error is None
    assert values(cluster, "orders") == [b"%d" % n for n in range(10)]


def test_an_unnoticed_death_of_a_leader_is_survived() -> None:
    with producing({"batch.size": 1}, brokers=3, replication_factor=3) as (cluster, producer):
        assert submit(producer, "orders", [b"first"], partition=0).offsets() == [0]
        cluster.kill(1, elect=False)
        reported = [submit(producer, "orders", [b"%d" % n], partition=0) for n in range(10)]
        seen = len(cluster.requests(ApiKey.METADATA))
        cluster.wait_for_requests(ApiKey.METADATA, seen + 3)
        assert not any(one.is_reported for one in reported)
        cluster.notice_death(1)
        assert [one.offsets() for one in reported] == [[n + 1] for n in range(10)]


def test_a_cluster_that_is_gone_and_comes_back_elsewhere_is_found_by_its_bootstrap_address() -> None:
    with producing(brokers=3, replication_factor=3) as (cluster, producer):
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        for broker in (1, 2, 3):
            cluster.kill(broker, elect=False)
        reported = submit(producer, "orders", [b"b"])
        cluster.revive(1)
        cluster.revive(2, new_port=True)
        cluster.revive(3, new_port=True)
        assert reported.offsets() == [1]


# -- topics that change --------------------------------------------------------------------------------------


def test_a_topic_that_is_made_anew_is_written_to_under_its_new_id() -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders", leader_epoch=7)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert submit(producer, "orders", [b"a"]).offsets() == [0]
            cluster.delete_topic("orders")
            cluster.create_topic("orders")
            assert submit(producer, "orders", [b"b"]).offsets() == [0]
            assert submit(producer, "orders", [b"c"]).offsets() == [1]
        assert values(cluster, "orders") == [b"b", b"c"]
        ids = {
            topic.topic_id
            for seen in cluster.requests(ApiKey.PRODUCE)
            if isinstance(seen.message, ProduceRequest)
            for topic in seen.message.topic_data
        }
        assert len(ids) == 2


def test_a_record_that_was_sent_to_a_deleted_topic_may_still_be_written_after_its_deadline() -> None:
    with producing() as (cluster, producer):
        assert submit(producer, "orders", [b"a"]).offsets() == [0]
        cluster.delete_topic("orders")
        (late,) = submit(producer, "orders", [b"b"], deadline_in_ms=1_000).failures()
        assert isinstance(late.error, TimeoutError)
        assert late.written is Written.UNKNOWN  # a broker was asked, and may be asked again
        reported = submit(producer, "orders", [b"c"])
        cluster.create_topic("orders")
        assert reported.offsets() == [1]
    assert values(cluster, "orders") == [b"b", b"c"]


def test_a_record_for_a_partition_that_is_still_to_come_waits_for_it_and_blocks_no_other() -> None:
    with producing(brokers=2) as (cluster, producer):
        early = submit(producer, "orders", [b"early"], partition=3)
        assert submit(producer, "orders", [b"a"], partition=0).offsets() == [0]
        assert not early.is_reported
        cluster.add_partitions("orders", 4)
        assert early.offsets() == [0]


def test_a_topic_is_made_by_a_record_but_not_by_a_look_up() -> None:
    with FakeCluster(brokers=2, auto_create=True, auto_create_partitions=2) as cluster:
        cluster.create_topic("other")
        with live_producer(cluster.bootstrap_servers) as producer:
            error = look_up(producer, "orders").result(MetadataResult).topic_errors["orders"]
            assert isinstance(error, UnknownTopicOrPartitionError)
            assert isinstance(
                submit(producer, "orders", [b"a"], create=False, block_in_ms=100).error(), TimeoutError
            )
            assert list(cluster.topic_names()) == ["other"]
            assert submit(producer, "orders", [b"a"]).offsets() == [0]
            assert producer.cache.partition_count("orders") == 2


def test_a_forbidden_topic_fails_those_who_write_and_those_who_look_until_it_is_permitted() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.forbid("orders")
        with live_producer(cluster.bootstrap_servers) as producer:
            assert isinstance(submit(producer, "orders", [b"a"]).error(), TopicAuthorizationError)
            error = look_up(producer, "orders").result(MetadataResult).topic_errors["orders"]
            assert isinstance(error, TopicAuthorizationError)
            future = producer.send(ProducerRecord("orders", b"a"))
            assert isinstance(future.exception(PATIENCE_S), TopicAuthorizationError)
            cluster.permit("orders")
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
            assert submit(producer, "orders", [b"a"]).offsets() == [0]


def test_a_topic_that_may_be_seen_and_not_written_fails_the_record_as_not_written() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.forbid("orders", describe=False)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert isinstance(submit(producer, "orders", [b"a"]).error(), TopicAuthorizationError)
            cluster.permit("orders")
            assert submit(producer, "orders", [b"a"]).offsets() == [0]


def test_an_illegal_name_fails_at_once_and_blocks_no_other() -> None:
    with producing() as (_, producer):
        assert isinstance(submit(producer, "no topic!", [b"a"]).error(), InvalidTopicError)
        assert submit(producer, "orders", [b"a"]).offsets() == [0]


# -- look-ups ------------------------------------------------------------------------------------------------


def test_a_refresh_is_not_answered_by_what_a_broker_was_asked_before() -> None:
    with producing() as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        hold = cluster.hold_next(ApiKey.METADATA)
        early = refresh(producer)
        hold.wait_until_held()
        cluster.add_partitions("orders", 5)  # after the broker looked, before it is heard
        late = refresh(producer)
        hold.release()
        assert early.result(MetadataResult).error is None
        assert late.result(MetadataResult).cache.partition_count("orders") == 5


def test_a_list_is_not_answered_by_what_a_broker_was_asked_before() -> None:
    with producing() as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        hold = cluster.hold_next(ApiKey.METADATA)
        early = listing(producer)
        hold.wait_until_held()
        cluster.create_topic("later")
        late = listing(producer)
        hold.release()
        assert early.result(ListingResult).error is None
        listed = late.result(ListingResult).listing
        assert listed is not None
        assert "later" in listed.topics


def test_a_look_up_that_is_cancelled_is_not_reported_even_if_its_answer_is_on_the_way() -> None:
    with producing() as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        cluster.create_topic("later")
        hold = cluster.hold_next(ApiKey.METADATA)
        reported, other = look_up(producer, "later"), look_up(producer, "later")
        hold.wait_until_held()
        reported.cancel()
        hold.release()
        assert other.result(MetadataResult).topic_errors == {}
        assert reported.results == []


def test_a_refused_refresh_is_tried_again_until_it_succeeds() -> None:
    with producing(brokers=2) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        cluster.change_next(ApiKey.METADATA, lambda r: r._replace(brokers=()), times=5)
        assert refresh(producer).result(MetadataResult).error is None


def test_a_topic_with_an_error_that_passes_is_found_when_it_has_passed() -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders")

        def without_leader(response: object) -> object:
            topics = tuple(
                topic._replace(error_code=Errors.LEADER_NOT_AVAILABLE.code, partitions=())
                for topic in response.topics  # type: ignore[attr-defined]
            )
            return response._replace(topics=topics)  # type: ignore[attr-defined]

        cluster.change_next(ApiKey.METADATA, without_leader, times=4)  # type: ignore[arg-type]
        with live_producer(cluster.bootstrap_servers) as producer:
            assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
            assert submit(producer, "orders", [b"a"]).offsets() == [0]


def test_nobody_stays_connected_to_bootstrap_servers_once_the_brokers_are_known() -> None:
    with producing(brokers=3, partitions=3) as (_, producer):
        reported = [submit(producer, "orders", [b"x"], partition=partition) for partition in range(3)]
        assert [len(one.offsets()) for one in reported] == [1, 1, 1]
        assert sorted(node.id for node in producer.status().nodes) == [1, 2, 3]


# -- topics that a broker denies after its start -------------------------------------------------------------


def denied(answer: MetadataResponse) -> MetadataResponse:
    code = Errors.UNKNOWN_TOPIC_OR_PARTITION.code
    topics = tuple(topic._replace(error_code=code, partitions=()) for topic in answer.topics)
    return answer._replace(topics=topics)


@pytest.mark.parametrize("stale", [1, 2])
def test_a_topic_that_one_broker_denies_after_its_start_is_returned_by_the_other(stale: int) -> None:
    with producing(brokers=2, partitions=2) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        cluster.change_next(ApiKey.METADATA, denied, times=10_000, broker_id=stale)
        for _ in range(10):
            assert refresh(producer).result(MetadataResult).error is None
            found = look_up(producer, "orders").result(MetadataResult)
            assert found.topic_errors == {}
            assert found.cache.partition_count("orders") == 2


def test_a_deleted_topic_is_reported_as_missing_once_both_brokers_deny_it() -> None:
    with producing(brokers=2, partitions=2) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        cluster.delete_topic("orders")
        assert refresh(producer).result(MetadataResult).error is None
        error = look_up(producer, "orders").result(MetadataResult).topic_errors["orders"]
        assert error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
        asked = {seen.broker_id for seen in cluster.requests(ApiKey.METADATA)[-3:]}
        assert asked == {1, 2}


# -- configs of topics ---------------------------------------------------------------------------------------


def describe(producer: KafkaProducer, topic: str, *, deadline_in_ms: int = PATIENCE_MS) -> Outcome:
    reported = Outcome()
    deadline_ms = producer.clock.now_ms() + deadline_in_ms
    reported.ticket = producer.describe_topic_configs(topic, deadline_ms=deadline_ms, done=reported)
    return reported


@pytest.mark.parametrize(("versions", "spoken"), [(KAFKA_2_1, 2), (KAFKA_4_3, 4)], ids=["2.1", "4.3"])
def test_configs_are_asked_for_in_the_brokers_version(versions: Versions, spoken: int) -> None:
    with FakeCluster(brokers=3, versions=versions) as cluster:
        cluster.create_topic("orders", config=ClusterTopicConfig(min_insync_replicas=2))
        with live_producer(cluster.bootstrap_servers) as producer:
            reported = describe(producer, "orders").result(TopicConfigsResult)
            assert reported.configs is not None
            assert reported.configs["min.insync.replicas"] == TopicConfig("2")
            assert reported.configs["message.timestamp.type"] == TopicConfig("CreateTime", is_default=True)
        assert [seen.version for seen in cluster.requests(ApiKey.DESCRIBE_CONFIGS)] == [spoken]


def test_a_topic_whose_configs_may_not_be_seen_costs_no_other_its_own() -> None:
    with FakeCluster(brokers=1) as cluster:
        for topic in ("orders", "secret"):
            cluster.create_topic(topic)
        cluster.forbid_configs("secret")
        with live_producer(cluster.bootstrap_servers) as producer:
            hold = cluster.hold_next(ApiKey.DESCRIBE_CONFIGS)
            first = describe(producer, "orders")
            hold.wait_until_held()
            rest = [describe(producer, topic) for topic in ("orders", "secret", "absent")]
            hold.release()
            assert first.result(TopicConfigsResult).error is None
            given, refused, missing = [one.result(TopicConfigsResult) for one in rest]
            assert given.configs is not None
            assert isinstance(refused.error, TopicAuthorizationError)
            assert isinstance(missing.error, UnknownTopicOrPartitionError)
        assert len(cluster.requests(ApiKey.DESCRIBE_CONFIGS)) == 2


@pytest.mark.parametrize("reaction", [Disconnect(), HalfFrame(then_close=True)], ids=repr)
def test_an_answer_that_was_lost_is_asked_for_again(reaction: Reaction) -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        cluster.react_next(ApiKey.DESCRIBE_CONFIGS, reaction)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert describe(producer, "orders").result(TopicConfigsResult).configs is not None


def test_a_broker_that_does_not_answer_costs_its_askers_no_more_than_their_deadlines() -> None:
    with producing() as (cluster, producer):
        look_up(producer, "orders").result(MetadataResult)  # before it, the error may be that of no broker
        hold = cluster.hold_next(ApiKey.DESCRIBE_CONFIGS)
        reported = describe(producer, "orders", deadline_in_ms=60)
        assert isinstance(reported.result(TopicConfigsResult).error, TimeoutError)
        hold.release()


def test_without_brokers_it_ends_at_its_deadline() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.kill(1)
        with live_producer(cluster.bootstrap_servers) as producer:
            reported = describe(producer, "orders", deadline_in_ms=60)
            assert isinstance(reported.result(TopicConfigsResult).error, NoBrokersError)
