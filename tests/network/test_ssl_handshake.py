"""TLS's handshake over a transport layer that is memory: its steps, its failures, and broken connections.

Twins of SslTransportLayerTest (Kafka 4.3) where they need no socket.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from client_core.client import disconnection
from client_core.errors import DisconnectError, SslAuthenticationError
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.network_receive import MemoryPool
from client_core.network.selectable import ChannelStateName
from tests.network.tls_clients import MANY_STEPS, shake_hands, ssl_config, transport_over
from tests.support.certificates import LONG_AGO, YESTERYEAR, Authority, self_signed, with_validity
from tests.support.tls_peers import TLS12, TLS13, TlsPipe, server_context

if TYPE_CHECKING:
    from client_core.network.security_config import SslConfig
    from client_core.network.ssl_transport_layer import SslTransportLayer
    from tests.support.certificates import Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("client")

#: Alert, TLS 1.2, two bytes: warning, close_notify.
CLOSE_NOTIFY = b"\x15\x03\x03\x00\x02\x01\x00"

both_versions = pytest.mark.parametrize("version", [TLS12, TLS13])


def pipe_to(identity: Identity = BROKER, version: str = TLS13) -> TlsPipe:
    return TlsPipe(server_context(identity, protocols=[version]))


def client_over(pipe: TlsPipe, host: str = "localhost", **settings: Any) -> SslTransportLayer:
    """A client that trusts the broker's authority, unless it is set otherwise."""
    return transport_over(pipe, ssl_config(settings.pop("trusts", AUTHORITY.certificate), **settings), host)


def refusal_of(pipe: TlsPipe, host: str = "localhost", **settings: Any) -> str:
    with pytest.raises(SslAuthenticationError) as caught:
        shake_hands(client_over(pipe, host, **settings))
    return caught.value.message


@pytest.mark.behaviour("SSL-01")
@both_versions
def test_the_handshake_begins_after_the_connect_and_bytes_flow_after_it(version: str) -> None:
    pipe = pipe_to(version=version)
    transport = client_over(pipe)
    assert pipe.writes == []
    transport.handshake()
    assert len(pipe.writes) == 1
    assert pipe.reads == 0  # there is nothing to be read before the client has spoken
    assert not transport.ready
    shake_hands(transport)
    assert transport.write([b"hello"]) == 5
    assert pipe.received == b"hello"


@pytest.mark.java("SslTransportLayerTest.HandshakeUnwrapContinuesUnwrappingOnNeedUnwrapAfterAllBytesRead")
@both_versions
def test_all_messages_of_one_read_are_worked_off_in_one_step(version: str) -> None:
    pipe = pipe_to(version=version)
    transport = client_over(pipe)
    transport.handshake()
    transport.handshake()  # ServerHello to ServerHelloDone or Finished: several messages
    assert pipe.reads == 1
    assert len(pipe.writes) == 2


@both_versions
def test_bytes_may_come_one_by_one_and_leave_a_few_at_a_time(version: str) -> None:
    pipe = pipe_to(version=version)
    pipe.gives = [1, 1, 1, 1, 2, 3, 5] + [8] * 300
    pipe.takes = [1, 0, 2, 0, 50, 0] + [60] * 20
    transport = client_over(pipe)
    shake_hands(transport)
    transport.write(())
    assert not transport.has_pending_writes
    assert transport.write([b"hello"]) == 5


def test_bytes_that_the_system_does_not_take_are_pending() -> None:
    pipe = pipe_to()
    pipe.takes = [0]
    transport = client_over(pipe)
    transport.handshake()
    assert transport.has_pending_writes
    transport.handshake()
    assert not transport.has_pending_writes


def test_bytes_behind_the_handshake_are_buffered() -> None:
    pipe = pipe_to(version=TLS12)
    transport = client_over(pipe)
    transport.handshake()
    transport.handshake()
    pipe.send(b"at once")
    shake_hands(transport)
    assert transport.has_bytes_buffered
    reads = pipe.reads
    assert transport.read(100) == b"at once"
    assert pipe.reads == reads


def test_the_version_and_the_cipher_suite_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "client_core.network.ssl_transport_layer")
    shake_hands(client_over(pipe_to()))
    assert "TLS handshake with 10.0.0.1:9093 is done: TLSv1.3, TLS_AES_256_GCM_SHA384" in caplog.text


