"""The peers of tests, on loopback and in memory: their answers, and that none leaves sockets or threads."""

from __future__ import annotations

import base64
import datetime
import gc
import json
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from client_core.errors import DisconnectError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.testing.sasl import OAuthBearerServer, PlainServer, Refused, ScramServer
from tests.support import hostile_peers
from tests.support.certificates import LONG_AGO, YESTERYEAR, Authority, self_signed, weak, with_validity
from tests.support.counted_work import open_descriptors
from tests.support.hostile_peers import HOSTILE_PEERS
from tests.support.mock_clock import MockClock
from tests.support.oauth_endpoint import AUDIENCE, OAuthEndpoint, signed_token, write_jwks
from tests.support.plain_http import NO_TLS
from tests.support.sasl_server import Fault, SaslConversation, SaslServer
from tests.support.tcp_peers import (
    HTTP_ANSWER,
    HUGE_SIZE,
    TLS_ALERT,
    ScriptedPeer,
    TcpPeer,
    close_after_first_frame,
    close_at_once,
    echo,
    frame,
    in_pieces,
    promise_two_gigabytes,
    receive_exactly,
    receive_frame,
    say,
    speak_http,
    speak_tls,
    stay_silent,
)
from tests.support.tls_peers import TLS12, TLS13, OpensslServer, TlsPeer, TlsPipe, say_goodbye, server_context
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def call(peer: TcpPeer) -> socket.socket:
    return socket.create_connection(peer.address, 10)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """At the end of the block there are no other descriptors and threads than at its beginning.

    There may be fewer: what other tests have left ends when it likes.
    """
    gc.collect()
    descriptors, threads = open_descriptors(), set(threading.enumerate())
    yield
    assert open_descriptors() <= descriptors
    assert set(threading.enumerate()) <= threads


# -- TCP -----------------------------------------------------------------------------------------------------


def test_a_tcp_peer_is_played_by_the_test() -> None:
    with TcpPeer() as peer, call(peer) as client:
        server = peer.accept()
        client.sendall(frame(b"ping"))
        assert receive_frame(server) == b"ping"
        server.sendall(b"pong")
        assert receive_exactly(client, 4) == b"pong"
        peer.close_connections()
        assert client.recv(1) == b""


def test_echo_answers_frame_by_frame() -> None:
    with ScriptedPeer(echo) as peer, call(peer) as one, call(peer) as other:
        for client in (one, other, one):
            client.sendall(frame(b"hello"))
            assert receive_frame(client) == b"hello"


def test_scripts_that_end() -> None:
    scripts: tuple[tuple[Callable[[socket.socket], None], bytes], ...] = (
        (close_at_once, b""),
        (close_after_first_frame, b""),
        (say(b"a", b"bc"), b"abc"),
        (speak_http, HTTP_ANSWER),
        (speak_tls, TLS_ALERT),
    )
    for script, said in scripts:
        with ScriptedPeer(script) as peer, call(peer) as client:
            if script is not close_at_once:
                client.sendall(frame(b"hello"))
            received = b""
            while data := client.recv(65536):
                received += data
            assert received == said, script


def test_the_huge_size_is_followed_by_ten_bytes_and_silence() -> None:
    with ScriptedPeer(promise_two_gigabytes) as peer, call(peer) as client:
        client.sendall(b"x")
        assert receive_exactly(client, 14) == HUGE_SIZE
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_a_silent_peer_takes_everything_and_says_nothing() -> None:
    with ScriptedPeer(stay_silent) as peer, call(peer) as client:
        client.sendall(b"x" * 100_000)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_receiving_distinguishes_the_end_of_the_stream_from_a_frame() -> None:
    with TcpPeer() as peer, call(peer) as client:
        server = peer.accept()
        server.sendall(frame(b"whole") + b"\x00\x00\x00\x05half")
        peer.close_connections()
        assert [receive_frame(client) for _ in range(3)] == [b"whole", None, None]


