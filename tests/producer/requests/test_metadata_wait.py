"""The decision about missing metadata, and the error of a wait in vain (PROD-01..04)."""

from __future__ import annotations

from random import Random

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    Cause,
    InvalidTopicError,
    NoBrokersError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from client_core.events import NO_EVENTS, NodeDisconnected
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_cache import MetadataCache
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.requests.metadata_wait import (
    Fail,
    Known,
    Wait,
    judge_metadata_wait,
    metadata_timeout,
)
from client_core.producer.requests.refreshes import RefreshFailures
from tests.support.metadata_responses import read
from tests.support.mock_clock import MockClock

INVALID, UNAUTHORIZED, UNKNOWN = 17, 29, 3


def cache_of(topics: dict[str, int], errors: dict[str, int] | None = None) -> MetadataCache:
    metadata = Metadata(MetadataConfig(), Random(1))
    metadata.update(0, read(nodes=1, topics=topics, errors=errors), False, 0)
    return metadata.cache


def test_a_topic_that_is_known_can_be_appended_to() -> None:
    assert judge_metadata_wait(cache_of({"orders": 3}), "orders", None, answered=False) == Known(3)


def test_a_topic_that_is_not_known_is_waited_for() -> None:
    assert judge_metadata_wait(cache_of({"orders": 3}), "other", 0, answered=True) is Wait.FOR_TOPIC


@pytest.mark.parametrize(("partition", "judged"), [(2, Known(3)), (3, Wait.FOR_PARTITION)])
def test_a_partition_out_of_range_is_waited_for(partition: int, judged: object) -> None:
    assert judge_metadata_wait(cache_of({"orders": 3}), "orders", partition, answered=True) == judged


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.behaviour("PROD-04")
def test_an_invalid_topic_fails_at_once(answered: bool) -> None:
    judged = judge_metadata_wait(cache_of({}, {"bad topic": INVALID}), "bad topic", None, answered=answered)
    assert isinstance(judged, Fail)
    assert isinstance(judged.error, InvalidTopicError)
    assert str(judged.error) == "Invalid topics: [bad topic]"


@pytest.mark.behaviour("PROD-04")
def test_a_topic_that_we_may_not_see_is_asked_for_once_more() -> None:
    cache = cache_of({}, {"secret": UNAUTHORIZED})
    assert judge_metadata_wait(cache, "secret", None, answered=False) is Wait.FOR_TOPIC
    judged = judge_metadata_wait(cache, "secret", None, answered=True)
    assert isinstance(judged, Fail)
    assert isinstance(judged.error, TopicAuthorizationError)


@pytest.mark.behaviour("PROD-02")
def test_the_timeout_for_a_topic_has_kafkas_words() -> None:
    error = metadata_timeout(cache_of({}), "orders", None, 60_000, None)
    assert str(error) == "Topic orders not present in metadata after 60000 ms."
    assert error.__cause__ is None


@pytest.mark.behaviour("PROD-03")
def test_the_timeout_for_a_partition_has_kafkas_words() -> None:
    error = metadata_timeout(cache_of({"orders": 3}), "orders", 7, 1_000, None)
    assert str(error) == (
        "Partition 7 of topic orders with partition count 3 is not present in metadata after 1000 ms."
    )


def test_a_partition_of_a_topic_that_is_not_there_is_a_missing_topic() -> None:
    error = metadata_timeout(cache_of({}), "orders", 7, 5, None)
    assert str(error) == "Topic orders not present in metadata after 5 ms."


@pytest.mark.behaviour("PROD-03")
def test_the_last_word_of_the_broker_is_the_cause() -> None:
    error = metadata_timeout(cache_of({}), "orders", None, 5, UNKNOWN)
    assert isinstance(error.__cause__, UnknownTopicOrPartitionError)


def test_without_any_answer_ever_that_is_the_cause() -> None:
    error = metadata_timeout(MetadataCache.bootstrap([("localhost", 9092)]), "orders", None, 5, None)
    assert isinstance(error.__cause__, NoBrokersError)


def test_where_no_broker_has_answered_the_error_has_the_end_of_the_last_connection() -> None:
    nobody = MetadataCache.bootstrap([("localhost", 9092)])
    error = metadata_timeout(nobody, "orders", None, 5, None, "localhost:9092 refused the connection")
    assert str(error.__cause__) == (
        "No broker of bootstrap.servers has answered; last: localhost:9092 refused the connection"
    )


def test_where_brokers_have_not_answered_for_the_topic_the_cause_is_why_they_are_silent() -> None:
    cause = Cause(Errors.NETWORK_EXCEPTION, 1, 2, 3, "broker-1:9092 does not answer", "setup_timeout")
    error = metadata_timeout(cache_of({}), "orders", None, 5, None, cause_of_silence=lambda: cause)
    assert error.cause == cause
    answered = metadata_timeout(cache_of({"orders": 3}), "orders", 7, 5, None, cause_of_silence=lambda: cause)
    assert answered.cause is None
    refused = metadata_timeout(cache_of({}), "orders", None, 5, UNKNOWN, cause_of_silence=lambda: cause)
    assert refused.cause is None


def test_the_end_of_a_connection_is_kept_for_waits_in_vain() -> None:
    clock = MockClock()
    metadata = ProducerMetadata(MetadataConfig(), Random(1), clock)
    refreshes = RefreshFailures(NO_EVENTS, clock, metadata)
    refreshes.emit(NodeDisconnected(1, "refused", "connection refused (b:9092)", 50))
    assert metadata.last_disconnection == "connection refused (b:9092), 0.0 s ago"