@pytest.mark.behaviour("SSL-02")
def test_without_verification_of_the_name_the_chain_still_counts() -> None:
    shake_hands(client_over(pipe_to(), "elsewhere", verify_host_name=False))
    stranger = Authority().certificate
    said = refusal_of(pipe_to(), "elsewhere", trusts=stranger, verify_host_name=False)
    assert "unknown authority" in said


@pytest.mark.behaviour("SSL-02")
def test_a_certificate_is_for_its_names_and_addresses() -> None:
    for name, host in (
        ("broker.example.com", "broker.example.com"),
        ("broker.example.com", "BROKER.example.com"),
        ("broker.example.com", "broker.example.com."),
        ("*.example.com", "broker.example.com"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1", "fe80::1%eth0"),
    ):
        shake_hands(client_over(pipe_to(AUTHORITY.issue(name)), host))
    broker = self_signed("kafka_1")  # with an underscore, as Docker Compose gives them
    shake_hands(client_over(pipe_to(broker), "kafka_1", trusts=broker.chain))


@both_versions
@pytest.mark.behaviour("SSL-03")
def test_an_unknown_authority_is_refused_and_the_peer_gets_an_alert(version: str) -> None:
    pipe = pipe_to(version=version)
    said = refusal_of(pipe, trusts=Authority().certificate)
    assert "unknown authority; add its authority to ssl.truststore.certificates" in said
    assert pipe.error is not None
    assert pipe.error.reason == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.behaviour("SSL-03")
def test_a_self_signed_certificate_is_refused_unless_it_is_trusted_itself() -> None:
    broker = self_signed("localhost")
    assert "self-signed and not trusted" in refusal_of(pipe_to(broker))
    shake_hands(client_over(pipe_to(broker), trusts=broker.chain))


def test_an_authority_between_is_trusted_without_its_root_as_in_java() -> None:
    between = AUTHORITY.intermediate()
    shake_hands(client_over(pipe_to(between.issue("localhost")), trusts=between.certificate))


@pytest.mark.behaviour("SSL-03")
def test_an_expired_certificate_is_refused_also_if_it_is_trusted_itself() -> None:
    assert "has expired; renew it" in refusal_of(pipe_to(AUTHORITY.issue("localhost", expires=YESTERYEAR)))
    broker = with_validity("localhost", LONG_AGO, YESTERYEAR)
    assert "has expired" in refusal_of(pipe_to(broker), trusts=broker.chain)


@pytest.mark.behaviour("SSL-03")
def test_a_failure_is_raised_once_the_alert_has_been_sent_or_can_no_longer_be() -> None:
    for steps in (0, 1, 2, None):
        pipe = pipe_to(AUTHORITY.issue("elsewhere"))
        transport = client_over(pipe)
        transport.handshake()
        if steps is None:
            pipe.end()
        pipe.takes = [0] * (steps or 0)
        for _ in range(steps or 0):
            transport.handshake()
            assert transport.has_pending_writes
            assert pipe.error is None
        with pytest.raises(SslAuthenticationError, match="not for localhost"):
            transport.handshake()
        if steps is not None:
            assert pipe.error is not None
            assert pipe.error.reason == "SSLV3_ALERT_BAD_CERTIFICATE"


@pytest.mark.java("SslTransportLayerTest.PeerNotifiedOfHandshakeFailure")
@pytest.mark.parametrize("delays", [0, 1, 2])
@both_versions
def test_a_refusal_that_comes_late_is_one_of_authentication(version: str, delays: int) -> None:
    pipe = TlsPipe(
        server_context(BROKER, client_auth="required", trusts=Authority().certificate, protocols=[version])
    )
    channel = channel_over(pipe, ssl_config(AUTHORITY.certificate, CLIENT))
    channel.prepare(0)
    pipe.is_holding = version == TLS13
    channel.prepare(0)
    assert pipe.error is not None
    if version == TLS12:
        alert = bytes(pipe.to_client)
        pipe.to_client.clear()
    for _ in range(delays):
        turn(channel)
    pipe.is_holding = False
    pipe.release()
    if version == TLS12:
        pipe.say(alert)
    pipe.end()
    with pytest.raises(SslAuthenticationError, match="does not know the authority of our client certificate"):
        turn(channel)


@pytest.mark.behaviour("SSL-03")
def test_a_refusal_counts_though_our_write_fails_first() -> None:
    pipe = TlsPipe(server_context(BROKER, protocols=[TLS12]))
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate, protocols=[TLS13]))
    pipe.takes = [20]
    transport.handshake()
    pipe.say(b"\x15\x03\x03\x00\x02\x02\x46")  # fatal, protocol_version
    pipe.gives = [0]
    pipe.breaks_at_write = 2
    with pytest.raises(SslAuthenticationError, match=r"none of the versions of ssl\.enabled\.protocols"):
        transport.handshake()


