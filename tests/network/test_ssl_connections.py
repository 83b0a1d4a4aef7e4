"""TLS over loopback, through the real Selector: which peers are trusted, and what is negotiated.

Twins of SslTransportLayerTest, SslVersionsTransportLayerTest and SslTransportTls12Tls13Test (Kafka 4.3), by
name. Where Java has JKS and PEM, there is PEM. Java's server counts the ends of handshakes in its metrics;
TlsPeer returns them from `next_handshake`.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError, SslAuthenticationError
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.secret import SecretSource
from client_core.network.security_config import SslConfig
from client_core.network.selectable import ChannelStateName
from client_core.network.ssl_context import SslContexts
from tests.network.tls_clients import key_password, ssl_config, truststore
from tests.network.tls_selector import (
    PATIENCE_MS,
    check_connection,
    connect,
    exchange,
    selector_over,
    tls,
    wait_for_end,
    wait_until_ready,
)
from tests.support.certificates import Authority
from tests.support.tcp_peers import PATIENCE_S, ScriptedPeer, echo, frame, receive_exactly, speak_http
from tests.support.tls_peers import TLS12, TLS13, TlsPeer, server_context

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from client_core.network.channel_builder import ChannelBuilder
    from client_core.network.selectable import ChannelState

LEFT_OUT: Final = {
    "SslTransportLayerTest.SelectorPollReadSize": (
        "A poll reads 64 KiB beyond a frame's beginning and leaves the rest of up to 64 KiB to the next one,"
        " for plaintext and TLS alike."
    ),
}

AUTHORITY = Authority()
STRANGER = Authority()
BROKER = AUTHORITY.issue("localhost")
RSA_BROKER = AUTHORITY.issue("localhost", is_rsa=True)
CLIENT = AUTHORITY.issue("client")
STRANGE_CLIENT = STRANGER.issue("client")

FAILED = ChannelStateName.AUTHENTICATION_FAILED

both_versions = pytest.mark.parametrize("version", [TLS12, TLS13])


def wanting_a_certificate(version: str) -> ssl.SSLContext:
    return server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate, protocols=[version])


def assert_connects(
    config: SslConfig, context: ssl.SSLContext, host: str = "localhost"
) -> tuple[str | None, bytes | None]:
    """Has frames echoed; returns the version, and the certificate that the client has shown."""
    with TlsPeer(context, echo) as peer, selector_over(tls(config)) as selector:
        connect(selector, 0, peer, host)
        check_connection(selector, 0)
        handshake = peer.next_handshake()
        assert handshake.error is None
        return handshake.version, handshake.client_certificate


def assert_refused(
    config: SslConfig, context: ssl.SSLContext, host: str = "localhost"
) -> SslAuthenticationError:
    """The connection ends in AUTHENTICATION_FAILED, for the server as well."""
    with TlsPeer(context, echo) as peer, selector_over(tls(config)) as selector:
        connect(selector, 0, peer, host)
        state = wait_for_end(selector, 0, FAILED)
        assert selector.connected == []
        assert peer.next_handshake().error is not None
    assert isinstance(state.error, SslAuthenticationError)
    return state.error


@pytest.mark.behaviour("SSL-01", "SSL-02")
@pytest.mark.java("SslTransportLayerTest.ValidEndpointIdentificationSanDns")
@both_versions
def test_a_certificate_for_the_host_name_is_accepted(version: str) -> None:
    context = server_context(BROKER, protocols=[version])
    with TlsPeer(context, echo) as peer, selector_over(tls(ssl_config(AUTHORITY.certificate))) as selector:
        connect(selector, 0, peer)
        while 0 not in selector.connected:
            selector.poll(PATIENCE_MS)
        assert not selector.is_channel_ready(0)  # `connected` is returned before the handshake
        check_connection(selector, 0)
        assert peer.next_handshake().version == version
        assert peer.server_names == ["localhost"]


@pytest.mark.behaviour("SSL-02")
@pytest.mark.java("SslTransportLayerTest.ValidEndpointIdentificationSanIp")
@both_versions
def test_a_certificate_for_the_address_is_accepted(version: str) -> None:
    broker = AUTHORITY.issue("127.0.0.1")
    context = server_context(broker, protocols=[version])
    with TlsPeer(context, echo) as peer, selector_over(tls(ssl_config(AUTHORITY.certificate))) as selector:
        connect(selector, 0, peer, "127.0.0.1")
        check_connection(selector, 0)
        assert peer.server_names == [None]  # RFC 6066: no addresses


@pytest.mark.behaviour("SSL-02")
@pytest.mark.java(
    "SslTransportLayerTest.ValidEndpointIdentificationCN",
    "SslTransportLayerTest.EndpointIdentificationDisabled",
)
@both_versions
def test_a_certificate_without_names_is_for_its_common_name_and_any_will_do_where_names_do_not_count(
    version: str,
) -> None:
    config, names_do_not_count = (
        ssl_config(AUTHORITY.certificate, verify_host_name=it) for it in (True, False)
    )
    nameless, other = AUTHORITY.issue(common_name="localhost"), AUTHORITY.issue("notahost")
    assert_connects(config, server_context(nameless, protocols=[version]))
    assert_connects(names_do_not_count, server_context(other, protocols=[version]))


@pytest.mark.behaviour("SSL-02", "SSL-03")
@pytest.mark.java(
    "SslTransportLayerTest.InvalidEndpointIdentification",
    "SslTransportLayerTest.EndpointIdentificationNoReverseLookup",
)
@both_versions
def test_a_certificate_for_another_name_is_refused(version: str) -> None:
    elsewhere = AUTHORITY.issue("elsewhere", common_name="localhost")
    for broker, host in (
        (AUTHORITY.issue("notahost"), "localhost"),
        (elsewhere, "localhost"),  # one with names is not for its common name
        (BROKER, "127.0.0.1"),  # an address is not looked up to find a name
    ):
        context = server_context(broker, protocols=[version])
        error = assert_refused(ssl_config(AUTHORITY.certificate), context, host)
        assert f"the broker's certificate is not for {host}" in error.message


@pytest.mark.java("SslTransportLayerTest.ClientEndpointNotValidated")
@both_versions
def test_a_client_certificate_is_for_no_host(version: str) -> None:
    client = AUTHORITY.issue("non-existent.com")
    context = wanting_a_certificate(version)
    _, shown = assert_connects(ssl_config(AUTHORITY.certificate, client), context)
    assert shown == client.der


@pytest.mark.java(
    "SslTransportLayerTest.ClientAuthenticationRequiredValidProvided",
    "SslTransportLayerTest.ClientAuthenticationRequestedValidProvided",
    "SslTransportLayerTest.ClientAuthenticationRequestedNotProvided",
    "SslTransportLayerTest.ClientAuthenticationDisabledUntrustedProvided",
    "SslTransportLayerTest.ClientAuthenticationDisabledNotProvided",
    "SslTransportLayerTest.ECKeyPair",
)
@both_versions
def test_a_client_is_believed(version: str) -> None:
    assert "PRIVATE KEY" in CLIENT.key  # trustme's EC keys
    for client_auth, trusts, client, seen in (
        ("required", AUTHORITY, CLIENT, CLIENT.der),
        ("requested", AUTHORITY, CLIENT, CLIENT.der),
        ("requested", AUTHORITY, None, None),
        ("none", STRANGER, CLIENT, None),
        ("none", AUTHORITY, None, None),
    ):
        context = server_context(
            BROKER, client_auth=client_auth, trusts=trusts.certificate, protocols=[version]
        )
        _, shown = assert_connects(ssl_config(AUTHORITY.certificate, client), context)
        assert shown == seen


@pytest.mark.behaviour("SSL-03", "SSL-04")
@pytest.mark.java("SslTransportLayerTest.ClientAuthenticationRequiredUntrustedProvided")
@both_versions
def test_a_client_certificate_of_an_unknown_authority_is_refused(version: str) -> None:
    context = wanting_a_certificate(version)
    error = assert_refused(ssl_config(AUTHORITY.certificate, STRANGE_CLIENT), context)
    assert "the broker does not know the authority of our client certificate" in error.message


@pytest.mark.behaviour("SSL-03", "SSL-04")
@pytest.mark.java(
    "SslTransportLayerTest.ClientAuthenticationRequiredNotProvided",
    "SslTransportLayerTest.PeerNotifiedOfHandshakeFailureWithClientSideDelay",
)
@pytest.mark.parametrize("has_delay", [False, True])
@both_versions
def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    version: str, has_delay: bool
) -> None:
    context = wanting_a_certificate(version)
    with TlsPeer(context, echo) as peer, selector_over(tls(ssl_config(AUTHORITY.certificate))) as selector:
        connect(selector, 0, peer)
        if has_delay:  # all that the server has to say is here before we look again
            while not (selector.is_channel_ready(0) or selector.disconnected):
                selector.poll(PATIENCE_MS)
            assert peer.next_handshake().error is not None
        state = selector.disconnected.get(0) or wait_for_end(selector, 0, FAILED)
    assert state.name is FAILED
    assert isinstance(state.error, SslAuthenticationError)
    assert "wants a client certificate" in state.error.message


@pytest.mark.java("SslTransportLayerTest.PemFiles", "SslTransportLayerTest.PemFilesWithoutClientKeyPassword")
@pytest.mark.parametrize("password", ["key-password", None])
@both_versions
def test_stores_may_be_files(tmp_path: Path, password: str | None, version: str) -> None:
    key_text = CLIENT.key if password is None else CLIENT.key_encrypted_with(password)
    (tmp_path / "keystore.pem").write_text(key_text + CLIENT.chain)
    (tmp_path / "truststore.pem").write_text(AUTHORITY.certificate)
    keystore = SecretSource("ssl.keystore.location", path=str(tmp_path / "keystore.pem"))
    config = SslConfig(
        truststore=SecretSource("ssl.truststore.location", path=str(tmp_path / "truststore.pem")),
        key=keystore,
        certificate_chain=keystore,
        key_password=None if password is None else key_password(password),
    )
    context = wanting_a_certificate(version)
    _, shown = assert_connects(config, context)
    assert shown == CLIENT.der


def test_a_file_that_was_replaced_is_the_next_connections_and_a_broken_one_nobodys(tmp_path: Path) -> None:
    keystore = tmp_path / "keystore.pem"
    keystore.write_text(CLIENT.key + CLIENT.chain)
    source = SecretSource("ssl.keystore.location", path=str(keystore))
    config = replace(ssl_config(AUTHORITY.certificate), key=source, certificate_chain=source)
    renewed = AUTHORITY.issue("renewed")
    context = server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate)
    with TlsPeer(context, echo) as peer, selector_over(tls(config)) as selector:

        def shown_by(node_id: int) -> bytes | None:
            connect(selector, node_id, peer)
            check_connection(selector, node_id)
            return peer.next_handshake().client_certificate

        assert shown_by(1) == CLIENT.der
        keystore.write_text(renewed.key + renewed.chain)
        assert shown_by(2) == renewed.der
        keystore.write_text(renewed.key)
        assert shown_by(3) == renewed.der
        check_connection(selector, 1)  # an existing connection stays open


# -- negotiation ---------------------------------------------------------------------------------------------

_ONE_OR_BOTH = [(TLS12,), (TLS13,), (TLS12, TLS13), (TLS13, TLS12)]


@pytest.mark.java("SslTransportLayerTest.TlsDefaults")
def test_by_default_the_newest_version_is_spoken() -> None:
    config = SslConfig(truststore=truststore(AUTHORITY.certificate))
    version, _ = assert_connects(config, server_context(BROKER))
    assert version == TLS13


@pytest.mark.java("SslVersionsTransportLayerTest.TlsDefaults")
@pytest.mark.parametrize("clients", _ONE_OR_BOTH)
def test_versions_that_meet_connect_and_others_do_not(clients: Sequence[str]) -> None:
    """Unlike Java's, a client of both versions that names 1.2 first meets a server of 1.3: there is no
    ssl.protocol that would keep it from that.
    """
    config = ssl_config(AUTHORITY.certificate, protocols=clients)
    for servers in _ONE_OR_BOTH:
        context = server_context(BROKER, protocols=servers)
        common = set(servers) & set(clients)
        if not common:
            error = assert_refused(config, context)
            assert "supports none of the versions of ssl.enabled.protocols" in error.message
            continue
        with TlsPeer(context, echo) as peer, selector_over(tls(config)) as selector:
            connect(selector, 0, peer)
            wait_until_ready(selector, 0)
            message = os.urandom(1024 * 1024)
            assert exchange(selector, 0, message) == message
            assert peer.next_handshake().version == max(common)


@pytest.mark.java(
    "SslTransportLayerTest.UnsupportedCiphers",
    "SslTransportTls12Tls13Test.CiphersSuiteFailForServerTls12ClientTls13",
)
@pytest.mark.behaviour("SSL-03")
def test_cipher_suites_that_do_not_meet() -> None:
    for servers, clients, ours, said in (
        (TLS12, TLS12, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.cipher.suites"),
        (TLS13, TLS13, "TLS_AES_128_CCM_SHA256", "ssl.cipher.suites"),
        (TLS12, TLS13, "TLS_AES_128_GCM_SHA256", "supports none of the versions"),
    ):
        context = server_context(RSA_BROKER, protocols=[servers], ciphers="ECDHE-RSA-AES256-GCM-SHA384")
        config = ssl_config(AUTHORITY.certificate, protocols=[clients], ciphers=[ours])
        with TlsPeer(context, echo) as peer, selector_over(tls(config)) as selector:
            connect(selector, 0, peer)
            state = wait_for_end(selector, 0, FAILED)
            assert servers == clients or peer.next_handshake().error is not None
        assert isinstance(state.error, SslAuthenticationError)
        assert said in state.error.message


@pytest.mark.java("SslTransportTls12Tls13Test.CiphersSuiteForTls12FailsForTls13")
def test_a_suite_of_tls12_will_not_do_for_tls13() -> None:
    """Java tries to connect and fails; here the error comes before."""
    suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    with pytest.raises(ConfigError, match=f"none of {suite} works with"):
        SslContexts(ssl_config(AUTHORITY.certificate, protocols=[TLS13], ciphers=[suite]))


@pytest.mark.java(
    "SslTransportTls12Tls13Test.CiphersSuiteForTls13", "SslTransportTls12Tls13Test.CiphersSuiteForTls12"
)
def test_one_suite_is_enough_to_connect() -> None:
    for suite, chosen in (
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ):
        config = ssl_config(AUTHORITY.certificate, ciphers=[suite])
        with TlsPeer(server_context(RSA_BROKER), echo) as peer, selector_over(tls(config)) as selector:
            connect(selector, 0, peer)
            check_connection(selector, 0)
            assert peer.next_handshake().cipher == chosen


class HeldReader:
    """A script that reads only when it is let, and then everything until the end of the stream."""

    def __init__(self, size: int) -> None:
        self.may_read = threading.Event()
        self.is_done = threading.Event()
        self.received = b""
        self._size = size

    def __call__(self, connection: socket.socket) -> None:
        assert self.may_read.wait(PATIENCE_S)
        self.received = receive_exactly(connection, self._size) or b""
        assert connection.recv(1) == b""
        self.is_done.set()


@pytest.mark.behaviour("SSL-04")
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(TLS12, marks=pytest.mark.java("SslTransportLayerTest.CloseSsl")),
        TLS13,
        pytest.param(None, marks=pytest.mark.java("SslTransportLayerTest.ClosePlaintext")),
    ],
)
def test_data_sent_before_a_close_arrives(version: str | None) -> None:
    message = b"x" * 100
    count = 20
    reader = HeldReader(count * len(frame(message)))
    peer: ScriptedPeer
    builder: ChannelBuilder
    if version is None:
        peer, builder = ScriptedPeer(reader), PlaintextChannelBuilder()
    else:
        peer = TlsPeer(server_context(BROKER, protocols=[version]), reader)
        builder = tls(ssl_config(AUTHORITY.certificate))
    with peer, selector_over(builder) as selector:
        connect(selector, 0, peer)
        wait_until_ready(selector, 0)
        if isinstance(peer, TlsPeer):
            assert peer.next_handshake().error is None
            selector.poll(0)  # a socket that is closed with session tickets unread is reset
        for _ in range(count):
            selector.send(0, [message])
            selector.poll(PATIENCE_MS)
            while not selector.completed_sends:
                selector.poll(PATIENCE_MS)
        selector.close_connection(0)
        reader.may_read.set()
        assert reader.is_done.wait(PATIENCE_S)
        assert reader.received == frame(message) * count


def ended(peer: ScriptedPeer) -> ChannelState:
    with peer, selector_over(tls(ssl_config(AUTHORITY.certificate))) as selector:
        connect(selector, 0, peer)
        while 0 not in selector.disconnected:
            selector.poll(PATIENCE_MS)
        return selector.disconnected[0]


@pytest.mark.behaviour("SSL-03")
def test_a_broker_that_closes_when_tls_begins_and_one_that_speaks_http_are_distinguished_from_a_refusal() -> (
    None
):
    def close_on_a_huge_size(connection: socket.socket) -> None:
        """As a broker does: a ClientHello, read as a frame's size, is 369 MB."""
        connection.recv(65536)

    state = ended(ScriptedPeer(close_on_a_huge_size))
    assert state.name is ChannelStateName.AUTHENTICATE
    assert state.detail is not None
    assert "terminated during the TLS handshake" in state.detail
    assert "may be a plaintext one (security.protocol)" in state.detail
    state = ended(ScriptedPeer(speak_http))
    assert state.name is FAILED
    assert state.detail is not None
    assert "does not speak TLS on this port" in state.detail
