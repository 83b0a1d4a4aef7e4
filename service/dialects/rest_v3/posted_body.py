"""Handles a body of known length: read whole, submitted together, answered at once.

Most requests are like this, with one record or a few. Each takes a permit of admission control, as any
request does, and needs no stream. Event loop only. `understand` turns the texts of a body or a stream into
records and the data for their reports; it is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from fastapi import Request

from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.json_members import members_of
from service.dialects.rest_v3.concatenated_json import ConcatenatedJson
from service.dialects.rest_v3.delivery_reports import SEPARATOR, Awaited, Reports, deliver
from service.dialects.rest_v3.errors import problem_of_record
from service.dialects.rest_v3.record_codec import PAYLOAD, record_of
from service.dialects.rest_v3.requests import SPACE, ToUtf8, empty_body
from service.produce.body_threads import FEW_RECORDS
from service.produce.producing import RecordOutcome, outcome_of
from service.produce.record_stream import Item
from service.sidecar.sidecar import Sidecar
from service.wire.errors import refused
from service.wire.strict_json import BodyError, compact

_encode = msgspec.json.Encoder().encode


#: Bytes split in one go: 10 ms for the smallest records.
PIECE_BYTES: Final = 32 * 1024

#: Records parsed in one go: about 5 ms.
RECORDS_AT_ONCE: Final = 500


def understand(topic: str, found: Sequence[bytes | BodyError]) -> tuple[list[Item], list[Awaited]]:
    """Returns the records, or their errors, and the data for each report."""
    items: list[Item] = []
    awaited: list[Awaited] = []
    for one in found:
        if isinstance(one, BodyError):  # not raised again: that would keep this frame's objects alive
            items.append(problem_of_record(one))
            awaited.append(Awaited())
            continue
        try:
            posted = record_of(topic, members_of(compact(one), payload=PAYLOAD))
        except BodyError as e:
            items.append(problem_of_record(e))
            awaited.append(Awaited())
        else:
            items.append(posted.record)
            awaited.append(Awaited.of(posted))
    return items, awaited


class PostedBodies:
    """The handler of requests with a known length."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producing = sidecar.producing
        self._admission = sidecar.admission
        self._body_threads = sidecar.body_threads
        self._metrics = sidecar.http
        self._max_records = sidecar.settings.internal.max_records_per_request
        self._max_record_bytes = sidecar.settings.stream_line_bytes

    async def answer(
        self, request: Request, topic: str, reports: Reports, to_utf8: ToUtf8, since_ms: int
    ) -> bytes:
        """The reports. Raises ProblemError for an invalid body, or CallerGoneError."""
        with self._metrics.produce(request.scope) as timed:
            awaited, outcomes = await self._produce(request, topic, to_utf8, since_ms)
            if len(outcomes) <= FEW_RECORDS:
                timed.outcome, body = _answer(reports, awaited, outcomes)
            else:
                timed.outcome, body = await self._body_threads.report(
                    lambda: _answer(reports, awaited, outcomes)
                )
            return body

    async def _produce(
        self, request: Request, topic: str, to_utf8: ToUtf8, since_ms: int
    ) -> tuple[list[Awaited], list[RecordOutcome]]:
        receive = request.receive
        with self._admission.acquire(announced_bytes(request.scope), caller_of(request.scope)) as permit:
            came = await read_body(request.scope, receive, permit, self._producing.times.timeout_ms)
            items, awaited = await self._body_threads.read(partial(self._understood, topic, to_utf8), came)
            del came
            outcomes = await deliver(
                self._producing, topic, items, since_ms=since_ms, permit=permit, receive=receive
            )
        return awaited, outcomes

    def _understood(self, topic: str, to_utf8: ToUtf8, came: bytes) -> tuple[list[Item], list[Awaited]]:
        """Returns the records. Any thread."""
        body = to_utf8(came)
        if not body.strip(SPACE):
            raise empty_body()
        return understand(topic, self._found(body))

    def _found(self, body: bytes) -> list[bytes | BodyError]:
        """Returns the texts of the records. Raises a 413 for too many."""
        records = ConcatenatedJson(self._max_record_bytes)
        found: list[bytes | BodyError] = []
        for start in range(0, len(body), PIECE_BYTES):
            found += records.feed(body[start : start + PIECE_BYTES])
            if len(found) > self._max_records:
                detail = f"the body has more than {self._max_records} records"
                raise refused(413, f"{detail}; a stream without Content-Length may have any number")
        return found + records.end()


def _answer(
    reports: Reports, awaited: Sequence[Awaited], outcomes: Sequence[RecordOutcome]
) -> tuple[str, bytes]:
    encoded = [_encode(reports.of(*pair)) for pair in zip(awaited, outcomes, strict=True)]
    return outcome_of(outcomes), SEPARATOR.join([*encoded, b""])
