"""Finds why records are not acknowledged: the cause that a timeout is reported with.

The cause of a batch is the first of these that applies:

    the leader is unknown              LEADER_NOT_AVAILABLE
    no connection to the leader        NETWORK_EXCEPTION, SASL_AUTHENTICATION_FAILED, ..., with a reason
    an attempt failed, its own or      the broker's error, such as NOT_ENOUGH_REPLICAS
      that of a batch before it
    there is no producer id            the error of InitProducerId
    the leader asked for a pause       THROTTLING_QUOTA_EXCEEDED
    the leader does not answer         REQUEST_TIMED_OUT
    the first attempt to connect       NETWORK_EXCEPTION, without a reason
      has not ended

The first two explain why there is no other attempt, so they come before the last attempt's error. Nothing is
computed before a deadline passes or somebody asks for the status. Any thread: all that is read is immutable
or plain.
"""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import Cause
from client_core.events import RecordsCancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from client_core.client.connection_status import ConnectionStatus
    from client_core.client.kafka_client import KafkaClient
    from client_core.cluster import TopicPartition
    from client_core.errors import KafkaError
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.producer_batch import AttemptFailure, ProducerBatch

_log: Final = logging.getLogger(__name__)

#: The failures of at most so many partitions are kept.
_MOST_PARTITIONS: Final = 1_000
#: At most so many topics and causes are logged in a minute.
_MOST_LOGGED: Final = 20
_LOGGED_FOR_MS: Final = 60_000


class CancelledRecords:
    """Reports records that were removed from their batches, which no batch reports any more. I/O thread."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        #: The topics and causes that were logged in this minute.
        self._logged: set[tuple[str, Errors]] = set()
        self._logged_since_ms = 0

    def report(self, topic: str, records: int, error: KafkaError, now_ms: int) -> None:
        """Emits RecordsCancelled, and logs the error's cause."""
        cause = error.cause
        of_cause = error.error if cause is None else cause.error
        self._events.emit(RecordsCancelled(topic, records, error.error, of_cause))
        _log.log(
            self._log_level(topic, of_cause, now_ms),
            "%d records for topic %s were not sent before their deadline%s",
            records,
            topic,
            "" if cause is None else f". The cause: {cause}",
        )

    def _log_level(self, topic: str, cause: Errors, now_ms: int) -> int:
        """Returns WARNING once in a minute for a topic and a cause, and for few of them; else DEBUG."""
        if now_ms - self._logged_since_ms >= _LOGGED_FOR_MS:
            self._logged_since_ms = now_ms
            self._logged.clear()
        if (topic, cause) in self._logged or len(self._logged) >= _MOST_LOGGED:
            return logging.DEBUG
        self._logged.add((topic, cause))
        return logging.WARNING


