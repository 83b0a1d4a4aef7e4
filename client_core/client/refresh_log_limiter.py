"""Limits the log lines of metadata refreshes: failures, recovery, and response errors.

A failed refresh is retried within a second, without end. A caller may request unknown topics at any rate.
Each failure is logged once, repeats at DEBUG. I/O thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.metadata.topic_table import TopicTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.metadata.metadata_response import MetadataResponse

_log: Final = logging.getLogger(__name__)

#: Partitions named in one warning; the others are only counted. Source: NetworkClient.
_NAMED_PARTITIONS: Final = 10
#: Different failures logged while no refresh works.
_MOST_WAYS: Final = 8
#: Topic errors remembered, and the least interval between warnings: callers choose the topic names.
MOST_TOPICS: Final = 1_000
_COMPLAIN_EVERY_MS: Final = 10_000


class RefreshLogLimiter:
    """Remembers which failures were logged."""

    def __init__(self) -> None:
        self._reported_ways: set[tuple[str, str]] = set()
        self._failing_since_ms: int | None = None
        #: The topics of the last response, and what was found in them: equal topics are not searched again.
        self._checked_topics: Sequence[object] = ()
        self._without_listener: tuple[int, tuple[str, ...]] = (0, ())
        self._reported_without_listener: tuple[int, tuple[str, ...]] = (0, ())
        self._reported_topics: dict[str, int] = {}
        self._complained_ms: int | None = None

    def no_node(self, now_ms: int) -> None:
        """Notes that no node is available."""
        said = "No broker is reachable; metadata is not refreshed until one is"
        self._failed("no_node", said, now_ms, logging.WARNING)

    def failed(self, reason: str, outcome: str, detail: str, now_ms: int) -> None:
        """Notes a failed refresh; `reason` and `outcome` are values of `events.MetadataRefreshFailed`."""
        self._failed(outcome, f"Metadata refresh ({reason}) failed: {detail}", now_ms, logging.INFO)

    def refreshed(self, now_ms: int) -> None:
        """Notes a successful refresh."""
        since_ms, self._failing_since_ms = self._failing_since_ms, None
        if since_ms is not None:
            self._reported_ways.clear()
            _log.info("Metadata is refreshed again, %d ms after that first failed", now_ms - since_ms)

    def _failed(self, outcome: str, said: str, now_ms: int, level: int) -> None:
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        way = (outcome, said)
        is_to_be_logged = way not in self._reported_ways and len(self._reported_ways) < _MOST_WAYS
        if is_to_be_logged:
            self._reported_ways.add(way)
        _log.log(level if is_to_be_logged else logging.DEBUG, "%s", said)

    # -- errors in responses ---------------------------------------------------------------------------------

    def response_came(self, response: MetadataResponse, correlation_id: int, now_ms: int) -> None:
        """Logs a response's errors: leaders without a matching listener, mistyped topics."""
        if response.topics is not self._checked_topics:
            self._checked_topics = response.topics
            self._without_listener = _partitions_without_listener(response)
        without_listener = count, named = self._without_listener
        if count and without_listener != self._reported_without_listener:
            _log.warning(
                "%d partitions have leader brokers without a matching listener, including %s",
                count,
                list(named),
            )
        self._reported_without_listener = without_listener
        if self._reported_topics:
            for topic in response.topics:
                if isinstance(topic, TopicTable):
                    self._reported_topics.pop(topic.name, None)
        if response.errors:
            self._complain(response, correlation_id, now_ms)

    def _complain(self, response: MetadataResponse, correlation_id: int, now_ms: int) -> None:
        errors = response.errors
        news = {topic: code for topic, code in errors.items() if self._reported_topics.get(topic) != code}
        rests = self._complained_ms is not None and now_ms - self._complained_ms < _COMPLAIN_EVERY_MS
        level = logging.WARNING if news and not rests else logging.DEBUG
        if level == logging.WARNING:
            self._complained_ms = now_ms
            self._reported_topics.update(news)
            for topic in list(self._reported_topics)[: max(len(self._reported_topics) - MOST_TOPICS, 0)]:
                del self._reported_topics[topic]
        _log.log(
            level,
            "The metadata response from the cluster reported a recoverable issue with correlation id %d: %s",
            correlation_id,
            {topic: Errors.of(code).name for topic, code in errors.items()},
        )


def _partitions_without_listener(response: MetadataResponse) -> tuple[int, tuple[str, ...]]:
    """Returns the number of such partitions, and the names of the first: all partitions may be affected."""
    code, count, named = Errors.LISTENER_NOT_FOUND.code, 0, list[str]()
    for topic in response.topics:
        if not isinstance(topic, TopicTable) or code not in topic.faults.error_codes:
            continue
        for number in topic.raw_numbers:
            partition = topic.metadata(number)
            if partition is not None and partition.error_code == code:
                count += 1
                if len(named) < _NAMED_PARTITIONS:
                    named.append(f"{topic.name}-{number}")
    return count, tuple(named)
