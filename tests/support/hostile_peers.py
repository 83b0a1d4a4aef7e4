"""Servers that a Kafka client must survive: each accepts, and then behaves as no broker would.

    @pytest.mark.parametrize("script", HOSTILE_PEERS.values(), ids=HOSTILE_PEERS.keys())
    def test_...(script):
        with ScriptedPeer(script) as peer: ... a client at peer.address ...

Scripts for `ScriptedPeer` of tcp_peers.py, which has those that know nothing of Kafka; here are those that
read the request first. All of them wait for the client's bytes; none sleeps. The fake cluster (reactions.py)
does the like to single answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tests.support.tcp_peers import (
    close_after_first_frame,
    close_at_once,
    frame,
    promise_two_gigabytes,
    receive_frame,
    speak_http,
    speak_tls,
    stay_silent,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

_REQUEST_HEAD: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")
#: An ApiVersions answer, version 0, behind its correlation id: no error, one API, Metadata 0-12.
_API_VERSIONS_V0: Final = bytes.fromhex("0000 00000001 0003 0000 000c")


def _correlation_id(request: bytes) -> int:
    return int(_REQUEST_HEAD.unpack_from(request)[2])


def answer_with_garbage(connection: socket.socket) -> None:
    """Answers each request with the right correlation id and bytes that follow no schema."""
    while (request := receive_frame(connection)) is not None:
        connection.sendall(frame(_CORRELATION.pack(_correlation_id(request)) + b"\xff" * 64))


def answer_another_question(connection: socket.socket) -> None:
    """Answers each request with a correlation id that nobody used."""
    while (request := receive_frame(connection)) is not None:
        connection.sendall(frame(_CORRELATION.pack(_correlation_id(request) + 1_000) + _API_VERSIONS_V0))


def answer_twice(connection: socket.socket) -> None:
    """Answers each request two times."""
    while (request := receive_frame(connection)) is not None:
        answer = frame(_CORRELATION.pack(_correlation_id(request)) + _API_VERSIONS_V0)
        connection.sendall(answer + answer)


def answer_half_and_close(connection: socket.socket) -> None:
    """Sends half of an answer and ends the connection."""
    request = receive_frame(connection)
    if request is not None:
        answer = frame(_CORRELATION.pack(_correlation_id(request)) + _API_VERSIONS_V0)
        connection.sendall(answer[: len(answer) // 2])


def answer_half_and_wait(connection: socket.socket) -> None:
    """Sends half of an answer, and nothing more."""
    request = receive_frame(connection)
    if request is not None:
        answer = frame(_CORRELATION.pack(_correlation_id(request)) + _API_VERSIONS_V0)
        connection.sendall(answer[: len(answer) // 2])
        stay_silent(connection)


def answer_with_nothing(connection: socket.socket) -> None:
    """Sends frames of no bytes: too short for a correlation id."""
    while receive_frame(connection) is not None:
        connection.sendall(frame(b""))


def answer_with_a_negative_size(connection: socket.socket) -> None:
    """Announces a frame of -2 bytes."""
    receive_frame(connection)
    connection.sendall(b"\xff\xff\xff\xfe")
    stay_silent(connection)


def promise_a_billion_entries(connection: socket.socket) -> None:
    """Answers with an array whose length its frame could never hold."""
    request = receive_frame(connection)
    if request is not None:
        body = bytes.fromhex("0000 3fffffff 0003 0000 000c")
        connection.sendall(frame(_CORRELATION.pack(_correlation_id(request)) + body))
        stay_silent(connection)


#: All of them by a name for a test's id.
HOSTILE_PEERS: Final[Mapping[str, Callable[[socket.socket], None]]] = {
    "accepts and closes": close_at_once,
    "closes instead of an answer": close_after_first_frame,
    "says nothing": stay_silent,
    "speaks HTTP": speak_http,
    "speaks TLS": speak_tls,
    "promises two gigabytes": promise_two_gigabytes,
    "announces a negative size": answer_with_a_negative_size,
    "sends empty frames": answer_with_nothing,
    "sends garbage": answer_with_garbage,
    "answers another question": answer_another_question,
    "answers twice": answer_twice,
    "sends half and closes": answer_half_and_close,
    "sends half and waits": answer_half_and_wait,
    "promises a billion entries": promise_a_billion_entries,
}
