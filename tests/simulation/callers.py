"""Callers: each request as an ASGI exchange, and what its caller knows of each record afterwards.

Open loop: a request is sent when the plan says so, however many are open. `Attempt` is one try of a request.
A try that failed, or of which nobody knows the outcome, may be followed by another, with the same
Idempotency-Key if the request has one.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from service.admission.tokens_file import digest_of
from service.produce.idempotency import REPLAYED

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from service.wire.asgi import Message, Scope
    from tests.simulation.plan import RecordPlan, RequestPlan
    from tests.simulation.sidecar import Process
    from tests.simulation.world import World

_MEDIA_TYPES: Final = {
    "json": b"application/json",
    "spool": b"application/json",
    "octet": b"application/octet-stream",
    "ndjson": b"application/x-ndjson",
}


class Outcome(NamedTuple):
    """What a caller knows of one record: acknowledged, spooled, no (not written), or unknown."""

    what: str
    partition: int = -1
    offset: int | None = None
    phase: str = ""
    timestamp_ms: int = -1
    #: Kafka's name of the error, and its text; where the answer has them.
    error: str = ""
    detail: str = ""


UNKNOWN: Final = Outcome("unknown")


def value_of(record: RecordPlan) -> bytes:
    """Returns the bytes of a record's value, in every form of request; of an empty one its key."""
    if not record.size:
        assert record.key is not None
        return record.key.encode()
    return b'"%s %s"' % (record.name.encode(), b"x" * record.size)


def token_of(caller: str) -> bytes:
    """Returns the token of a caller."""
    return b"token of " + caller.encode()


def tokens_file_for(callers: Iterable[str]) -> str:
    """Returns a file with the tokens of callers, who may do everything."""
    return "".join(
        f'[[token]]\nname = "{caller}"\nsha256 = "{digest_of(token_of(caller)).hex()}"\n'
        'read = ["*"]\nproduce = ["*"]\n'
        for caller in sorted(callers)
    )


def body_of(request: RequestPlan) -> bytes:
    """Returns the body of a request."""
    if request.form == "octet":
        return value_of(request.records[0])
    records = []
    for record in request.records:
        members: dict[str, Any] = {"value": msgspec.Raw(value_of(record) if record.size else b'""')}
        if record.key is not None:
            members["key"] = record.key
        if record.partition is not None:
            members["partition"] = record.partition
        if not request.topic:
            members["topic"] = record.topic
        records.append(msgspec.json.encode(members))
    if request.form == "ndjson":
        return b"\n".join(records)
    head = b"" if request.records[0].size else b'"value_format":"text",'
    return b'{%s"records":[%s]}' % (head, b",".join(records))


def _scope(request: RequestPlan, body: bytes) -> Scope:
    path = f"/v1/topics/{request.topic}/records" if request.topic else "/v1/records"
    members: dict[str, object] = {}
    if request.sets_times:
        members = {"timeout_ms": request.timeout_ms, "max_block_ms": request.max_block_ms}
    if request.form == "spool":
        members["delivery"] = "spool"
    if request.form == "ndjson" and not request.records[0].size:
        members["value_format"] = "text"
    if request.form == "octet":
        record = request.records[0]
        of_record = {"key": record.key, "partition": record.partition}
        members.update((name, value) for name, value in of_record.items() if value is not None)
    headers = [
        (b"host", b"localhost"),
        (b"content-type", _MEDIA_TYPES[request.form]),
        (b"content-length", b"%d" % len(body)),
    ]
    if request.has_key:
        key = request.number if request.key is None else request.key
        headers.append((b"idempotency-key", b'"key-%d"' % key))
    if request.has_token:
        headers.append((b"authorization", b"Bearer " + token_of(request.caller)))
    return post_scope(path, urlencode(members), headers)


def post_scope(path: str, query: str, headers: list[tuple[bytes, bytes]]) -> Scope:
    """Returns the scope of a POST over plain HTTP."""
    return {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "http_version": "1.1",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }


