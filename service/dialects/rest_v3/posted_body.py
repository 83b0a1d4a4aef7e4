"""Records whose length the head says: read whole, submitted together, and answered at once.

That is how most requests come, with one record or a few. They take their place in the waiting room as any
request does, and need no stream of their own. Event loop only.

From the texts of a stream to what is submitted, and to what will have to be said of it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import Request

from service.admission.body import announced_bytes, read_body
from service.admission.caller import Caller
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


#: So much of a body is looked at in one go: 10 ms if it were nothing but the smallest of records.
PIECE_BYTES: Final = 32 * 1024

#: Records that are understood in one go: about 5 ms.
RECORDS_AT_ONCE: Final = 500


def understand(topic: str, found: Sequence[bytes | BodyError]) -> tuple[list[Item], list[Awaited]]:
    """The records, or why they are none, and what each report will need."""
    items: list[Item] = []
    awaited: list[Awaited] = []
    for one in found:
        if isinstance(one, BodyError):  # not raised again: it would hold on to all that is held here
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


class PostedBody:
    """One request."""

    def __init__(self, sidecar: Sidecar, topic: str, reports: Reports, to_utf8: ToUtf8) -> None:
        self._sidecar = sidecar
        self._topic = topic
        self._reports = reports
        self._to_utf8 = to_utf8
        self._max_records = sidecar.settings.max_records_per_request

    async def answer(self, request: Request, caller: Caller, since_ms: int) -> bytes:
        """The reports. Raises ProblemError for what is no body of records, CallerGoneError."""
        with self._sidecar.http.produce(request.scope) as timed:
            awaited, outcomes = await self._produce(request, caller, since_ms)
            if len(outcomes) <= FEW_RECORDS:
                timed.outcome, body = self._answer(awaited, outcomes)
            else:
                timed.outcome, body = await self._sidecar.aside.report(
                    lambda: self._answer(awaited, outcomes)
                )
            return body

    async def _produce(
        self, request: Request, caller: Caller, since_ms: int
    ) -> tuple[list[Awaited], list[RecordOutcome]]:
        sidecar, receive = self._sidecar, request.receive
        with sidecar.room.enter(announced_bytes(request.scope), caller) as place:
            came = await read_body(request.scope, receive, place, sidecar.producing.times.timeout_ms)
            items, awaited = await sidecar.aside.read(self._understood, came)
            outcomes = await deliver(
                sidecar, self._topic, items, since_ms=since_ms, place=place, receive=receive
            )
        return awaited, outcomes

    def _understood(self, came: bytes) -> tuple[list[Item], list[Awaited]]:
        """The records. Any thread."""
        body = self._to_utf8(came)
        if not body.strip(SPACE):
            raise empty_body()
        return understand(self._topic, self._found(body))

    def _found(self, body: bytes) -> list[bytes | BodyError]:
        """The texts of the records. Raises a 413 for too many of them."""
        records = ConcatenatedJson(self._sidecar.settings.stream_max_line_bytes)
        found: list[bytes | BodyError] = []
        for start in range(0, len(body), PIECE_BYTES):
            found += records.feed(body[start : start + PIECE_BYTES])
            if len(found) > self._max_records:
                detail = f"the body has more than {self._max_records} records (max_records_per_request)"
                raise refused(413, f"{detail}; as a stream, of unknown length, it may have any number")
        return found + records.end()

    def _answer(self, awaited: Sequence[Awaited], outcomes: Sequence[RecordOutcome]) -> tuple[str, bytes]:
        reports = [_encode(self._reports.of(*pair)) for pair in zip(awaited, outcomes, strict=True)]
        return outcome_of(outcomes), SEPARATOR.join([*reports, b""])
