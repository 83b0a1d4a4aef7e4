"""Open-loop callers of a sidecar over HTTP, on one event loop: each sends at its own pace, answered or not.

So several requests of a caller are open at once, and several batches of a partition are in flight. Each
request has a random deadline, and some connections are cut while a request is open. A caller with idempotency
keys repeats a request until its outcome is known. A caller with `again` repeats it once, without a key. A
refused connection is no attempt.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.chaos.answers import End, end_of_result
from tests.chaos.dialects import Record, v1_record
from tests.chaos.history import Attempt, Outcome
from tests.chaos.http_streams import Connection, NobodyListensError
from tests.support.java_peer import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.chaos.dialects import Dialect
    from tests.chaos.history import History

#: Longer than delivery.timeout.ms: a sidecar that does not answer until then has forgotten the request.
ANSWER_TIMEOUT_S: Final = 150.0
#: So long after its deadline a request is given up: much too late for the judge.
_GIVE_UP_S: Final = 10.0
_ANEW_S: Final = 0.05
#: Requests, or lines, that a caller has open at most.
_MOST_OPEN: Final = 64
_MOST_LINES: Final = 400
_TIMEOUTS_MS: Final = (300, 1_000, 3_000, None)
_MAX_BLOCKS_MS: Final = (200, 1_000, None)
_UNDECIDED: Final = frozenset({Outcome.UNKNOWN, Outcome.UNANSWERED})
_HTTP_ERRORS: Final = (OSError, EOFError, TimeoutError)


@dataclass(frozen=True)
class Plan:
    """What a caller does. A share of `cuts` of its requests is cut off; `plain` ones have no deadline."""

    name: str
    dialect: Dialect
    pause_s: float = 0.2
    count: int = 1
    partition: int | None = None
    is_plain: bool = False
    cuts: float = 0.05
    has_keys: bool = False
    sends_again: bool = False


class Caller:
    """One caller. `failure` is what no sidecar may answer."""

    def __init__(self, plan: Plan, port: int, topic: str, history: History, random: Random) -> None:
        self.name = plan.name
        self._plan = plan
        self._port = port
        self._topic = topic
        self._history = history
        self._random = random
        self._numbers = 0
        self._idle: list[Connection] = []
        self._open: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.requests = 0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Begins nothing more; what is open goes on."""
        self._stopping = True

    async def run(self) -> None:
        """Until it is stopped, and all is answered."""
        due_s = time.monotonic()
        while not self._stopping:
            if len(self._open) < _MOST_OPEN:
                task = asyncio.create_task(self._guarded())
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            due_s = max(due_s + self._plan.pause_s, time.monotonic() - 1)
            await asyncio.sleep(due_s - time.monotonic())
        await asyncio.gather(*self._open)
        for connection in self._idle:
            connection.cut()

    async def _guarded(self) -> None:
        try:
            await self._one_turn()
        except NobodyListensError:
            pass
        except Exception as error:  # noqa: BLE001 - reported by who reads `failure`, on another thread
            self.failure = error

    def _next_records(self) -> list[Record]:
        plan, random = self._plan, self._random
        numbers = range(self._numbers, self._numbers + plan.count)
        self._numbers += plan.count
        more: dict[str, object] = {"partition": plan.partition}
        if plan.dialect.has_headers:
            more["headers"] = (
                ("trace", f"{self.name}-{numbers[0]}".encode()),
                ("twice", b""),
                ("twice", b"\xff"),
            )
        if plan.dialect.has_timestamps and not plan.is_plain and random.random() < 0.5:
            more["timestamp_ms"] = now_ms() - random.randrange(10_000)
        return [Record.of(self.name, number, **more) for number in numbers]

    async def _one_turn(self) -> None:
        plan = self._plan
        connection = await self._connected()  # before there is a record that could be given up
        records = self._next_records()
        undecided = await self._send(connection, records)
        while undecided and not self._stopping and (plan.has_keys or plan.sends_again):
            await asyncio.sleep(_ANEW_S)
            try:
                undecided = await self._send(await self._connected(), records) and plan.has_keys
            except NobodyListensError:
                continue

    async def _connected(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if await connection.is_idle():
                return connection
            connection.cut()
        return await Connection.open(self._port)

    async def _send(self, connection: Connection, records: Sequence[Record]) -> bool:
        """Whether the outcome is unknown."""
        plan, random = self._plan, self._random
        self.requests += 1
        lane = str(self.requests)
        ask = plan.dialect.ask(self._topic, records)
        timeout_ms, path = None, ask.path
        if plan.dialect.has_deadlines and not plan.is_plain:
            timeout_ms, max_block_ms = random.choice(_TIMEOUTS_MS), random.choice(_MAX_BLOCKS_MS)
            limits = {"timeout_ms": timeout_ms, "max_block_ms": max_block_ms}
            path += "".join(f"&{name}={value}" for name, value in limits.items() if value is not None)
        headers = dict(ask.headers)
        if plan.has_keys:
            headers["Idempotency-Key"] = f'"{self.name}-{records[0].number}"'
        cut_after_s = random.uniform(0, 0.03) if random.random() < plan.cuts else None
        patience_s = ANSWER_TIMEOUT_S if timeout_ms is None else timeout_ms / 1_000 + _GIVE_UP_S
        sent_ms = now_ms()
        status, was_cut = None, False
        try:
            async with asyncio.timeout(patience_s if cut_after_s is None else cut_after_s):
                await connection.send(path, headers, ask.body)
                status, body = await connection.answer()
            ends = plan.dialect.ends(status, body, len(records))
            self._idle.append(connection)
        except _HTTP_ERRORS as error:
            was_cut = cut_after_s is not None and isinstance(error, TimeoutError)
            connection.cut()
            ends = [End(Outcome.UNANSWERED, detail=repr(error))] * len(records)
        self._note(records, ends, sent_ms, timeout_ms, lane=lane, status=status, was_cut=was_cut)
        return any(end.reported in _UNDECIDED for end in ends)

    def _note(
        self,
        records: Sequence[Record],
        ends: Sequence[End],
        sent_ms: int,
        timeout_ms: int | None,
        *,
        lane: str,
        status: int | None = None,
        was_cut: bool = False,
        answers: int = 1,
    ) -> None:
        ended_ms = now_ms()
        dialect = self._plan.dialect
        self._history.add(
            Attempt(
                caller=self.name,
                number=record.number,
                key=record.key.encode(),
                value=record.value.encode(),
                asked_partition=record.partition,
                sent_ms=sent_ms,
                ended_ms=ended_ms,
                reported=end.reported,
                partition=end.partition,
                offset=end.offset,
                status=status,
                detail=end.detail,
                lane=lane,
                headers=dialect.stored_headers(record),
                has_more_headers=dialect.has_more_headers,
                timestamp_ms=record.timestamp_ms,
                timeout_ms=timeout_ms,
                was_cut=was_cut,
                answers=answers,
                has_idempotency_key=self._plan.has_keys,
            )
            for record, end in zip(records, ends, strict=True)
        )


@dataclass
class _Line:
    record: Record
    sent_ms: int


class StreamCaller(Caller):
    """Streams, one after the other: lines at its pace, and their answers as they come."""

    _LINES: Final = 200

    async def run(self) -> None:
        while not self._stopping:
            try:
                await self._one_stream()
            except NobodyListensError:
                await asyncio.sleep(_ANEW_S)
            except Exception as error:  # noqa: BLE001 - as in Caller
                self.failure = error
                return

    async def _one_stream(self) -> None:
        connection = await Connection.open(self._port)
        self.requests += 1
        timeout_ms = self._random.choice(_TIMEOUTS_MS)
        path = f"/v1/topics/{self._topic}/records?value_format=text"
        path += "" if timeout_ms is None else f"&timeout_ms={timeout_ms}"
        lines: list[_Line] = []
        answered: list[End] = []
        reading = asyncio.create_task(self._read(connection, lines, answered, timeout_ms, str(self.requests)))
        is_cut = self._random.random() < self._plan.cuts
        try:
            await connection.send(path, {"Content-Type": "application/x-ndjson"}, None)
            while len(lines) < self._LINES and not self._stopping and not reading.done():
                if len(lines) - len(answered) < _MOST_LINES:
                    records = self._next_records()
                    lines += [_Line(record, now_ms()) for record in records]
                    body = b"".join(json.dumps(v1_record(each)).encode() + b"\n" for each in records)
                    await connection.send_chunk(body)
                await asyncio.sleep(self._plan.pause_s)
            if is_cut:
                connection.cut()
            else:
                await connection.send_chunk(b"")
        except OSError:
            pass  # the reader fails too
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            rest = await reading
        connection.cut()
        for line in lines[len(answered) :]:
            end = End(rest, detail="the stream ended")
            self._note([line.record], [end], line.sent_ms, timeout_ms, lane=str(self.requests), was_cut=True)

    async def _read(
        self,
        connection: Connection,
        lines: Sequence[_Line],
        answered: list[End],
        timeout_ms: int | None,
        lane: str,
    ) -> Outcome:
        """What became of the lines that are not answered."""
        text = b""
        try:
            async for piece in connection.pieces():
                *whole, text = (text + piece).split(b"\n")
                if connection.status != 200:
                    return Outcome.NOT_WRITTEN
                for reported in map(json.loads, whole):
                    if "summary" in reported:
                        return (
                            Outcome.NOT_WRITTEN
                        )  # lines after the last one that was answered were not taken
                    index = reported["index"]
                    assert index <= len(answered), f"line {index} is answered before line {len(answered)}"
                    line = lines[index]
                    again = index < len(answered)
                    end = end_of_result(reported)
                    self._note([line.record], [end], line.sent_ms, timeout_ms, lane=lane, answers=1 + again)
                    if not again:
                        answered.append(end)
        except _HTTP_ERRORS:
            pass  # cut off, perhaps within a line
        return Outcome.UNANSWERED


def of_partition(plan: Plan, partition: int) -> Plan:
    """The same to one partition."""
    return replace(plan, name=f"{plan.name}-p{partition}", partition=partition)
