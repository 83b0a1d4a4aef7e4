"""ProducerMetadataTest: which topics are held and until when, what may be created, and waiting."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import AuthenticationError, KafkaError, TimeoutError
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.metadata_cache import RefreshTime
from client_core.metadata.metadata_response import read_metadata_response
from client_core.metadata.producer_metadata import ProducerMetadata, TopicError
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.counted_work import calls_of
from tests.support.metadata_responses import metadata_response, partition, topic
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client_core.metadata.metadata import MetadataRequestAndVersion

IDLE_MS = 60_000
CONFIG = MetadataConfig(
    refresh_backoff_ms=100, refresh_backoff_max_ms=1_000, max_age_ms=1_000, max_idle_ms=IDLE_MS
)
MISSING = 3


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def metadata(clock: MockClock) -> ProducerMetadata:
    return ProducerMetadata(CONFIG, Unjittered(0), clock)


def answer(
    metadata: ProducerMetadata,
    topics: Iterable[str] | None = None,
    *,
    errors: Mapping[str, int] | None = None,
    is_partial: bool = False,
    now_ms: int = 0,
) -> None:
    """A response to the newest request; by default with the topics that the metadata holds."""
    names = sorted(metadata.topics if topics is None else topics)
    body = metadata_response(1, [topic(name) for name in names], errors=errors)
    response = read_metadata_response(body, 13, metadata.cache.topics)
    metadata.update(metadata.request_version, response, is_partial, now_ms)


def asked_for(metadata: ProducerMetadata, now_ms: int = 0) -> tuple[list[str], bool, bool]:
    """The next request: its topics, whether it may create them, and whether it is partial."""
    request = metadata.new_metadata_request_and_version(now_ms)
    return sorted(request.builder.topics or ()), request.builder.allow_auto_topic_creation, request.is_partial


def is_update_requested(metadata: ProducerMetadata) -> bool:
    return metadata.update_requested


# -- Java's cases --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PMD-04", "PMD-07", "META-01")
@pytest.mark.java("ProducerMetadataTest.Metadata")
def test_metadata(metadata: ProducerMetadata, clock: MockClock) -> None:
    now_ms = clock.now_ms()
    metadata.add("my-topic", now_ms)
    answer(metadata, [], now_ms=now_ms)
    assert metadata.time_to_next_update(now_ms) > 0
    metadata.request_update(True)
    assert metadata.time_to_next_update(now_ms) > 0
    now_ms += 100
    assert metadata.time_to_next_update(now_ms) == 0

    def fetch() -> None:
        while not metadata.fetch().partitions_for_topic("my-topic"):
            metadata.await_update(metadata.request_update(False), 500)

    with ThreadPoolExecutor(2) as threads:
        fetches = [threads.submit(fetch) for _ in range(2)]
        await_waiters(clock, 2)
        assert not any(done.done() for done in fetches)
        answer(metadata, now_ms=now_ms)
        for done in fetches:
            done.result(30)
    assert metadata.time_to_next_update(now_ms) > 0
    assert metadata.time_to_next_update(now_ms + CONFIG.max_age_ms) == 0


@pytest.mark.behaviour("PMD-01", "META-09")
@pytest.mark.java("ProducerMetadataTest.TimeToNextUpdateOverwriteBackoff")
def test_time_to_next_update_overwrite_backoff(metadata: ProducerMetadata) -> None:
    now_ms = 10_000
    answer(metadata, now_ms=now_ms)
    metadata.add("new-topic", now_ms)
    assert metadata.time_to_next_update(now_ms) == 0
    answer(metadata, now_ms=now_ms)
    metadata.add("new-topic", now_ms)
    assert metadata.time_to_next_update(now_ms) == CONFIG.max_age_ms
    metadata.add("another-new-topic", now_ms)
    assert metadata.time_to_next_update(now_ms) == 0


@pytest.mark.behaviour("PMD-02")
@pytest.mark.java("ProducerMetadataTest.TopicExpiry")
def test_topic_expiry(metadata: ProducerMetadata) -> None:
    metadata.add("topic1", 0)
    answer(metadata)
    assert metadata.contains_topic("topic1")
    answer(metadata, now_ms=IDLE_MS)
    assert not metadata.contains_topic("topic1")

    now_ms = IDLE_MS
    metadata.add("topic2", now_ms)
    answer(metadata, now_ms=now_ms)
    for _ in range(3):
        now_ms += IDLE_MS // 2
        answer(metadata, now_ms=now_ms)
        assert metadata.contains_topic("topic2")
        metadata.add("topic2", now_ms)

    metadata.add("topic3", now_ms)
    answer(metadata, now_ms=now_ms + 2 * IDLE_MS)
    assert metadata.contains_topic("topic3")


@pytest.mark.behaviour("META-02", "META-03")
@pytest.mark.java("ProducerMetadataTest.MetadataEquivalentResponsesBackoff")
def test_metadata_equivalent_responses_backoff(metadata: ProducerMetadata) -> None:
    answer(metadata)
    metadata.request_update(False)
    assert metadata.time_to_next_update(0) == 100
    answer(metadata, now_ms=120)
    metadata.request_update(False)
    assert metadata.time_to_next_update(120) == 200
    assert metadata.time_to_next_update(220) == 100
    assert metadata.time_to_next_update(320) == 0
    metadata.request_update(True)
    assert metadata.time_to_next_update(120) == 100
    metadata.close()
    with pytest.raises(KafkaError, match="Requested metadata update after close"):
        metadata.await_update(metadata.request_update(False), 500)


@pytest.mark.behaviour("PMD-01", "PMD-03")
@pytest.mark.java("ProducerMetadataTest.MetadataPartialUpdate")
def test_metadata_partial_update(metadata: ProducerMetadata) -> None:
    metadata.add("topic-one", 10_000)
    assert is_update_requested(metadata)
    assert metadata.time_to_next_update(10_000) == 0
    assert metadata.new_topics == metadata.topics == {"topic-one"}

    answer(metadata, is_partial=True, now_ms=11_000)
    assert not is_update_requested(metadata)
    assert metadata.new_topics == frozenset()
    metadata.add("topic-one", 11_000)
    assert not is_update_requested(metadata)
    assert metadata.new_topics == frozenset()

    metadata.add("topic-two", 12_000)
    metadata.add("topic-three", 13_000)
    assert metadata.new_topics == {"topic-two", "topic-three"}
    answer(metadata, ["topic-two"], is_partial=True, now_ms=14_000)
    assert metadata.topics == {"topic-one", "topic-two", "topic-three"}
    assert metadata.new_topics == {"topic-three"}


@pytest.mark.behaviour("PMD-05")
@pytest.mark.java("ProducerMetadataTest.RequestUpdateForTopic")
def test_request_update_for_topic(metadata: ProducerMetadata) -> None:
    metadata.add("topic-1", 0)
    metadata.add("topic-2", 0)
    assert metadata.request_update_for_topic("topic-1") == metadata.update_version
    answer(metadata, ["topic-1"], is_partial=True)
    assert not is_update_requested(metadata)
    metadata.request_update_for_topic("topic-1")
    assert metadata.refresh_reason == "leader_error"
    answer(metadata, ["topic-1"], is_partial=True)
    assert is_update_requested(metadata)
    answer(metadata)
    assert not is_update_requested(metadata)
    answer(metadata, ["topic-2"], errors={"topic-1": MISSING})
    metadata.request_update_for_topic("topic-1")
    assert str(metadata.refresh_reason) == "topic_missing"  # mypy remembers the reason above


@pytest.mark.behaviour("PMD-06")
def test_before_any_topic_the_request_asks_for_brokers_only(metadata: ProducerMetadata) -> None:
    request: MetadataRequestAndVersion = metadata.new_metadata_request_and_version(0)
    assert request.builder.topics == ()
    assert request.builder.allow_auto_topic_creation
    assert (request.is_partial, request.reason) == (False, "initial")


@pytest.mark.behaviour("PMD-06", "META-10")
def test_a_full_request_asks_for_all_and_a_partial_one_for_new_topics(metadata: ProducerMetadata) -> None:
    metadata.add("a", 0)
    answer(metadata)
    metadata.add("b", 0)
    assert asked_for(metadata) == (["b"], True, True)
    metadata.request_update(True)
    assert asked_for(metadata) == (["a", "b"], True, False)


@pytest.mark.behaviour("PMD-03")
def test_a_response_with_an_error_ends_newness_too(metadata: ProducerMetadata) -> None:
    metadata.add("a", 0)
    answer(metadata, [], errors={"a": 5}, is_partial=True)
    assert metadata.new_topics == frozenset()
    assert is_update_requested(metadata)


# -- holding -------------------------------------------------------------------------------------------------


def test_a_look_up_s_mark_renews_the_expiry(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    answer(metadata)
    metadata.cache.topics["t"].use.touched = True
    answer(metadata, now_ms=IDLE_MS)
    assert metadata.contains_topic("t")
    assert not metadata.cache.topics["t"].use.touched
    answer(metadata, now_ms=2 * IDLE_MS - 1)
    assert metadata.contains_topic("t")
    answer(metadata, now_ms=2 * IDLE_MS)
    assert not metadata.contains_topic("t")
    assert metadata.cache.topic("t") is None


def answer_alike(metadata: ProducerMetadata, names: Iterable[str], now_ms: int, error: int = 0) -> None:
    """The response to a full request, read as the client reads it: compared with the last as a whole.

    `error` is that of each topic's partition.
    """
    metadata.request_update(True)
    asked = metadata.new_metadata_request_and_version(now_ms)
    body = metadata_response(1, [topic(name, [partition(error=error)]) for name in names])
    response = asked.builder.decode_response(body, 13)
    metadata.update(asked.request_version, response, asked.is_partial, now_ms)


def test_unused_topics_expire_though_all_responses_are_equal(metadata: ProducerMetadata) -> None:
    names = ("unused", "used")
    for name in names:
        metadata.add(name, 0)
    answer_alike(metadata, names, 0)
    tables = metadata.cache.topics
    for now_ms in (*range(1_000, IDLE_MS, 1_000), IDLE_MS - 1):
        metadata.cache.topics["used"].use.touched = True
        answer_alike(metadata, names, now_ms)
        assert metadata.cache.topics is tables
        assert metadata.cache.last_successful_refresh_ms == now_ms
    answer_alike(metadata, names, IDLE_MS)
    assert metadata.topics == metadata.cache.topics.keys() == {"used"}


def test_topics_that_stay_are_not_looked_at_one_by_one(metadata: ProducerMetadata) -> None:
    names = ["a", "b", "c"]
    for name in names:
        metadata.add(name, 0)
    answer_alike(metadata, names, 0)
    look = ProducerMetadata.retain_topic.__code__
    assert calls_of(look, lambda: answer_alike(metadata, names, 10)) == 0
    metadata.add("late", 10)
    assert calls_of(look, lambda: answer(metadata, ["late"], is_partial=True, now_ms=20)) == 1


def test_a_partition_s_error_asks_for_another_update_after_each_equal_response(
    metadata: ProducerMetadata,
) -> None:
    metadata.add("t", 0)
    for now_ms in (0, 10):
        answer_alike(metadata, ["t"], now_ms, Errors.LEADER_NOT_AVAILABLE.code)
        assert is_update_requested(metadata)


def test_a_topic_that_is_added_between_equal_responses_stays_new_until_one_has_it(
    metadata: ProducerMetadata,
) -> None:
    metadata.add("early", 0)
    answer_alike(metadata, ["early"], 0)
    metadata.add("late", 0)
    answer_alike(metadata, ["early"], 10)
    assert metadata.new_topics == {"late"}
    answer_alike(metadata, ["early", "late"], 20)
    assert metadata.cache.topics.keys() == {"early", "late"}
    assert metadata.new_topics == frozenset()


def test_a_topic_s_error_is_gone_after_a_response_that_equals_the_last_full_one(
    metadata: ProducerMetadata,
) -> None:
    metadata.add("t", 0)
    answer_alike(metadata, ["t"], 0)
    metadata.add("denied", 0)
    answer(metadata, [], errors={"denied": Errors.TOPIC_AUTHORIZATION_FAILED.code}, is_partial=True)
    assert metadata.cache.cluster.unauthorized_topics == {"denied"}
    answer_alike(metadata, ["t"], 10)
    assert metadata.cache.cluster.unauthorized_topics == frozenset()


def test_configured_topics_never_expire(metadata: ProducerMetadata) -> None:
    metadata.add("early", 0)
    metadata.configure_topics(["early", "late"])
    assert asked_for(metadata) == (["early", "late"], False, False)
    answer(metadata)
    metadata.add("late", 0)
    answer(metadata, now_ms=100 * IDLE_MS)
    assert metadata.topics == {"early", "late"}


def test_a_topic_that_is_configured_later_is_not_asked_for_again(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    answer(metadata)
    metadata.configure_topics(["t"])
    assert not is_update_requested(metadata)
    assert metadata.new_topics == frozenset()


def test_topics_that_are_not_held_are_not_kept(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    answer(metadata, ["t", "stray"])
    assert set(metadata.cache.topics) == {"t"}
    assert metadata.retain_topic("t", 0)
    assert not metadata.retain_topic("stray", 0)


def test_a_missing_topic_can_be_discarded(metadata: ProducerMetadata) -> None:
    metadata.configure_topics(["configured"])
    for name in ("there", "missing"):
        metadata.add(name, 0)
    answer(metadata, ["there"], errors={"missing": MISSING, "configured": MISSING})
    for name in ("there", "missing", "configured", "never added"):
        metadata.discard(name)
    assert metadata.topics == {"there", "configured"}
    assert metadata.topic_error("missing") is None


def test_each_topic_knows_when_it_was_refreshed(metadata: ProducerMetadata, clock: MockClock) -> None:
    metadata.add("a", 0)
    clock.advance(50)
    answer(metadata, now_ms=50)
    metadata.add("b", 50)
    clock.advance(25)
    answer(metadata, ["b"], is_partial=True, now_ms=75)
    assert [metadata.cache.refreshed_ms(name) for name in "ab"] == [50, 75]
    wall_ms = clock.wall_ms()
    times = [metadata.cache.refresh_time(name) for name in "ab"]
    assert times == [RefreshTime(50, wall_ms - 25), RefreshTime(75, wall_ms)]


def test_a_topic_that_expired_is_not_reported_as_gone(clock: MockClock) -> None:
    reported: list[object] = []

    class Sink:
        def emit(self, event: object, /) -> None:
            reported.append(event)

    metadata = ProducerMetadata(CONFIG, Random(0), clock, Sink())
    metadata.add("t", 0)
    answer(metadata)
    reported.clear()
    answer(metadata, now_ms=IDLE_MS)
    assert not metadata.contains_topic("t")
    assert reported == []


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PMD-08")
def test_equal_errors_in_a_row_are_counted(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    metadata.add("u", 0)
    assert metadata.topic_error("t") is None
    answer(metadata, ["u"], errors={"t": MISSING})
    assert metadata.topic_error("t") == TopicError(MISSING, 1)
    answer(metadata, ["u"], is_partial=True)
    assert metadata.topic_error("t") == TopicError(MISSING, 1)  # that response did not name it
    metadata.add("t", 0)  # somebody waits for it
    answer(metadata, ["u"], errors={"t": MISSING})
    assert metadata.topic_error("t") == TopicError(MISSING, 2)
    answer(metadata, ["u"], errors={"t": 5})
    assert metadata.topic_error("t") == TopicError(5, 1)
    answer(metadata)
    assert metadata.topic_error("t") is None


def test_a_topic_is_missing_after_two_answers_that_say_so(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    found = []
    for _ in range(2):
        answer(metadata, [], errors={"t": MISSING})
        found.append(metadata.is_missing("t"))
        metadata.add("t", 0)  # somebody waits for it
    assert found == [False, True]


def test_only_the_denial_of_a_topic_that_was_there_puts_it_in_doubt(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    metadata.add("u", 0)
    answer(metadata)
    answer(metadata, ["u"], errors={"t": 5})
    assert not metadata.is_in_doubt
    answer(metadata, [], errors={"t": 5, "u": MISSING})
    assert metadata.is_in_doubt


def test_a_denied_topic_with_another_error_is_no_longer_in_doubt(metadata: ProducerMetadata) -> None:
    """Readers find neither what it was, nor a broker to avoid."""
    metadata.add("t", 0)
    answer(metadata)
    answer(metadata, [], errors={"t": MISSING})
    assert "t" in metadata.answered_cache.topics
    answer(metadata, [], errors={"t": 5})
    assert not metadata.is_in_doubt
    assert "t" not in metadata.answered_cache.topics


def test_a_topic_that_is_forgotten_is_no_longer_in_doubt(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    answer(metadata)
    answer(metadata, [], errors={"t": MISSING})
    assert metadata.is_in_doubt
    answer(metadata, [], now_ms=IDLE_MS + 1)
    assert metadata.topics == frozenset()
    assert not metadata.is_in_doubt


def test_errors_of_topics_that_are_not_held_are_not_kept(metadata: ProducerMetadata) -> None:
    answer(metadata, [], errors={"stray": MISSING})
    assert metadata.topic_error("stray") is None


def test_an_expired_topic_takes_its_error_along(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    answer(metadata, [], errors={"t": MISSING})
    answer(metadata, [], errors={"t": MISSING}, now_ms=IDLE_MS)
    assert metadata.topic_error("t") is None


# -- creating ------------------------------------------------------------------------------------------------


def test_a_look_up_is_asked_for_without_leave_to_create(metadata: ProducerMetadata) -> None:
    metadata.add("looked-up", 0, may_create=False)
    assert asked_for(metadata) == (["looked-up"], False, False)


def test_a_topic_to_create_that_is_there_needs_no_request_of_its_own(metadata: ProducerMetadata) -> None:
    metadata.add("looked-up", 0, may_create=False)
    metadata.add("produced-to", 0)
    assert asked_for(metadata) == (["looked-up", "produced-to"], False, False)
    answer(metadata)
    assert not is_update_requested(metadata)


def test_a_topic_to_create_that_is_missing_is_asked_for_at_once_and_alone(metadata: ProducerMetadata) -> None:
    metadata.add("looked-up", 0, may_create=False)
    metadata.add("produced-to", 0)
    asked_for(metadata)
    answer(metadata, ["looked-up"], errors={"produced-to": MISSING})
    assert metadata.time_to_next_update(0) == 0
    assert asked_for(metadata) == (["produced-to"], True, True)
    answer(metadata, ["produced-to"], is_partial=True)
    assert metadata.cache.partition_count("produced-to") == 1
    assert metadata.cache.partition_count("looked-up") == 1


def test_a_topic_that_the_broker_does_not_create_is_tried_after_backoffs(metadata: ProducerMetadata) -> None:
    """auto.create.topics.enable=false: the requests alternate, and none goes out before its backoff."""
    metadata.add("looked-up", 0, may_create=False)
    metadata.add("produced-to", 0)
    asked_for(metadata)
    answer(metadata, ["looked-up"], errors={"produced-to": MISSING})
    for _ in range(3):
        metadata.add("produced-to", 0)  # somebody waits for it
        assert asked_for(metadata) == (["produced-to"], True, True)
        answer(metadata, [], errors={"produced-to": MISSING}, is_partial=True)
        assert metadata.time_to_next_update(0) >= 100
        metadata.add("produced-to", 0)
        assert asked_for(metadata) == (["looked-up", "produced-to"], False, False)
        answer(metadata, ["looked-up"], errors={"produced-to": MISSING})
        assert metadata.time_to_next_update(0) >= 100


def test_a_failed_request_to_create_is_repeated(metadata: ProducerMetadata) -> None:
    metadata.add("looked-up", 0, may_create=False)
    metadata.add("produced-to", 0)
    asked_for(metadata)
    answer(metadata, ["looked-up"], errors={"produced-to": MISSING})
    asked_for(metadata)
    metadata.failed_update(0)
    assert metadata.time_to_next_update(0) == 100
    assert asked_for(metadata) == (["produced-to"], True, True)


def test_a_missing_look_up_is_never_asked_for_with_leave_to_create(metadata: ProducerMetadata) -> None:
    metadata.add("looked-up", 0, may_create=False)
    for _ in range(3):
        assert asked_for(metadata) == (["looked-up"], False, False)
        answer(metadata, [], errors={"looked-up": MISSING})
        metadata.add("looked-up", 0, may_create=False)  # somebody waits for it


def test_a_missing_look_up_that_is_produced_to_is_asked_for_at_once(metadata: ProducerMetadata) -> None:
    metadata.configure_topics(["other"])
    metadata.add("t", 0, may_create=False)
    asked_for(metadata)
    answer(metadata, ["other"], errors={"t": MISSING})
    metadata.add("t", 0, may_create=True)
    assert metadata.time_to_next_update(0) == 0
    assert asked_for(metadata) == (["t"], True, True)


def test_a_look_up_that_is_produced_to_is_asked_for_only_if_it_is_missing(metadata: ProducerMetadata) -> None:
    for name in ("there", "ailing"):
        metadata.add(name, 0, may_create=False)
    asked_for(metadata)
    answer(metadata, ["there"], errors={"ailing": 29})
    for name in ("there", "ailing"):
        metadata.add(name, 0)
    assert not is_update_requested(metadata)


def test_a_look_up_that_is_produced_to_before_an_answer_is_left_to_the_schedule(
    metadata: ProducerMetadata,
) -> None:
    """The refreshes outside of it create no topic, and would only report it missing."""
    metadata.add("looked-up", 5, may_create=False)
    metadata.add("produced-to", 7, may_create=False)
    left = []
    for name in ("produced-to", "looked-up"):
        metadata.add(name, 9)
        left.append((metadata.unanswered_topics, metadata.unanswered_since_ms))
    assert left == [(("looked-up",), 5), ((), None)]


def test_a_topic_to_create_that_is_discarded_is_not_asked_for(metadata: ProducerMetadata) -> None:
    metadata.configure_topics(["other"])
    metadata.add("t", 0, may_create=False)
    asked_for(metadata)
    answer(metadata, ["other"], errors={"t": MISSING})
    metadata.add("t", 0)
    metadata.discard("t")
    assert asked_for(metadata)[0] == ["other"]


def test_leave_to_create_is_not_taken_back_by_a_look_up(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    metadata.add("t", 0, may_create=False)
    assert asked_for(metadata) == (["t"], True, False)


# -- waiting -------------------------------------------------------------------------------------------------


class Waiter:
    """A thread that waits for an update; its result."""

    def __init__(self, metadata: ProducerMetadata, last_version: int, timeout_ms: int) -> None:
        self.met_with: BaseException | None = None
        self._thread = threading.Thread(target=self._wait, args=(metadata, last_version, timeout_ms))
        self._thread.start()

    def _wait(self, metadata: ProducerMetadata, last_version: int, timeout_ms: int) -> None:
        try:
            metadata.await_update(last_version, timeout_ms)
        except KafkaError as error:
            self.met_with = error

    def join(self) -> BaseException | None:
        self._thread.join(patient(30))
        assert not self._thread.is_alive()
        return self.met_with

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()


def await_waiters(clock: MockClock, count: int) -> None:
    wait_until(lambda: clock.waiters == count, what=f"{count} waiters", every_s=0.001)


@pytest.mark.behaviour("PMD-04", "PMD-07")
def test_metadata_wakes_those_whose_version_has_come(metadata: ProducerMetadata, clock: MockClock) -> None:
    first = Waiter(metadata, 0, 500)
    second = Waiter(metadata, 1, 500)
    await_waiters(clock, 2)
    answer(metadata)
    assert first.join() is None
    assert second.is_waiting
    answer(metadata)
    assert second.join() is None


@pytest.mark.behaviour("PMD-04", "PMD-07")
@pytest.mark.java("ProducerMetadataTest.MetadataAwaitAfterClose")
def test_metadata_await_after_close(metadata: ProducerMetadata, clock: MockClock) -> None:
    waiter = Waiter(metadata, 0, 500)
    await_waiters(clock, 1)
    metadata.close()
    met_with = waiter.join()
    assert type(met_with) is KafkaError
    assert str(met_with) == "Requested metadata update after close"
    with pytest.raises(KafkaError, match="Requested metadata update after close"):
        metadata.await_update(0, 500)


@pytest.mark.behaviour("PMD-04")
@pytest.mark.java("ProducerMetadataTest.MetadataUpdateWaitTime")
def test_metadata_update_wait_time(metadata: ProducerMetadata, clock: MockClock) -> None:
    answer(metadata)
    with pytest.raises(TimeoutError, match="metadata not updated within 0 ms"):
        metadata.await_update(metadata.request_update(True), 0)
    waiter = Waiter(metadata, metadata.request_update(True), 2_000)
    await_waiters(clock, 1)
    clock.advance(1_999)
    assert waiter.is_waiting
    clock.advance(1)
    assert isinstance(waiter.join(), TimeoutError)


@pytest.mark.behaviour("PMD-04", "PMD-07", "META-20")
@pytest.mark.java("ProducerMetadataTest.MetadataWaitAbortedOnFatalException")
def test_metadata_wait_aborted_on_fatal_exception(metadata: ProducerMetadata, clock: MockClock) -> None:
    waiter = Waiter(metadata, 0, FOREVER_MS)
    await_waiters(clock, 1)
    metadata.fatal_error(AuthenticationError("Fatal exception from test"))
    assert isinstance(waiter.join(), AuthenticationError)
    metadata.fatal_error(AuthenticationError("before the wait"))
    with pytest.raises(AuthenticationError, match="before the wait"):
        metadata.await_update(0, 1_000)


def test_a_version_that_has_come_already_is_not_waited_for(metadata: ProducerMetadata) -> None:
    answer(metadata)
    metadata.await_update(0, 0)


def test_a_topic_that_no_broker_was_asked_about_is_not_discarded(metadata: ProducerMetadata) -> None:
    metadata.add("t", 0)
    metadata.discard("t")
    assert metadata.topics == {"t"}
    answer(metadata, errors={"t": 29})
    metadata.discard("t")
    assert metadata.topics == {"t"}, "forbidden is not missing"


def test_the_end_of_the_last_connection_is_reported_with_its_age(
    metadata: ProducerMetadata, clock: MockClock
) -> None:
    assert metadata.last_disconnection is None
    metadata.note_disconnection("connection refused")
    clock.advance(457_000)
    assert metadata.last_disconnection == "connection refused, 457.0 s ago"
