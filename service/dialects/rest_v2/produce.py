"""Producing in REST Proxy v2: `POST /topics/{topic}` and `POST /topics/{topic}/partitions/{partition}`.

    all or some of the records acknowledged   200, the others as items of `offsets`
    all, and the caller said `async=true`     204: Strimzi's word for an answer without offsets
    none                                      the common cause's status, else the gravest; never 200

The request is one ticket, whatever the number of its records, and nothing waits record by record: a topic, or
a partition, that the brokers do not know is waited for once, for as long as `unknown_topic_wait_ms`. Event
loop only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from fastapi import Request, Response

from client_core import ProducerRecord, RecordMetadata, Result
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.rest_v2.answers import acknowledged_body, offset_items, partial_body
from service.dialects.rest_v2.error_codes import (
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    coded,
    partition_of_path,
    record_code_of,
)
from service.dialects.rest_v2.media_types import ANSWER_TYPE, check_accept, format_of
from service.dialects.rest_v2.records import parse_body
from service.produce.produce_answers import in_common
from service.produce.producing import Told
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import header
from service.wire.errors import Problem, ProblemError, refused
from service.wire.responses import as_is

_TYPE: Final = (b"content-type", ANSWER_TYPE.encode())

_NO_OFFSETS: Final = b"async=true"
_QUERIES: Final = (b"", b"async=false", _NO_OFFSETS)


class ProduceV2:
    """What the two routes do."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producer = sidecar.producer
        self._producing = sidecar.producing
        self._clock = sidecar.producer.clock
        self._room = sidecar.room
        self._limits = sidecar.limits
        self._aside = sidecar.aside
        self._http = sidecar.http

    async def post(self, topic: str, partition: str | None, request: Request) -> Response:
        """Serves one request; `partition` as it stands in the path, if it does.

        Raises ProblemError where none of the records was acknowledged.
        """
        with self._http.produce(request.scope) as timed:
            records, result = await self._produce(topic, partition, request)
            timed.outcome, body = await self._producing.answered(
                records, result, lambda told: _told(self._with_codes(records, told))
            )
            if timed.outcome == "success" and request.scope["query_string"] == _NO_OFFSETS:
                return as_is(204, [], b"")
            return as_is(200, [_TYPE, (b"content-length", b"%d" % len(body))], body)

    async def _produce(
        self, topic: str, partition: str | None, request: Request
    ) -> tuple[Sequence[ProducerRecord], Result]:
        since_ms = self._clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        self._producing.check(topic, caller)
        of_path = None if partition is None else partition_of_path(partition)
        check_accept(header(scope, b"accept"))
        form = format_of(header(scope, b"content-type"), header(scope, b"content-encoding"))
        _check_query(scope["query_string"])
        with self._room.enter(announced_bytes(scope), caller) as place:
            body = await read_body(request.scope, request.receive, place, self._producing.times.timeout_ms)
            records, greatest = await self._aside.read(
                lambda body: parse_body(topic, body, form, of_path, self._limits), body
            )
            times = self._producing.dialect_times(topic, greatest, since_ms=since_ms)
            result = await self._producing.deliver(
                topic, records, times, since_ms=since_ms, place=place, receive=request.receive
            )
        return records, result

    def _with_codes(self, records: Sequence[ProducerRecord], told: Sequence[Told]) -> Sequence[Told]:
        """The same, each missing topic told from a missing partition."""
        if not any(isinstance(one, Problem) and one.status == 404 for one in told):
            return told
        return [
            coded(one, self._missing(record)) if isinstance(one, Problem) and one.status == 404 else one
            for record, one in zip(records, told, strict=True)
        ]

    def _missing(self, record: ProducerRecord) -> int:
        count = self._producer.cache.partition_count(record.topic)
        beyond = count is not None and record.partition is not None and record.partition >= count
        return PARTITION_NOT_FOUND if beyond else TOPIC_NOT_FOUND


def _check_query(query: bytes) -> None:
    """Raises ProblemError for whatever is not Strimzi's one parameter."""
    if query in _QUERIES:
        return
    if query.startswith(b"async=") and b"&" not in query:
        raise refused(400, "must be true or false", place="query.async")
    raise refused(422, "the only parameter is async, once", place="query")


def _told(told: Sequence[Told]) -> tuple[str, bytes]:
    """How the metrics call it, and the answer. Raises ProblemError where no record was acknowledged."""
    problems = [one for one in told if isinstance(one, Problem)]
    if not problems:
        return "success", acknowledged_body(cast("Sequence[RecordMetadata]", told))
    if len(problems) < len(told):
        return "partial", partial_body(told)
    raise ProblemError(_of_all(problems))


def _of_all(problems: Sequence[Problem]) -> Problem:
    """One error for all records; their own ones beside it where it does not speak for each of them."""
    alike = len({(problem.status, record_code_of(problem)) for problem in problems}) == 1
    return replace(in_common(problems, []), results=None if alike else offset_items(problems))
