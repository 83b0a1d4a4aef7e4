"""Serves POST /v1/topics/{topic}/records and /v1/records as plain ASGI: read, parse, submit, wait, answer.

    application/json            many records, answered as a whole   produce_forms.py, records_codec.py
    application/octet-stream    one record, answered likewise       produce_forms.py
    application/x-ndjson        a stream, answered as it goes       ndjson.py

A body that is answered as a whole is validated as a whole before its first record is appended. The request
then waits as one ticket with one deadline, for any number of records; produce_answers.py encodes their
outcomes. With an Idempotency-Key it is produced once, however often it is repeated (once.py). With
`delivery=spool` it is answered once the records are on the disk (spooled.py).

FastAPI's route (native/records.py) calls `answer` and `open_stream` too, for paths in an unusual spelling. It
documents them. Event loop only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from client_core import ProduceResult, ProducerRecord, Result
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.admission.guards import BodyTooLargeError
from service.observe.http_metrics import TimedProduce
from service.produce.body_threads import FEW_RECORDS, let_go
from service.produce.idempotency import Name, key_of
from service.produce.many_topics import OWN_TOPICS
from service.produce.ndjson import JSON_HEADER, NdjsonProduce, is_ndjson
from service.produce.once import Once
from service.produce.produce_answers import (
    Answer,
    answer_of,
    answer_of_problem,
    answer_of_runs,
    answer_of_topics,
)
from service.produce.produce_forms import form_of
from service.wire.asgi import ASGIApp, Receive, Scope, Send, answer_at_once, header, header_values, respond
from service.wire.errors import WHOLE_BODY, Problem, ProblemError, problem_of_body, problem_of_bug, refused
from service.wire.streaming import StreamedAnswer
from service.wire.strict_json import BodyError
from service.wire.waiting import CALLER_GONE, CallerGoneError

if TYPE_CHECKING:
    from service.admission.admission_control import AdmissionControl, RetryAfter
    from service.admission.failed_requests import FailedRequests
    from service.observe.http_metrics import HttpMetrics
    from service.produce.body_threads import BodyThreads
    from service.produce.idempotency import IdempotencyKeys
    from service.produce.producing import Producing
    from service.produce.record_stream import Streams
    from service.produce.spooled import SpooledProduce
    from service.wire.json_parts import BodyLimits

_log: Final = logging.getLogger(__name__)

ROUTE: Final = "/v1/topics/{topic}/records"
#: Each record names its topic (many_topics.py).
MANY_ROUTE: Final = "/v1/records"

_MANY_PATH: Final = MANY_ROUTE.encode()
_BEFORE: Final = b"/v1/topics/"
#: The statuses after which a caller repeats its request.
_REPEATED: Final = (408, 429, 503)
_AFTER: Final = b"/records"


class ProduceEndpoint:
    """ASGI middleware: serves produce requests, and passes others on."""

    def __init__(
        self,
        app: ASGIApp,
        producing: Producing,
        streams: Streams,
        *,
        body_threads: BodyThreads,
        admission: AdmissionControl,
        keys: IdempotencyKeys,
        limits: BodyLimits,
        metrics: HttpMetrics,
        retry_after: RetryAfter,
        failed: FailedRequests,
        spooled: SpooledProduce | None = None,
    ) -> None:
        """`spooled` serves `delivery=spool`; None if there is no spool."""
        self._app = app
        self._producing = producing
        self._clock = streams.producer.clock
        self._admission = admission
        self._acknowledged = 200 if producing.acknowledges else 202
        self._limits = limits
        self._body_threads = body_threads
        self._metrics = metrics
        self._keys = keys
        self._retry_after = retry_after
        self._failed = failed
        self._once = Once(producing, keys, self._clock, self._acknowledged, metrics.replays, body_threads)
        self._spooled = spooled
        self._ndjson = NdjsonProduce(producing, streams, body_threads)
        for status in (429, 503):  # series that an alert uses must begin at 0
            metrics.route_counters("POST", ROUTE, status)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        topic = None
        if scope["type"] == "http" and scope["method"] == "POST":
            topic = topic_of_path(scope.get("raw_path") or b"")
        if topic is None:
            return self._app(scope, receive, send)
        # The usual content type is found without a call.
        is_stream = JSON_HEADER not in scope["headers"] and topic != OWN_TOPICS and is_ndjson(scope)
        return (self._stream if is_stream else self._serve)(topic, scope, receive, send)

    async def _serve(self, topic: str, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        self._metrics.in_progress += 1
        status = CALLER_GONE
        timed = self._metrics.produce(scope)
        try:
            with contextlib.suppress(CallerGoneError):  # the counters have the status 499
                answer = await self.answer(topic, scope, receive, timed)
                status = answer.status
                if not answer_at_once(scope, status, answer.headers, answer.body):
                    await respond(send, status, answer.headers, answer.body)
        finally:
            self._metrics.in_progress -= 1
            route = MANY_ROUTE if topic == OWN_TOPICS else ROUTE
            counters = self._metrics.route_counters("POST", route, status)
            counters.add(perf_counter() - started, timed.traceparent)

    async def _stream(self, topic: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a stream, and counts one request. Its records are counted where they are produced."""
        started = perf_counter()
        self._metrics.in_progress += 1
        status = self._acknowledged
        try:
            await self.open_stream(topic, scope, receive)(scope, receive, send)
        except ProblemError as e:
            self._failed.add(scope, ROUTE, topic, e.problem)
            answer = answer_of_problem(e.problem)
            status = answer.status
            await respond(send, status, answer.headers, answer.body)
        finally:
            self._metrics.in_progress -= 1
            counters = self._metrics.route_counters("POST", ROUTE, status)
            counters.add(perf_counter() - started, self._metrics.traceparent_of(scope))

    def may_be_written(self, scope: Scope) -> bool:
        """Returns whether an earlier request with this one's Idempotency-Key may have written records."""
        match scope["path"].split("/"):
            case ["", "v1", "records"]:
                return self._is_repeated(OWN_TOPICS, scope)
            case ["", "v1", "topics", topic, "records", *_]:
                return self._is_repeated(topic, scope)
            case _:
                return False

    def _is_repeated(self, topic: str, scope: Scope) -> bool:
        keys = header_values(scope, b"idempotency-key")
        try:
            return bool(keys) and Name(caller_of(scope).name, topic, key_of(keys)) in self._keys
        except ProblemError:  # a malformed key names no request
            return False

    def open_stream(self, topic: str, scope: Scope, receive: Receive) -> StreamedAnswer:
        """Returns the response to an NDJSON request; call it. Raises ProblemError: nothing was written."""
        try:
            return self._ndjson.answer(topic, scope, receive)
        except ProblemError as e:
            with self._metrics.produce(scope):
                raise ProblemError(replace(e.problem, written="no")) from e

    async def answer(
        self, topic: str, scope: Scope, receive: Receive, timed: TimedProduce | None = None
    ) -> Answer:
        """Serves one request that is answered as a whole. Raises CallerGoneError if the caller leaves."""
        with timed or self._metrics.produce(scope) as measured:
            try:
                answer = await self._produce(topic, scope, receive)
            except ProblemError as e:
                # A request under the same key may have been taken before this one was refused.
                is_open = e.problem.status in _REPEATED and self._is_repeated(topic, scope)
                problem = replace(e.problem, written="unknown" if is_open else "no")
                answer = answer_of_problem(self._retry_after.on(problem))
            except BodyError as e:
                answer = answer_of_problem(problem_of_body(e))
            except BodyTooLargeError as e:
                answer = answer_of_problem(Problem(413, e.detail, written="no", place=WHOLE_BODY))
            except CallerGoneError:
                raise
            except Exception:  # noqa: BLE001
                # FastAPI's handler is not reached from here: the server would answer, without a problem
                # document.
                _log.exception("a produce failed with an unexpected exception")
                answer = answer_of_problem(problem_of_bug(written="unknown"))
            measured.outcome = answer.outcome
            if answer.problem is not None:
                route = MANY_ROUTE if topic == OWN_TOPICS else ROUTE
                self._failed.add(scope, route, topic or None, answer.problem)
            return answer

    # -- serving a request -----------------------------------------------------------------------------------

    async def _produce(self, topic: str, scope: Scope, receive: Receive) -> Answer:
        now_ms = self._clock.now_ms()
        caller = caller_of(scope)
        self._producing.check(topic, caller)
        form = form_of(topic, scope, self._producing.times, self._limits)
        has_key = header(scope, b"idempotency-key") is not None
        keys = header_values(scope, b"idempotency-key") if has_key else []
        name = Name(caller.name, topic, key_of(keys)) if keys else None
        with self._admission.acquire(announced_bytes(scope), caller) as permit:
            body = await read_body(scope, receive, permit, form.times.timeout_ms)
            if form.spooled:
                if self._spooled is None:
                    raise refused(400, "there is no spool (spool_folder is not set)", place="query.delivery")
                return await self._spooled.answer(name, topic, form, body, since_ms=now_ms, receive=receive)
            if name is not None:
                return await self._once.answer(
                    name, form, body, since_ms=now_ms, permit=permit, receive=receive
                )
            records = await self._body_threads.read(form.parse, body)
            del body  # the records are copies; both would wait for the brokers
            result = await self._producing.deliver(
                topic, records, form.times, since_ms=now_ms, permit=permit, receive=receive
            )
        if len(records) <= FEW_RECORDS:
            return self._answer_of(topic, records, result)
        return await self._body_threads.report(lambda: self._reported_of_many(topic, records, result))

    def _reported_of_many(self, topic: str, records: Sequence[ProducerRecord], result: Result) -> Answer:
        answer = self._answer_of(topic, records, result)
        let_go(records)
        return answer

    def _answer_of(self, topic: str, records: Sequence[ProducerRecord], result: Result) -> Answer:
        runs = result.acknowledged_runs() if isinstance(result, ProduceResult) else None
        if runs is not None:
            return answer_of_runs(topic, runs, self._acknowledged)
        if topic == OWN_TOPICS:
            return answer_of_topics(records, self._producing.outcomes(records, result), self._acknowledged)
        return answer_of(topic, self._producing.outcomes(records, result), self._acknowledged)


def topic_of_path(raw_path: bytes) -> str | None:
    """Returns the topic of a produce path in its plain spelling, or OWN_TOPICS; None for any other path."""
    if raw_path == _MANY_PATH:
        return OWN_TOPICS
    if not raw_path.startswith(_BEFORE) or not raw_path.endswith(_AFTER):
        return None
    name = raw_path[len(_BEFORE) : -len(_AFTER)]
    return name.decode("latin-1") if name and b"/" not in name and b"%" not in name else None
