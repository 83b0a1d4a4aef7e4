"""A span for the records that were handed to the client together: from then until they are accounted for.

    name         send TOPIC, of kind PRODUCER
    attributes   messaging.* as the conventions have them; no key and no value of a record
    events       `metadata wait` and `buffer wait`, at their end, with pilotfish.waited_ms; `exception` for
                 each kind of failure
    links        to the spans that records name themselves, by a traceparent of their own

One span for a request, and in a stream one for each portion that came together, as the metrics count them.
Source: OpenTelemetry's semantic conventions for messaging and for Kafka, 1.37. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from client_core import KafkaError, ProduceResult, ProducerRecord, RecordFailure, RecordMetadata, Result
from service.observe.request_trace import PARENT_HEADER, STATE_HEADER
from service.observe.tracing.span_contexts import remote_context_of
from service.wire.trace_context import trace_context

#: Enough to find them, and no more than a backend shows.
_MAX_LINKS: Final = 32
_MAX_KINDS_OF_FAILURE: Final = 5

_NS_PER_MS: Final = 1_000_000


def start_produce_span(
    tracer: Tracer, parent: Span, client_id: str, topic: str, records: Sequence[ProducerRecord]
) -> Span:
    """The span, begun."""
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": topic,
        "messaging.client.id": client_id,
    }
    if len(records) > 1:
        attributes["messaging.batch.message_count"] = len(records)
    else:
        value = records[0].value
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        else:
            attributes["messaging.message.body.size"] = len(value)
    return tracer.start_span(
        f"send {topic}",
        context=set_span_in_context(parent, Context()),
        kind=SpanKind.PRODUCER,
        attributes=attributes,
        links=[Link(context) for context in _own_contexts(records)],
    )


def _own_contexts(records: Sequence[ProducerRecord]) -> list[SpanContext]:
    """What records say of where they were made, each context once."""
    found: dict[tuple[int, int], SpanContext] = {}
    for record in records:
        if record.headers and len(found) < _MAX_LINKS:
            said = dict(record.headers)
            parent = said.get(PARENT_HEADER)
            context = None if parent is None else trace_context(parent, said.get(STATE_HEADER) or b"")
            if context is not None:
                remote = remote_context_of(context)
                found.setdefault((remote.trace_id, remote.span_id), remote)
    return list(found.values())


class SentRecords:
    """Ends the span of records when it is known what became of them; see `request_trace.ProduceSpan`."""

    __slots__ = ("_records", "_span", "_started_ns")

    def __init__(self, span: Span, records: int, started_ns: int) -> None:
        self._span = span
        self._records = records
        self._started_ns = started_ns

    def settled(self, result: Result) -> None:
        if isinstance(result, ProduceResult):
            self._tell_waits(result)
        partitions, failures = self._outcomes(result)
        if len(partitions) == 1:
            self._span.set_attribute("messaging.destination.partition.id", str(partitions.pop()))
        if failures:
            self._tell_failures(failures)
        elif result.error is not None:
            self._fail(result.error, self._records)
        self._span.end()

    def refused(self, error: Exception) -> None:
        self._fail(error, self._records)
        self._span.end()

    def _tell_waits(self, result: ProduceResult) -> None:
        at_ns = self._started_ns
        for wait in result.waits:
            at_ns += wait.waited_ms * _NS_PER_MS
            said = {"pilotfish.waited_ms": wait.waited_ms}
            self._span.add_event(f"{wait.phase.value} wait", said, timestamp=at_ns)

    def _outcomes(self, result: Result) -> tuple[set[int], list[RecordFailure]]:
        """The partitions of the records, and the failures."""
        runs = result.acknowledged_runs() if isinstance(result, ProduceResult) else None
        if runs is not None:
            if self._records == 1 and runs[0].base_offset is not None:
                self._span.set_attribute("messaging.kafka.offset", runs[0].base_offset)
            return {run.partition for run in runs}, []
        outcomes = result.outcomes
        partitions = {outcome.partition for outcome in outcomes if isinstance(outcome, RecordMetadata)}
        return partitions, [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]

    def _tell_failures(self, failures: Sequence[RecordFailure]) -> None:
        self._fail(failures[0].error, len(failures))
        told = {_kind(failures[0].error)}
        for error in _others(failures, told):
            self._tell(error)

    def _fail(self, error: Exception, failed: int) -> None:
        self._span.set_attribute("error.type", _kind(error))
        self._span.set_attribute("pilotfish.failed_records", failed)
        said = f"{failed} of {self._records} records failed: {_message(error)}"
        self._span.set_status(Status(StatusCode.ERROR, said))
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        self._span.add_event(
            "exception", {"exception.type": _kind(error), "exception.message": _message(error)}
        )


def _others(failures: Sequence[RecordFailure], told: set[str]) -> Iterator[KafkaError]:
    """One error of each kind that is not told yet."""
    for failure in failures:
        kind = _kind(failure.error)
        if kind not in told and len(told) < _MAX_KINDS_OF_FAILURE:
            told.add(kind)
            yield failure.error


def _kind(error: Exception) -> str:
    """Kafka's name of the error, or Python's."""
    return error.error.name if isinstance(error, KafkaError) else type(error).__name__


def _message(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error)
