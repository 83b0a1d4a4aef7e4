"""REST Proxy v3's delivery reports, and the delivery of one request's records.

    {"error_code": 200, "cluster_id": …, "topic_name": …, "partition_id": 0, "offset": 7,
     "timestamp": "2021-02-05T19:14:42Z", "key": {"type": "BINARY", "size": 7}, "value": {…}}

A failed record has an error object in its place. `key` and `value` appear if the record gave a type for them;
a null has size -1, as in Kafka's RecordMetadata. An offset or timestamp unknown to the broker is left out.
Batch reports have an `id` and no `error_code`. Pure.

`deliver` submits a request's records together, and returns each one's outcome. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from client_core import ProducerRecord, RecordMetadata, RecordTooLargeError
from service.admission.admission_control import Permit
from service.dialects.rest_v3.errors import code_of_record, error_json
from service.dialects.rest_v3.record_codec import LAST_MS, Posted, text_of_ms
from service.produce.producing import Producing, RecordOutcome
from service.produce.record_stream import Item
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError
from service.wire.waiting import refusal_of

#: Kafka's own size of a null key or value.
_SIZE_OF_NULL: Final = -1

#: The separator between reports. Source: ChunkedOutputFactory, kafka-rest.
SEPARATOR: Final = b"\r\n"

Report = dict[str, object]


async def deliver(
    producing: Producing,
    topic: str,
    items: Sequence[Item],
    *,
    since_ms: int,
    permit: Permit,
    receive: Receive,
) -> list[RecordOutcome]:
    """Returns the outcome of each item, in order; an item that is a Problem is its own outcome.

    All records are one submit, without any that is too large. If the client refuses it, each record has that
    outcome. Raises CallerGoneError if the caller leaves.
    """
    answered: list[RecordOutcome | None] = [item if isinstance(item, Problem) else None for item in items]
    records = {index: item for index, item in enumerate(items) if isinstance(item, ProducerRecord)}
    partitions = (record.partition for record in records.values() if record.partition is not None)
    times = producing.dialect_times(topic, max(partitions, default=None), since_ms=since_ms)
    while records:
        submitted = list(records.values())
        try:
            result = await producing.deliver(
                topic, submitted, times, since_ms=since_ms, permit=permit, receive=receive
            )
        except ProblemError as e:
            for index, problem in _concerned(e, list(records)):
                answered[index] = problem
                del records[index]
        else:
            outcomes = await producing.answered(submitted, result, lambda outcomes: outcomes)
            for index, outcome in zip(records, outcomes, strict=True):
                answered[index] = outcome
            break
    return [outcome for outcome in answered if outcome is not None]


def _concerned(error: ProblemError, indices: Sequence[int]) -> list[tuple[int, Problem]]:
    """Returns the items that the client's refusal concerns: the one that is too large, or all."""
    cause = error.__cause__
    if isinstance(cause, RecordTooLargeError) and cause.record_index is not None:
        index = cause.record_index = indices[cause.record_index]  # as the caller counts
        return [(index, refusal_of(cause))]
    return [(index, error.problem) for index in indices]


class Awaited(NamedTuple):
    """What a report needs of a record, so that the record itself is not kept."""

    partition: int | None = None
    key: Report | None = None
    value: Report | None = None

    @staticmethod
    def of(posted: Posted) -> Awaited:
        record = posted.record
        return Awaited(
            record.partition, _sized(posted.key_type, record.key), _sized(posted.value_type, record.value)
        )


class Reports:
    """Builds the reports of one topic. `partition_count` returns None for an unknown topic."""

    def __init__(self, cluster_id: str, topic: str, partition_count: Callable[[str], int | None]) -> None:
        self._cluster_id = cluster_id
        self._topic = topic
        self._partition_count = partition_count

    def success(self, awaited: Awaited, receipt: RecordMetadata) -> Report:
        """Returns the report without its `error_code`."""
        report: Report = {
            "cluster_id": self._cluster_id,
            "topic_name": self._topic,
            "partition_id": receipt.partition,
        }
        if receipt.offset is not None:
            report["offset"] = receipt.offset
        if 0 <= receipt.timestamp_ms <= LAST_MS:
            report["timestamp"] = text_of_ms(receipt.timestamp_ms)
        if awaited.key is not None:
            report["key"] = awaited.key
        if awaited.value is not None:
            report["value"] = awaited.value
        return report

    def failure(self, awaited: Awaited, problem: Problem) -> Report:
        """Returns the error object."""
        code = code_of_record(problem, lacks_partition=self.lacks(awaited.partition))
        return error_json(problem, code)

    def of(self, awaited: Awaited, outcome: RecordOutcome) -> Report:
        """Returns the report or the error object, as in a stream."""
        if isinstance(outcome, Problem):
            return self.failure(awaited, outcome)
        return {"error_code": 200, **self.success(awaited, outcome)}

    def lacks(self, partition: int | None) -> bool:
        """Returns whether the topic is known and lacks this partition, by current metadata."""
        count = self._partition_count(self._topic)
        return count is not None and partition is not None and partition >= count


def _sized(kind: str | None, data: bytes | None) -> Report | None:
    return None if kind is None else _type_and_size(kind, _SIZE_OF_NULL if data is None else len(data))


@lru_cache(maxsize=1_024)
def _type_and_size(kind: str, size: int) -> Report:
    """Returns a shared object: thousands of waiting records have the same."""
    return {"type": kind, "size": size}
