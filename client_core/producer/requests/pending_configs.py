"""Callers that wait for topic configs, and the DescribeConfigs requests for them.

One request at a time, for all topics that callers wait for when it is built. A later caller gets the next
request, because a topic created meanwhile may be missing in the answer. As in Java's AdminClient, an error
concerns one topic, and is final unless retriable. A missing topic is final here, though produce requests
retry it. I/O thread only. Source: KafkaAdminClient.describeConfigs, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import KafkaError, TimeoutError, error_for
from client_core.metadata.topic_configs import (
    DescribedTopics,
    TopicConfigs,
    TopicConfigsFailure,
    TopicConfigsRequestBuilder,
)
from client_core.producer.requests.deadlines import Deadlines
from client_core.producer.requests.least_loaded_call import LeastLoadedCall
from client_core.producer.requests.metadata_wait import no_brokers
from client_core.producer.results.results import TopicConfigsResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import KafkaClient
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.results.ticket import Completions, Done

#: The maximum of topics per request: a topic's configs take about 2 KB of the response.
MAX_TOPICS_PER_REQUEST: Final = 100


@dataclass(slots=True, eq=False)
class ConfigsWait:
    """One wait. Created by any thread, then owned by the I/O thread."""

    topic: str
    done: Done
    since_ms: int
    deadline_ms: int
    is_finished: bool = False
    #: Set by any thread: `done` is not called from then on.
    is_cancelled: bool = False


class PendingConfigs:
    """All waits for configs. I/O thread only."""

    def __init__(
        self, metadata: ProducerMetadata, completions: Completions, retry_backoff: ExponentialBackoff
    ) -> None:
        self._metadata = metadata
        self._completions = completions
        self._call = LeastLoadedCall(retry_backoff, self._settle)
        self._by_topic: dict[str, dict[ConfigsWait, None]] = {}
        self._asked_for: Mapping[str, tuple[ConfigsWait, ...]] = {}
        self._deadlines = Deadlines[ConfigsWait]()
        #: The number of waits.
        self.count = 0

    def take(self, wait: ConfigsWait) -> None:
        if not wait.is_finished:
            self.count += 1
            self._deadlines.add(wait.deadline_ms, wait)
            self._by_topic.setdefault(wait.topic, {})[wait] = None

    # -- requests --------------------------------------------------------------------------------------------

    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends a request if callers wait; returns ms until the next try.

        None if there is nothing to send.
        """
        if not self._by_topic or self._call.is_under_way:
            return None
        return self._call.send(client, self._request, now_ms) or None

    def _request(self) -> TopicConfigsRequestBuilder:
        """Returns the request for the longest waits."""
        first = islice(self._by_topic.items(), MAX_TOPICS_PER_REQUEST)
        self._asked_for = {topic: tuple(waits) for topic, waits in first}
        return TopicConfigsRequestBuilder(tuple(self._asked_for))

    def _settle(self, body: object | None, error: KafkaError | None, now_ms: int) -> bool:
        """Reports a response, topic by topic; returns whether nothing must be retried."""
        asked_for, self._asked_for = self._asked_for, {}
        settled = True
        for topic, waits in asked_for.items():
            reported = _reported_of(topic, body) if isinstance(body, DescribedTopics) else error
            if reported is None or (isinstance(reported, KafkaError) and _may_be_retried(reported)):
                settled = False
                continue
            for wait in waits:
                if not wait.is_finished:
                    self._finish(wait, reported, now_ms)
        return settled

    # -- the end ---------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int:
        return self._deadlines.next_ms

    def expire(self, now_ms: int) -> None:
        """Ends the waits whose deadline has passed."""
        for wait in self._deadlines.pop_due(now_ms):
            self._finish(wait, self._too_late(wait, now_ms - wait.since_ms), now_ms)

    def fail_all(self, error: KafkaError, now_ms: int) -> None:
        """Ends all waits: no broker will answer, or the producer closes."""
        for wait in self._deadlines.pop_all():
            self._finish(wait, error, now_ms)

    def cancel(self, wait: ConfigsWait) -> None:
        """Ends a wait without calling its `done`."""
        if not wait.is_finished:
            self._forget(wait)

    def _too_late(self, wait: ConfigsWait, waited_ms: int) -> KafkaError:
        if self._metadata.cache.is_bootstrap:
            return no_brokers(self._metadata.last_disconnection, waited_ms=waited_ms)
        return TimeoutError(f"The configs of topic {wait.topic} were not received within {waited_ms} ms.")

    def _finish(self, wait: ConfigsWait, reported: TopicConfigs | KafkaError, now_ms: int) -> None:
        self._forget(wait)
        if wait.is_cancelled:
            return
        waited_ms = now_ms - wait.since_ms
        if isinstance(reported, KafkaError):
            result = TopicConfigsResult(None, error=reported, waited_ms=waited_ms)
        else:
            result = TopicConfigsResult(reported, waited_ms=waited_ms)
        self._completions.add(wait.done, result)

    def _forget(self, wait: ConfigsWait) -> None:
        wait.is_finished = True
        self.count -= 1
        self._deadlines.discard(wait.deadline_ms, wait)
        waits = self._by_topic[wait.topic]
        del waits[wait]
        if not waits:
            del self._by_topic[wait.topic]


def _reported_of(topic: str, described: DescribedTopics) -> TopicConfigs | KafkaError:
    reported = described.by_topic.get(topic)
    if reported is None:
        missing = f"The broker's answer has no configs of topic {topic}."
        return error_for(Errors.UNKNOWN_SERVER_ERROR.code, missing)
    return (
        error_for(reported.error_code, reported.message)
        if isinstance(reported, TopicConfigsFailure)
        else reported
    )


def _may_be_retried(error: KafkaError) -> bool:
    return error.retriable and error.error is not Errors.UNKNOWN_TOPIC_OR_PARTITION
