"""Look-ups that wait for metadata: topics by name, a newer snapshot, or all topics.

No thread waits. Look-ups are indexed by topic. When metadata changes, the I/O thread checks each awaited
topic once, however many look-ups wait for it. It goes through the look-ups of a topic only if brokers report
the topic missing, or if the topic is known or refused. Java has no such calls: its look-ups block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from client_core.error_codes import Errors
from client_core.errors import KafkaError, TimeoutError, error_for
from client_core.metadata.topic_listing import TopicListing, TopicListingRequestBuilder
from client_core.producer.requests.least_loaded_call import LeastLoadedCall
from client_core.producer.requests.metadata_wait import (
    Fail,
    Known,
    judge_metadata_wait,
    metadata_timeout,
    no_brokers,
    with_cause_of_silence,
)
from client_core.producer.requests.pending_calls import PendingCall, PendingCalls
from client_core.producer.results.results import ListingResult, MetadataResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import KafkaClient
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata, TopicError
    from client_core.producer.requests.least_loaded_call import Settle
    from client_core.producer.results.ticket import Completions


class Kind(Enum):
    """What a look-up waits for."""

    TOPICS = "topics"
    UPDATE = "update"
    LISTING = "listing"


@dataclass(slots=True, eq=False)
class PendingLookup(PendingCall):
    kind: Kind
    topics: Sequence[str] = ()
    may_create: bool = False
    settle: bool = True
    min_version: int | None = None
    not_before_ms: int | None = None
    #: The last full request before this wait: its response may be older than the wait.
    after_request: int | None = None
    missing: set[str] = field(default_factory=set)
    errors: dict[str, KafkaError] = field(default_factory=dict)
    errors_before: dict[str, TopicError | None] = field(default_factory=dict)


class PendingLookups(PendingCalls[PendingLookup]):
    """All waits for metadata except those of records. I/O thread only."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        completions: Completions,
        retry_backoff: ExponentialBackoff,
        is_wanted: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        """`is_wanted(topic)`: whether records wait for a topic, so that it must still be requested."""
        super().__init__(metadata, completions)
        self._is_wanted = is_wanted
        self._listing_call = LeastLoadedCall(retry_backoff)
        self._by_topic: dict[str, dict[PendingLookup, None]] = {}
        self._updates: dict[PendingLookup, None] = {}
        self._listings: dict[PendingLookup, None] = {}

    # -- new -------------------------------------------------------------------------------------------------

    def take(self, lookup: PendingLookup, now_ms: int) -> None:
        if not self._begin(lookup):
            return
        if lookup.kind is Kind.LISTING:
            self._listings[lookup] = None
        elif lookup.kind is Kind.UPDATE:
            self._take_update(lookup, now_ms)
        else:
            self._take_topics(lookup, now_ms)

    def _take_topics(self, lookup: PendingLookup, now_ms: int) -> None:
        for topic in lookup.topics:
            self._metadata.add(topic, now_ms, may_create=lookup.may_create)
            judged = judge_metadata_wait(self._metadata.cache, topic, None, answered=False)
            if isinstance(judged, Fail):
                lookup.errors[topic] = judged.error
            elif not isinstance(judged, Known):
                lookup.missing.add(topic)
                lookup.errors_before[topic] = self._metadata.topic_error(topic)
                self._by_topic.setdefault(topic, {})[lookup] = None
                self._metadata.request_update_for_topic(topic)
        self._finish_topics_if_settled(lookup, now_ms)

    def _take_update(self, lookup: PendingLookup, now_ms: int) -> None:
        if lookup.min_version is None and lookup.not_before_ms is None:
            # The caller requested a refresh. Only a full response counts, and only to a request sent after
            # this one.
            lookup.after_request, _ = self._metadata.full_requests
        cache = self._metadata.answered_cache
        if self._is_new_enough(lookup, cache, _refreshed_ms(cache)):
            self._finish(lookup, MetadataResult(cache))
            return
        self._updates[lookup] = None
        self._metadata.request_update(True, "manual")

    @property
    def updates_since_ms(self) -> int | None:
        """Since when a look-up waits for a version or an age; None if none does."""
        return next((lookup.since_ms for lookup in self._updates if lookup.after_request is None), None)

    def _is_new_enough(self, lookup: PendingLookup, cache: MetadataCache, refreshed_ms: int | None) -> bool:
        if lookup.after_request is not None:
            _, answered = self._metadata.full_requests
            return answered > lookup.after_request
        return (
            refreshed_ms is not None
            and (lookup.min_version is None or cache.update_version >= lookup.min_version)
            and (lookup.not_before_ms is None or refreshed_ms >= lookup.not_before_ms)
        )

    # -- progress --------------------------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int) -> None:
        """Checks each awaited topic once, and the waits for a newer snapshot."""
        cache = self._metadata.cache
        for topic, lookups in tuple(self._by_topic.items()):
            judged = judge_metadata_wait(cache, topic, None, answered=True)
            if isinstance(judged, Known):
                self._topic_settled(topic, tuple(lookups), None, now_ms)
            elif isinstance(judged, Fail):
                self._topic_settled(topic, tuple(lookups), judged.error, now_ms)
            else:
                self._look_at_missing(topic, lookups, now_ms)
        if self._updates:
            self._look_at_updates(now_ms)

    def _look_at_updates(self, now_ms: int) -> None:
        answered = self._metadata.answered_cache
        refreshed_ms = _refreshed_ms(answered)
        for lookup in tuple(self._updates):
            if self._is_new_enough(lookup, answered, refreshed_ms):
                self._finish(lookup, MetadataResult(answered, waited_ms=now_ms - lookup.since_ms))
        if self._updates:
            self._metadata.request_update(False, "manual")

    def _look_at_missing(self, topic: str, lookups: dict[PendingLookup, None], now_ms: int) -> None:
        """Ends the look-ups of a topic that is confirmed missing.

        Look-ups that wait until it appears (`settle` is False) continue.
        """
        last = self._metadata.topic_error(topic)
        settled = self._metadata.is_missing(topic) and [
            lookup for lookup in lookups if lookup.settle and last != lookup.errors_before[topic]
        ]
        if settled:
            error = error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION.code, f"Topic {topic} does not exist")
            self._topic_settled(topic, settled, error, now_ms)
        if topic in self._by_topic:
            self._metadata.add(topic, now_ms, may_create=False)
            self._metadata.request_update_for_topic(topic)

    def waits_for(self, topic: str) -> bool:
        """Returns whether any look-up waits for the topic. I/O thread."""
        return topic in self._by_topic

    def _topic_settled(
        self, topic: str, lookups: Sequence[PendingLookup], error: KafkaError | None, now_ms: int
    ) -> None:
        for lookup in lookups:
            self._stop_waiting_for(topic, lookup)
            if error is not None:
                lookup.errors[topic] = error
            self._finish_topics_if_settled(lookup, now_ms)

    def _stop_waiting_for(self, topic: str, lookup: PendingLookup) -> None:
        lookup.missing.discard(topic)
        lookups = self._by_topic.get(topic)
        if lookups is not None:
            lookups.pop(lookup, None)
            if not lookups:
                del self._by_topic[topic]
                if not self._is_wanted(topic):
                    # No look-up is left: stop requesting it if it does not exist.
                    self._metadata.discard(topic)

    def _finish_topics_if_settled(self, lookup: PendingLookup, now_ms: int) -> None:
        if not lookup.missing:
            waited_ms = now_ms - lookup.since_ms
            cache = self._metadata.answered_cache
            self._finish(lookup, MetadataResult(cache, topic_errors=lookup.errors, waited_ms=waited_ms))

    # -- the listing -----------------------------------------------------------------------------------------

    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends the list request if callers wait; returns ms until the next try.

        None if there is nothing to send. One request serves all callers that wait when it is built. A later
        caller may know of newer topics, so it gets the next request.
        """
        return self._listing_call.delay_ms(client, self._listing_request, now_ms) if self._listings else None

    def _listing_request(self) -> tuple[TopicListingRequestBuilder, Settle]:
        return TopicListingRequestBuilder(), partial(self._settle_listing, tuple(self._listings))

    def _settle_listing(
        self, asked_for: Sequence[PendingLookup], body: object | None, error: KafkaError | None, now_ms: int
    ) -> bool:
        if isinstance(body, TopicListing):
            if not body.error_code:
                self._finish_listings(asked_for, body, None, now_ms)
                return True
            error = error_for(body.error_code)
        if error is None or error.retriable:
            return False
        self._finish_listings(asked_for, None, error, now_ms)
        return True

    def _finish_listings(
        self,
        lookups: Sequence[PendingLookup],
        listing: TopicListing | None,
        error: KafkaError | None,
        now_ms: int,
    ) -> None:
        for lookup in lookups:
            if not lookup.is_finished:
                self._finish(lookup, ListingResult(listing, error=error, waited_ms=now_ms - lookup.since_ms))

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self, lookup: PendingLookup, error: KafkaError | None, now_ms: int) -> None:
        """Ends a wait. At its deadline known topics are answered, and the others have timed out."""
        waited_ms = now_ms - lookup.since_ms
        cache = self._metadata.cache
        if error is None and cache.is_bootstrap:
            none = no_brokers(self._metadata.last_disconnection, waited_ms=waited_ms)
            error = with_cause_of_silence(none, self._metadata)
        if lookup.kind is Kind.LISTING:
            late = TimeoutError(f"Topics were not listed within {waited_ms} ms.").because_of(
                self._metadata.cause_of_silence()
            )
            self._finish(lookup, ListingResult(None, error=error or late, waited_ms=waited_ms))
            return
        if lookup.kind is Kind.UPDATE and error is None:
            error = TimeoutError(f"Metadata was not updated within {waited_ms} ms.").because_of(
                self._metadata.cause_of_silence()
            )
        for topic in sorted(lookup.missing):
            code = self._metadata.proven_error_code(topic)
            lookup.errors[topic] = error or metadata_timeout(
                cache,
                topic,
                None,
                waited_ms,
                code,
                cause_of_silence=self._metadata.cause_of_silence,
            )
        answered = self._metadata.answered_cache
        result = MetadataResult(answered, topic_errors=lookup.errors, error=error, waited_ms=waited_ms)
        self._finish(lookup, result)

    def _forget(self, lookup: PendingLookup) -> None:
        super()._forget(lookup)
        self._updates.pop(lookup, None)
        self._listings.pop(lookup, None)
        for topic in tuple(lookup.missing):
            self._stop_waiting_for(topic, lookup)


def _refreshed_ms(cache: MetadataCache) -> int | None:
    """Returns since when all of it was in a response: to a full request, or to some for its topics."""
    times = cache.last_successful_refresh_ms, None if cache.oldest is None else cache.oldest.now_ms
    return max((time for time in times if time is not None), default=None)
