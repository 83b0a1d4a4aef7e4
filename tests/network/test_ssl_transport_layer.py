"""TLS over a transport layer that is memory: reading, writing, and the end. The handshake has its own file.

Twins of SslTransportLayerTest (Kafka 4.3) where they need no socket; those over loopback are in
test_ssl_connections.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_core.errors import DisconnectError, SslAuthenticationError
from client_core.network.network_send import NetworkSend
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransportLayer
from tests.network.tls_clients import shake_hands, ssl_config, transport_over
from tests.support.certificates import Authority
from tests.support.tls_peers import TLS12, TLS13, TlsPipe, server_context

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB = 1024
RECORD_BYTES = 16 * KIB
MOST_AHEAD_BYTES = 160 * KIB

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("client")

both_versions = pytest.mark.parametrize("version", [TLS12, TLS13])


def connected(version: str = TLS13) -> tuple[SslTransportLayer, TlsPipe]:
    """A client after its handshake, with nothing on the wire."""
    pipe = TlsPipe(server_context(BROKER, protocols=[version]))
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    shake_hands(transport)
    assert transport.read(KIB) is None  # the session tickets
    pipe.reads = 0
    pipe.asked.clear()
    pipe.writes.clear()
    return transport, pipe


def refused_after_handshake() -> tuple[SslTransportLayer, TlsPipe]:
    """A client that has no certificate, and a broker that wants one and has not said so yet."""
    pipe = TlsPipe(
        server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate, protocols=[TLS13])
    )
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    pipe.is_holding = True
    shake_hands(transport)
    return transport, pipe


def read_all(transport: SslTransportLayer, max_bytes: int) -> bytes:
    received = bytearray()
    while (data := transport.read(max_bytes)) is not None:
        assert 0 < len(data) <= max_bytes
        received += data
    return bytes(received)


@both_versions
def test_bytes_come_out_as_they_were_sent(version: str) -> None:
    transport, pipe = connected(version)
    sent = os.urandom(100_000)
    pipe.send(sent)
    assert read_all(transport, 64 * KIB) == sent


@pytest.mark.java("SslTransportLayerTest.ScatteringRead")
def test_a_read_brings_what_was_asked_for_and_the_next_one_goes_on_behind_it() -> None:
    transport, pipe = connected()
    assert transport.read(KIB) is None  # nothing is there
    pipe.send(b"Hello, World!")
    read = [transport.read(size) for size in (3, 4, 100, 100)]
    assert read == [b"Hel", b"lo, ", b"World!", None]


def test_a_read_asks_the_network_once_and_not_at_all_while_bytes_are_buffered() -> None:
    transport, pipe = connected()
    pipe.send(b"x" * 8 * KIB)
    pipe.send(b"x" * 8 * KIB)
    assert transport.read(10) == b"x" * 10
    assert pipe.reads == 1
    assert transport.read(5000) == b"x" * 5000
    rest = 0
    while transport.has_bytes_buffered:
        rest += len(transport.read(5000) or b"")
    assert rest == 16 * KIB - 5010
    assert pipe.reads == 1


@pytest.mark.behaviour("SEL-05")
def test_a_whole_record_that_is_here_counts_as_buffered() -> None:
    transport, pipe = connected()
    pipe.send(b"a" * KIB)
    pipe.send(b"b" * KIB)
    read = [(transport.read(KIB), transport.has_bytes_buffered) for _ in range(2)]
    assert read == [(b"a" * KIB, True), (b"b" * KIB, False)]


@pytest.mark.behaviour("SEL-05")
def test_half_a_record_does_not_count_as_buffered() -> None:
    transport, pipe = connected()
    pipe.send(b"a" * RECORD_BYTES)
    pipe.send(b"b" * RECORD_BYTES)
    pipe.gives = [20 * KIB, 0]
    assert transport.read(RECORD_BYTES) == b"a" * RECORD_BYTES
    assert not transport.has_bytes_buffered
    assert transport.read(RECORD_BYTES) is None
    assert transport.read(RECORD_BYTES) == b"b" * RECORD_BYTES


SIZES = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)


@pytest.mark.behaviour("SEL-05")
@settings(max_examples=40)
@given(records=SIZES, gives=SIZES, reads=SIZES, version=st.sampled_from([TLS12, TLS13]))
def test_bytes_are_buffered_exactly_when_a_read_yields_some_without_the_network(
    records: list[int], gives: list[int], reads: list[int], version: str
) -> None:
    transport, pipe = connected(version)
    sent = b"".join(bytes([count % 256]) * size for count, size in enumerate(records))
    for count, size in enumerate(records):
        pipe.send(bytes([count % 256]) * size)
    received = bytearray()
    turn = 0
    while len(received) < len(sent):
        asked = reads[turn % len(reads)]
        is_buffered = transport.has_bytes_buffered
        pipe.gives = [0 if is_buffered else gives[turn % len(gives)]]
        data = transport.read(asked)
        assert data is not None or not is_buffered
        received += data or b""
        turn += 1
        if not transport.has_bytes_buffered:
            pipe.gives = [0]
            assert transport.read(asked) is None
    assert received == sent


@pytest.mark.behaviour("SEL-11")
@pytest.mark.parametrize("says_goodbye", [True, False])
@both_versions
def test_data_before_the_end_is_read_before_the_end(version: str, says_goodbye: bool) -> None:
    transport, pipe = connected(version)
    pipe.send(b"the last answer")
    if says_goodbye:
        pipe.say_goodbye()
    pipe.end()
    assert transport.read(4) == b"the "
    assert transport.read(KIB) == b"last answer"
    with pytest.raises(DisconnectError, match="the peer closed the connection"):
        transport.read(KIB)


def test_an_end_behind_the_last_bytes_needs_no_select() -> None:
    transport, pipe = connected()
    pipe.send(b"the last answer")
    pipe.say_goodbye()
    assert transport.read(KIB) == b"the last answer"
    assert transport.has_bytes_buffered  # the connection may never bring anything again
    with pytest.raises(DisconnectError):
        transport.read(KIB)


def test_a_tampered_record_ends_the_connection_and_sends_the_peer_an_alert() -> None:
    transport, pipe = connected()
    pipe.send(b"good")
    assert transport.read(KIB) == b"good"
    pipe.send(b"tampered with")
    pipe.to_client[-1] ^= 1
    with pytest.raises(DisconnectError, match=r"TLS failed: .*(BAD_RECORD_MAC|RECORD_LAYER_FAILURE)"):
        transport.read(KIB)
    transport.close()
    assert pipe.error is not None
    assert pipe.error.reason == "SSLV3_ALERT_BAD_RECORD_MAC"


def test_a_write_after_a_failed_record_sends_the_alert_and_names_the_cause() -> None:
    transport, pipe = connected()
    pipe.send(b"good")
    pipe.send(b"tampered with")
    pipe.to_client[-1] ^= 1
    assert transport.read(KIB) == b"good"
    assert transport.write(()) == 0
    assert pipe.error is not None
    with pytest.raises(DisconnectError, match=r"TLS failed: .*(BAD_RECORD_MAC|RECORD_LAYER_FAILURE)"):
        transport.write([b"a request"])


def test_a_large_frame_takes_few_reads_of_the_network_and_no_byte_twice() -> None:
    transport, pipe = connected()
    size = 8 * KIB * KIB
    pipe.send(bytes(size))
    on_the_wire = len(pipe.to_client)
    received = 0
    while (data := transport.read(KIB * KIB)) is not None:
        received += len(data)
    assert received == size
    assert pipe.reads <= on_the_wire // (256 * KIB) + 2
    assert max(pipe.asked) <= 256 * KIB


@pytest.mark.behaviour("SSL-03", "SSL-04")
def test_a_broker_that_wants_a_certificate_says_so_after_the_handshake_to_a_read_or_a_write() -> None:
    transport, pipe = refused_after_handshake()
    pipe.is_holding = False
    pipe.release()
    with pytest.raises(SslAuthenticationError, match=r"wants a client certificate.*ssl\.keystore"):
        transport.read(KIB)
    transport, pipe = refused_after_handshake()
    pipe.is_holding = False
    pipe.release()
    pipe.end()  # a write that fails looks for the reason in what came before
    with pytest.raises(SslAuthenticationError, match="wants a client certificate"):
        transport.write([b"a request"])


def test_a_write_that_fails_without_an_error_and_a_failure_after_bytes_came_are_disconnections() -> None:
    for gives, reads in ([], 2), ([1] * 30, 16):  # of an endless peer the cause is not looked for forever
        transport, pipe = connected()
        pipe.send(b"an answer that nobody will read")
        pipe.gives = list(gives)
        pipe.end()
        with pytest.raises(DisconnectError, match="the peer closed the connection"):
            transport.write([b"a request"])
        assert pipe.reads == reads
    transport, pipe = connected()
    pipe.send(b"good")
    assert transport.read(KIB) == b"good"
    pipe.say(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(DisconnectError):
        transport.read(KIB)


@pytest.mark.java("SslTransportLayerTest.GatheringWrite")
@both_versions
def test_pieces_arrive_in_their_order(version: str) -> None:
    transport, pipe = connected(version)
    pieces: Sequence[bytes | memoryview]
    pieces = [b"size", b"", os.urandom(100_000), memoryview(b"abc"), b"z" * RECORD_BYTES]
    assert transport.write(pieces) == sum(map(len, pieces))
    assert pipe.received == b"".join(pieces)
    assert not transport.has_pending_writes
    pipe.received.clear()
    assert transport.write([b"Hello, ", b"World", b"!"][1:]) == len(b"World!")
    assert pipe.received == b"World!"


def test_small_pieces_share_a_record_and_a_system_call() -> None:
    transport, pipe = connected()
    transport.write([b"0123456789"] * 500)
    (written,) = pipe.writes
    assert written < 5000 + 50  # one record's head and seal


def test_a_slow_peer_is_not_encrypted_for_ahead_of_time() -> None:
    transport, pipe = connected()
    pipe.takes = [64 * KIB, 0, 0]
    pieces = [b"size", bytes(30 * KIB * KIB)]
    taken = transport.write(pieces)
    assert 64 * KIB <= taken <= MOST_AHEAD_BYTES
    assert transport.has_pending_writes
    assert transport.write([memoryview(pieces[1])[taken - 4 :]]) == 0  # not before the pending bytes are gone
    assert sum(pipe.writes) <= 3 * MOST_AHEAD_BYTES


def test_a_large_write_goes_on_as_long_as_the_system_takes_it() -> None:
    transport, pipe = connected()
    size = 2 * KIB * KIB
    assert transport.write([bytes(size)]) == size
    assert len(pipe.received) == size
    assert len(pipe.writes) <= size // (100 * KIB)
    assert max(pipe.writes) < 9 * RECORD_BYTES


def test_a_write_of_nothing_sends_what_is_pending() -> None:
    transport, pipe = connected()
    pipe.takes = [10]
    transport.write([b"request"])
    assert not pipe.received
    assert transport.write(()) == 0
    assert not transport.has_pending_writes
    assert pipe.received == b"request"


@pytest.mark.behaviour("SEL-17")
def test_a_send_is_complete_when_no_encrypted_byte_is_left() -> None:
    transport, pipe = connected()
    send = NetworkSend(1, [b"request"])
    pipe.takes = [10, 10]
    completed = []
    for _ in range(3):
        send.write_to(transport)
        completed.append((send.remaining_bytes, send.completed))
    assert completed == [(0, False), (0, False), (0, True)]
    assert pipe.received == b"\x00\x00\x00\x07request"


@settings(max_examples=40)
@given(takes=SIZES, sizes=SIZES)
def test_whatever_the_system_takes_every_byte_arrives_once(takes: list[int], sizes: list[int]) -> None:
    transport, pipe = connected()
    pieces = [bytes([count % 256]) * size for count, size in enumerate(sizes)]
    send = NetworkSend(1, pieces)
    pipe.takes = list(takes)
    while not send.completed:
        send.write_to(transport)
    assert pipe.received[4:] == b"".join(pieces)


@pytest.mark.behaviour("SSL-04")
@both_versions
def test_close_says_goodbye_once(version: str) -> None:
    transport, pipe = connected(version)
    transport.close()
    assert pipe.has_goodbye
    assert pipe.is_closed
    assert not transport.ready
    said = list(pipe.writes)
    transport.close()
    assert pipe.writes == said


def test_close_sends_what_is_pending_before_the_goodbye_but_does_not_wait_for_a_peer_that_takes_nothing() -> (
    None
):
    transport, pipe = connected()
    pipe.takes = [10]
    transport.write([b"request"])
    transport.close()
    assert pipe.received == b"request"
    assert pipe.has_goodbye
    transport, pipe = connected()
    pipe.takes = [0, 0]
    transport.write([b"request"])
    transport.close()
    assert pipe.is_closed
    assert not pipe.has_goodbye


@pytest.mark.java("SslTransportLayerTest.SSLEngineCloseInboundInvokedOnClose")
def test_close_frees_the_socket_even_if_tls_and_the_network_object() -> None:
    transport, pipe = connected()
    pipe.say(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(SslAuthenticationError):
        transport.read(KIB)
    pipe.end()
    transport.close()
    assert pipe.is_closed


def test_everything_but_tls_is_the_transport_below() -> None:
    transport, _ = connected()
    assert (transport.fileno(), transport.remote_address) == (99, "10.0.0.1:9093")


def test_a_host_that_no_certificate_can_be_for_is_refused() -> None:
    contexts = SslContexts(ssl_config(AUTHORITY.certificate))
    for host in ("", ".example.com", "a" * 64 + ".example.com"):
        with pytest.raises(SslAuthenticationError, match="no certificate can be for the host name"):
            SslTransportLayer(TlsPipe(server_context(BROKER)), contexts.context(), host)