def test_tcp_peers_leave_no_socket_and_no_thread_behind() -> None:
    with (
        nothing_left_behind(),
        ScriptedPeer(stay_silent) as peer,
        TcpPeer() as manual,
        call(peer),
        call(manual),
    ):
        manual.accept()


def test_in_pieces_cuts_and_keeps_every_byte() -> None:
    assert in_pieces(b"abcdef", [1, 2]) == [b"a", b"bc", b"def"]
    assert in_pieces(b"ab", [1, 0, 1]) == [b"a", b"b"]


# -- hostile ones --------------------------------------------------------------------------------------------


def test_none_outlives_its_client() -> None:
    for script in HOSTILE_PEERS.values():
        # A peer that ends with our bytes unread resets the connection.
        with ScriptedPeer(script) as peer, Wire(peer.address) as wire, suppress(OSError):
            wire.send(ApiKey.API_VERSIONS, 0, b"")
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.socket.recv(65_536):
                pass


def test_garbage_has_the_right_correlation_id_and_no_schema_and_a_billion_entries_are_counted() -> None:
    for script, said in (
        (hostile_peers.answer_with_garbage, None),
        (hostile_peers.promise_a_billion_entries, "1073741823"),
    ):
        with ScriptedPeer(script) as peer, Wire(peer.address) as wire:
            body = wire.ask(ApiKey.API_VERSIONS, 0, b"")
            with pytest.raises(SchemaError, match=said):
                ApiVersionsResponse.decode(body, 0)


def test_another_question_is_answered_well_but_for_its_number() -> None:
    with ScriptedPeer(hostile_peers.answer_another_question) as peer, Wire(peer.address) as wire:
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        payload = wire.receive_payload()
        assert int.from_bytes(payload[:4]) == 1_001
        assert ApiVersionsResponse.decode(payload, 0, 4).api_keys[0].api_key == ApiKey.METADATA.id


def test_half_of_an_answer_is_followed_by_the_end() -> None:
    with ScriptedPeer(hostile_peers.answer_half_and_close) as peer, Wire(peer.address) as wire:
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        with pytest.raises(ConnectionError):
            wire.receive_payload()


# -- TLS -----------------------------------------------------------------------------------------------------

AUTHORITY: Final = Authority()
BROKER: Final = AUTHORITY.issue("localhost")


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.certificate)
    return context


def call_by_tls(peer: TlsPeer | OpensslServer, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
    context = client_context() if context is None else context
    return context.wrap_socket(socket.create_connection(peer.address, 10), server_hostname="localhost")


def test_a_peer_plays_its_script_behind_tls_and_records_the_handshake() -> None:
    for version in (TLS12, TLS13):
        with (
            nothing_left_behind(),
            TlsPeer(server_context(BROKER, protocols=[version]), echo) as peer,
            call_by_tls(peer) as client,
        ):
            client.sendall(frame(b"hello"))
            assert receive_frame(client) == b"hello"
            handshake = peer.next_handshake()
            assert (handshake.error, handshake.version) == (None, version)
            assert handshake.cipher == (client.cipher() or ("",))[0]
            assert handshake.client_certificate is None
            assert peer.server_names == ["localhost"]


def test_a_peer_records_a_failed_handshake() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with TlsPeer(server_context(BROKER), echo) as peer:
        raw = socket.create_connection(peer.address, 10)
        with raw, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(raw, server_hostname="localhost")
        error = peer.next_handshake().error
        assert isinstance(error, ssl.SSLError)
        assert error.reason == "TLSV1_ALERT_UNKNOWN_CA"


def test_a_peer_asks_for_a_certificate_if_configured_to() -> None:
    context = server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate, protocols=[TLS12])
    with TlsPeer(context, echo) as peer:
        with pytest.raises(ssl.SSLError):
            call_by_tls(peer)
        assert peer.next_handshake().error is not None


