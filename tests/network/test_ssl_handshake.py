"""TLS's handshake over a transport layer that is memory: its steps, its failures, and broken connections.

Twins of SslTransportLayerTest (Kafka 4.3) where they need no socket.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from client_core.client import disconnection
from client_core.errors import DisconnectError, KafkaError, SslAuthenticationError
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.network_receive import MemoryPool
from client_core.network.selectable import ChannelStateName
from tests.network.tls_clients import MANY_STEPS, shake_hands, ssl_config, transport_over
from tests.support.certificates import LONG_AGO, YESTERYEAR, Authority, self_signed, with_validity
from tests.support.tls_peers import TLS12, TLS13, TlsPipe, server_context

if TYPE_CHECKING:
    from client_core.network.security_config import SslConfig
    from tests.support.certificates import Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("client")

#: Alert, TLS 1.2, two bytes: warning, close_notify.
CLOSE_NOTIFY = b"\x15\x03\x03\x00\x02\x01\x00"

both_versions = pytest.mark.parametrize("version", [TLS12, TLS13])


def pipe_to(identity: Identity = BROKER, version: str = TLS13) -> TlsPipe:
    return TlsPipe(server_context(identity, protocols=[version]))


def failure_of(pipe: TlsPipe, trusts: str = AUTHORITY.certificate, host: str = "localhost") -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        shake_hands(transport_over(pipe, ssl_config(trusts), host))
    return caught.value


# -- steps ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SSL-01")
@both_versions
def test_the_handshake_begins_after_the_connect_and_bytes_flow_after_it(version: str) -> None:
    pipe = pipe_to(version=version)
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
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
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    transport.handshake()  # ServerHello to ServerHelloDone or Finished: several messages
    assert pipe.reads == 1
    assert len(pipe.writes) == 2


@both_versions
def test_bytes_may_come_one_by_one_and_leave_a_few_at_a_time(version: str) -> None:
    pipe = pipe_to(version=version)
    pipe.gives = [1, 1, 1, 1, 2, 3, 5] + [8] * 300
    pipe.takes = [1, 0, 2, 0, 50, 0] + [60] * 20
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    shake_hands(transport)
    transport.write(())
    assert not transport.has_pending_writes
    assert transport.write([b"hello"]) == 5


def test_bytes_that_the_system_does_not_take_are_pending() -> None:
    pipe = pipe_to()
    pipe.takes = [0]
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    assert transport.has_pending_writes
    transport.handshake()
    assert not transport.has_pending_writes


def test_bytes_behind_the_handshake_are_buffered() -> None:
    pipe = pipe_to(version=TLS12)
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
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
    shake_hands(transport_over(pipe_to(), ssl_config(AUTHORITY.certificate)))
    assert "TLS handshake with 10.0.0.1:9093 is done: TLSv1.3, TLS_AES_256_GCM_SHA384" in caplog.text


# -- certificates --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SSL-02", "SSL-03")
@both_versions
@pytest.mark.parametrize("host", ["other.example.com", "127.0.0.1"])
def test_a_certificate_for_another_name_is_refused(version: str, host: str) -> None:
    error = failure_of(pipe_to(version=version), host=host)
    assert isinstance(error, SslAuthenticationError)
    assert f"the broker's certificate is not for {host}" in error.message


@pytest.mark.behaviour("SSL-02")
def test_without_verification_of_the_name_the_chain_still_counts() -> None:
    shake_hands(
        transport_over(pipe_to(), ssl_config(AUTHORITY.certificate, verify_host_name=False), "elsewhere")
    )
    stranger = Authority()
    with pytest.raises(SslAuthenticationError, match="unknown authority"):
        shake_hands(
            transport_over(pipe_to(), ssl_config(stranger.certificate, verify_host_name=False), "elsewhere")
        )


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["broker.example.com"], "broker.example.com"),
        (["broker.example.com"], "BROKER.example.com"),
        (["broker.example.com"], "broker.example.com."),
        (["*.example.com"], "broker.example.com"),
        (["10.0.0.1"], "10.0.0.1"),
        (["::1"], "::1"),
        (["fe80::1"], "fe80::1%eth0"),
    ],
)
@pytest.mark.behaviour("SSL-02")
def test_a_certificate_is_for_its_names_and_addresses(names: list[str], host: str) -> None:
    shake_hands(transport_over(pipe_to(AUTHORITY.issue(*names)), ssl_config(AUTHORITY.certificate), host))


@pytest.mark.behaviour("SSL-02")
def test_a_name_with_an_underscore_as_docker_compose_gives_them_is_a_name() -> None:
    broker = self_signed("kafka_1")
    shake_hands(transport_over(pipe_to(broker), ssl_config(broker.chain), "kafka_1"))


@both_versions
@pytest.mark.behaviour("SSL-03")
def test_an_unknown_authority_is_refused_and_the_peer_told(version: str) -> None:
    pipe = pipe_to(version=version)
    error = failure_of(pipe, trusts=Authority().certificate)
    assert isinstance(error, SslAuthenticationError)
    assert "unknown authority; add its authority to ssl.truststore.certificates" in error.message
    assert pipe.error is not None
    assert pipe.error.reason == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.behaviour("SSL-03")
def test_a_self_signed_certificate_is_refused_unless_it_is_trusted_itself() -> None:
    broker = self_signed("localhost")
    error = failure_of(pipe_to(broker))
    assert isinstance(error, SslAuthenticationError)
    assert "self-signed and not trusted" in error.message
    shake_hands(transport_over(pipe_to(broker), ssl_config(broker.chain)))


def test_an_authority_between_is_trusted_without_its_root_as_in_java() -> None:
    between = AUTHORITY.intermediate()
    shake_hands(transport_over(pipe_to(between.issue("localhost")), ssl_config(between.certificate)))


@pytest.mark.behaviour("SSL-03")
def test_an_expired_certificate_is_refused() -> None:
    error = failure_of(pipe_to(AUTHORITY.issue("localhost", expires=YESTERYEAR)))
    assert isinstance(error, SslAuthenticationError)
    assert "has expired; renew it" in error.message


@pytest.mark.behaviour("SSL-03")
def test_an_expired_certificate_is_refused_though_it_is_trusted_itself() -> None:
    broker = with_validity("localhost", LONG_AGO, YESTERYEAR)
    error = failure_of(pipe_to(broker), trusts=broker.chain)
    assert isinstance(error, SslAuthenticationError)
    assert "has expired" in error.message


# -- failures are told when the peer knows them --------------------------------------------------------------


@pytest.mark.behaviour("SSL-03")
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_failure_is_raised_once_the_peer_has_been_told(steps: int) -> None:
    pipe = pipe_to(AUTHORITY.issue("elsewhere"))
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    pipe.takes = [0] * steps
    for _ in range(steps):
        transport.handshake()
        assert transport.has_pending_writes
        assert pipe.error is None
    with pytest.raises(SslAuthenticationError, match="not for localhost"):
        transport.handshake()
    assert pipe.error is not None
    assert pipe.error.reason == "SSLV3_ALERT_BAD_CERTIFICATE"


@pytest.mark.behaviour("SSL-03")
def test_a_failure_stays_a_failure_if_the_peer_can_no_longer_be_told() -> None:
    pipe = pipe_to(AUTHORITY.issue("elsewhere"))
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    pipe.end()
    with pytest.raises(SslAuthenticationError, match="not for localhost"):
        transport.handshake()


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


# -- other protocols -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("SSL-03")
def test_versions_that_do_not_meet() -> None:
    pipe = pipe_to(version=TLS12)
    with pytest.raises(SslAuthenticationError, match=r"none of the versions of ssl\.enabled\.protocols"):
        shake_hands(transport_over(pipe, ssl_config(AUTHORITY.certificate, protocols=[TLS13])))


@pytest.mark.behaviour("SSL-03")
@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23"]
)
def test_a_peer_that_does_not_speak_tls(said: bytes) -> None:
    transport = transport_over(pipe_to(), ssl_config(AUTHORITY.certificate))
    transport.handshake()
    pipe = transport._under
    assert isinstance(pipe, TlsPipe)
    pipe.to_client.clear()
    pipe.say(said)
    with pytest.raises(SslAuthenticationError, match=r"does not speak TLS on this port.*security\.protocol"):
        transport.handshake()


# -- broken connections --------------------------------------------------------------------------------------


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
    """The end is a disconnection in the middle of the handshake, worth a warning, and nobody was refused."""
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
)
@both_versions
def test_a_read_that_fails_during_the_handshake_is_a_disconnection(version: str) -> None:
    break_each(version, "breaks_at_read")


@pytest.mark.behaviour("SSL-03")
@pytest.mark.java(
    "SslTransportLayerTest.IOExceptionsDuringHandshakeWrite",
    "SslTransportLayerTest.UngracefulRemoteCloseDuringHandshakeWrite",
)
@both_versions
def test_a_write_that_fails_during_the_handshake_is_a_disconnection(version: str) -> None:
    break_each(version, "breaks_at_write")


@pytest.mark.behaviour("SSL-03")
@pytest.mark.java("SslTransportLayerTest.GracefulRemoteCloseDuringHandshakeRead")
@both_versions
def test_a_goodbye_instead_of_an_answer_is_a_disconnection(version: str) -> None:
    pipe = pipe_to(version=version)
    pipe.is_holding = True
    channel = channel_over(pipe, ssl_config(AUTHORITY.certificate))
    channel.prepare(0)
    pipe.say(CLOSE_NOTIFY)
    with pytest.raises(DisconnectError) as caught:
        channel.prepare(0)
    assert_closed(channel, caught.value)


@pytest.mark.behaviour("SSL-03")
@pytest.mark.java("SslTransportLayerTest.GracefulRemoteCloseDuringHandshakeWrite")
@both_versions
@pytest.mark.parametrize("is_seen_first", [True, False])
def test_a_goodbye_in_the_middle_of_a_write_is_a_disconnection(version: str, is_seen_first: bool) -> None:
    pipe = pipe_to(version=version)
    pipe.takes = [20]
    pipe.breaks_at_write = 2
    channel = channel_over(pipe, ssl_config(AUTHORITY.certificate))
    channel.prepare(0)
    pipe.say(CLOSE_NOTIFY)
    pipe.gives = [] if is_seen_first else [0]
    with pytest.raises(DisconnectError) as caught:
        channel.prepare(0)
    assert_closed(channel, caught.value)


@pytest.mark.behaviour("SSL-03")
def test_the_end_during_the_handshake_says_what_may_be_the_matter() -> None:
    pipe = pipe_to()
    pipe.is_holding = True
    transport = transport_over(pipe, ssl_config(AUTHORITY.certificate))
    transport.handshake()
    pipe.end()
    with pytest.raises(DisconnectError) as caught:
        transport.handshake()
    assert caught.value.message == (
        "terminated during the TLS handshake (the peer closed the connection): the listener may be a"
        " plaintext one (security.protocol), a firewall may block Kafka's TLS traffic, or the network failed"
        " for a moment"
    )
