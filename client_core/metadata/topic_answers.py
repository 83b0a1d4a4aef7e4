"""Sorts a response's topics into accepted partitions, errors and ids; keeps the errors until raised.

It checks leader epochs, and whether a response requires another update or shows progress (META-11 to
META-16). Under Metadata's lock, on the I/O thread. Source: Metadata.handleMetadataResponse, Kafka 4.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_core.error_codes import Errors
from client_core.errors import InvalidTopicError, TopicAuthorizationError
from client_core.metadata.metadata_response import TopicFailure
from client_core.metadata.topic_layout import NO_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from client_core.errors import KafkaError
    from client_core.metadata.leader_epochs import LastSeenEpochs
    from client_core.metadata.metadata_response import MetadataResponse
    from client_core.metadata.refresh_schedule import RefreshSchedule
    from client_core.metadata.topic_table import TopicTable

_log = logging.getLogger(__name__)


class MetadataErrors:
    """The fatal error, and the unauthorized and invalid topics (META-19, META-20)."""

    def __init__(self) -> None:
        self.fatal: KafkaError | None = None
        self._unauthorized_topics: frozenset[str] = frozenset()
        self._invalid_topics: frozenset[str] = frozenset()

    def answered(self, unauthorized: frozenset[str], invalid: frozenset[str]) -> None:
        """Replaces all errors that were not raised yet with a response's.

        Clears the fatal error, since metadata arrived. Java keeps one without a waiter, and raises it to the
        next waiter, maybe hours later.
        """
        self.fatal = None
        self._unauthorized_topics, self._invalid_topics = unauthorized, invalid

    def take_fatal(self) -> KafkaError | None:
        """Returns and clears the fatal error."""
        fatal, self.fatal = self.fatal, None
        return fatal

    def take(self, topic: str | None = None) -> KafkaError | None:
        """Returns the most severe error, of one topic if given. Clears all errors, of every topic."""
        fatal, unauthorized, invalid = self.fatal, self._unauthorized_topics, self._invalid_topics
        self.answered(frozenset(), frozenset())
        if fatal is not None:
            return fatal
        if topic is not None:
            unauthorized, invalid = unauthorized & {topic}, invalid & {topic}
        if unauthorized:
            return TopicAuthorizationError(f"Not authorized to access topics: {_listed(unauthorized)}")
        return InvalidTopicError(f"Invalid topics: {_listed(invalid)}") if invalid else None


def _listed(topics: frozenset[str]) -> str:
    return f"[{', '.join(sorted(topics))}]"


@dataclass(slots=True)
class TopicAnswers:
    """A response's topics by kind. `other_ids`: the ids of topics that are not in `tables`.

    `names` has all of them, held or not, if the response is partial.
    """

    names: set[str] = field(default_factory=set)
    tables: dict[str, TopicTable] = field(default_factory=dict)
    other_ids: dict[str, UUID] = field(default_factory=dict)
    unauthorized: set[str] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)
    internal: set[str] = field(default_factory=set)
    #: Whether the same topics again would change nothing.
    is_settled: bool = True


def sort_answers(
    response: MetadataResponse,
    known_tables: Mapping[str, TopicTable],
    known_ids: Mapping[str, UUID],
    last_seen: LastSeenEpochs,
    schedule: RefreshSchedule,
    retain: Callable[[str, int], bool],
    is_settled: Callable[[str], bool],
    now_ms: int,
) -> TopicAnswers:
    """Sorts a response's topics, comparing them with the known ones.

    `retain(name, now_ms)` returns whether to keep a topic, `is_settled(name)` whether its error
    needs no early refresh. Most topics have unchanged bytes, which need few further checks.
    """
    answers = TopicAnswers()
    tables = answers.tables
    for topic in response.topics:
        name = topic.name
        if not retain(name, now_ms):
            _keep_id(topic, answers)
            continue
        if topic.is_internal:
            answers.internal.add(name)
        if isinstance(topic, TopicFailure):
            if not is_settled(name):
                _refresh_for(name, topic.error_code, schedule)
            _sort_failure(topic, answers)
            _keep_id(topic, answers)
            continue
        cached = known_tables.get(name)
        if topic is cached and last_seen.is_reported_by(topic):
            table = topic
        else:
            table, made_progress = last_seen.accept(
                topic,
                cached,
                topic_id_changed=last_seen.knows(name) and _has_new_id(topic, cached, known_ids),
                difference=response.differences.get(name),
            )
            if made_progress:
                schedule.progressed()
        if topic.faults is not NO_FAULTS:
            _sort_faults(topic, answers, schedule)
        if table.partition_count > 0:
            tables[name] = table
        else:
            _keep_id(topic, answers)
    return answers


def _has_new_id(topic: TopicTable, cached: TopicTable | None, known_ids: Mapping[str, UUID]) -> bool:
    if cached is not None:
        return not topic.has_id_of(cached) and topic.topic_id is not None
    return topic.topic_id is not None and topic.topic_id != known_ids.get(topic.name)


def _keep_id(topic: TopicTable | TopicFailure, answers: TopicAnswers) -> None:
    answers.is_settled = False
    if topic.topic_id is not None:
        answers.other_ids[topic.name] = topic.topic_id


def _sort_faults(topic: TopicTable, answers: TopicAnswers, schedule: RefreshSchedule) -> None:
    """Partitions with errors of their own are kept, for new epochs (META-16)."""
    faults = topic.faults
    if faults.misses_epoch:
        schedule.progressed()
    for code in faults.error_codes:
        _refresh_for(topic.name, code, schedule)
    if faults.misses_epoch or faults.error_codes:
        answers.is_settled = False


def _sort_failure(topic: TopicFailure, answers: TopicAnswers) -> None:
    """Sorts a topic with an error; it gets no partitions, whatever the response has (META-16)."""
    if topic.error_code == Errors.INVALID_TOPIC_EXCEPTION.code:
        answers.invalid.add(topic.name)
    elif topic.error_code == Errors.TOPIC_AUTHORIZATION_FAILED.code:
        answers.unauthorized.add(topic.name)


def _refresh_for(topic: str, code: int, schedule: RefreshSchedule) -> None:
    """Requests another update if the error of a topic or partition shows stale metadata."""
    error = Errors.of(code)
    if error.refreshes_metadata:
        _log.debug("Requesting metadata update for topic %s due to error %s", topic, error.name)
        is_missing = error is Errors.UNKNOWN_TOPIC_OR_PARTITION
        schedule.need_full("topic_missing" if is_missing else "leader_error")