def test_a_goodbye_is_the_end_of_the_stream() -> None:
    with TlsPeer(server_context(BROKER), say_goodbye) as peer, call_by_tls(peer) as client:
        assert client.recv(1) == b""


@pytest.mark.skipif(OpensslServer.command() is None, reason="no command openssl on this machine")
def test_openssl_serves_one_connection_and_is_gone_thereafter() -> None:
    with OpensslServer(BROKER) as server, call_by_tls(server) as client:
        client.sendall(b"hello\n")
        server.wait_for(b"hello")
        server.say(frame(b"answer"))
        assert receive_frame(client) == b"answer"
    assert server.is_gone


class Caller:
    """A client's TLS over a pipe, by hand."""

    def __init__(self, pipe: TlsPipe) -> None:
        self._pipe = pipe
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context().wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        for _ in range(10):
            try:
                self.tls.do_handshake()
                self.flush()
                return
            except ssl.SSLWantReadError:
                self.flush()
                self.fetch()
        raise AssertionError("the handshake comes to no end")

    def flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._pipe.write((data,))

    def fetch(self) -> None:
        self._incoming.write(self._pipe.read(65536) or b"")


@pytest.fixture
def pipe() -> TlsPipe:
    return TlsPipe(server_context(BROKER))


def test_a_pipe_carries_bytes_both_ways_and_holds_what_its_server_says(pipe: TlsPipe) -> None:
    caller = Caller(pipe)
    caller.shake_hands()
    caller.tls.write(b"hello")
    caller.flush()
    assert pipe.received == b"hello"
    pipe.send(b"x" * 40_000)
    caller.fetch()
    assert caller.tls.read(40_000) == b"x" * 16_384
    pipe.to_client.clear()
    pipe.is_holding = True
    pipe.send(b"held")
    assert not pipe.to_client
    pipe.is_holding = False
    pipe.release()
    assert pipe.to_client
    pipe.say_goodbye()
    assert not pipe.has_goodbye


def test_a_pipe_takes_and_gives_as_few_bytes_as_configured(pipe: TlsPipe) -> None:
    pipe.say(b"0123456789")
    pipe.gives = [3, 0]
    assert [pipe.read(10), pipe.read(10), pipe.read(5)] == [b"012", None, b"34567"]
    assert pipe.asked == [10, 10, 5]
    pipe.takes = [2]
    assert pipe.write((b"\x16\x03", b"\x01")) == 2
    assert pipe.writes == [3]


def test_a_pipe_breaks_at_the_given_byte_and_ends_after_its_last_one(pipe: TlsPipe) -> None:
    pipe.say(b"last")
    pipe.breaks_at_read = 2
    assert pipe.read(2) == b"la"
    with pytest.raises(DisconnectError, match="reset"):
        pipe.read(2)
    pipe.end()
    assert pipe.read(2) == b"st"
    with pytest.raises(DisconnectError, match="closed"):
        pipe.read(2)
    with pytest.raises(DisconnectError, match="closed"):
        pipe.write((b"x",))


def test_a_pipe_keeps_its_servers_error(pipe: TlsPipe) -> None:
    pipe.write((b"GET / HTTP/1.1\r\n\r\n",))
    assert pipe.error is not None
    assert pipe.error.reason == "HTTP_REQUEST"


# -- certificates --------------------------------------------------------------------------------------------


def test_an_authority_issues_for_names_with_its_key_until_the_given_time() -> None:
    issued = AUTHORITY.issue("broker.example.com", "localhost")
    certificate = x509.load_der_x509_certificate(issued.der)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.com", "localhost"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(AUTHORITY.certificate.encode()))
    assert load_pem_private_key(issued.key.encode(), None).public_key() == certificate.public_key()
    expired = AUTHORITY.issue("localhost", expires=YESTERYEAR)
    assert x509.load_der_x509_certificate(expired.der).not_valid_after_utc == YESTERYEAR


