"""Is a refresh due? What the client knows of the cluster, and when to ask again.

The I/O thread builds requests from it and applies the responses; any thread asks for updates and reads
`cache`, which is one attribute swapped whole. A short lock guards the rest and is never held over an event or
a callback. Not here: which topics are wanted (`producer_metadata.py`), and how a request travels
(`client/metadata_updater.py`). Source: Metadata, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from client_core.backoff import ExponentialBackoff
from client_core.error_codes import Errors
from client_core.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationError,
)
from client_core.events import NO_EVENTS, EventSink
from client_core.metadata.leader_epochs import LastSeenEpochs
from client_core.metadata.metadata_cache import ClusterAnswer, MetadataCache, RefreshTime, TopicAnswers
from client_core.metadata.metadata_changes import changes_between
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.metadata_response import TopicFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from client_core.cluster import Cluster, Node, TopicPartition
    from client_core.metadata.leader_epochs import TopicDifference
    from client_core.metadata.metadata_response import KnownTopics, MetadataResponse
    from client_core.metadata.topic_layout import PartitionMetadata
    from client_core.metadata.topic_table import TopicTable

_log = logging.getLogger(__name__)

#: Why metadata is asked for, gravest first: of several reasons for one request the gravest is told.
RefreshReason = Literal[
    "initial", "bootstrap", "disconnect", "leader_error", "topic_missing", "manual", "expired"
]
_GRAVITY: Final[dict[str, int]] = {
    "initial": 6,
    "bootstrap": 5,
    "disconnect": 4,
    "leader_error": 3,
    "topic_missing": 2,
    "manual": 1,
    "expired": 0,
}


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """retry.backoff.ms, retry.backoff.max.ms, metadata.max.age.ms, metadata.max.idle.ms."""

    refresh_backoff_ms: int = 100
    refresh_backoff_max_ms: int = 1_000
    max_age_ms: int = 300_000
    max_idle_ms: int = 300_000


class MetadataRequestAndVersion(NamedTuple):
    """A request to send, and what `update` must be told of it when the response comes."""

    builder: MetadataRequestBuilder
    request_version: int
    is_partial: bool
    reason: RefreshReason


class UpdateSummary(NamedTuple):
    """The snapshot after an update, in numbers."""

    update_version: int
    topics: int
    partitions: int
    leaderless_partitions: int
    cluster_id: str | None


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition, as far as it is known and up to date."""

    leader: Node | None
    epoch: int | None


class LeaderIdAndEpoch(NamedTuple):
    """Who leads a partition, as a produce answer says."""

    leader_id: int | None
    epoch: int | None


