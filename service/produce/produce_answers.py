"""Encodes outcomes of records: one document for a request, one line per record for a stream.

    all acknowledged 200 · some 207 · acks=0 202 · none: the common or gravest status (`errors.gravest`)

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

import msgspec

from client_core import AcknowledgedRun, ProducerRecord, RecordMetadata
from service.produce.producing import RecordOutcome
from service.wire.asgi import HeaderPairs
from service.wire.content_coding import vary_of
from service.wire.errors import PROBLEM_TYPE, Problem, error_item, gravest

_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM_TYPE)


#: Items encoded by one call: 5 ms if each is an error.
_AT_ONCE: Final = 5_000


class Answer(NamedTuple):
    """A whole response, and its outcome for the metrics; `problem` is that of a failed request."""

    status: int
    headers: HeaderPairs
    body: bytes
    outcome: str
    problem: Problem | None = None


def answer_of(topic: str, outcomes: Sequence[RecordOutcome], acknowledged: int) -> Answer:
    """Returns the answer to a request; `acknowledged` is the status if all records were acknowledged."""
    problems = [one for one in outcomes if isinstance(one, Problem)]
    if not problems:
        body = _results_body(topic, cast("Sequence[RecordMetadata]", outcomes))
        return Answer(acknowledged, _headers(_JSON, body), body, "success")
    items = _items(outcomes)
    if len(problems) == len(outcomes):
        return answer_of_problem(in_common(problems, items))
    body = b'{"topic":"%s","results":[%s]}' % (topic.encode(), _encoded(items))
    headers = [*_headers(_JSON, body), (b"pilotfish-failed-records", b"%d" % len(problems))]
    return Answer(207, headers, body, "partial")


def answer_of_topics(
    records: Sequence[ProducerRecord], outcomes: Sequence[RecordOutcome], acknowledged: int
) -> Answer:
    """Returns the answer to a request whose records name their topics: each item has its topic."""
    items = _items(outcomes)
    with_topics: list[object] = [
        {"topic": record.topic, **item} for record, item in zip(records, items, strict=True)
    ]
    problems = [one for one in outcomes if isinstance(one, Problem)]
    if len(problems) == len(outcomes):
        return answer_of_problem(in_common(problems, with_topics))
    body = b'{"results":[%s]}' % _encoded(with_topics)
    if not problems:
        return Answer(acknowledged, _headers(_JSON, body), body, "success")
    headers = [*_headers(_JSON, body), (b"pilotfish-failed-records", b"%d" % len(problems))]
    return Answer(207, headers, body, "partial")


def _encoded(items: Sequence[object]) -> bytes:
    """Returns the items as JSON, without brackets."""
    return b",".join([msgspec.json.encode(items[at : at + _AT_ONCE])[1:-1] for at in _starts(len(items))])


def _items(outcomes: Sequence[RecordOutcome]) -> list[Mapping[str, object]]:
    """Returns each record's item. Records with the same Problem share one item."""
    of_problem: dict[int, Mapping[str, object]] = {}
    items: list[Mapping[str, object]] = []
    for one in outcomes:
        if isinstance(one, Problem):
            item = of_problem.get(id(one))
            if item is None:
                item = of_problem[id(one)] = error_item(one)
            items.append(item)
        else:
            items.append(receipt_item(one))
    return items


def _starts(count: int) -> range:
    """Returns where chunks begin: an encoder holds the interpreter until it returns."""
    return range(0, count, _AT_ONCE)


def answer_of_runs(topic: str, runs: Iterable[AcknowledgedRun], acknowledged: int) -> Answer:
    """Does `answer_of` for a fully acknowledged request, without an object per record."""
    results = ",".join([_results_of(run) for run in runs])
    body = f'{{"topic":"{topic}","results":[{results}]}}'.encode()
    return Answer(acknowledged, _headers(_JSON, body), body, "success")


def _results_of(run: AcknowledgedRun) -> str:
    records, partition, base_offset, timestamp_ms = run
    before, behind = f'{{"partition":{partition},"offset":', f',"timestamp":{timestamp_ms}}}'
    if base_offset is None:
        return ",".join([f"{before}null{behind}"] * records)
    if records == 1:
        return f"{before}{base_offset}{behind}"
    between = f"{behind},{before}"
    offsets = range(base_offset, base_offset + records)
    written = between.join([between.join(map(str, offsets[at : at + _AT_ONCE])) for at in _starts(records)])
    return before + written + behind


def json_answer(status: int, body: bytes) -> Answer:
    """Returns a successful answer whose document has no receipts."""
    return Answer(status, _headers(_JSON, body), body, "success")


def answer_of_problem(problem: Problem) -> Answer:
    """Returns the answer if nothing was acknowledged."""
    body = problem.body()
    headers = _headers(_PROBLEM, body) + problem.all_headers()
    return Answer(problem.status, headers, body, "error", replace(problem, results=None))


def in_common(problems: Sequence[Problem], items: Sequence[object]) -> Problem:
    """Returns the one problem of a request of which nothing was acknowledged.

    If any outcome is unknown, the status is not 503, which would say that nothing was sent.
    """
    unknown = [problem for problem in problems if problem.written == "unknown"]
    status = gravest(problem.status for problem in problems)
    if status == 503 and unknown:
        problems, status = unknown, gravest(problem.status for problem in unknown)
    chosen = next(problem for problem in problems if problem.status == status)
    return replace(chosen, written="unknown" if unknown else "no", results=list(items))


def receipt_item(receipt: RecordMetadata) -> dict[str, int | None]:
    return {
        "partition": receipt.partition,
        "offset": receipt.offset,
        "timestamp": receipt.timestamp_ms,
    }


def line_of(index: int, outcomes: RecordOutcome) -> bytes:
    """Returns a record's line in the answer to a stream: its index and its item."""
    if isinstance(outcomes, Problem):
        return msgspec.json.encode({"index": index, **error_item(outcomes)}) + b"\n"
    _, partition, offset, timestamp_ms = outcomes
    return b'{"index":%d,"partition":%d,"offset":%s,"timestamp":%d}\n' % (
        index,
        partition,
        b"null" if offset is None else b"%d" % offset,
        timestamp_ms,
    )


def _results_body(topic: str, receipts: Sequence[RecordMetadata]) -> bytes:
    """Returns `{"topic":…,"results":[…]}` of acknowledged records; topic names need no escapes."""
    results = ",".join(
        [
            f'{{"partition":{partition},"offset":{_json(offset)},"timestamp":{timestamp_ms}}}'
            for _, partition, offset, timestamp_ms in receipts
        ]
    )
    return f'{{"topic":"{topic}","results":[{results}]}}'.encode()


def _json(offset: int | None) -> int | str:
    return "null" if offset is None else offset


def _headers(content_type: tuple[bytes, bytes], body: bytes) -> HeaderPairs:
    return [content_type, (b"content-length", b"%d" % len(body)), *vary_of(len(body))]