def test_keys_are_elliptic_unless_rsa_is_wanted_and_open_with_their_password() -> None:
    for is_rsa, kind in ((False, ec.EllipticCurvePrivateKey), (True, rsa.RSAPrivateKey)):
        issued = AUTHORITY.issue("localhost", is_rsa=is_rsa)
        assert isinstance(load_pem_private_key(issued.key.encode(), None), kind)
    for traditional in (False, True):
        text = BROKER.key_encrypted_with("secret", traditional=traditional)
        assert "ENCRYPTED" in text
        opened = load_pem_private_key(text.encode(), b"secret")
        assert opened.public_key() == load_pem_private_key(BROKER.key.encode(), None).public_key()


def test_an_intermediate_authority_is_of_the_one_above() -> None:
    between = x509.load_pem_x509_certificate(AUTHORITY.intermediate().certificate.encode())
    between.verify_directly_issued_by(x509.load_pem_x509_certificate(AUTHORITY.certificate.encode()))


def test_self_signed_certificates_are_their_own_issuers() -> None:
    for made in (self_signed("a"), weak("a"), with_validity("a", LONG_AGO, YESTERYEAR)):
        certificate = x509.load_der_x509_certificate(made.der)
        assert certificate.issuer == certificate.subject
        certificate.verify_directly_issued_by(certificate)
    now = datetime.datetime.now(datetime.UTC)
    assert x509.load_der_x509_certificate(self_signed("a").der).not_valid_after_utc > now


# -- the broker's side of SASL -------------------------------------------------------------------------------

GOOD: Final = b"\0alice\0secret"
HANDSHAKE: Final = SaslHandshakeRequest("PLAIN").encode(1)


def sasl_server(*, session_lifetime_ms: int = 0, max_receive_bytes: int = 1000) -> SaslServer:
    return SaslServer(
        MockClock(),
        ("PLAIN",),
        passwords={"alice": "secret", "bob": "secret"},
        session_lifetime_ms=session_lifetime_ms,
        max_receive_bytes=max_receive_bytes,
    )


def ask(conversation: SaslConversation, api: ApiKey, version: int, body: bytes) -> list[bytes]:
    return conversation.receive(encode_request_header(api, version, 5, "me") + body)


def shake_hands(conversation: SaslConversation, mechanism: str = "PLAIN") -> SaslHandshakeResponse:
    (answer,) = ask(conversation, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism).encode(1))
    correlation_id, offset = decode_response_header(answer, ApiKey.SASL_HANDSHAKE, 1)
    assert correlation_id == 5
    return SaslHandshakeResponse.decode(answer, 1, offset)


def authenticate(conversation: SaslConversation, token: bytes) -> SaslAuthenticateResponse:
    body = SaslAuthenticateRequest(token).encode(2)
    (answer,) = ask(conversation, ApiKey.SASL_AUTHENTICATE, 2, body)
    _, offset = decode_response_header(answer, ApiKey.SASL_AUTHENTICATE, 2)
    return SaslAuthenticateResponse.decode(answer, 2, offset)


def logged_in(broker: SaslServer) -> SaslConversation:
    conversation = broker.connect()
    assert shake_hands(conversation).error_code == 0
    assert authenticate(conversation, GOOD).error_code == 0
    return conversation


def test_it_says_what_it_speaks_before_anything_is_proved() -> None:
    (answer,) = ask(sasl_server().connect(), ApiKey.API_VERSIONS, 0, b"")
    response = ApiVersionsResponse.decode(answer, 0, 4)
    assert {17, 18, 36} <= {key.api_key for key in response.api_keys}


def test_it_echoes_once_we_are_authenticated() -> None:
    broker = sasl_server()
    conversation = logged_in(broker)
    assert conversation.principal == "alice"
    assert conversation.receive(b"hello") == [b"hello"]
    assert broker.authentications == 1
    assert broker.requests == [("SaslHandshake", 1), ("SaslAuthenticate", 2)]


