"""Topics that brokers don't know: asked for while a request waits, and dropped once that is sure."""

from __future__ import annotations

import pytest

from client_core.events import PartitionCountChanged
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.metadata_response import read_metadata_response
from client_core.metadata.producer_metadata import ProducerMetadata
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response, topic, topic_id_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

MISSING, FORBIDDEN, NO_LEADER = 3, 29, 5
_MINUTE_MS = 60_000
CONFIG = MetadataConfig()


class Cluster:
    """Brokers that know some topics and no others; every due metadata request is sent to them."""

    def __init__(self, *topics: str) -> None:
        self.cluster_id = "cluster"
        self.topics = set(topics)
        self.errors: dict[str, int] = {}
        #: Brokers that answer in turn, and those of them that know no topic.
        self.brokers = [1]
        self.stale: set[int] = set()
        self.clock = MockClock()
        self.events = RecordedEvents()
        self.metadata = ProducerMetadata(CONFIG, Unjittered(0), self.clock, self.events)
        self.requests: list[frozenset[str]] = []

    def run(self, for_ms: int, *, add_each_answer: str | None = None) -> int:
        """Lets time pass; how many requests there were. Each is answered at once."""
        before, now_ms = len(self.requests), self.clock.now_ms()
        until_ms = now_ms + for_ms
        while True:
            wait_ms = self.metadata.time_to_next_update(now_ms)
            if now_ms + wait_ms >= until_ms:
                self.clock.advance(until_ms - now_ms)
                return len(self.requests) - before
            self.clock.advance(wait_ms)
            now_ms += wait_ms
            self._ask(now_ms)
            if add_each_answer is not None:
                self.metadata.add(add_each_answer, now_ms)
                self.metadata.request_update_for_topic(add_each_answer)

    def _ask(self, now_ms: int) -> None:
        asked = self.metadata.new_metadata_request_and_version(now_ms)
        names = frozenset(asked.builder.topics or ())
        broker = self.brokers[len(self.requests) % len(self.brokers)]
        self.requests.append(names)
        known = set() if broker in self.stale else self.topics & names
        errors = {name: self.errors.get(name, MISSING) for name in names - known}
        described = [topic(name, topic_id=topic_id_of(name)) for name in sorted(known)]
        body = metadata_response(1, described, errors=errors, cluster_id=self.cluster_id)
        response = read_metadata_response(body, 13, self.metadata.cache.topics, names)
        self.metadata.update(asked.request_version, response, asked.is_partial, now_ms, broker)


def holding(*topics: str) -> Cluster:
    """A cluster whose topics are all known and in use."""
    cluster = Cluster(*topics)
    for name in topics:
        cluster.metadata.add(name, 0)
    cluster.run(1_000)
    assert cluster.metadata.cache.topics.keys() == set(topics)
    return cluster


def test_a_deleted_topic_without_waiters_costs_a_handful_of_requests() -> None:
    cluster = holding("kept", "deleted")
    cluster.brokers = [1, 2]
    cluster.topics.remove("deleted")
    cluster.metadata.request_update(True)
    assert cluster.run(4 * _MINUTE_MS) <= 3
    assert cluster.metadata.topics == {"kept"}
    assert PartitionCountChanged("deleted", 1, None) in cluster.events.events


def test_where_one_broker_answers_it_must_deny_the_topic_for_seconds() -> None:
    cluster = holding("kept", "deleted")
    cluster.topics.remove("deleted")
    cluster.metadata.request_update(True)
    cluster.run(4_000)
    assert cluster.metadata.contains_topic("deleted")
    assert not cluster.metadata.is_missing("deleted")
    assert cluster.run(4 * _MINUTE_MS) <= 3
    assert cluster.metadata.topics == {"kept"}


