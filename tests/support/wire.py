"""Kafka's wire by hand: one connection, one request, one answer, with blocking sockets and our messages.

For tests of servers (the fake cluster, the embedded one, real brokers) that need no whole client.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final, Self

from client_core.protocol.header import decode_response_header, encode_request_header
from tests.support.tcp_peers import frame, receive_exactly
from tests.support.waiting import patient

if TYPE_CHECKING:
    from client_core.protocol.api_keys import ApiKey

_SIZE: Final = struct.Struct(">i")
_PATIENCE_S: Final = patient(10.0)


class Wire:
    """A connection to a broker that asks one thing at a time. Correlation ids count from 1."""

    def __init__(self, address: tuple[str, int], *, patience_s: float = _PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, timeout=patience_s)
        self._correlation_id = 0

    def send(self, api: ApiKey, version: int, body: bytes, *, client_id: str | None = "test") -> None:
        """Sends a request and waits for nothing."""
        self._correlation_id += 1
        self.socket.sendall(
            frame(encode_request_header(api, version, self._correlation_id, client_id) + body)
        )

    def receive_payload(self) -> bytes:
        """The next frame without its size. ConnectionError when the peer ends the connection instead."""
        size = receive_exactly(self.socket, _SIZE.size)
        payload = None if size is None else receive_exactly(self.socket, _SIZE.unpack(size)[0])
        if payload is None:
            raise ConnectionError("the peer ended the connection instead of an answer")
        return payload

    def ask(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """Sends a request and returns the answer's body; AssertionError for a wrong correlation id."""
        self.send(api, version, body)
        payload = self.receive_payload()
        correlation_id, offset = decode_response_header(payload, api, version)
        assert correlation_id == self._correlation_id
        return payload[offset:]

    def is_closed_by_peer(self) -> bool:
        """Whether the peer has ended the connection, or does so while we wait."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(address: tuple[str, int], api: ApiKey, version: int, body: bytes) -> bytes:
    """The body of the answer to a single request on a connection of its own."""
    with Wire(address) as wire:
        return wire.ask(api, version, body)