def test_it_refuses_a_wrong_password_or_a_mechanism_that_it_does_not_have_and_closes() -> None:
    broker = sasl_server()
    conversation = broker.connect()
    shake_hands(conversation)
    response = authenticate(conversation, b"\0alice\0paper")
    assert response.error_code == 58
    assert response.error_message == "Authentication failed: Invalid username or password"
    assert conversation.is_closed
    assert (broker.authentications, broker.failed_authentications) == (0, 1)
    conversation = broker.connect()
    assert shake_hands(conversation, "GSSAPI") == SaslHandshakeResponse(33, ("PLAIN",))
    assert conversation.is_closed


def test_it_closes_on_what_is_not_due_or_too_large() -> None:
    for sent in (b"", b"\xff" * 100, b"\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff"):
        conversation = sasl_server().connect()
        assert conversation.receive(sent) == []
        assert conversation.is_closed
    conversation = sasl_server(max_receive_bytes=10).connect()
    assert ask(conversation, ApiKey.API_VERSIONS, 0, b"x" * 10) == []
    assert conversation.is_closed


def test_a_session_is_renewed_or_ends() -> None:
    clock = MockClock()
    broker = sasl_server(session_lifetime_ms=100)
    broker.clock = clock
    conversation = logged_in(broker)
    clock.advance(101)
    assert shake_hands(conversation).error_code == 0
    assert authenticate(conversation, GOOD).session_lifetime_ms == 100
    assert conversation.receive(b"hello") == [b"hello"]
    assert broker.reauthentications == 1
    clock.advance(101)
    assert conversation.receive(b"hello") == []
    assert conversation.is_closed
    assert broker.expired_sessions == 1


def test_a_handshake_too_soon_or_without_a_session_is_a_request_like_any_other() -> None:
    request = encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 5, "me") + HANDSHAKE
    conversation = logged_in(sasl_server(session_lifetime_ms=2_000))
    shake_hands(conversation)
    authenticate(conversation, GOOD)
    assert conversation.receive(request) == [request]
    assert logged_in(sasl_server()).receive(request) == [request]


def test_nobody_becomes_somebody_else() -> None:
    broker = sasl_server(session_lifetime_ms=100)
    conversation = logged_in(broker)
    shake_hands(conversation)
    said = authenticate(conversation, b"\0bob\0secret").error_message
    assert said == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert broker.failed_reauthentications == 1