@pytest.mark.behaviour("SSL-03")
def test_a_peer_that_does_not_speak_tls() -> None:
    for said in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23"):
        pipe = pipe_to()
        transport = client_over(pipe)
        transport.handshake()
        pipe.to_client.clear()
        pipe.say(said)
        remedy = r"does not speak TLS on this port.*security\.protocol"
        with pytest.raises(SslAuthenticationError, match=remedy):
            transport.handshake()


def channel_over(pipe: TlsPipe, config: SslConfig) -> KafkaChannel:
    channel = KafkaChannel(
        1, transport_over(pipe, config), PlaintextAuthenticator(), None, MemoryPool(1 << 30)
    )
    assert channel.finish_connect()
    return channel


def turn(channel: KafkaChannel) -> None:
    """What Selector does with a channel whose socket is readable."""
    if channel.ready:
        channel.read()
    else:
        channel.prepare(0)


def assert_closed(channel: KafkaChannel, error: DisconnectError) -> None:
    """The end is a disconnection during the handshake: it is a warning and no refusal."""
    channel.fail(error)
    end = disconnection.from_channel(channel.state)
    assert channel.state.name is ChannelStateName.AUTHENTICATE
    assert (end.reason, end.log_level, end.authentication_error) == ("closed", logging.WARNING, None)
    assert "terminated during the TLS handshake" in end.detail


def break_each(version: str, breaking: str) -> None:
    """Breaks the connection at its first read or write, its second, ... until the handshake is done first."""
    for count in range(1, MANY_STEPS):
        pipe = pipe_to(version=version)
        setattr(pipe, breaking, count)
        channel = channel_over(pipe, ssl_config(AUTHORITY.certificate))
        try:
            while not channel.ready:
                channel.prepare(0)
        except DisconnectError as error:
            assert_closed(channel, error)
        else:
            assert count > 1
            return
    raise AssertionError("the handshake comes to no end")


@pytest.mark.behaviour("SSL-03")
@pytest.mark.java(
    "SslTransportLayerTest.IOExceptionsDuringHandshakeRead",
    "SslTransportLayerTest.UngracefulRemoteCloseDuringHandshakeRead",
    "SslTransportLayerTest.IOExceptionsDuringHandshakeWrite",
    "SslTransportLayerTest.UngracefulRemoteCloseDuringHandshakeWrite",
)
@both_versions
def test_a_read_or_write_that_fails_during_the_handshake_is_a_disconnection(version: str) -> None:
    break_each(version, "breaks_at_read")
    break_each(version, "breaks_at_write")


@pytest.mark.behaviour("SSL-03")
@pytest.mark.java(
    "SslTransportLayerTest.GracefulRemoteCloseDuringHandshakeRead",
    "SslTransportLayerTest.GracefulRemoteCloseDuringHandshakeWrite",
)
@both_versions
@pytest.mark.parametrize("how", ["instead of an answer", "amid a write, seen", "amid a write, unseen"])
def test_a_goodbye_is_a_disconnection(version: str, how: str) -> None:
    pipe = pipe_to(version=version)
    if how == "instead of an answer":
        pipe.is_holding = True
    else:
        pipe.takes = [20]
        pipe.breaks_at_write = 2
    channel = channel_over(pipe, ssl_config(AUTHORITY.certificate))
    channel.prepare(0)
    pipe.say(CLOSE_NOTIFY)
    if how == "amid a write, unseen":
        pipe.gives = [0]
    with pytest.raises(DisconnectError) as caught:
        channel.prepare(0)
    assert_closed(channel, caught.value)


@pytest.mark.behaviour("SSL-03")
def test_the_end_during_the_handshake_says_what_may_be_the_matter() -> None:
    pipe = pipe_to()
    pipe.is_holding = True
    transport = client_over(pipe)
    transport.handshake()
    pipe.end()
    with pytest.raises(DisconnectError) as caught:
        transport.handshake()
    assert caught.value.message == (
        "terminated during the TLS handshake (the peer closed the connection): the listener may be a"
        " plaintext one (security.protocol), a firewall may block Kafka's TLS traffic, or the network failed"
        " for a moment"
    )