class Metadata:
    """Any thread, unless a method says otherwise. `_changed` is the lock and wakes those who wait for an update."""

    def __init__(self, config: MetadataConfig, random: Random, events: EventSink = NO_EVENTS) -> None:
        self._changed = threading.Condition()
        self._config = config
        self._random = random
        self._events = events
        self._refresh_backoff = ExponentialBackoff(
            config.refresh_backoff_ms, config.refresh_backoff_max_ms, random
        )
        #: The present snapshot: read without the lock, swapped whole (META-21).
        self.cache = MetadataCache.empty()
        self._announced = self.cache
        self._bootstrap_addresses: tuple[tuple[str, int], ...] = ()
        self._last_seen = LastSeenEpochs()
        self._update_version = 0
        self._request_version = 0
        # None: never, or so long ago that no backoff is left (Java's 0, which needs a calendar for a clock).
        self._last_refresh_ms: int | None = None
        self._last_successful_refresh_ms: int | None = None
        self._attempts = 0
        self._equivalent_responses = 0
        self._need_full_update = False
        self._need_partial_update = False
        self._reason: RefreshReason | None = None
        self._reason_in_flight: RefreshReason | None = None
        self._fatal_error: KafkaError | None = None
        self._invalid_topics: frozenset[str] = frozenset()
        self._unauthorized_topics: frozenset[str] = frozenset()
        self._is_closed = False
        self._listeners: list[Callable[[], None]] = []

    # -- when ------------------------------------------------------------------------------------------------

    def time_to_allow_update(self, now_ms: int) -> int:
        """Milliseconds until a request may be sent: the backoff of failures, or of equal responses (META-02).

        Expiry resets the count of equal responses, so that periodic updates do not back off (META-03).
        """
        with self._changed:
            attempts_ms = self._backoff_left_ms(max(self._attempts - 1, 0), now_ms)
            if self._time_to_expire(now_ms) == 0:
                self._equivalent_responses = 0
            if self._equivalent_responses == 0:
                return attempts_ms
            return max(attempts_ms, self._backoff_left_ms(self._equivalent_responses - 1, now_ms))

    def _backoff_left_ms(self, attempts: int, now_ms: int) -> int:
        if self._last_refresh_ms is None:
            return 0
        return max(self._last_refresh_ms + self._refresh_backoff.backoff_ms(attempts) - now_ms, 0)

    def _time_to_expire(self, now_ms: int) -> int:
        if self._last_successful_refresh_ms is None:
            return 0
        return max(self._last_successful_refresh_ms + self._config.max_age_ms - now_ms, 0)

    def time_to_next_update(self, now_ms: int) -> int:
        """Milliseconds until a request is due; 0 when it is due now (META-01).

        The later of expiry (now, when an update was asked for) and the refresh backoff.
        """
        with self._changed:
            expires_ms = 0 if self.update_requested else self._time_to_expire(now_ms)
            return max(expires_ms, self.time_to_allow_update(now_ms))

    @property
    def update_requested(self) -> bool:
        return self._need_full_update or self._need_partial_update

    @property
    def update_version(self) -> int:
        """Counts the responses that were applied, and bootstraps: what a waiter waits to see grow."""
        return self._update_version

    @property
    def request_version(self) -> int:
        """Counts the topics that were added."""
        return self._request_version

    @property
    def last_successful_refresh_ms(self) -> int | None:
        """When the last full response came; None before the first."""
        return self._last_successful_refresh_ms

    # -- asking ----------------------------------------------------------------------------------------------

    def request_update(
        self, reset_equivalent_response_backoff: bool, reason: RefreshReason = "manual"
    ) -> int:
        """Asks for a full update; returns the present update_version, to wait for a greater one (META-08).

        To retry what failed for stale metadata, do not reset the backoff of equal responses.
        """
        with self._changed:
            self._need_full_update = True
            self._reason = _graver(self._reason, reason)
            if reset_equivalent_response_backoff:
                self._equivalent_responses = 0
            return self._update_version

    def request_update_for_new_topics(self) -> int:
        """Asks for a partial update at once, without backoff; returns the present update_version (META-09)."""
        with self._changed:
            self._last_refresh_ms = None
            self._need_partial_update = True
            self._equivalent_responses = 0
            self._request_version += 1
            return self._update_version

    def new_metadata_request_and_version(self, now_ms: int) -> MetadataRequestAndVersion:
        """The request that is due: partial unless a full update is asked for or overdue (META-10)."""
        with self._changed:
            builder = None
            if not self._need_full_update and self._time_to_expire(now_ms) > 0:
                builder = self._new_request_for_new_topics()
            if builder is not None:
                return MetadataRequestAndVersion(builder, self._request_version, True, "topic_missing")
            never = self._last_successful_refresh_ms is None
            reason = self._reason or ("initial" if never else "expired")
            self._reason, self._reason_in_flight = None, reason
            return MetadataRequestAndVersion(self._new_request(), self._request_version, False, reason)

    def _new_request(self) -> MetadataRequestBuilder:
        """For all that is wanted. Lock held."""
        return MetadataRequestBuilder.all_topics(self._known_topics)

    def _new_request_for_new_topics(self) -> MetadataRequestBuilder | None:
        """For what was never answered; None where that is not told apart. Lock held."""
        return None

    def _known_topics(self) -> KnownTopics:
        return self.cache.topics

    # -- answers ---------------------------------------------------------------------------------------------

    def bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Begins with addresses instead of brokers; a full update is due at once (META-04)."""
        with self._changed:
            self._bootstrap_addresses = tuple(addresses)
            never = self._last_successful_refresh_ms is None
            self.request_update(False, "initial" if never else "bootstrap")
            self._update_version += 1
            self.cache = replace(
                MetadataCache.bootstrap(self._bootstrap_addresses, self._update_version),
                last_successful_refresh_ms=self._last_successful_refresh_ms,
            )

    def rebootstrap(self) -> None:
        """Forgets the brokers and begins anew with the first addresses (META-23)."""
        _log.info("Rebootstrapping with %s", self._bootstrap_addresses)
        self.bootstrap(self._bootstrap_addresses)

    def update(
        self, request_version: int, response: MetadataResponse, is_partial: bool, now_ms: int
    ) -> UpdateSummary:
        """Applies a response; `request_version` and `is_partial` are those of its request (META-06). I/O
        thread.

        Raises IllegalStateError after close (META-05).
        """
        with self._changed:
            if self._is_closed:
                raise IllegalStateError("Update requested after metadata close")
            self._need_partial_update = request_version < self._request_version
            self._last_refresh_ms = now_ms
            self._attempts = 0
            self._update_version += 1
            if not is_partial:
                self._need_full_update = False
                self._reason = self._reason_in_flight = None
                self._last_successful_refresh_ms = now_ms
            # Whoever finds below that the response tells something new resets this (META-03).
            self._equivalent_responses += 1
            before, after = self._announced, self._apply(response, is_partial, now_ms)
            if self.cache.cluster_id != after.cluster_id:
                _log.info("Cluster ID: %s", after.cluster_id)
            self.cache = self._announced = after
            self._invalid_topics = after.cluster.invalid_topics
            self._unauthorized_topics = after.cluster.unauthorized_topics
            self._last_seen.retain(lambda topic: self.retain_topic(topic, False, now_ms))
            self._answered(response, now_ms)
            self._changed.notify_all()
            summary = _summary_of(after)
        _log.debug("Updated metadata: %s", summary)
        self._announce(before, after, response.differences)
        self._tell_listeners()
        return summary

    def failed_update(self, now_ms: int) -> None:
        """Notes an attempt that failed: the need stays, and is tried again after the backoff (META-07)."""
        with self._changed:
            self._last_refresh_ms = now_ms
            self._attempts += 1
            self._equivalent_responses = 0
            if self._reason_in_flight is not None:
                self._reason = _graver(self._reason, self._reason_in_flight)

    def fatal_error(self, error: KafkaError) -> None:
        """Tells whoever waits that no metadata can be had: authentication, unsupported version (META-20)."""
        with self._changed:
            self._fatal_error = error
            self._changed.notify_all()
        self._tell_listeners()

    def close(self) -> None:
        """Ends all waiting; updates are refused from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._tell_listeners()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Has `listener` called after each update, fatal error and close, on that thread, outside the lock."""
        self._listeners.append(listener)

    def _tell_listeners(self) -> None:
        for listener in self._listeners:
            listener()

    def _answered(self, response: MetadataResponse, now_ms: int) -> None:
        """For subclasses: the response was applied. Lock held."""

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        """Whether a topic of a response is wanted (still). Lock held."""
        return True

    def _is_held(self, topic: str) -> bool:
        """Whether a topic is wanted, without judging it. Lock not held."""
        return True

    def _wall_ms(self) -> int | None:
        """The calendar's time, where there is a clock."""
        return None

    # -- applying a response ---------------------------------------------------------------------------------

    def _apply(self, response: MetadataResponse, is_partial: bool, now_ms: int) -> MetadataCache:
        """The snapshot that the response makes of the present one (META-16, META-17). Lock held."""
        answers = TopicAnswers()
        for topic in response.topics:
            self._sort_answer(topic, response, answers, now_ms)
        nodes = list(response.brokers.items())
        self._random.shuffle(nodes)  # CLU-02
        cluster = ClusterAnswer(response.cluster_id, dict(nodes), response.controller)
        time = RefreshTime(now_ms, self._wall_ms())
        if not is_partial:
            after = self.cache.replaced_by(cluster, answers)
            return after.refreshed_at(time, self._update_version, None)
        internal = self.cache.cluster.internal_topics
        after = self.cache.merge_with(
            cluster, answers, lambda topic: self.retain_topic(topic, topic in internal, now_ms)
        )
        return after.refreshed_at(time, self._update_version, answers)

    def _sort_answer(
        self, topic: TopicTable | TopicFailure, response: MetadataResponse, answers: TopicAnswers, now_ms: int
    ) -> None:
        name = topic.name
        answers.names.add(name)
        if topic.topic_id is not None:
            answers.topic_ids[name] = topic.topic_id
        if not self.retain_topic(name, topic.is_internal, now_ms):
            return
        if topic.is_internal:
            answers.internal.add(name)
        if isinstance(topic, TopicFailure):
            self._request_update_for_codes((topic.error_code,), name)
            if topic.error_code == Errors.INVALID_TOPIC_EXCEPTION.code:
                answers.invalid.add(name)
            elif topic.error_code == Errors.TOPIC_AUTHORIZATION_FAILED.code:
                answers.unauthorized.add(name)
            return
        id_changed = topic.topic_id is not None and topic.topic_id != self.cache.topic_id(name)
        table, made_progress = self._last_seen.accept(
            topic,
            self.cache.topics.get(name),
            topic_id_changed=id_changed,
            difference=response.differences.get(name),
        )
        if made_progress or topic.misses_epoch:
            self._equivalent_responses = 0
        if topic.error_codes:
            self._request_update_for_codes(topic.error_codes, name)
        if table.partition_count > 0:
            answers.tables[name] = table

    def _request_update_for_codes(self, codes: Iterable[int], topic: str) -> None:
        for code in codes:
            error = Errors.of(code)
            if error.refreshes_metadata:
                _log.debug("Requesting metadata update for topic %s due to error %s", topic, error.name)
                missing = error is Errors.UNKNOWN_TOPIC_OR_PARTITION
                self.request_update(False, "topic_missing" if missing else "leader_error")

    def _announce(
        self, before: MetadataCache, after: MetadataCache, differences: Mapping[str, TopicDifference]
    ) -> None:
        if self._events is not NO_EVENTS:
            for event in changes_between(before, after, differences, self._is_held):
                self._events.emit(event)

    # -- leaders and epochs ----------------------------------------------------------------------------------

    def fetch(self) -> Cluster:
        """The cluster as it is known now."""
        return self.cache.cluster

    def last_seen_leader_epoch(self, topic_partition: TopicPartition) -> int | None:
        """The greatest epoch seen of a partition; None if there was none to rely on."""
        with self._changed:
            return self._last_seen.get(*topic_partition)

    def update_last_seen_epoch_if_newer(self, topic_partition: TopicPartition, leader_epoch: int) -> bool:
        """Notes an epoch that another response told, and asks for an update if it is greater (META-14)."""
        if leader_epoch < 0:
            raise IllegalArgumentError(f"Invalid leader epoch {leader_epoch} (must be non-negative)")
        with self._changed:
            seen = self._last_seen.get(*topic_partition)
            if seen is None or leader_epoch <= seen:
                return False
            self._last_seen.put(*topic_partition, leader_epoch)
            self.request_update(False, "leader_error")
            return True

    def partition_metadata_if_current(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """The cached partition, unless a greater epoch is known of."""
        with self._changed:
            table = self.cache.topics.get(topic_partition.topic)
            found = None if table is None else table.metadata(topic_partition.partition)
            seen = self._last_seen.get(*topic_partition)
            return found if found is None or seen is None or found.leader_epoch == seen else None

    def current_leader(self, topic_partition: TopicPartition) -> LeaderAndEpoch:
        """Who leads a partition; no leader, but the epoch, while the cached one is known to be out of date (META-15)."""
        with self._changed:
            found = self.partition_metadata_if_current(topic_partition)
            if found is None:
                return LeaderAndEpoch(None, self._last_seen.get(*topic_partition))
            leader = None if found.leader_id is None else self.cache.nodes_by_id.get(found.leader_id)
            return LeaderAndEpoch(leader, found.leader_epoch)

    def update_partition_leadership(
        self, leaders: Mapping[TopicPartition, LeaderIdAndEpoch], nodes: Sequence[Node]
    ) -> set[TopicPartition]:
        """Takes the leaders that a produce answer names (META-22, KIP-951); returns the partitions that it
        changed.

        Neither bumps update_version nor wakes waiters. I/O thread.
        """
        with self._changed:
            before = self.cache
            known_nodes = before.cluster.with_nodes(nodes)
            overlays: dict[str, dict[int, PartitionMetadata | None]] = {}
            updated: set[TopicPartition] = set()
            for topic_partition, named in leaders.items():
                cached = self._believed(topic_partition, named, known_nodes)
                if cached is None:
                    continue
                topic, partition = topic_partition
                overlay = overlays.setdefault(topic, dict(before.topics[topic].overlay))
                overlay[partition] = cached._replace(leader_id=named.leader_id, leader_epoch=named.epoch)
                updated.add(topic_partition)
            if not updated:
                return updated
            tables = {topic: before.topics[topic].with_overlay(overlay) for topic, overlay in
            overlays.items()} for topic_partition in updated:
                self._last_seen.follow(tables[topic_partition.topic])
            self.cache = self._announced = before.with_leaders(tables, known_nodes)
        self._announce(before, self.cache, {})
        return updated

    def _believed(
        self, topic_partition: TopicPartition, named: LeaderIdAndEpoch, nodes: Mapping[int, Node]
    ) -> PartitionMetadata | None:
        """The cached partition if a named leader may replace the one it has; None where it must be ignored."""
        if named.leader_id is None or named.epoch is None or named.leader_id not in nodes:
            return None
        current_epoch = self.current_leader(topic_partition).epoch
        if current_epoch is not None and named.epoch <= current_epoch:
            return None
        table = self.cache.topics.get(topic_partition.topic)
        return None if table is None else table.metadata(topic_partition.partition)

    # -- errors ----------------------------------------------------------------------------------------------

    def maybe_throw_any_exception(self) -> None:
        """Raises what went wrong last, fatal or of any topic; each is raised once (META-19)."""
        self._raise_once(lambda topics: topics)

    def maybe_throw_exception_for_topic(self, topic: str) -> None:
        """Raises what went wrong last, fatal or of this topic, and forgets what went wrong with all (META-19)."""
        self._raise_once(lambda topics: topics & {topic})

    def maybe_throw_fatal_exception(self) -> None:
        """Raises the fatal error, if there is one, once."""
        with self._changed:
            fatal, self._fatal_error = self._fatal_error, None
        if fatal is not None:
            raise fatal

    def _raise_once(self, concerned: Callable[[frozenset[str]], frozenset[str]]) -> None:
        with self._changed:
            unauthorized = concerned(self._unauthorized_topics)
            invalid = concerned(self._invalid_topics)
            self._unauthorized_topics = self._invalid_topics = frozenset()
            self.maybe_throw_fatal_exception()
        if unauthorized:
            raise TopicAuthorizationError(f"Not authorized to access topics: [{',
            '.join(sorted(unauthorized))}]")
        if invalid:
            raise InvalidTopicError(f"Invalid topics: [{', '.join(sorted(invalid))}]")


def _graver(reason: RefreshReason | None, other: RefreshReason) -> RefreshReason:
    return other if reason is None or _GRAVITY[other] > _GRAVITY[reason] else reason


def _summary_of(cache: MetadataCache) -> UpdateSummary:
    """A snapshot in numbers. Each table knows its own, so this walks topics, not partitions."""
    tables = cache.topics.values()
    return UpdateSummary(
        cache.update_version,
        len(cache.topics),
        sum(table.partition_count for table in tables),
        sum(table.leaderless_count for table in tables),
        cache.cluster_id,
    )
