"""The cluster's current snapshot, and the updates that are applied to it.

The I/O thread builds requests from it and applies responses. Any thread requests updates and reads `cache`,
one attribute replaced as a whole. A short lock guards the rest and is never held over an event or a callback.
Elsewhere: when a refresh is due (`refresh_schedule.py`), which topics are wanted (`producer_metadata.py`),
and how a request is sent (`client/metadata_updater.py`).

Errors of the last responses are kept until they are raised, each once. Fatal errors prevent any metadata
(authentication, no common version); recoverable ones affect single topics. Source: Metadata,
Metadata.clearErrorsAndMaybeThrowException, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.backoff import ExponentialBackoff
from client_core.errors import IllegalArgumentError, IllegalStateError, KafkaError
from client_core.events import NO_EVENTS, EventSink
from client_core.metadata.leader_epochs import LastSeenEpochs, take_hints
from client_core.metadata.metadata_cache import ClusterAnswer, MetadataCache, RefreshTime
from client_core.metadata.metadata_changes import changes_between
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.refresh_schedule import RefreshReason, RefreshSchedule
from client_core.metadata.topic_answers import MetadataErrors, sort_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from client_core.cluster import Cluster, Node, TopicPartition
    from client_core.metadata.leader_epochs import LeaderIdAndEpoch, TopicDifference
    from client_core.metadata.metadata_response import KnownTopics, MetadataResponse
    from client_core.metadata.topic_answers import TopicAnswers
    from client_core.metadata.topic_layout import PartitionMetadata
    from client_core.metadata.topic_table import TopicTable

_log = logging.getLogger(__name__)
_OVERLAY: Final = attrgetter("overlay")


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """retry.backoff.ms, retry.backoff.max.ms, metadata.max.age.ms, metadata.max.idle.ms.

    `spreads_refreshes`: see RefreshSchedule.
    """

    refresh_backoff_ms: int = 100
    refresh_backoff_max_ms: int = 1_000
    max_age_ms: int = 300_000
    max_idle_ms: int = 300_000
    spreads_refreshes: bool = False


class MetadataRequestAndVersion(NamedTuple):
    """A request to send, with the arguments that `update` needs for its response."""

    builder: MetadataRequestBuilder
    request_version: int
    is_partial: bool
    reason: RefreshReason


class UpdateSummary(NamedTuple):
    """Counts of the snapshot after an update, for events and logs."""

    update_version: int
    topics: int
    partitions: int
    leaderless_partitions: int
    cluster_id: str | None


class LeaderAndEpoch(NamedTuple):
    """A partition's leader and epoch, if known and current."""

    leader: Node | None
    epoch: int | None


