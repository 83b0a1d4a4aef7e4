"""POST /v1/topics/{topic}/records as plain ASGI: read, understand, submit, wait, answer.

The body is validated whole before its first record is appended. The request then waits as one ticket with one
deadline, whatever the number of its records, and its answer tells of each of them in order:

    all acknowledged 200 · some 207 · acks=0 202 · none: the common cause's status, else the gravest

FastAPI's route (routes/records.py) calls `answer` too, for paths that are written in an unusual way, and
documents it. Event loop only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qsl

import msgspec

from client_core import RecordMetadata
from service.access.caller import caller_of
from service.asgi import ASGIApp, HeaderPairs, Receive, Scope, Send, header, respond
from service.body import announced_bytes, read_body
from service.deps import Sidecar
from service.errors import (
    PROBLEM_TYPE,
    Problem,
    ProblemError,
    error_item,
    gravest,
    problem_of_body,
    refused,
)
from service.guards import BodyTooLargeError
from service.http_metrics import RouteTally
from service.lookups import MAX_WAIT_MS
from service.media_type import check_media_type
from service.producing import Times, Told
from service.records_codec import parse_records
from service.strict_json import BodyError
from service.waiting import CallerGoneError

ROUTE: Final = "/v1/topics/{topic}/records"

_BEFORE: Final = b"/v1/topics/"
_AFTER: Final = b"/records"
_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM_TYPE)

#: What a log would call the status of a request whose caller left.
CALLER_GONE: Final = 499


class Answer(NamedTuple):
    """A whole response, and how the metrics call it."""

    status: int
    headers: HeaderPairs
    body: bytes
    outcome: str


class ProduceEndpoint:
    """The ASGI callable; what it does not serve falls through."""

    def __init__(self, app: ASGIApp, sidecar: Sidecar) -> None:
        self._app = app
        self._sidecar = sidecar
        self._producing = sidecar.producing
        self._clock = sidecar.producer.clock
        self._room = sidecar.room
        self._acknowledged = 200 if sidecar.producing.acknowledges else 202
        self._outcomes = {o: sidecar.http.produced(o) for o in ("success", "partial", "error")}
        self._tallies: dict[int, RouteTally] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        topic = None
        if scope["type"] == "http" and scope["method"] == "POST":
            topic = topic_of_path(scope.get("raw_path") or b"")
        if topic is None:
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        metrics = self._sidecar.http
        metrics.in_progress += 1
        status, outcome = CALLER_GONE, "error"
        try:
            with contextlib.suppress(CallerGoneError):  # nobody is left to answer; the tally tells
                answer = await self.answer(topic, scope, receive)
                status, outcome = answer.status, answer.outcome
                await respond(send, status, answer.headers, answer.body)
        finally:
            metrics.in_progress -= 1
            took_s = perf_counter() - started
            self._tally(status).add(took_s)
            self._outcomes[outcome].observe(took_s)

    async def answer(self, topic: str, scope: Scope, receive: Receive) -> Answer:
        """Serves one request. Raises CallerGoneError where nobody is left to answer."""
        try:
            return await self._produce(topic, scope, receive)
        except ProblemError as e:
            return _of_problem(replace(e.problem, written="no"))
        except BodyError as e:
            return _of_problem(problem_of_body(e))
        except BodyTooLargeError as e:
            return _of_problem(Problem(413, e.detail, written="no"))

    # -- the way of a request --------------------------------------------------------------------------------

    async def _produce(self, topic: str, scope: Scope, receive: Receive) -> Answer:
        now_ms = self._clock.now_ms()
        caller = caller_of(scope)
        self._producing.check(topic, caller)
        times = _times_of(scope["query_string"], self._producing.times)
        check_media_type(header(scope, b"content-type"), header(scope, b"content-encoding"))
        with self._room.enter(announced_bytes(scope), caller) as place:
            body = await read_body(receive, place, times.timeout_ms)
            records = parse_records(topic, body)
            result = await self._producing.deliver(
                topic, records, times, since_ms=now_ms, place=place, receive=receive
            )
        return self._tell(topic, self._producing.outcomes(records, result))

    # -- the answer ------------------------------------------------------------------------------------------

    def _tell(self, topic: str, told: Sequence[Told]) -> Answer:
        problems = [one for one in told if isinstance(one, Problem)]
        if not problems:
            body = _results_body(topic, cast("Sequence[RecordMetadata]", told))
            return Answer(self._acknowledged, _headers(_JSON, body), body, "success")
        items: list[object] = [error_item(one) if isinstance(one, Problem) else _receipt(one) for one in told]
        if len(problems) == len(told):
            return _of_problem(_in_common(problems, items))
        body = msgspec.json.encode({"topic": topic, "results": items})
        headers = [*_headers(_JSON, body), (b"pilotfish-failed-records", b"%d" % len(problems))]
        return Answer(207, headers, body, "partial")

    def _tally(self, status: int) -> RouteTally:
        tally = self._tallies.get(status)
        if tally is None:
            tally = self._tallies[status] = self._sidecar.http.tally("POST", ROUTE, status)
        return tally


def topic_of_path(raw_path: bytes) -> str | None:
    """The topic of a produce path in its plain spelling; None for any other path."""
    if not raw_path.startswith(_BEFORE) or not raw_path.endswith(_AFTER):
        return None
    name = raw_path[len(_BEFORE) : -len(_AFTER)]
    return name.decode("latin-1") if name and b"/" not in name and b"%" not in name else None


# -- what was asked ------------------------------------------------------------------------------------------


def _times_of(query: bytes, defaults: Times) -> Times:
    """max_block_ms and timeout_ms; raises ProblemError for anything else, and for what stands twice."""
    if not query:
        return defaults
    times: dict[str, int] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in Times._fields:
            detail = "unknown parameter; there are max_block_ms and timeout_ms"
            raise refused(422, detail, place=f"query.{name}")
        if name in times:
            raise refused(400, "stands twice", place=f"query.{name}")
        limit = defaults.timeout_ms if name == "timeout_ms" else MAX_WAIT_MS
        if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) > limit:
            of_what = " (delivery.timeout.ms)" if name == "timeout_ms" else ""
            detail = f"must be a whole number from 0 to {limit}{of_what}"
            raise refused(422, detail, place=f"query.{name}")
        times[name] = int(value)
    return defaults._replace(**times)


# -- how it is told ------------------------------------------------------------------------------------------


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


def _receipt(receipt: RecordMetadata) -> dict[str, int | None]:
    return {
        "partition": receipt.partition,
        "offset": receipt.offset,
        "timestamp": receipt.timestamp_ms,
    }


def _in_common(problems: list[Problem], items: list[object]) -> Problem:
    """The one problem of a request of which nothing was acknowledged."""
    status = gravest(problem.status for problem in problems)
    chosen = next(problem for problem in problems if problem.status == status)
    written = "unknown" if any(problem.written == "unknown" for problem in problems) else "no"
    return replace(chosen, written=written, results=items)


def _of_problem(problem: Problem) -> Answer:
    body = problem.body()
    return Answer(problem.status, _headers(_PROBLEM, body) + problem.all_headers(), body, "error")


def _headers(content_type: tuple[bytes, bytes], body: bytes) -> HeaderPairs:
    return [content_type, (b"content-length", b"%d" % len(body))]
