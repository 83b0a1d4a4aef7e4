"""Brokers that mean no good to who logs in: giant answers, and words that don't belong into a log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from client_core.errors import InvalidReceiveError
from tests.network.sasl.sasl_rig import NODE, SaslRig, wait_for_channel_close, wait_for_channel_ready
from tests.support.tcp_peers import ScriptedPeer, receive_frame

if TYPE_CHECKING:
    import socket


def test_an_answer_of_megabytes_is_refused_as_soon_as_its_size_is_known() -> None:
    """No step of an authentication needs more than some kilobytes; whoever sends it is nobody known yet."""
    reported = threading.Event()

    def announces_64_megabytes(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall((64 * 1024 * 1024).to_bytes(4, "big") + bytes(1000))
        reported.wait(30)

    with ScriptedPeer(announces_64_megabytes) as peer, SaslRig("PLAIN", tls=False) as rig:
        selector = rig.client("PLAIN")
        selector.connect(NODE, "localhost", peer.address, 4096, 4096)
        state = wait_for_channel_close(selector)
        reported.set()
        assert isinstance(state.error, InvalidReceiveError)
        assert "67108864 larger than 524288" in state.error.message


def test_a_size_that_a_log_in_may_not_have_is_fine_for_an_answer_thereafter() -> None:
    with SaslRig("PLAIN", tls=True) as rig:
        selector = rig.client("PLAIN")
        rig.connect(selector)
        wait_for_channel_ready(selector)
        message = b"x" * 600_000
        assert rig.exchange(selector, message) == message


def test_what_a_broker_says_of_a_refusal_is_one_line_of_some_length() -> None:
    with SaslRig("PLAIN", tls=False) as rig:
        rig.server.authenticate_error = (58, "no\r\nlevel=info msg=\x1b[2Jforged " + "x" * 30_000)
        state = rig.connect_and_fail(rig.client("PLAIN"))
        assert state.error is not None
        assert state.error.message.startswith("no  level=info msg= [2Jforged xxx")
        assert state.error.message.isprintable()
        assert len(state.error.message) <= 1_100
