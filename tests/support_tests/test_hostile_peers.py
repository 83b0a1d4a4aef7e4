"""Each hostile peer does what its name says, and ends with its test."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from client_core.errors import SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from tests.support import hostile_peers
from tests.support.hostile_peers import HOSTILE_PEERS
from tests.support.tcp_peers import ScriptedPeer
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("script", HOSTILE_PEERS.values(), ids=HOSTILE_PEERS.keys())
def test_none_outlives_its_client(script: Callable[[socket.socket], None]) -> None:
    # A peer that ends with our bytes unread resets the connection.
    with ScriptedPeer(script) as peer, Wire(peer.address) as wire, suppress(OSError):
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(65_536):
            pass


def test_garbage_has_the_right_correlation_id_and_no_schema() -> None:
    with ScriptedPeer(hostile_peers.answer_with_garbage) as peer, Wire(peer.address) as wire:
        body = wire.ask(ApiKey.API_VERSIONS, 0, b"")
        with pytest.raises(SchemaError):
            ApiVersionsResponse.decode(body, 0)


def test_another_question_is_answered_well_but_for_its_number() -> None:
    with ScriptedPeer(hostile_peers.answer_another_question) as peer, Wire(peer.address) as wire:
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        payload = wire.receive_payload()
        assert int.from_bytes(payload[:4]) == 1_001
        assert ApiVersionsResponse.decode(payload, 0, 4).api_keys[0].api_key == ApiKey.METADATA.id


def test_a_billion_entries_are_refused_by_their_count() -> None:
    with ScriptedPeer(hostile_peers.promise_a_billion_entries) as peer, Wire(peer.address) as wire:
        body = wire.ask(ApiKey.API_VERSIONS, 0, b"")
        with pytest.raises(SchemaError, match="1073741823"):
            ApiVersionsResponse.decode(body, 0)


def test_half_of_an_answer_is_followed_by_the_end() -> None:
    with ScriptedPeer(hostile_peers.answer_half_and_close) as peer, Wire(peer.address) as wire:
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        with pytest.raises(ConnectionError):
            wire.receive_payload()
