"""Refreshes of topics by Metadata requests outside the schedule.

Metadata's own schedule has one request in flight. If a broker hangs, that request lasts for
request.timeout.ms, and no other topic is asked for meanwhile. Each refresh here is a request of its own, and
goes to a node that answers, if there is one. There are two kinds:

- of known topics, for readers who want a bound on age: how often is the caller's decision;
- of new topics, of all known ones for look-ups that demand a version or an age, or of the brokers before the
  first answer, if the schedule has had none for ASK_ANOTHER_MS, and a node is silent. A topic that may be
  created is left to the schedule.

A refresh ends when its response is applied. If only one broker reports a topic missing, it ends when another
one has answered too (`producer_metadata.py`). It ends at its deadline at the latest; a response that comes
later is applied nevertheless. Java has no such requests. I/O thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from client_core.client.kafka_client import ASK_ANOTHER_MS, SILENT_MS
from client_core.events import MetadataRefreshed, MetadataRefreshFailed
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.metadata_response import MetadataResponse
from client_core.producer.requests.pending_calls import PendingCall, PendingCalls
from client_core.producer.results.results import MetadataResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.kafka_client import ClientResponse, KafkaClient
    from client_core.errors import KafkaError
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.requests.pending_metadata import PendingLookups
    from client_core.producer.results.ticket import Completions

#: The maximum of new topics in one refresh.
_MOST_TOPICS: Final = 1_000

#: The pause before the next search for a node.
_PAUSE_MS: Final = 10

#: A response that took longer is ignored if another response was applied since its request was sent: it may
#: be older than that one.
_LATE_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class TopicRefresh(PendingCall):
    topics: Sequence[str]
    #: In events and metrics.
    reason: str = "age"
    is_sent: bool = False
    is_answered: bool = False


class TopicRefreshes(PendingCalls[TopicRefresh]):
    """The refreshes that have not ended."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        completions: Completions,
        events: EventSink,
        lookups: PendingLookups,
    ) -> None:
        super().__init__(metadata, completions)
        self._events = events
        self._lookups = lookups
        self._without_brokers_since_ms: int | None = None
        #: The last refresh of what was unanswered, and the pause after it.
        self._elsewhere: TopicRefresh | None = None
        self._pause_ms = ASK_ANOTHER_MS
        self._running: dict[TopicRefresh, None] = {}

    def take(self, refresh: TopicRefresh, now_ms: int) -> None:
        if self._begin(refresh):
            self._running[refresh] = None

    # -- requests --------------------------------------------------------------------------------------------

    def ask_elsewhere(self, client: KafkaClient, now_ms: int) -> int | None:
        """Begins a refresh of what is unanswered for too long, topics or brokers; returns ms until the next.

        None if there are none.
        """
        since_ms = self._unanswered_since_ms(now_ms)
        if since_ms is None:
            return None
        last = self._elsewhere
        if last is None or last.since_ms < since_ms:
            last, self._pause_ms = None, ASK_ANOTHER_MS
        due_ms = (since_ms if last is None else last.since_ms) + self._pause_ms
        if now_ms < due_ms:
            return due_ms - now_ms
        if not client.silent_nodes(now_ms):
            return SILENT_MS  # all refuse connections, or answer with errors
        # If the last one is not answered either, brokers may be overloaded.
        self._pause_ms = ASK_ANOTHER_MS if last is None or last.is_answered else 2 * self._pause_ms
        self._elsewhere = self._of_unanswered(now_ms)
        self.take(self._elsewhere, now_ms)
        return self._pause_ms

    def _of_unanswered(self, now_ms: int) -> TopicRefresh:
        topics = self._metadata.unanswered_topics[:_MOST_TOPICS]
        if self._without_brokers_since_ms is not None:
            reason = "initial"
        else:
            reason = "topic_missing" if topics else "manual"
        if self._lookups.updates_since_ms is not None:
            topics = (*topics, *self._metadata.cache.topics)
        return TopicRefresh(lambda _: None, now_ms, now_ms + ASK_ANOTHER_MS, topics, reason)

    def _unanswered_since_ms(self, now_ms: int) -> int | None:
        if self._metadata.cache.cluster.is_bootstrap_configured:
            if self._without_brokers_since_ms is None:
                self._without_brokers_since_ms = now_ms
            return self._without_brokers_since_ms
        self._without_brokers_since_ms = None
        topics_ms = self._metadata.unanswered_since_ms
        updates_ms = self._lookups.updates_since_ms if self._lookups.count else None
        if topics_ms is None or updates_ms is None:
            return updates_ms if topics_ms is None else topics_ms
        return min(topics_ms, updates_ms)

    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends what is not sent yet; returns ms until the next try, None if all is sent."""
        for refresh in self._running:
            if not refresh.is_sent and not self._send(refresh, client, now_ms):
                return _PAUSE_MS
        return None

    def _send(self, refresh: TopicRefresh, client: KafkaClient, now_ms: int) -> bool:
        node = client.answering_node(now_ms, self._metadata.doubted_node_id)
        if node is None or not client.ready(node, now_ms):
            return False
        # A topic that is not held any more must not become held again by its response.
        topics = tuple(topic for topic in refresh.topics if self._metadata.contains_topic(topic))
        builder = MetadataRequestBuilder(topics, False, lambda: self._metadata.cache.topics)
        request = client.new_client_request(
            node.id, builder, now_ms, expect_response=True, on_complete=partial(self._ended, refresh)
        )
        refresh.is_sent = True
        client.send(request, now_ms)
        return True

    def _ended(self, refresh: TopicRefresh, response: ClientResponse) -> None:
        body, now_ms, node_id = response.body, response.received_ms, response.destination
        if isinstance(body, MetadataResponse) and body.brokers and not body.error_code:
            if not self._is_overtaken(response):
                self._apply(refresh.reason, body, node_id, response.latency_ms, now_ms)
            refresh.is_answered = True
            self._finish_if_settled(refresh, now_ms)
            return
        outcome, final = "error", response.version_mismatch or response.authentication_error
        if final is not None:
            detail = str(final)
        elif response.timed_out:
            outcome, detail = "timeout", "the request timed out"
        else:
            detail = "the connection ended" if response.disconnected else "the response lists no brokers"
        self._events.emit(
            MetadataRefreshFailed(refresh.reason, outcome, detail, response.latency_ms, node_id)
        )
        if final is not None:
            self._report(refresh, final, now_ms)
        else:
            refresh.is_sent = False  # until its deadline, another node is asked

    def _is_overtaken(self, response: ClientResponse) -> bool:
        newest = self._metadata.answered_cache.answered
        sent_ms = response.request.created_ms
        return response.latency_ms > _LATE_MS and newest is not None and newest.now_ms > sent_ms

    def _apply(self, reason: str, body: MetadataResponse, node_id: int, latency_ms: int, now_ms: int) -> None:
        # A bootstrap address may belong to any broker.
        summary = self._metadata.update_topics(body, now_ms, node_id if node_id >= 0 else None)
        self._events.emit(
            MetadataRefreshed(
                reason,
                summary.update_version,
                self._metadata.request_version,
                True,
                latency_ms,
                summary.topics,
                summary.partitions,
                summary.leaderless_partitions,
                summary.cluster_id,
                node_id,
            )
        )

    # -- the end ---------------------------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int) -> None:
        """Ends the refreshes whose topics are no longer in doubt."""
        for refresh in tuple(self._running):
            if refresh.is_answered:
                self._finish_if_settled(refresh, now_ms)

    def _end(self, refresh: TopicRefresh, error: KafkaError | None, now_ms: int) -> None:
        waited_ms = now_ms - refresh.since_ms
        if error is None and not refresh.is_answered:
            error = self._late(waited_ms, f"No broker answered within {waited_ms} ms.")
        self._report(refresh, error, now_ms)

    def _finish_if_settled(self, refresh: TopicRefresh, now_ms: int) -> None:
        if not any(map(self._metadata.is_topic_in_doubt, refresh.topics)):
            self._report(refresh, None, now_ms)

    def _report(self, refresh: TopicRefresh, error: KafkaError | None, now_ms: int) -> None:
        if not refresh.is_finished:
            waited_ms = now_ms - refresh.since_ms
            cache = self._metadata.answered_cache
            self._finish(refresh, MetadataResult(cache, error=error, waited_ms=waited_ms))

    def _forget(self, refresh: TopicRefresh) -> None:
        super()._forget(refresh)
        del self._running[refresh]