class Causes:
    """The causes of one producer's waits. `producer_id_cause(now_ms)`: why it has no id; None if it has."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        client: KafkaClient,
        producer_id_cause: Callable[[int], Cause | None],
    ) -> None:
        self._metadata = metadata
        self._client = client
        self._producer_id_cause = producer_id_cause
        #: The last failed attempt of partitions of which no batch was acknowledged since; mostly empty.
        self.failing: dict[TopicPartition, AttemptFailure] = {}

    def attempt_failed(self, batch: ProducerBatch) -> None:
        """Notes a batch's last failure: the batches behind it wait because of it. I/O thread."""
        if batch.last_failure is None:
            return
        self.failing[batch.topic_partition] = batch.last_failure
        if len(self.failing) > _MOST_PARTITIONS:
            del self.failing[next(iter(self.failing))]

    def succeeded(self, partition: TopicPartition) -> None:
        """Notes that a batch was acknowledged. I/O thread."""
        self.failing.pop(partition, None)

    def of_batch(self, batch: ProducerBatch, now_ms: int) -> Cause | None:
        """Returns why a batch is not acknowledged; None if nothing has prevented it yet."""
        return self.of_batches((batch,), now_ms)[0]

    def of_batches(self, batches: Iterable[ProducerBatch], now_ms: int) -> list[Cause | None]:
        """Returns the causes of several batches, in their order."""
        nodes = {node.node_id: node for node in self._client.node_statuses(now_ms)}
        return [self._of(batch, nodes, now_ms) for batch in batches]

    def of_oldest(self, batches: Sequence[ProducerBatch], now_ms: int) -> Cause | None:
        """Returns why the oldest of the batches is not acknowledged, which keeps its memory.

        A broker's own text is left out: it may name a topic that the caller may not know.
        """
        oldest = min(batches, key=attrgetter("created_ms"), default=None)
        if oldest is None:
            return None
        cause = self.of_batch(oldest, now_ms)
        if cause is None or cause.reason is not None or self._failure_of(oldest) is None:
            return cause
        return cause._replace(detail=cause.error.message)

    def of_connections(self, now_ms: int) -> Cause | None:
        """Returns why no broker has answered: the latest failure of a connection, or the oldest request.

        Without both, it is the oldest attempt to connect. Any thread. None if there is nothing of the kind.
        """
        nodes = self._client.node_statuses(now_ms)
        failed = [node for node in nodes if node.cause is not None]
        if failed:
            return min(failed, key=lambda node: node.last_error_age_ms or 0).cause
        node = max(nodes, key=lambda node: node.oldest_in_flight_age_ms or 0, default=None)
        if node is None or node.oldest_in_flight_age_ms is None:
            oldest = max(nodes, key=lambda node: node.connecting_age_ms or 0, default=None)
            return None if oldest is None else _unconnected(oldest)
        node_id = node.node_id if node.node_id >= 0 else None
        detail = f"{node.host}:{node.port} has accepted a request and has not answered"
        return Cause(Errors.REQUEST_TIMED_OUT, node_id, 0, node.oldest_in_flight_age_ms, detail)

    def of_requests(
        self, owners: Collection[object], batches: Iterable[ProducerBatch], now_ms: int
    ) -> dict[int, Cause]:
        """Returns by id() of each owner why its records are not acknowledged: the cause of its oldest batch.

        Owners without a cause are missing.
        """
        ids = {id(owner) for owner in owners}
        theirs: list[tuple[ProducerBatch, set[int]]] = []
        for batch in batches:
            in_it = ids.intersection([id(owner) for owner, _, _ in tuple(batch.spans)])
            if in_it:
                theirs.append((batch, in_it))
        found: dict[int, Cause] = {}
        causes = self.of_batches([batch for batch, _ in theirs], now_ms)
        for (_, in_it), cause in zip(theirs, causes, strict=True):
            if cause is not None:
                for owner_id in in_it:
                    found.setdefault(owner_id, cause)
        return found

    def _of(self, batch: ProducerBatch, nodes: dict[int, ConnectionStatus], now_ms: int) -> Cause | None:
        failed = self._failure_of(batch)
        if batch.sent_to is not None:
            if failed is not None:
                return _of_attempts(failed, now_ms)
            return _unanswered(batch.sent_to, now_ms - batch.created_ms - batch.queue_time_ms)
        cache = self._metadata.cache
        leader = cache.leader_for(batch.topic_partition)
        if leader is None:
            unreachable = self.of_connections(now_ms) if cache.is_bootstrap else None
            if unreachable is not None:
                return unreachable
            since_ms = batch.created_ms if failed is None else failed.since_ms
            attempts = 0 if failed is None else failed.attempts
            waited_ms = max(now_ms - since_ms, 0)
            return Cause(
                Errors.LEADER_NOT_AVAILABLE, None, attempts, waited_ms, "the partition has no leader"
            )
        node = nodes.get(leader.id)
        if node is not None and node.cause is not None:
            return node.cause
        if failed is not None:
            return _of_attempts(failed, now_ms)
        lacks_id = self._producer_id_cause(now_ms)
        if lacks_id is not None or node is None:
            return lacks_id
        if node.throttle_left_ms:
            detail = f"node {leader.id} asked for a pause, of which {node.throttle_left_ms} ms are left"
            return Cause(Errors.THROTTLING_QUOTA_EXCEEDED, leader.id, 0, now_ms - batch.created_ms, detail)
        if node.oldest_in_flight_age_ms is not None:
            return _unanswered(leader.id, node.oldest_in_flight_age_ms)
        return _unconnected(node)

    def _failure_of(self, batch: ProducerBatch) -> AttemptFailure | None:
        """Returns the failure of the batch's last attempts, or of those that it waited for."""
        if batch.last_failure is not None:
            return batch.last_failure
        before = self.failing.get(batch.topic_partition)
        return before if before is not None and before.last_ms >= batch.created_ms else None


def cause_of_attempts(batch: ProducerBatch, now_ms: int) -> Cause | None:
    """Returns the error of the batch's last failed attempts; None if none has failed."""
    return None if batch.last_failure is None else _of_attempts(batch.last_failure, now_ms)


def _of_attempts(failed: AttemptFailure, now_ms: int) -> Cause:
    since_ms = max(now_ms - failed.since_ms, 0)
    return Cause(failed.error, failed.node_id, failed.attempts, since_ms, failed.detail)


def _unconnected(node: ConnectionStatus) -> Cause | None:
    if node.connecting_age_ms is None:
        return None
    node_id = node.node_id if node.node_id >= 0 else None
    detail = f"the connection to {node.host}:{node.port} is not set up yet"
    return Cause(Errors.NETWORK_EXCEPTION, node_id, 0, node.connecting_age_ms, detail)


def _unanswered(node_id: int, since_ms: int) -> Cause:
    return Cause(Errors.REQUEST_TIMED_OUT, node_id, 0, max(since_ms, 0), f"node {node_id} has not answered")