class Metadata:
    """Any thread, unless a method's docstring differs. `_changed` wakes waiters; `_lock` is its lock.

    `with` takes the lock itself, not the Condition. A KeyboardInterrupt after a Condition took its lock, but
    before the body of the `with`, would leave the lock held.
    """

    def __init__(self, config: MetadataConfig, random: Random, events: EventSink = NO_EVENTS) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._random = random
        self._events = events
        backoff = ExponentialBackoff(config.refresh_backoff_ms, config.refresh_backoff_max_ms, random)
        self._schedule = RefreshSchedule(backoff, config.max_age_ms, spreads=config.spreads_refreshes)
        #: The current snapshot: read without the lock, swapped whole (META-21).
        self.cache = MetadataCache.empty()
        #: The last snapshot from a response, read like `cache`. A rebootstrap empties `cache`, which is not a
        #: change of the cluster: readers still get this one, with its age. It also keeps topics that only one
        #: broker reports missing (`producer_metadata.py`).
        self.answered_cache = self.cache
        self._bootstrap_addresses: tuple[tuple[str, int], ...] = ()
        #: The node whose last response is doubtful: another broker is asked next, if one is available.
        #: I/O thread.
        self.doubted_node_id: int | None = None
        self._last_seen = LastSeenEpochs()
        #: The topics of the last full response in order; empty if one has an overlay.
        self._tables: tuple[TopicTable, ...] = ()
        #: The topics of the snapshot that was made from that response.
        self._tables_of: KnownTopics = self.cache.topics
        #: Whether an equal response would change no topic.
        self._is_settled_answer = False
        #: The topics that were counted last, and the numbers of their partitions and leaderless partitions.
        self._counted: tuple[KnownTopics, int, int] = (self.cache.topics, 0, 0)
        #: Counts responses and bootstraps; waiters wait until it grows.
        self.update_version = 0
        self._errors = MetadataErrors()
        self.is_closed = False
        self._listeners: list[Callable[[], None]] = []

    # -- is a refresh due? -----------------------------------------------------------------------------------

    def time_to_next_update(self, now_ms: int) -> int:
        """Milliseconds until a metadata request is due; 0 when it is due now (META-01).

        The later of expiry (metadata.max.age.ms, or 0 when an update was requested) and the refresh backoff.
        """
        left_ms = self._schedule.expires_at_ms - now_ms
        if left_ms > 0:
            return left_ms  # an atomic read: an update request sets it to 0, and wakes this thread
        with self._lock:
            return self._schedule.time_to_next_update(now_ms)

    def time_to_allow_update(self, now_ms: int) -> int:
        """Milliseconds until a request may be sent, whether or not one is due (META-02)."""
        with self._lock:
            return self._schedule.time_to_allow_update(now_ms)

    @property
    def update_requested(self) -> bool:
        return self._schedule.update_requested

    @property
    def request_version(self) -> int:
        """Counts the times that topics were added."""
        return self._schedule.request_version

    @property
    def full_requests(self) -> tuple[int, int]:
        """The number of full requests, and the last answered one. I/O thread."""
        return self._schedule.full_requests, self._schedule.answered_full_request

    @property
    def refresh_reason(self) -> RefreshReason:
        """Why the next request is needed."""
        return self._schedule.reason

    @property
    def last_successful_refresh_ms(self) -> int | None:
        """When the last full response arrived; None before the first."""
        return self._schedule.last_successful_refresh_ms

    @property
    def max_age_ms(self) -> int:
        """The maximum age of a full response: metadata.max.age.ms, unless lowered."""
        return self._schedule.max_age_ms

    def lower_max_age(self, max_age_ms: int) -> None:
        """Refreshes at least every `max_age_ms` from now on. Java's client has no such call."""
        with self._lock:
            self._schedule.lower_max_age(max_age_ms)

    def request_update(
        self, reset_equivalent_response_backoff: bool, reason: RefreshReason = "manual"
    ) -> int:
        """Requests a full update; returns the current update_version, to wait for a greater one (META-08).

        `reset_equivalent_response_backoff` is False for a retry after stale metadata.
        """
        with self._lock:
            self._schedule.need_full(reason)
            if reset_equivalent_response_backoff:
                self._schedule.progressed()
            return self.update_version

    def request_update_for_new_topics(self) -> int:
        """Requests a partial update at once; returns the current update_version (META-09)."""
        with self._lock:
            self._schedule.need_new_topics()
            return self.update_version

    def new_metadata_request_and_version(self, now_ms: int) -> MetadataRequestAndVersion:
        """Returns the request that is due: partial unless a full update is requested or overdue (META-10)."""
        with self._lock:
            version = self._schedule.request_version
            builder = self._new_partial_request(self._schedule.is_partial_enough(now_ms))
            if builder is not None:
                return MetadataRequestAndVersion(builder, version, True, "topic_missing")
            return MetadataRequestAndVersion(
                self._new_request(), version, False, self._schedule.take_reason()
            )

    def _new_request(self) -> MetadataRequestBuilder:
        """Returns a request for all wanted topics. Lock held."""
        return MetadataRequestBuilder(None, True, self._known_topics, self._known_in_order)

    def _new_partial_request(self, is_enough: bool) -> MetadataRequestBuilder | None:
        """Returns a request for new topics, if that suffices; None if all must be requested. Lock held."""
        return None

    def _known_topics(self) -> KnownTopics:
        return self.cache.topics

    def _known_in_order(self) -> tuple[TopicTable, ...]:
        """Returns the topics of the last full response, if the snapshot still has these tables."""
        return self._tables if self.cache.topics is self._tables_of else ()

    # -- updates ---------------------------------------------------------------------------------------------

    def bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Starts with addresses instead of brokers; a full update is due at once (META-04)."""
        with self._lock:
            self._bootstrap_addresses = tuple(addresses)
            last_ms = self._schedule.last_successful_refresh_ms
            self._schedule.need_full("initial" if last_ms is None else "bootstrap")
            self.update_version += 1
            empty = MetadataCache.bootstrap(self._bootstrap_addresses, self.update_version)
            self.cache = replace(empty, last_successful_refresh_ms=last_ms)
            if last_ms is None:
                self.answered_cache = self.cache

    def rebootstrap(self) -> None:
        """Forgets the brokers and starts again with the bootstrap addresses (META-23)."""
        _log.info("Rebootstrapping with %s", self._bootstrap_addresses)
        self.bootstrap(self._bootstrap_addresses)

    def update(
        self,
        request_version: int,
        response: MetadataResponse,
        is_partial: bool,
        now_ms: int,
        node_id: int | None = None,
    ) -> UpdateSummary:
        """Applies a response; `request_version` and `is_partial` are its request's (META-06). I/O thread.

        `node_id` is the broker that answered, None if unknown. Raises IllegalStateError after close
        (META-05).
        """
        with self._lock:
            self._ensure_open()
            self._schedule.succeeded(request_version, is_partial, now_ms)
            before, after = self._swap(response, is_partial, now_ms, node_id)
            self._answered(response)
            self._changed.notify_all()
        return self._updated(before, after, response)

    def update_topics(
        self, response: MetadataResponse, now_ms: int, node_id: int | None = None
    ) -> UpdateSummary:
        """Applies a response to a request outside the schedule, for some known topics (`topic_refreshes.py`).

        A due update stays due, and no backoff changes. I/O thread. Raises IllegalStateError after close.
        Java's client has no such requests.
        """
        with self._lock:
            self._ensure_open()
            before, after = self._swap(response, True, now_ms, node_id)
            self._changed.notify_all()
        return self._updated(before, after, response)

    def _ensure_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("Update requested after metadata close")

    def _swap(
        self, response: MetadataResponse, is_partial: bool, now_ms: int, node_id: int | None
    ) -> tuple[MetadataCache, MetadataCache]:
        """Replaces the snapshot; returns what readers had before, and what they have now. Lock held."""
        self.update_version += 1
        before = self.answered_cache
        self._errors_came(response, now_ms, node_id)
        self.doubted_node_id = node_id if self.is_in_doubt else None
        after = self._apply(response, is_partial, now_ms)
        if self.cache.cluster_id != after.cluster_id:
            _log.info("Cluster ID: %s", after.cluster_id)
        self.cache, self.answered_cache = after, self._with_doubtful_topics(before, after)
        self._errors.answered(after.cluster.unauthorized_topics, after.cluster.invalid_topics)
        return before, self.answered_cache

    def _updated(
        self, before: MetadataCache, after: MetadataCache, response: MetadataResponse
    ) -> UpdateSummary:
        """Reports an update, without the lock."""
        if self._counted[0] is not after.topics:
            self._counted = (after.topics, after.partition_total, after.leaderless_total)
        summary = UpdateSummary(after.update_version, len(after.topics), *self._counted[1:], after.cluster_id)
        _log.debug("Updated metadata: %s", summary)
        self._announce(before, after, response.differences)
        self._notify_listeners()
        return summary

    def _apply(self, response: MetadataResponse, is_partial: bool, now_ms: int) -> MetadataCache:
        """Returns the current snapshot updated with the response (META-17, META-18). Lock held."""
        nodes = list(response.brokers.items())
        self._random.shuffle(nodes)  # CLU-02
        cluster = ClusterAnswer(response.cluster_id, dict(nodes), response.controller)
        time = RefreshTime(now_ms, self._wall_ms())
        if not is_partial and self._is_settled_response(response, now_ms):
            return self.cache.with_cluster(cluster).refreshed_at(time, self.update_version, None)
        # If all known topics stay, a partial response costs time only for its own topics.
        tables_stay = is_partial and self._retains_all(now_ms)
        if not tables_stay:
            self._begin_to_check(now_ms)
        answers = sort_answers(
            response,
            self.cache.topics,
            self.cache.topic_ids,
            self._last_seen,
            self._schedule,
            self.retain_topic,
            self._is_settled,
            now_ms,
        )

        def retain(topic: str) -> bool:
            return self.retain_topic(topic, now_ms)

        if is_partial:
            self._is_settled_answer = False
            answers.names = {topic.name for topic in response.topics}
            after = self.cache.merge_with(cluster, answers, retain, tables_stay=tables_stay)
        else:
            after = self.cache.replaced_by(cluster, answers)
            self._settle(after, answers)
        if not tables_stay:
            self._last_seen.retain(after.topics.keys(), retain)
        return after.refreshed_at(time, self.update_version, answers if is_partial else None)

    def _settle(self, after: MetadataCache, answers: TopicAnswers) -> None:
        """Keeps the tables of a full response in order, to compare them with the next one. Lock held."""
        tables = tuple(after.topics.values())
        self._tables = () if any(map(_OVERLAY, tables)) else tables
        self._tables_of = after.topics
        self._is_settled_answer = answers.is_settled

    def _is_settled_response(self, response: MetadataResponse, now_ms: int) -> bool:
        """Returns whether a response to a full request leaves all topics as they are. Lock held."""
        return (
            self._is_settled_answer
            and len(self._tables) > 0
            and response.topics is self._tables
            and self.cache.topics is self._tables_of
            and self._retains_all(now_ms)
        )

    def _begin_to_check(self, now_ms: int) -> None:
        """For subclasses: `retain_topic` will be called for each topic. Lock held."""

    def _retains_all(self, now_ms: int) -> bool:
        """Returns whether `retain_topic` is True for each topic in the snapshot. Lock held."""
        return True

    def retain_topic(self, topic: str, now_ms: int) -> bool:
        """Returns whether to keep a topic of a response. Lock held."""
        return True

    def _errors_came(self, response: MetadataResponse, now_ms: int, node_id: int | None) -> None:
        """For subclasses: the response will be applied. Lock held."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last response is doubtful, so that another broker must be asked."""
        return False

    def _with_doubtful_topics(self, before: MetadataCache, after: MetadataCache) -> MetadataCache:
        """Returns `after` with those topics of `before` whose absence is in doubt. Lock held."""
        return after

    def _is_settled(self, topic: str) -> bool:
        """Returns whether a topic's error needs no early refresh. Lock held."""
        return False

    def _answered(self, response: MetadataResponse) -> None:
        """For subclasses: the response was applied. Lock held."""

    def _wall_ms(self) -> int | None:
        """Returns the wall-clock time, if there is a clock."""
        return None

    # -- listeners and events --------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each update, fatal error and close, on the same thread, without the lock."""
        self._listeners.append(listener)

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()

    def _announce(
        self, before: MetadataCache, after: MetadataCache, differences: Mapping[str, TopicDifference]
    ) -> None:
        if self._events is not NO_EVENTS:
            for event in changes_between(before, after, differences, self._is_held):
                self._events.emit(event)

    def _is_held(self, topic: str) -> bool:
        """Returns whether a topic is wanted, without checking its expiry."""
        return True

    # -- failures --------------------------------------------------------------------------------------------

    def failed_update(self, now_ms: int) -> None:
        """Records a failed attempt: the update stays due, after the backoff (META-07)."""
        with self._lock:
            self._schedule.failed(now_ms)

    def fatal_error(self, error: KafkaError) -> None:
        """Wakes waiters with an error that prevents all metadata, such as authentication (META-20)."""
        with self._lock:
            self._errors.fatal = error
            self._changed.notify_all()
        self._notify_listeners()

    def close(self) -> None:
        """Ends all waits; later updates are refused."""
        with self._lock:
            self.is_closed = True
            self._changed.notify_all()
        self._notify_listeners()

    def maybe_throw_any_exception(self) -> None:
        """Raises the last error, fatal or of any topic; each is raised once (META-19)."""
        with self._lock:
            error = self._errors.take()
        if error is not None:
            raise error

    def maybe_throw_exception_for_topic(self, topic: str) -> None:
        """Raises the last error, fatal or of this topic, and clears the others (META-19)."""
        with self._lock:
            error = self._errors.take(topic)
        if error is not None:
            raise error

    def maybe_throw_fatal_exception(self) -> None:
        """Raises the fatal error, if any, once."""
        with self._lock:
            error = self._errors.take_fatal()
        if error is not None:
            raise error

    # -- leaders and epochs ----------------------------------------------------------------------------------

    def fetch(self) -> Cluster:
        """Returns the cluster as currently known."""
        return self.cache.cluster

    def last_seen_leader_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Returns the greatest epoch seen of a partition; None without a reliable one."""
        with self._lock:
            return self._last_seen.get(*topic_partition)

    def update_last_seen_epoch_if_newer(self, topic_partition: TopicPartition, leader_epoch: int) -> bool:
        """Records a greater epoch and requests an update; returns whether it did so (META-14).

        Raises IllegalArgumentError for a negative epoch.
        """
        if leader_epoch < 0:
            raise IllegalArgumentError(f"Invalid leader epoch {leader_epoch} (must be non-negative)")
        with self._lock:
            seen = self._last_seen.get(*topic_partition)
            if seen is None or leader_epoch <= seen:
                return False
            self._last_seen.put(*topic_partition, leader_epoch)
            self._schedule.need_full("leader_error")
            return True

    def partition_metadata_if_current(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """Returns the cached partition, unless a greater epoch was seen."""
        with self._lock:
            table = self.cache.topics.get(topic_partition.topic)
            found = None if table is None else table.metadata(topic_partition.partition)
            seen = self._last_seen.get(*topic_partition)
            return found if found is None or seen is None or found.leader_epoch == seen else None

    def current_leader(self, topic_partition: TopicPartition) -> LeaderAndEpoch:
        """Returns a partition's leader; None, with the last seen epoch, if the cache is behind (META-15)."""
        with self._lock:
            found = self.partition_metadata_if_current(topic_partition)
            if found is None:
                return LeaderAndEpoch(None, self._last_seen.get(*topic_partition))
            leader = None if found.leader_id is None else self.cache.nodes_by_id.get(found.leader_id)
            return LeaderAndEpoch(leader, found.leader_epoch)

    def update_partition_leadership(
        self, leaders: Mapping[TopicPartition, LeaderIdAndEpoch], nodes: Sequence[Node]
    ) -> set[TopicPartition]:
        """Applies the leaders in a Produce response (META-22, KIP-951); returns the changed partitions.

        Neither increases update_version nor wakes waiters. I/O thread.
        """
        with self._lock:
            before = self.cache
            after, updated = take_hints(before, self._last_seen, leaders, nodes)
            if after is before:
                return updated
            read_before = self.answered_cache
            read_after = self._with_doubtful_topics(read_before, after)
            self.cache, self.answered_cache = after, read_after
        self._announce(read_before, read_after, {})
        return updated
