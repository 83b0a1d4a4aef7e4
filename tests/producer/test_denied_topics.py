"""A broker that has just started denies topics that are there: nobody is told that they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import MetadataResult
from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from tests.support.live_producer import PATIENCE_MS, Outcome, producing

if TYPE_CHECKING:
    from client_core import KafkaProducer
    from client_core.protocol.messages.metadata_response import MetadataResponse


def look_up(producer: KafkaProducer, topic: str) -> MetadataResult:
    reported = Outcome()
    deadline_ms = producer.clock.now_ms() + PATIENCE_MS
    producer.request_topics([topic], deadline_ms=deadline_ms, create=False, settle=True, done=reported)
    return reported.result(MetadataResult)


def refresh(producer: KafkaProducer) -> None:
    reported = Outcome()
    producer.request_update(deadline_ms=producer.clock.now_ms() + PATIENCE_MS, done=reported)
    assert reported.result(MetadataResult).error is None


def denied(answer: MetadataResponse) -> MetadataResponse:
    code = Errors.UNKNOWN_TOPIC_OR_PARTITION.code
    topics = tuple(topic._replace(error_code=code, partitions=()) for topic in answer.topics)
    return answer._replace(topics=topics)


@pytest.mark.parametrize("stale", [1, 2])
def test_a_topic_that_one_broker_denies_after_its_start_is_told_by_the_other(stale: int) -> None:
    with producing(brokers=2, partitions=2) as (cluster, producer):
        assert look_up(producer, "orders").topic_errors == {}
        cluster.change_next(ApiKey.METADATA, denied, times=10_000, broker_id=stale)
        for _ in range(10):
            refresh(producer)
            found = look_up(producer, "orders")
            assert found.topic_errors == {}
            assert found.cache.partition_count("orders") == 2


def test_a_topic_that_is_deleted_is_told_to_be_missing_once_both_brokers_deny_it() -> None:
    with producing(brokers=2, partitions=2) as (cluster, producer):
        assert look_up(producer, "orders").topic_errors == {}
        cluster.delete_topic("orders")
        refresh(producer)
        error = look_up(producer, "orders").topic_errors["orders"]
        assert error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
        asked = {seen.broker_id for seen in cluster.requests(ApiKey.METADATA)[-3:]}
        assert asked == {1, 2}