def test_held_answers_come_before_the_handshakes() -> None:
    broker = sasl_server(session_lifetime_ms=100)
    conversation = logged_in(broker)
    broker.holds_answers = True
    assert conversation.receive(b"one") == []
    frames = ask(conversation, ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
    assert (frames[0], len(frames)) == (b"one", 2)


def test_faults() -> None:
    broker = sasl_server()
    for fault, frames, is_closed in (
        (Fault.CLOSE, 0, True),
        (Fault.SILENCE, 0, False),
        (Fault.GARBAGE, 1, False),
        (Fault.WRONG_CORRELATION_ID, 1, False),
    ):
        broker.faults[ApiKey.API_VERSIONS] = fault
        conversation = broker.connect()
        assert len(ask(conversation, ApiKey.API_VERSIONS, 0, b"")) == frames, fault
        assert conversation.is_closed is is_closed, fault


def test_plain_wants_three_parts_and_no_other_identity() -> None:
    with pytest.raises(Refused, match="expected 3 tokens, got 2"):
        PlainServer({}).evaluate(b"alice\0secret")
    with pytest.raises(Refused, match="authorization id"):
        PlainServer({"alice": "secret"}).evaluate(b"bob\0alice\0secret")


def test_scram_as_rfc_7677_has_it() -> None:
    """The server's half of the RFC's example: it takes the proof, and gives the signature."""
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
    scram = ScramServer("SCRAM-SHA-256", {"user": "pencil"}, salt=salt, nonce=nonce[20:])
    first = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert scram.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == first
    proof = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert scram.evaluate(proof) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.principal == "user"


def test_oauth_bearer_reads_token_and_extensions() -> None:
    bearer = OAuthBearerServer({"a.b.c": "alice"})
    assert bearer.evaluate(b"n,,\x01auth=Bearer a.b.c\x01one=1\x01two=2\x01\x01") == b""
    assert bearer.principal == "alice"
    assert bearer.extensions == {"one": "1", "two": "2"}


def test_oauth_bearer_refuses_in_two_steps_what_is_a_token() -> None:
    bearer = OAuthBearerServer({})
    assert bearer.evaluate(b"n,,\x01auth=Bearer a.b.c\x01\x01") == OAuthBearerServer.ERROR
    with pytest.raises(Refused, match="a lone"):
        bearer.evaluate(b"\x01")
    with pytest.raises(Refused, match="Invalid OAUTHBEARER client first message"):
        OAuthBearerServer({}).evaluate(b"hello")


# -- the endpoint that gives tokens to those it knows --------------------------------------------------------

_GRANT: Final = {"grant_type": "client_credentials"}
_ME: Final = ("me", "its secret")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(verify=NO_TLS) as asking:
        yield asking


@pytest.fixture
def endpoint() -> Iterator[OAuthEndpoint]:
    with OAuthEndpoint(dict([_ME])) as running:
        yield running


def _part(token: str, number: int) -> bytes:
    part = token.split(".")[number]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_token_names_its_client_and_lives_as_long_as_configured(
    endpoint: OAuthEndpoint, client: httpx.Client
) -> None:
    endpoint.lifetime_s = 7
    answer = client.post(endpoint.url, data=_GRANT, auth=_ME)
    assert answer.status_code == 200
    assert answer.json()["expires_in"] == 7
    claims = json.loads(_part(answer.json()["access_token"], 1))
    assert (claims["sub"], claims["aud"], claims["exp"] - claims["iat"]) == ("me", AUDIENCE, 7)
    assert endpoint.granted == 1
    form = {**_GRANT, "client_id": _ME[0], "client_secret": _ME[1]}
    assert client.post(endpoint.url, data=form).status_code == 200, "credentials may be in the form"


def test_strangers_another_grant_and_everyone_for_a_while_are_refused(
    endpoint: OAuthEndpoint, client: httpx.Client
) -> None:
    refusals: tuple[tuple[Any, str, int | None, int, str], ...] = (
        (("me", "wrong"), "client_credentials", None, 401, "invalid_client"),
        (("you", "its secret"), "client_credentials", None, 401, "invalid_client"),
        (None, "client_credentials", None, 401, "invalid_client"),
        (_ME, "password", None, 400, "unsupported_grant_type"),
        (_ME, "client_credentials", 503, 503, "temporarily_unavailable"),
    )
    for number, (auth, grant, refuse_with, status, error) in enumerate(refusals, 1):
        endpoint.refuse_with = refuse_with
        answer = client.post(endpoint.url, data={"grant_type": grant}, auth=auth)
        assert (answer.status_code, answer.json()["error"]) == (status, error), (auth, grant)
        assert (len(endpoint.requests), endpoint.granted) == (number, 0)
    endpoint.refuse_with = None
    assert client.post(endpoint.url, data=_GRANT, auth=_ME).status_code == 200


def test_the_key_set_verifies_a_token_and_not_a_forged_one(tmp_path: Path) -> None:
    (key,) = json.loads(write_jwks(tmp_path / "jwks.json").read_text())["keys"]
    modulus, exponent = (
        int.from_bytes(base64.urlsafe_b64decode(key[name] + "=" * (-len(key[name]) % 4)), "big")
        for name in ("n", "e")
    )
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    true, forged = signed_token("me"), signed_token("me", forged=True)
    public.verify(_part(true, 2), true.rpartition(".")[0].encode(), padding.PKCS1v15(), SHA256())
    with pytest.raises(InvalidSignature):
        public.verify(_part(forged, 2), forged.rpartition(".")[0].encode(), padding.PKCS1v15(), SHA256())
