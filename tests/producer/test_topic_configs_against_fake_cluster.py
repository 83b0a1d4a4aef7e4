"""The configs of topics over loopback: versions, refusals by topic, brokers that go away and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import (
    KafkaProducer,
    NoBrokersError,
    TimeoutError,
    TopicAuthorizationError,
    TopicConfig,
    TopicConfigsResult,
    UnknownTopicOrPartitionError,
)
from client_core.protocol.api_keys import ApiKey
from client_core.testing import KAFKA_2_1, KAFKA_4_3, Disconnect, FakeCluster, HalfFrame, Reaction
from client_core.testing import TopicConfig as ClusterTopicConfig
from tests.support.live_producer import PATIENCE_MS, Outcome, live_producer, producing

if TYPE_CHECKING:
    from client_core.testing.api_versions import Versions


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