class Attempt:
    """One try of a request, and its answer."""

    def __init__(self, world: World, process: Process, request: RequestPlan, number: int) -> None:
        self.world = world
        self.process = process
        self.request = request
        self.number = number
        self.since_ms = world.now_ms
        self.since_wall_ms = process.clock.wall_ms()
        self.since_jumps = process.clock.jumps
        self.body_ms = 0
        #: How many bytes of the body the sidecar has taken, and when; and when each line of a stream came.
        self._taken: list[tuple[int, int]] = []
        self._lines_ms: list[int] = []
        self.answered_ms: int | None = None
        self.answered_wall_ms = 0
        #: Whether the sidecar's wall clock jumped between request and answer.
        self.clock_jumped = False
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.starts = 0
        #: Its caller has cut the connection, or its process was killed.
        self.is_cut = False
        self.is_over = False
        self.over_ms = 0
        self.over: Callable[[Attempt], None] = lambda _: None
        self._messages: deque[Message] = deque()
        self._waiting: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        return f"r{self.request.number}" + (f" try {self.number}" if self.number else "")

    def begin(self) -> None:
        """Sends the head, and the body in its parts."""
        request, body = self.request, body_of(self.request)
        pauses_ms = (self.number and request.retry_pauses_ms) or request.pauses_ms
        parts = _parts(body, len(pauses_ms))
        self.world.log(
            f"caller {request.caller}",
            f"{self.name} to sidecar {self.process.number}: {request.form}, {len(request.records)} records "
            f"for {request.topic or 'topics of their own'}, key {request.records[0].key}, "
            f"partition {request.records[0].partition}, timeout_ms {request.timeout_ms}, "
            f"max_block_ms {request.max_block_ms}" + (", Idempotency-Key" if request.has_key else ""),
        )
        at_ms = 0
        for index, part in enumerate(parts):
            at_ms += pauses_ms[index]
            message = {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
            if at_ms:
                self.world.at(at_ms, self._later(message))
            else:
                self._messages.append(message)
        self.body_ms = self.world.now_ms + at_ms
        if request.leaves_after_ms is not None and self.number < request.leaves_tries:
            self.world.at(request.leaves_after_ms, self.leave)
        self.process.ask(_scope(request, body), self._receive, self._send)

    def leave(self) -> None:
        """The caller cuts its connection."""
        if self.is_over:
            return
        self.world.log(f"caller {self.request.caller}", f"leaves {self.name}")
        self.is_cut = True
        self._put({"type": "http.disconnect"})
        self._end()

    def lose(self) -> None:
        """The process was killed: the connection ends."""
        if not self.is_over:
            self.is_cut = True
            self._end()

    def _later(self, message: Message) -> Callable[[], object]:
        return lambda: self.process.loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _receive(self) -> Message:
        while not self._messages:
            self._waiting = self.process.loop.create_future()
            await self._waiting
        if self._messages[0]["type"] == "http.disconnect":
            return self._messages[0]
        message = self._messages.popleft()
        before, _ = self._taken[-1] if self._taken else (0, 0)
        # The last line has no LF.
        size = len(message["body"]) + (not message["more_body"])
        self._taken.append((before + size, self.world.now_ms))
        return message

    async def _send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            self.starts += 1
            self.status = message["status"]
            self.headers = list(message["headers"])
            return
        piece = message.get("body", b"")
        self.body += piece
        self._lines_ms += [self.world.now_ms] * piece.count(b"\n")
        if not message.get("more_body", False):
            self.answered_ms = self.world.now_ms
            self.answered_wall_ms = self.process.clock.wall_ms()
            self.clock_jumped = self.process.clock.jumps != self.since_jumps
            self.world.log(
                f"caller {self.request.caller}", f"{self.name} is answered {self.status}: {self.body[:300]!r}"
            )
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self.over_ms = self.world.now_ms
        self.over(self)

    # -- what the answer says --------------------------------------------------------------------------------

    @property
    def is_replayed(self) -> bool:
        return REPLAYED in self.headers

    def began_ms(self) -> list[int]:
        """Returns when the time of each record began: with the head, or with its line in a stream."""
        if self.request.form != "ndjson":
            return [self.since_ms] * len(self.request.records)
        ends = accumulate(len(line) + 1 for line in body_of(self.request).split(b"\n"))
        return [self._taken_ms(end) for end in ends]

    def _taken_ms(self, end: int) -> int:
        """Returns when the sidecar had taken the line that ends there; if it has not: now, or at its end."""
        latest_ms = self.over_ms if self.is_over else self.world.now_ms
        return next((at_ms for taken, at_ms in self._taken if taken >= end), latest_ms)

    def ended_ms(self) -> list[int]:
        """Returns when each record was answered, as far as it was."""
        if self.answered_ms is None:
            return []
        if self.request.form != "ndjson" or self.status != 200:
            return [self.answered_ms] * len(self.request.records)
        return self._lines_ms[:-1]  # the last one is the summary

    def outcomes(self) -> list[Outcome]:
        """Returns what the caller knows of each record."""
        count = len(self.request.records)
        if self.request.form == "ndjson" and self.status == 200:
            return self._of_lines(count)
        if self.answered_ms is None or self.status is None:
            return [UNKNOWN] * count
        document = msgspec.json.decode(self.body)
        if self.status == 202:
            first = document["first_sequence"]
            return [Outcome("spooled", offset=first + index) for index in range(count)]
        items = document.get("results")
        if items is not None:
            return [_outcome_of(item) for item in items]
        return [_outcome_of({"error": document})] * count

    def _of_lines(self, count: int) -> list[Outcome]:
        outcomes = [UNKNOWN] * count
        for item in self._lines():
            outcomes[item["index"]] = _outcome_of(item)
        return outcomes

    def _lines(self) -> list[dict[str, Any]]:
        """Returns the lines of records; the last of the answer is a summary."""
        *lines, _ = self.body.split(b"\n")
        items = [msgspec.json.decode(line) for line in lines]
        return [item for item in items if "index" in item]

    @property
    def is_in_order(self) -> bool:
        """Returns whether the lines of a stream have the order of its records."""
        if self.request.form != "ndjson" or self.status != 200:
            return True
        indices = [item["index"] for item in self._lines()]
        return indices == list(range(len(indices)))


def _outcome_of(item: dict[str, Any]) -> Outcome:
    if "error" in item:
        error = item["error"]
        return Outcome(
            "no" if error.get("written") == "no" else "unknown",
            phase=error.get("phase", ""),
            error=error.get("kafka_error") or "",
            detail=error.get("detail") or error.get("message") or "",
        )
    return Outcome("acknowledged", item["partition"], item["offset"], timestamp_ms=item["timestamp"])


def _parts(body: bytes, count: int) -> list[bytes]:
    size = len(body) // count + 1
    return [body[at : at + size] for at in range(0, size * count, size)]
