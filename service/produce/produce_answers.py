"""What became of records, as the bytes of an answer: one document for a request, one line each for a stream.

    all acknowledged 200 · some 207 · acks=0 202 · none: the common cause's status, else the gravest

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

import msgspec

from client_core import AcknowledgedRun, RecordMetadata
from service.produce.producing import RecordOutcome
from service.wire.asgi import HeaderPairs
from service.wire.errors import PROBLEM_TYPE, Problem, error_item, gravest

_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM_TYPE)


#: Items that are spelled by one call, 5 ms where each is an error.
_AT_ONCE: Final = 5_000


class Answer(NamedTuple):
    """A whole response, and how the metrics call it."""

    status: int
    headers: HeaderPairs
    body: bytes
    outcome: str


def answer_of(topic: str, outcomes: Sequence[RecordOutcome], acknowledged: int) -> Answer:
    """The answer to a request; `acknowledged` is the status where all is well."""
    problems = [one for one in outcomes if isinstance(one, Problem)]
    if not problems:
        body = _results_body(topic, cast("Sequence[RecordMetadata]", outcomes))
        return Answer(acknowledged, _headers(_JSON, body), body, "success")
    items = _items(outcomes)
    if len(problems) == len(outcomes):
        return answer_of_problem(in_common(problems, items))
    results = b",".join([msgspec.json.encode(items[at : at + _AT_ONCE])[1:-1] for at in _starts(len(items))])
    body = b'{"topic":"%s","results":[%s]}' % (topic.encode(), results)
    headers = [*_headers(_JSON, body), (b"pilotfish-failed-records", b"%d" % len(problems))]
    return Answer(207, headers, body, "partial")


def _items(outcomes: Sequence[RecordOutcome]) -> list[object]:
    """Each record's item; records that failed alike share theirs."""
    of_problem: dict[int, object] = {}
    items: list[object] = []
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
    """Where portions begin: an encoder keeps the interpreter until it returns."""
    return range(0, count, _AT_ONCE)


def answer_of_runs(topic: str, runs: Iterable[AcknowledgedRun], acknowledged: int) -> Answer:
    """`answer_of` a request that was acknowledged whole, without a thing made for each of its records."""
    results = ",".join([_results_of(run) for run in runs])
    body = f'{{"topic":"{topic}","results":[{results}]}}'.encode()
    return Answer(acknowledged, _headers(_JSON, body), body, "success")


def _results_of(run: AcknowledgedRun) -> str:
    records, partition, base_offset, timestamp_ms = run
    before, behind = f'{{"partition":{partition},"offset":', f',"timestamp":{timestamp_ms}}}'
    if base_offset is None:
        return ",".join([f"{before}null{behind}"] * records)
    between = f"{behind},{before}"
    offsets = range(base_offset, base_offset + records)
    written = between.join([between.join(map(str, offsets[at : at + _AT_ONCE])) for at in _starts(records)])
    return before + written + behind


def json_answer(status: int, body: bytes) -> Answer:
    """A document that tells of success in another way than by receipts."""
    return Answer(status, _headers(_JSON, body), body, "success")


def answer_of_problem(problem: Problem) -> Answer:
    """The answer where nothing was acknowledged."""
    body = problem.body()
    return Answer(problem.status, _headers(_PROBLEM, body) + problem.all_headers(), body, "error")


def in_common(problems: Sequence[Problem], items: list[object]) -> Problem:
    """The one problem of a request of which nothing was acknowledged.

    It is no 503 where the outcome of any is unknown: that would say that nothing was ever sent.
    """
    unknown = [problem for problem in problems if problem.written == "unknown"]
    status = gravest(problem.status for problem in problems)
    if status == 503 and unknown:
        problems, status = unknown, gravest(problem.status for problem in unknown)
    chosen = next(problem for problem in problems if problem.status == status)
    return replace(chosen, written="unknown" if unknown else "no", results=items)


def receipt_item(receipt: RecordMetadata) -> dict[str, int | None]:
    """One acknowledged record among the results."""
    return {
        "partition": receipt.partition,
        "offset": receipt.offset,
        "timestamp": receipt.timestamp_ms,
    }


def line_of(index: int, outcomes: RecordOutcome) -> bytes:
    """One record's line in the answer to a stream: its item, and which it is."""
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
    """`{"topic":…,"results":[…]}` of records that were all acknowledged; topic names need no escapes."""
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
    return [content_type, (b"content-length", b"%d" % len(body))]
