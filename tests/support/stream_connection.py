"""A caller of a stream over a socket: it writes and reads at the same time, as HTTP clients rarely do.

    with StreamConnection("127.0.0.1", port, "/v1/topics/orders/records") as stream:
        stream.send(b'{"value":1}\\n')
        assert next(stream)["offset"] == 0
        stream.end()
        *rest, last = stream

One thread may send while another reads. Iterating gives the answer's lines as they come, and ends with it.
"""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator


class StreamConnection:
    """One stream."""

    def __init__(self, host: str, port: int, path: str, timeout_s: float = 190.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
            self._socket.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            self._answer = HTTPResponse(self._socket, method="POST")
            self._answer.begin()
        except BaseException:
            self._socket.close()
            raise
        self.status = self._answer.status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._socket.close()

    def send(self, body: bytes) -> None:
        self._socket.sendall(b"%x\r\n%b\r\n" % (len(body), body))

    def end(self) -> None:
        """The body has come to its end; the answer goes on."""
        self._socket.sendall(b"0\r\n\r\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        line = self._answer.readline()
        if not line:
            raise StopIteration
        reported: dict[str, Any] = json.loads(line)
        return reported
