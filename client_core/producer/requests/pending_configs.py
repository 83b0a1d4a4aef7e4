"""Callers that wait for topic configs, and the DescribeConfigs requests for them.

A request is for all topics that callers wait for when it is built. A later caller gets the next
request, because a topic created meanwhile may be missing in the answer. As in Java's AdminClient, an error
concerns one topic, and is final unless retriable. A missing topic is final here, though produce requests
retry it. I/O thread only. Source: KafkaAdminClient.describeConfigs, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import KafkaError, error_for
from client_core.metadata.topic_configs import (
    DescribedTopics,
    TopicConfigs,
    TopicConfigsFailure,
    TopicConfigsRequestBuilder,
)
from client_core.producer.requests.least_loaded_call import LeastLoadedCall
from client_core.producer.requests.pending_calls import PendingCall, PendingCalls
from client_core.producer.results.results import TopicConfigsResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import KafkaClient
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.requests.least_loaded_call import Settle
    from client_core.producer.results.ticket import Completions

#: The maximum of topics per request: a topic's configs take about 2 KB of the response.
MAX_TOPICS_PER_REQUEST: Final = 100


@dataclass(slots=True, eq=False)
class ConfigsWait(PendingCall):
    topic: str


class PendingConfigs(PendingCalls[ConfigsWait]):
    """All waits for configs. I/O thread only."""

    def __init__(
        self, metadata: ProducerMetadata, completions: Completions, retry_backoff: ExponentialBackoff
    ) -> None:
        super().__init__(metadata, completions)
        self._call = LeastLoadedCall(retry_backoff)
        self._by_topic: dict[str, dict[ConfigsWait, None]] = {}

    def take(self, wait: ConfigsWait, now_ms: int) -> None:
        if self._begin(wait):
            self._by_topic.setdefault(wait.topic, {})[wait] = None

    # -- requests --------------------------------------------------------------------------------------------

    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends a request if callers wait; returns ms until the next try.

        None if there is nothing to send.
        """
        return self._call.delay_ms(client, self._request, now_ms) if self._by_topic else None

    def _request(self) -> tuple[TopicConfigsRequestBuilder, Settle]:
        """Returns the request for the longest waits."""
        first = islice(self._by_topic.items(), MAX_TOPICS_PER_REQUEST)
        asked_for = {topic: tuple(waits) for topic, waits in first}
        return TopicConfigsRequestBuilder(tuple(asked_for)), partial(self._settle, asked_for)

    def _settle(
        self,
        asked_for: Mapping[str, Sequence[ConfigsWait]],
        body: object | None,
        error: KafkaError | None,
        now_ms: int,
    ) -> bool:
        """Reports a response, topic by topic; returns whether nothing must be retried."""
        settled = True
        for topic, waits in asked_for.items():
            reported = _reported_of(topic, body) if isinstance(body, DescribedTopics) else error
            if reported is None or (isinstance(reported, KafkaError) and _may_be_retried(reported)):
                settled = False
                continue
            for wait in waits:
                if not wait.is_finished:
                    self._report(wait, reported, now_ms)
        return settled

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self, wait: ConfigsWait, error: KafkaError | None, now_ms: int) -> None:
        waited_ms = now_ms - wait.since_ms
        late = f"The configs of topic {wait.topic} were not received within {waited_ms} ms."
        self._report(wait, error or self._late(waited_ms, late), now_ms)

    def _report(self, wait: ConfigsWait, reported: TopicConfigs | KafkaError, now_ms: int) -> None:
        waited_ms = now_ms - wait.since_ms
        if isinstance(reported, KafkaError):
            self._finish(wait, TopicConfigsResult(None, error=reported, waited_ms=waited_ms))
        else:
            self._finish(wait, TopicConfigsResult(reported, waited_ms=waited_ms))

    def _forget(self, wait: ConfigsWait) -> None:
        super()._forget(wait)
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
