"""Callers that wait for a partition's offsets, and the ListOffsets requests for them.

A caller wants two offsets, the log's start and its end: each is a question of its own, because a request may
name a partition only once. All questions of one kind for the same leader share a request. A caller that comes
while a request is under way waits for the next one, so that an offset is never older than its caller.

    the leader answers          the offset is known; a caller is answered once both offsets are known
    a retriable error           metadata is refreshed if the error says so, and the question is asked again
                                after a growing pause: of the new leader, once that is known
    another error               final for the partition
    no leader, a lost request   as a retriable error
    the leader moves meanwhile  the new leader is asked at once, and the old one's answer is ignored: a
                                broker that hangs would keep the callers waiting for request.timeout.ms

I/O thread only. Source: KafkaAdminClient.listOffsets, PartitionLeaderStrategy, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.errors import (
    Cause,
    KafkaError,
    LeaderNotAvailableError,
    NetworkError,
    TimeoutError,
    error_for,
)
from client_core.metadata.partition_offsets import (
    EARLIEST,
    LATEST,
    AskedPartition,
    ListedOffsets,
    ListOffsetsRequestBuilder,
    OffsetFailure,
)
from client_core.producer.requests.pending_calls import PendingCall, PendingCalls
from client_core.producer.results.results import OffsetsResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import ClientRequest, ClientResponse, KafkaClient
    from client_core.cluster import Node, TopicPartition
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.results.ticket import Completions

#: The pause before the next try if the leader's connection is not ready.
_PAUSE_MS: Final = 10


class _Key(NamedTuple):
    topic_partition: TopicPartition
    timestamp: int


@dataclass(slots=True, eq=False)
class OffsetsWait(PendingCall):
    topic_partition: TopicPartition
    #: The offsets so far, by the question's timestamp.
    found: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Question:
    """One offset of one partition, those that wait for it, and its failures in a row."""

    waits: dict[OffsetsWait, None] = field(default_factory=dict)
    #: The last request with this question, while it is unanswered.
    under_way: ClientRequest | None = None
    not_before_ms: int = 0
    attempts: int = 0
    error: KafkaError | None = None
    node_id: int | None = None
    failing_since_ms: int = 0


class PendingOffsets(PendingCalls[OffsetsWait]):
    """All waits for offsets. I/O thread only."""

    def __init__(
        self, metadata: ProducerMetadata, completions: Completions, retry_backoff: ExponentialBackoff
    ) -> None:
        super().__init__(metadata, completions)
        self._retry_backoff = retry_backoff
        self._questions: dict[_Key, _Question] = {}

    def take(self, wait: OffsetsWait, now_ms: int) -> None:
        if self._begin(wait):
            for key in _keys_of(wait):
                self._questions.setdefault(key, _Question()).waits[wait] = None

    # -- requests --------------------------------------------------------------------------------------------

    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends what can be sent; returns ms until the next try, None if there is nothing to send."""
        delays: list[int] = []
        by_request: dict[tuple[Node, int], list[_Key]] = {}
        for key, question in list(self._questions.items()):
            node = self._metadata.cache.leader_for(key.topic_partition)
            asked = question.under_way
            if asked is not None and (node is None or node.id == asked.destination):
                continue
            if now_ms < question.not_before_ms:
                delays.append(question.not_before_ms - now_ms)
            elif node is None:
                self._failed(key, LeaderNotAvailableError(), None, now_ms)
                delays.append(question.not_before_ms - now_ms)
            else:
                by_request.setdefault((node, key.timestamp), []).append(key)
        for (node, timestamp), keys in by_request.items():
            if not self._send(client, node, timestamp, keys, now_ms):
                delays.append(_PAUSE_MS)
        return min(delays, default=None)

    def _send(
        self, client: KafkaClient, node: Node, timestamp: int, keys: Sequence[_Key], now_ms: int
    ) -> bool:
        if not client.ready(node, now_ms):
            if client.connection_failed(node):
                for key in keys:
                    error = NetworkError(f"there is no connection to node {node.id}")
                    self._failed(key, error, node.id, now_ms)
            return False
        cache = self._metadata.cache
        asked = [
            AskedPartition(key.topic_partition, cache.leader_and_epoch_for(key.topic_partition)[1])
            for key in keys
        ]
        waits = {key: tuple(self._questions[key].waits) for key in keys}
        last_ms = max(wait.deadline_ms for of_key in waits.values() for wait in of_key)
        builder = ListOffsetsRequestBuilder(timestamp, asked, max(last_ms - now_ms, 1))
        request = client.new_client_request(
            node.id, builder, now_ms, expect_response=True, on_complete=partial(self._answered, waits)
        )
        for key in keys:
            self._questions[key].under_way = request
        client.send(request, now_ms)
        return True

    def _answered(self, asked: dict[_Key, tuple[OffsetsWait, ...]], response: ClientResponse) -> None:
        final = response.version_mismatch or response.authentication_error
        body = response.body if isinstance(response.body, ListedOffsets) else None
        for key, waits in asked.items():
            question = self._questions.get(key)
            if question is None or question.under_way is not response.request:
                continue  # nobody waits, or the new leader is asked
            question.under_way = None
            found = None if body is None else body.by_partition.get(key.topic_partition)
            if isinstance(found, int):
                self._found(key, waits, found, response.received_ms)
                continue
            error = final or _error_of(key, body, found)
            if error.retriable:
                self._failed(key, error, response.destination, response.received_ms)
                continue
            for wait in waits:
                if not wait.is_finished:
                    self._end(wait, error, response.received_ms)

    def _found(self, key: _Key, waits: Sequence[OffsetsWait], offset: int, now_ms: int) -> None:
        question = self._questions.get(key)
        if question is not None:
            question.attempts = question.not_before_ms = 0
            question.error = None
        for wait in waits:
            if wait.is_finished:
                continue
            wait.found[key.timestamp] = offset
            if len(wait.found) == len(_keys_of(wait)):
                waited_ms = now_ms - wait.since_ms
                self._finish(
                    wait, OffsetsResult(wait.found[EARLIEST], wait.found[LATEST], waited_ms=waited_ms)
                )
            else:
                self._leave(key, wait)

    def _failed(self, key: _Key, error: KafkaError, node_id: int | None, now_ms: int) -> None:
        """Notes a failure that may pass, and when to ask again."""
        if error.refreshes_metadata:
            missing = error.error is Errors.UNKNOWN_TOPIC_OR_PARTITION
            self._metadata.request_update(False, "topic_missing" if missing else "leader_error")
        question = self._questions.get(key)
        if question is None:
            return
        if question.error is None or question.error.error is not error.error:
            question.attempts, question.failing_since_ms = 0, now_ms
        question.not_before_ms = now_ms + max(self._retry_backoff.backoff_ms(question.attempts), 1)
        question.attempts += 1
        question.error, question.node_id = error, node_id

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self, wait: OffsetsWait, error: KafkaError | None, now_ms: int) -> None:
        error = error or self._too_late(wait, now_ms)
        self._finish(wait, OffsetsResult(None, None, error=error, waited_ms=now_ms - wait.since_ms))

    def _too_late(self, wait: OffsetsWait, now_ms: int) -> KafkaError:
        waited_ms = now_ms - wait.since_ms
        message = f"The offsets of {wait.topic_partition} were not received within {waited_ms} ms."
        late = self._late(waited_ms, message)
        if not isinstance(late, TimeoutError):
            return late
        for key in _keys_of(wait):
            if key.timestamp in wait.found:
                continue  # found already, so its question may be gone
            question = self._questions[key]
            error, asked = question.error, question.under_way
            if error is None:
                if asked is None:
                    continue  # it was not sent
                detail, since_ms = f"node {asked.destination} has not answered", now_ms - asked.created_ms
                return late.because_of(
                    Cause(Errors.REQUEST_TIMED_OUT, asked.destination, 0, since_ms, detail)
                )
            if error.error is Errors.UNKNOWN_TOPIC_OR_PARTITION:
                late.__cause__ = error  # this is the reason itself, so no Cause is needed
                return late
            since_ms = now_ms - question.failing_since_ms
            return late.because_of(
                Cause(error.error, question.node_id, question.attempts, since_ms, error.message)
            )
        return late

    def _forget(self, wait: OffsetsWait) -> None:
        super()._forget(wait)
        for key in _keys_of(wait):
            self._leave(key, wait)

    def _leave(self, key: _Key, wait: OffsetsWait) -> None:
        question = self._questions.get(key)
        if question is not None:
            question.waits.pop(wait, None)
            if not question.waits:
                del self._questions[key]


def _keys_of(wait: OffsetsWait) -> tuple[_Key, _Key]:
    return _Key(wait.topic_partition, EARLIEST), _Key(wait.topic_partition, LATEST)


def _error_of(key: _Key, body: ListedOffsets | None, found: OffsetFailure | None) -> KafkaError:
    if body is None:
        return NetworkError("the connection to the leader ended, or the request timed out")
    if found is None:
        missing = f"The broker's answer has no offset of {key.topic_partition}."
        return error_for(Errors.UNKNOWN_SERVER_ERROR.code, missing)
    return error_for(found.error_code)
