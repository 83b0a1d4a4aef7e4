"""Callers of a sidecar over HTTP, each on a thread and a connection of its own, at a steady pace.

A caller sends, waits for the answer, writes down what it was told, and goes on: it never has two requests
open, so that the order of its records is its own. It never repeats a record, but for OnceCaller, whose key of
idempotency makes that safe. Where nobody listens it waits and tries again; that is no attempt.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final

from tests.chaos.answers import End, end_of_result, ends_of_v1, ends_of_v2
from tests.chaos.history import Attempt, Told
from tests.support.java_peer import now_ms
from tests.support.stream_connection import StreamConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.history import History

HOST: Final = "127.0.0.1"
#: Longer than delivery.timeout.ms: a sidecar that does not answer until then has forgotten the request.
ANSWER_TIMEOUT_S: Final = 150.0
_ANEW_S: Final = 0.02
_PADDING: Final = "." * 80
JSON_HEADERS: Final = {"Content-Type": "application/json"}


class _NobodyListensError(Exception):
    """No connection could be made: nothing was sent."""


class Caller(ABC):
    """One caller. `failure` is what ended it before its time: an answer that no sidecar may give."""

    def __init__(self, name: str, port: int, topic: str, history: History, *, pause_s: float) -> None:
        self.name = name
        self._port = port
        self._topic = topic
        self._history = history
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._numbers = 0
        self._thread = threading.Thread(target=self._work, name=f"caller-{name}", daemon=True)
        self.requests = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """It ends after the request that it has open."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        next_s = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, next_s - time.monotonic())):
                next_s = max(next_s + self._pause_s, time.monotonic())
                try:
                    self._one_turn()
                except _NobodyListensError:
                    self._stop.wait(_ANEW_S)
            self._end()
        except Exception as error:  # noqa: BLE001 - told by who reads `failure`, on another thread
            self.failure = error

    def _next_records(self, count: int) -> list[tuple[int, bytes, bytes]]:
        """Number, key and value of the next records: all of a caller's have one key."""
        numbers = range(self._numbers, self._numbers + count)
        self._numbers += count
        return [(n, self.name.encode(), f"{self.name}/{n}/{_PADDING}".encode()) for n in numbers]

    def _note(
        self,
        records: Sequence[tuple[int, bytes, bytes]],
        ends: Sequence[End],
        sent_ms: int,
        *,
        asked_partition: int | None = None,
        status: int | None = None,
    ) -> None:
        ended_ms = now_ms()
        self._history.add(
            Attempt(
                caller=self.name,
                number=number,
                key=key,
                value=value,
                asked_partition=asked_partition,
                sent_ms=sent_ms,
                ended_ms=ended_ms,
                told=end.told,
                partition=end.partition,
                offset=end.offset,
                status=status,
                detail=end.detail,
            )
            for (number, key, value), end in zip(records, ends, strict=True)
        )

    @abstractmethod
    def _one_turn(self) -> None:
        """One request. Raises _NobodyListensError where there is no connection to be had."""

    @abstractmethod
    def _end(self) -> None:
        """Lets go of the connection."""


