"""REST Proxy v2's produce routes: `POST /topics/{topic}` and `POST /topics/{topic}/partitions/{partition}`.

    all or some of the records acknowledged   200, the others as items of `offsets`
    all, with `async=true`                    204: Strimzi's answer without offsets
    none                                      the common cause's status, else the gravest; never 200

A request is one ticket, whatever its number of records, and never waits record by record. For an unknown
topic or partition it waits once, at most `unknown_topic_wait_ms`. Event loop only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from fastapi import APIRouter, Request, Response

from client_core import ProducerRecord, RecordMetadata, Result
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.rest_v2.answers import acknowledged_body, offset_items, partial_body
from service.dialects.rest_v2.error_codes import (
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    partition_of_path,
    record_code_of,
)
from service.dialects.rest_v2.media_types import ANSWER_TYPE, check_accept, format_of
from service.dialects.rest_v2.records import parse_body
from service.dialects.rest_v2.schemas import (
    NO_OFFSETS,
    PRODUCE_REQUEST,
    PartitionPath,
    ProduceAnswerV2,
    ResponseV2,
    errors,
)
from service.produce.produce_answers import in_common
from service.produce.producing import RecordOutcome
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import header
from service.wire.content_coding import vary_of
from service.wire.errors import Problem, ProblemError, refused
from service.wire.responses import as_is

_PRODUCE_ANSWERS = NO_OFFSETS | errors(400, 403, 404, 406, 408, 413, 415, 422, 429, 500, 503)


_TYPE: Final = (b"content-type", ANSWER_TYPE.encode())

_NO_OFFSETS: Final = b"async=true"
_QUERIES: Final = (b"", b"async=false", _NO_OFFSETS)


class ProduceV2:
    """The handler of both produce routes."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producer = sidecar.producer
        self._producing = sidecar.producing
        self._admission = sidecar.admission
        self._limits = sidecar.limits
        self._body_threads = sidecar.body_threads
        self._metrics = sidecar.http

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        router = APIRouter(tags=["REST Proxy v2"], default_response_class=ResponseV2)
        for path, operation_id, handler in (
            ("/topics/{topic}", "produceToTopicV2", self.post_to_topic),
            ("/topics/{topic}/partitions/{partition}", "produceToPartitionV2", self.post_to_partition),
        ):
            router.post(
                path,
                operation_id=operation_id,
                response_model=ProduceAnswerV2,
                responses=_PRODUCE_ANSWERS,
                openapi_extra=PRODUCE_REQUEST,
            )(handler)
        return router

    async def post_to_topic(self, request: Request, topic: str) -> Response:
        """Writes records to a topic; answered when the brokers have acknowledged at least one of them."""
        return await self._post(topic, None, request)

    async def post_to_partition(self, request: Request, topic: str, partition: PartitionPath) -> Response:
        """Writes records to one partition of a topic."""
        return await self._post(topic, partition, request)

    async def _post(self, topic: str, partition: str | None, request: Request) -> Response:
        """Serves one request; `partition` is the path's text, if any.

        Raises ProblemError if no record was acknowledged.
        """
        with self._metrics.produce(request.scope) as timed:
            records, result = await self._produce(topic, partition, request)
            timed.outcome, body = await self._producing.answered(
                records, result, lambda outcomes: _answer(self._with_codes(records, outcomes))
            )
            if timed.outcome == "success" and request.scope["query_string"] == _NO_OFFSETS:
                return as_is(204, [], b"")
            return as_is(200, [_TYPE, (b"content-length", b"%d" % len(body)), *vary_of(len(body))], body)

    async def _produce(
        self, topic: str, partition: str | None, request: Request
    ) -> tuple[Sequence[ProducerRecord], Result]:
        since_ms = self._producer.clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        self._producing.check(topic, caller)
        of_path = None if partition is None else partition_of_path(partition)
        check_accept(header(scope, b"accept"))
        form = format_of(header(scope, b"content-type"), header(scope, b"content-encoding"))
        _check_query(scope["query_string"])
        with self._admission.acquire(announced_bytes(scope), caller) as permit:
            body = await read_body(request.scope, request.receive, permit, self._producing.times.timeout_ms)
            records, greatest = await self._body_threads.read(
                lambda body: parse_body(topic, body, form, of_path, self._limits), body
            )
            del body
            times = self._producing.dialect_times(topic, greatest, since_ms=since_ms)
            result = await self._producing.deliver(
                topic, records, times, since_ms=since_ms, permit=permit, receive=request.receive
            )
        return records, result

    def _with_codes(
        self, records: Sequence[ProducerRecord], outcomes: Sequence[RecordOutcome]
    ) -> Sequence[RecordOutcome]:
        """Returns the same outcomes, with separate codes for missing topics and missing partitions."""
        if not any(isinstance(one, Problem) and one.status == 404 for one in outcomes):
            return outcomes
        return [
            replace(one, dialect_code=self._missing(record))
            if isinstance(one, Problem) and one.status == 404
            else one
            for record, one in zip(records, outcomes, strict=True)
        ]

    def _missing(self, record: ProducerRecord) -> int:
        count = self._producer.cache.partition_count(record.topic)
        beyond = count is not None and record.partition is not None and record.partition >= count
        return PARTITION_NOT_FOUND if beyond else TOPIC_NOT_FOUND


def _check_query(query: bytes) -> None:
    """Raises ProblemError for anything but Strimzi's one parameter."""
    if query in _QUERIES:
        return
    if query.startswith(b"async=") and b"&" not in query:
        raise refused(400, "must be true or false", place="query.async")
    raise refused(422, "the only parameter is async, given once", place="query")


def _answer(outcomes: Sequence[RecordOutcome]) -> tuple[str, bytes]:
    """Returns the outcome for metrics, and the answer. Raises ProblemError if no record was acknowledged."""
    problems = [one for one in outcomes if isinstance(one, Problem)]
    if not problems:
        return "success", acknowledged_body(cast("Sequence[RecordMetadata]", outcomes))
    if len(problems) < len(outcomes):
        return "partial", partial_body(outcomes)
    raise ProblemError(_of_all(problems))


def _of_all(problems: Sequence[Problem]) -> Problem:
    """Returns one error for all records; with each record's own if they differ."""
    alike = len({(problem.status, record_code_of(problem)) for problem in problems}) == 1
    return replace(in_common(problems, []), results=None if alike else offset_items(problems))
