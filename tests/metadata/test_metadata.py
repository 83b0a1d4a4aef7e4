"""MetadataTest: when to refresh, and which listeners are called. Twins of Java's cases bear its names.

Those of epochs, of snapshots and of leaders named by produce answers have files of their own.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.cluster import Cluster, TopicPartition
from client_core.errors import (
    AuthenticationError,
    IllegalStateError,
    InvalidTopicError,
    TopicAuthorizationError,
)
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_response import MetadataResponse, read_metadata_response
from tests.metadata.metadata_builders import CONFIG, TP, HoldingSome, answer, info, is_update_requested
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response, partition, topic
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.metadata.metadata_cache import MetadataCache

LEFT_OUT: Final = {
    "MetadataTest.NodeIfOffline": "Only consumers that read from followers ask whether a replica is online.",
    "MetadataTest.NodeIfOnlineWhenNotInReplicaSet": "Only consumers that read from followers ask for it.",
    "MetadataTest.NodeIfOnlineNonExistentTopicPartition": "Only consumers that read from followers ask it.",
}


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(CONFIG, Unjittered(0))


# -- when ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("META-05")
@pytest.mark.java("MetadataTest.MetadataUpdateAfterClose")
def test_metadata_update_after_close(metadata: Metadata) -> None:
    metadata.close()
    with pytest.raises(IllegalStateError, match="Update requested after metadata close"):
        answer(metadata)


@pytest.mark.behaviour("META-04")
@pytest.mark.java("MetadataTest.UpdateMetadataAllowedImmediatelyAfterBootstrap")
def test_update_metadata_allowed_immediately_after_bootstrap(metadata: Metadata) -> None:
    metadata.bootstrap([("localhost", 9002)])
    assert metadata.time_to_allow_update(0) == 0
    assert metadata.time_to_next_update(0) == 0
    assert metadata.update_version == 1
    assert metadata.cache.is_bootstrap


@pytest.mark.behaviour("META-01")
@pytest.mark.java("MetadataTest.TimeToNextUpdate")
@pytest.mark.parametrize(
    ("backoff_ms", "max_age_ms"), [(100, 1_000), (1_000, 100), (0, 0), (0, 100), (100, 0)]
)
def test_time_to_next_update(backoff_ms: int, max_age_ms: int) -> None:
    metadata = Metadata(MetadataConfig(backoff_ms, backoff_ms, max_age_ms), Random(0))
    larger_ms = max(backoff_ms, max_age_ms)
    now_ms = 10_000
    assert metadata.time_to_next_update(now_ms) == 0
    answer(metadata, now_ms=now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    metadata.request_update(True)
    assert metadata.time_to_next_update(now_ms) == backoff_ms
    answer(metadata, now_ms=now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    assert metadata.time_to_next_update(now_ms + larger_ms) == 0
    assert metadata.time_to_next_update(now_ms + larger_ms + 1) == 0


@pytest.mark.behaviour("META-02", "META-07")
@pytest.mark.java("MetadataTest.TimeToNextUpdateRetryBackoff")
def test_time_to_next_update_retry_backoff() -> None:
    """The draws differ from call to call, and stay within a fifth of the backoff."""
    metadata = Metadata(CONFIG, Random(1))
    metadata.failed_update(10_000)
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    metadata.request_update(True)
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    assert metadata.time_to_next_update(10_120) == 0


@pytest.mark.behaviour("META-07")
@pytest.mark.java("MetadataTest.FailedUpdate")
def test_failed_update(metadata: Metadata) -> None:
    answer(metadata, now_ms=100)
    assert metadata.time_to_next_update(1_000) == 100
    metadata.request_update(True)
    version = metadata.update_version
    metadata.failed_update(1_100)
    assert metadata.time_to_next_update(1_100) == 100
    assert metadata.last_successful_refresh_ms == 100
    assert is_update_requested(metadata)
    assert metadata.update_version == version
    answer(metadata, now_ms=100)
    assert metadata.time_to_next_update(1_000) == 100


@pytest.mark.behaviour("META-08", "META-14")
@pytest.mark.java("MetadataTest.RequestUpdate")
def test_request_update(metadata: Metadata) -> None:
    assert not is_update_requested(metadata)
    answer(metadata, 1, [topic("topic", 1)], now_ms=10)
    asked = {}
    for step, epoch in enumerate([42, 42, 41, 41, 42, 43, 43, 42, 41, 44]):
        metadata.update_last_seen_epoch_if_newer(TP, epoch)
        asked[step] = is_update_requested(metadata)
        answer(metadata)
        assert not is_update_requested(metadata)
    assert [step for step, was_asked in asked.items() if was_asked] == [0, 5, 9]


@pytest.mark.behaviour("META-06", "META-09")
@pytest.mark.java("MetadataTest.RequestVersion")
def test_request_version(metadata: Metadata) -> None:
    metadata.request_update(True)
    first = metadata.new_metadata_request_and_version(0)
    response = _read(metadata, {"topic": 1})
    metadata.update(first.request_version, response, False, 0)
    assert not is_update_requested(metadata)
    metadata.request_update_for_new_topics()
    under_way = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    metadata.update(under_way.request_version, response, True, 0)
    assert is_update_requested(metadata)
    newest = metadata.new_metadata_request_and_version(0)
    metadata.update(newest.request_version, response, True, 0)
    assert not is_update_requested(metadata)


@pytest.mark.behaviour("META-10")
@pytest.mark.java("MetadataTest.PartialMetadataUpdate")
def test_partial_metadata_update() -> None:
    metadata = HoldingSome(is_partial_supported=True)
    metadata.request_update(True)
    asked = metadata.new_metadata_request_and_version(0)
    assert (asked.is_partial, asked.reason) == (False, "manual")
    answer(metadata, 1, {"topic": 1})
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(0)
    assert (asked.is_partial, asked.reason) == (True, "topic_missing")
    answer(metadata, 1, {"topic": 1}, is_partial=True)
    assert not is_update_requested(metadata)

    metadata.request_update(True)
    metadata.request_update_for_new_topics()
    assert not metadata.new_metadata_request_and_version(0).is_partial
    answer(metadata, 1, {"topic": 1})
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    assert not metadata.new_metadata_request_and_version(CONFIG.max_age_ms).is_partial
    answer(metadata, 1, {"topic": 1}, is_partial=True, now_ms=CONFIG.max_age_ms)
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    first = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    second = metadata.new_metadata_request_and_version(0)
    assert first.is_partial
    assert second.is_partial
    metadata.update(first.request_version, _read(metadata, {"topic-1": 1}), True, 0)
    assert is_update_requested(metadata)
    metadata.update(second.request_version, _read(metadata, {"topic-2": 1}), True, 0)
    assert not is_update_requested(metadata)


def _read(metadata: Metadata, topics: Mapping[str, int]) -> MetadataResponse:
    return read_metadata_response(metadata_response(1, topics), 13, metadata.cache.topics)


def test_a_request_without_topics_to_hold_is_for_all(metadata: Metadata) -> None:
    asked = metadata.new_metadata_request_and_version(0)
    assert asked.builder.topics is None
    assert (asked.request_version, asked.is_partial, asked.reason) == (0, False, "initial")


def test_a_bootstrap_after_a_success_is_its_own_reason(metadata: Metadata) -> None:
    answer(metadata)
    metadata.bootstrap([("localhost", 9002)])
    metadata.request_update(False, "leader_error")
    assert metadata.new_metadata_request_and_version(0).reason == "bootstrap"


@pytest.mark.behaviour("META-16")
@pytest.mark.parametrize(
    ("error", "reason"), [(3, "topic_missing"), (5, "leader_error"), (29, "expired"), (17, "expired")]
)
def test_a_topic_error_of_stale_metadata_asks_for_another_update(
    metadata: Metadata, error: int, reason: str
) -> None:
    answer(metadata, 1, {}, errors={"t": error})
    assert is_update_requested(metadata) == (reason != "expired")
    assert metadata.new_metadata_request_and_version(0).reason == reason


@pytest.mark.behaviour("META-16")
def test_a_partition_error_of_stale_metadata_asks_for_another_update_each_time(metadata: Metadata) -> None:
    for _ in range(3):
        answer(metadata, 1, [topic("t", [partition(0, error=9), partition(1, error=1)])])
        assert is_update_requested(metadata)
        assert metadata.fetch().partition_count_for_topic("t") == 2


def test_an_error_code_from_the_future_asks_for_nothing(metadata: Metadata) -> None:
    answer(metadata, 1, [topic("t", [partition(0, error=999)])], errors={"u": 999})
    assert not is_update_requested(metadata)
    assert info(metadata, TopicPartition("t", 0)).error_code == 999


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("META-19")
@pytest.mark.java("MetadataTest.InvalidTopicError", "MetadataTest.TopicAuthorizationError")
@pytest.mark.parametrize(("code", "expected"), [(17, InvalidTopicError), (29, TopicAuthorizationError)])
def test_invalid_topic_and_authorization_errors(
    metadata: Metadata, code: int, expected: type[Exception]
) -> None:
    answer(metadata, 1, {}, errors={"topic dfsa": code})
    with pytest.raises(expected, match="topic dfsa"):
        metadata.maybe_throw_any_exception()
    metadata.maybe_throw_any_exception()
    answer(metadata, 1, {}, errors={"topic dfsa": code})
    answer(metadata)
    metadata.maybe_throw_any_exception()


@pytest.mark.behaviour("META-19")
@pytest.mark.java("MetadataTest.MetadataTopicErrors")
def test_metadata_topic_errors(metadata: Metadata) -> None:
    errors = {"invalidTopic": 17, "sensitiveTopic1": 29, "sensitiveTopic2": 29}
    for name, expected in [
        ("sensitiveTopic1", TopicAuthorizationError),
        ("sensitiveTopic2", TopicAuthorizationError),
        ("invalidTopic", InvalidTopicError),
    ]:
        answer(metadata, 1, {}, errors=errors)
        with pytest.raises(expected, match=rf"\[{name}\]"):
            metadata.maybe_throw_exception_for_topic(name)
        metadata.maybe_throw_any_exception()
    answer(metadata, 1, {}, errors=errors)
    metadata.maybe_throw_exception_for_topic("anotherTopic")
    metadata.maybe_throw_any_exception()
    assert metadata.fetch().invalid_topics == {"invalidTopic"}


def test_a_response_ends_what_was_fatal_before_it(metadata: Metadata) -> None:
    """A caller that waits for another topic hours later does not get an old refusal."""
    metadata.fatal_error(AuthenticationError("the password was wrong"))
    answer(metadata)
    metadata.maybe_throw_fatal_exception()
    metadata.maybe_throw_any_exception()


@pytest.mark.behaviour("META-20")
def test_a_fatal_error_is_raised_once(metadata: Metadata) -> None:
    metadata.fatal_error(AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        metadata.maybe_throw_fatal_exception()
    metadata.maybe_throw_fatal_exception()


# -- telling, and threads ------------------------------------------------------------------------------------


def test_listeners_are_called_for_updates_fatal_errors_and_close_without_the_lock(metadata: Metadata) -> None:
    reported: list[int] = []

    def listen() -> None:
        other = threading.Thread(target=lambda: reported.append(metadata.time_to_next_update(0)))
        other.start()
        other.join(patient(30))

    metadata.on_change(listen)
    metadata.bootstrap([("localhost", 9092)])
    metadata.failed_update(0)
    assert len(reported) == 0
    answer(metadata, 1, {"topic": 1})
    metadata.update_partition_leadership({TP: LeaderIdAndEpoch(0, 1)}, [])
    assert len(reported) == 1
    metadata.fatal_error(AuthenticationError())
    metadata.close()
    assert len(reported) == 3
    assert metadata.is_closed


@pytest.mark.behaviour("META-23")
def test_rebootstrap_begins_with_the_first_addresses_again(metadata: Metadata) -> None:
    metadata.bootstrap([("first", 1), ("second", 2)])
    answer(metadata, 3, {"topic": 1}, now_ms=70)
    metadata.rebootstrap()
    assert metadata.fetch() == Cluster.bootstrap([("first", 1), ("second", 2)])
    assert metadata.cache.topics == {}
    assert metadata.cache.last_successful_refresh_ms == 70
    assert metadata.update_version == 3
    assert is_update_requested(metadata)


@pytest.mark.behaviour("META-21")
def test_readers_see_whole_snapshots_only(metadata: Metadata) -> None:
    """Here all numbers of one grow together."""
    answer(metadata, 10, {"topic": 10}, epoch=10)
    is_over = threading.Event()
    torn: list[tuple[int, int | None, int | None]] = []

    def look() -> None:
        while not is_over.is_set():
            cache = metadata.cache
            seen = len(cache.cluster.nodes), cache.partition_count("topic"), cache.leader_and_epoch_for(TP)[1]
            if len(set(seen)) != 1:
                torn.append(seen)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for size in range(11, 60):
        answer(metadata, size, {"topic": size}, epoch=size)
    is_over.set()
    for reader in readers:
        reader.join(patient(30))
    assert torn == []
    assert metadata.cache.leader_and_epoch_for(TP)[1] == 59


@pytest.mark.behaviour("META-21")
@pytest.mark.java("MetadataTest.ConcurrentUpdateAndFetchForSnapshotAndCluster")
def test_concurrent_update_and_fetch_for_snapshot_and_cluster(metadata: Metadata) -> None:
    answer(metadata, 10, {"topic": 1, "other": 1}, epoch=100, is_partial=True)
    assert metadata.fetch() is metadata.cache.cluster
    assert len(metadata.fetch().nodes) == 10
    assert [metadata.fetch().partition_count_for_topic(name) for name in ("topic", "other")] == [1, 1]
    assert metadata.cache.leader_and_epoch_for(TP)[1] == 100
    was_updated = threading.Event()

    def update(number: int) -> None:
        topics = {"topic": 1 + number, "other": 1 + number}
        answer(metadata, 10 + number, topics, epoch=100 + number, is_partial=True)
        was_updated.set()

    def look(_: int) -> tuple[MetadataCache, Cluster]:
        assert was_updated.wait(30)
        return metadata.cache, metadata.fetch()

    with ThreadPoolExecutor(6) as threads:
        updates = [threads.submit(update, number) for number in (2, 4, 6)]
        looks = [threads.submit(look, number) for number in (1, 3, 5)]
    for done in updates:
        done.result()
    for seen in looks:
        cache, cluster = seen.result()
        for picture in (cache.cluster, cluster):
            assert len(picture.nodes) > 10
            assert all((picture.partition_count_for_topic(name) or 0) > 1 for name in ("topic", "other"))
        assert (cache.leader_and_epoch_for(TP)[1] or 0) > 100


@pytest.mark.java("MetadataTest.ClusterListenerGetsNotifiedOfUpdate")
def test_cluster_listener_gets_notified_of_update(metadata: Metadata) -> None:
    reported: list[str | None] = []
    metadata.on_change(lambda: reported.append(metadata.fetch().cluster_id))
    metadata.bootstrap([("www.example.com", 9002)])
    assert reported == []
    answer(metadata, 1, {"topic": 1, "topic1": 1}, cluster_id="dummy", now_ms=100)
    assert reported == ["dummy"]


def test_known_metadata_is_still_served_after_a_rebootstrap(metadata: Metadata) -> None:
    metadata.bootstrap([("first", 1)])
    assert metadata.answered_cache is metadata.cache
    answer(metadata, 3, {"topic": 2})
    known = metadata.cache
    metadata.rebootstrap()
    assert metadata.cache.is_bootstrap
    assert metadata.answered_cache is known
    answer(metadata, 3, {"topic": 3})
    assert metadata.answered_cache is metadata.cache


def test_a_lower_age_is_in_force_at_once(metadata: Metadata) -> None:
    answer(metadata)
    metadata.lower_max_age(400)
    assert metadata.max_age_ms == 400
    assert metadata.time_to_next_update(0) == 400
    metadata.lower_max_age(500)
    assert metadata.max_age_ms == 400


def test_the_defaults_are_kafka_s() -> None:
    assert MetadataConfig() == MetadataConfig(100, 1_000, 5 * 60_000, 5 * 60_000)


def test_a_wait_for_all_topics_sees_which_full_request_was_answered(metadata: Metadata) -> None:
    assert metadata.full_requests == (0, 0)
    metadata.new_metadata_request_and_version(0)
    assert metadata.full_requests == (1, 0)
    answer(metadata)
    assert metadata.full_requests == (1, 1)


def test_until_metadata_expires_each_turn_gets_the_time_left(metadata: Metadata) -> None:
    answer(metadata, now_ms=0)
    assert [metadata.time_to_next_update(now_ms) for now_ms in (0, 0, 1)] == [1_000, 1_000, 999]
    assert metadata.time_to_next_update(CONFIG.max_age_ms) == 0
