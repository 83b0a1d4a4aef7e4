"""Channels whose token is still being fetched when they connect: they wait, they spin not, and go on by
themselves.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import DisconnectError
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.selectable import ChannelStateName
from tests.network.sasl.sasl_rig import (
    CLIENT_ID,
    NODE,
    PASSWORD,
    SESSION_MS,
    USERNAME,
    SaslRig,
    wait_for_channel_close,
    wait_for_channel_ready,
)
from tests.support.tcp_peers import ScriptedPeer

if TYPE_CHECKING:
    import socket

    from client_core.network.authenticator import Authenticator
    from client_core.network.sasl.sasl_client import SaslClient
    from client_core.network.selector import Selector

LONG_MS: Final = 10_000
OVER: Final = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])


class SlowCredentials:
    """Authenticators with PLAIN; there is a password from `are_here` on."""

    def __init__(self) -> None:
        self.are_here = False
        self.failure: DisconnectError | None = None
        self.looks = 0

    def authenticator(self, host: str) -> Authenticator:
        return SaslClientAuthenticator("PLAIN", self._new_client, CLIENT_ID, random.Random(1))

    def _new_client(self) -> SaslClient | None:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return PlainSaslClient(USERNAME, PASSWORD) if self.are_here else None

    def close(self) -> None:
        """It holds nothing."""


def poll_until_looked(selector: Selector, credentials: SlowCredentials, looks: int) -> None:
    while credentials.looks < looks:
        selector.poll(LONG_MS)
        assert not selector.disconnected


@OVER
def test_a_channel_waits_for_its_credentials_and_goes_on_by_itself(tls: bool) -> None:
    with SaslRig("PLAIN", tls=tls) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        rig.connect(selector)
        poll_until_looked(selector, credentials, 3)
        assert not selector.is_channel_ready(NODE)
        assert rig.server.requests == []
        credentials.are_here = True
        wait_for_channel_ready(selector)
        looks = credentials.looks
        rig.check_client_connection(selector)
        assert credentials.looks == looks


@OVER
def test_a_failure_to_get_them_ends_the_connection_with_the_reason(tls: bool) -> None:
    with SaslRig("PLAIN", tls=tls) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        rig.connect(selector)
        poll_until_looked(selector, credentials, 2)
        credentials.failure = DisconnectError("https://idp can't be asked")
        state = wait_for_channel_close(selector)
        assert state.name is ChannelStateName.AUTHENTICATE
        assert state.detail == "https://idp can't be asked"


def test_waiting_costs_no_turns_whatever_the_peer_does_meanwhile() -> None:
    """The end of the stream, and bytes that nobody asked for, stay with the system: no poll ends for them."""

    def talks_too_early(connection: socket.socket) -> None:
        connection.sendall(b"\0\0\0\4abcd" * 100)

    with ScriptedPeer(talks_too_early) as peer, SaslRig("PLAIN", tls=False) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        selector.connect(NODE, "localhost", peer.address, 4096, 4096)
        poll_until_looked(selector, credentials, 2)
        begin_s = time.monotonic()
        poll_until_looked(selector, credentials, 6)
        # Four polls, and each of them slept: nothing else made it return.
        assert time.monotonic() - begin_s > 0.15
        credentials.are_here = True
        assert wait_for_channel_close(selector).error is not None


@OVER
def test_a_renewal_waits_as_well(tls: bool) -> None:
    with SaslRig("PLAIN", tls=tls) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        credentials = SlowCredentials()
        credentials.are_here = True
        selector = rig.client_with(credentials)
        rig.connect(selector)
        wait_for_channel_ready(selector)
        rig.let_the_session_run_out()
        credentials.are_here = False
        selector.send(NODE, [b"this waits for the renewal"])
        poll_until_looked(selector, credentials, credentials.looks + 3)
        credentials.are_here = True
        while not selector.completed_receives:
            selector.poll(LONG_MS)
            assert not selector.disconnected
        assert selector.completed_receives[0].payload == b"this waits for the renewal"
        assert rig.server.reauthentications == 1


def test_closing_a_channel_that_waits_leaves_nothing() -> None:
    with SaslRig("PLAIN", tls=False) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        rig.connect(selector)
        poll_until_looked(selector, credentials, 2)
        selector.close_connection(NODE)
        looks = credentials.looks
        selector.poll(0)
        assert credentials.looks == looks
        assert not selector.disconnected