def test_a_broker_that_has_just_started_ends_no_topic_that_another_one_knows() -> None:
    cluster = holding("orders")
    cluster.stale = {2}
    cluster.brokers = [2]
    cluster.metadata.request_update(True)
    cluster.run(1_000)
    assert len(cluster.requests) > 3
    assert not cluster.metadata.is_missing("orders")
    assert cluster.metadata.settled_error_code("orders") is None
    assert cluster.metadata.is_in_doubt
    cluster.metadata.discard("orders")
    assert cluster.metadata.contains_topic("orders")
    cluster.brokers = [1]
    cluster.run(2_000)
    assert "orders" in cluster.metadata.cache.topics
    assert not cluster.metadata.is_in_doubt


@pytest.mark.parametrize("was_in_doubt", [False, True])
def test_readers_get_no_topic_of_another_cluster(was_in_doubt: bool) -> None:
    cluster = holding("orders")
    if was_in_doubt:
        cluster.stale = {1}
        cluster.metadata.request_update(True)
        cluster.run(1_000)
        assert cluster.metadata.is_in_doubt
    assert "orders" in cluster.metadata.answered_cache.topics
    cluster.cluster_id, cluster.topics = "another", set()
    cluster.metadata.request_update(True)
    cluster.run(1_001)
    assert cluster.metadata.answered_cache.cluster_id == "another"
    assert "orders" not in cluster.metadata.answered_cache.topics
    assert not cluster.metadata.is_in_doubt


def test_a_topic_that_was_never_there_is_missing_after_two_answers_of_one_broker() -> None:
    cluster = holding("kept")
    cluster.metadata.add("made-up", cluster.clock.now_ms())
    assert cluster.run(_MINUTE_MS) <= 3
    assert cluster.metadata.topics == {"kept"}


def test_a_missing_topic_that_a_request_waits_for_is_asked_for_once_a_second() -> None:
    cluster = holding("kept", "deleted")
    cluster.brokers = [1, 2]
    cluster.topics.remove("deleted")
    cluster.metadata.request_update(True)
    requests = cluster.run(_MINUTE_MS, add_each_answer="deleted")
    assert 50 < requests < 75
    cluster.topics.add("deleted")
    cluster.run(2_000)
    assert "deleted" in cluster.metadata.cache.topics


def test_a_topic_that_is_made_anew_is_found_on_demand() -> None:
    cluster = holding("kept", "deleted")
    cluster.brokers = [1, 2]
    cluster.topics.remove("deleted")
    cluster.metadata.request_update(True)
    cluster.run(_MINUTE_MS)
    cluster.topics.add("deleted")
    cluster.metadata.add("deleted", cluster.clock.now_ms())
    assert cluster.run(1_000) == 1
    assert "deleted" in cluster.metadata.cache.topics


def test_a_configured_topic_that_is_deleted_stays_held_and_is_not_asked_for_once_a_second() -> None:
    cluster = holding("kept")
    cluster.metadata.configure_topics(["configured"])
    cluster.topics.add("configured")
    cluster.run(1_000)
    cluster.brokers = [1, 2]
    cluster.topics.remove("configured")
    cluster.metadata.request_update(True)
    assert cluster.run(4 * _MINUTE_MS) <= 3
    assert cluster.metadata.contains_topic("configured")
    cluster.topics.add("configured")
    cluster.metadata.add("configured", cluster.clock.now_ms())
    cluster.metadata.request_update_for_topic("configured")
    cluster.run(1_000)
    assert "configured" in cluster.metadata.cache.topics


@pytest.mark.parametrize(("error", "most"), [(FORBIDDEN, 2), (17, 2), (NO_LEADER, 70)])
def test_other_errors_of_a_topic_are_asked_about_as_java_does(error: int, most: int) -> None:
    cluster = holding("kept", "faulty")
    cluster.topics.remove("faulty")
    cluster.errors["faulty"] = error
    cluster.metadata.request_update(True)
    assert cluster.run(_MINUTE_MS) <= most
    assert cluster.metadata.contains_topic("faulty")
