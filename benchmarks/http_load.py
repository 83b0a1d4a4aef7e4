"""Sends single-record produces over HTTP at a steady rate, in its own process. Argument: PORT.

    start TOPIC PER_SECOND   keyless records of a few bytes, each in its own request
    stop                     returns when each was sent, and when its 200 came

There are as many connections as open requests, so a waiting request does not delay the next.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from typing import TYPE_CHECKING, Final

from benchmarks.line_peer import answer_lines
from benchmarks.steady_load import SteadyLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAME: Final = "http"


class HttpClient:
    """Connections to one port, on their own loop; idle ones are reused, the last one first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        body = b'{"records":[{"value":"%s"}],"value_format":"text"}' % value
        head = (
            f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._loop.call_soon_threadsafe(self._begin, head.encode() + body, done)

    def _begin(self, request: bytes, done: Callable[[str | None], None]) -> None:
        # A loop has only weak references to its tasks, a connection to its reader: both could be collected.
        task = self._loop.create_task(self._ask(request, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, request: bytes, done: Callable[[str | None], None]) -> None:
        try:
            if self._idle:
                reader, writer = self._idle.pop()
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            said = await reader.readexactly(int(length))
        except (OSError, asyncio.IncompleteReadError) as error:
            done(f"{type(error).__name__}: {error}")
            return
        done(None if head.startswith(b"HTTP/1.1 200 ") else said.decode())
        self._idle.append((reader, writer))

    def hang_up(self) -> None:
        """Closes the idle connections, which are all of them after a load has stopped."""
        while self._idle:
            self._loop.call_soon_threadsafe(self._idle.pop()[1].close)

    def close(self) -> None:
        """Ends the waiting requests and the loop."""

        def end() -> None:
            for task in self._under_way:
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join()


class Caller:
    """The commands. One load at a time."""

    def __init__(self, port: int) -> None:
        self._http = HttpClient(port)
        self._load: SteadyLoad | None = None

    def start(self, topic: str, per_second: str) -> Mapping[str, object]:
        self._load = SteadyLoad(self._http, _NAME, topic, float(per_second))
        return {"started": True}

    def acknowledged(self, moment_s: str) -> Mapping[str, object]:
        assert self._load is not None
        return {"acknowledged": self._load.acknowledged_after(float(moment_s))}

    def stop(self) -> Mapping[str, object]:
        assert self._load is not None
        books = self._load.stop()
        self._http.hang_up()
        return books

    def close(self) -> None:
        self._http.close()


def main(port: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    caller = Caller(port)
    try:
        answer_lines({"start": caller.start, "acknowledged": caller.acknowledged, "stop": caller.stop})
    finally:
        caller.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