class _RequestCaller(Caller):
    """A request, an answer, on a connection that is kept."""

    def __init__(self, name: str, port: int, topic: str, history: History, *, pause_s: float) -> None:
        super().__init__(name, port, topic, history, pause_s=pause_s)
        self._connection: HTTPConnection | None = None

    def _ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes] | None:
        """Status and body; None where the connection ended before both had come."""
        connection = self._connected()
        self.requests += 1
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self._end()
            return None

    def _connected(self) -> HTTPConnection:
        if self._connection is None or self._connection.sock is None:
            connection = HTTPConnection(HOST, self._port, timeout=ANSWER_TIMEOUT_S)
            try:
                connection.connect()
            except OSError:
                raise _NobodyListensError from None
            self._connection = connection
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class V1Caller(_RequestCaller):
    """Records as JSON: `count` of them a request, to a partition if one is given, else to their key's."""

    query = ""

    def __init__(
        self,
        name: str,
        port: int,
        topic: str,
        history: History,
        *,
        pause_s: float,
        count: int = 1,
        partition: int | None = None,
    ) -> None:
        super().__init__(name, port, topic, history, pause_s=pause_s)
        self._count = count
        self.partition = partition

    def _one_turn(self) -> None:
        self._connected()  # before there is a record that could be given up
        self._send(self._next_records(self._count), JSON_HEADERS)

    def _send(self, records: Sequence[tuple[int, bytes, bytes]], headers: Mapping[str, str]) -> bool:
        """Whether there was an answer."""
        place = {} if self.partition is None else {"partition": self.partition}
        document = {
            "value_format": "text",
            "records": [{"key": key.decode(), "value": value.decode(), **place} for _, key, value in records],
        }
        sent_ms = now_ms()
        answer = self._ask(
            f"/v1/topics/{self._topic}/records{self.query}", json.dumps(document).encode(), headers
        )
        if answer is None:
            ends, status = [End(Told.UNANSWERED)] * len(records), None
        else:
            status = answer[0]
            ends = ends_of_v1(*answer, len(records))
        self._note(records, ends, sent_ms, asked_partition=self.partition, status=status)
        return answer is not None


class SpoolCaller(V1Caller):
    """Content with a 202."""

    query = "?delivery=spool"


class OnceCaller(V1Caller):
    """Sends a record again, under its key of idempotency, until it is answered."""

    def _one_turn(self) -> None:
        self._connected()
        records = self._next_records(self._count)
        headers = {**JSON_HEADERS, "Idempotency-Key": f'"{self.name}-{records[0][0]}"'}
        answered = self._send(records, headers)
        while not answered and not self._stop.wait(_ANEW_S):
            try:
                answered = self._send(records, headers)
            except _NobodyListensError:
                continue


class V2Caller(_RequestCaller):
    """As a client of Confluent's REST Proxy."""

    def _one_turn(self) -> None:
        self._connected()
        records = self._next_records(1)
        sent_ms = now_ms()
        # JSON strings: what is stored has their quotes, and so has what is looked for.
        body = {"records": [{"key": key.decode(), "value": value.decode()} for _, key, value in records]}
        answer = self._ask(
            f"/topics/{self._topic}",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.kafka.json.v2+json"},
        )
        quoted = [(number, b'"%b"' % key, b'"%b"' % value) for number, key, value in records]
        ends = [End(Told.UNANSWERED)] if answer is None else ends_of_v2(*answer, 1)
        self._note(quoted, ends, sent_ms, status=answer[0] if answer else None)


class StreamCaller(Caller):
    """One stream for as long as it lasts: a few lines at once, then their answers."""

    _LINES: Final = 4

    def __init__(self, name: str, port: int, topic: str, history: History, *, pause_s: float) -> None:
        super().__init__(name, port, topic, history, pause_s=pause_s)
        self._stream: StreamConnection | None = None

    def _one_turn(self) -> None:
        stream = self._opened()
        records = self._next_records(self._LINES)
        lines = [{"key": key.decode(), "value": value.decode()} for _, key, value in records]
        sent_ms = now_ms()
        ends: list[End] = []
        rest = Told.UNANSWERED
        try:
            stream.send(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            for told in stream:
                if "summary" in told:
                    # Lines after the last one that was told of have not been taken on.
                    rest = Told.NOT_WRITTEN
                    self._end()
                    break
                ends.append(end_of_result(told))
                if len(ends) == len(records):
                    break
            else:
                self._end()
        except (OSError, HTTPException, ValueError):
            self._end()  # cut off, perhaps within a line
        ends.extend([End(rest)] * (len(records) - len(ends)))
        self._note(records, ends, sent_ms)

    def _opened(self) -> StreamConnection:
        if self._stream is None:
            self.requests += 1
            path = f"/v1/topics/{self._topic}/records?value_format=text"
            try:
                self._stream = StreamConnection(HOST, self._port, path, timeout_s=ANSWER_TIMEOUT_S)
            except (OSError, HTTPException):
                raise _NobodyListensError from None
            if self._stream.status != 200:
                self._end()
                raise _NobodyListensError
        return self._stream

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.__exit__()
            self._stream = None
