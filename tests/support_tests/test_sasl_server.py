"""The broker's side of SASL that tests speak to."""

from __future__ import annotations

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.testing.sasl import OAuthBearerServer, PlainServer, Refused, ScramServer
from tests.support.mock_clock import MockClock
from tests.support.sasl_server import Fault, SaslConversation, SaslServer

GOOD = b"\0alice\0secret"
BAD = b"\0alice\0paper"
HANDSHAKE = encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 5, "me") + SaslHandshakeRequest("PLAIN").encode(1)


def server(*, session_lifetime_ms: int = 0, max_receive_bytes: int = 1000) -> SaslServer:
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
    (frame,) = ask(conversation, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism).encode(1))
    correlation_id, offset = decode_response_header(frame, ApiKey.SASL_HANDSHAKE, 1)
    assert correlation_id == 5
    return SaslHandshakeResponse.decode(frame, 1, offset)


def authenticate(conversation: SaslConversation, token: bytes) -> SaslAuthenticateResponse:
    body = SaslAuthenticateRequest(token).encode(2)
    (frame,) = ask(conversation, ApiKey.SASL_AUTHENTICATE, 2, body)
    _, offset = decode_response_header(frame, ApiKey.SASL_AUTHENTICATE, 2)
    return SaslAuthenticateResponse.decode(frame, 2, offset)


def logged_in(broker: SaslServer) -> SaslConversation:
    conversation = broker.connect()
    assert shake_hands(conversation).error_code == 0
    assert authenticate(conversation, GOOD).error_code == 0
    return conversation


def test_it_says_what_it_speaks_before_anything_is_proved() -> None:
    (frame,) = ask(server().connect(), ApiKey.API_VERSIONS, 0, b"")
    response = ApiVersionsResponse.decode(frame, 0, 4)
    assert {17, 18, 36} <= {key.api_key for key in response.api_keys}


def test_it_echoes_once_it_knows_who_we_are() -> None:
    broker = server()
    conversation = logged_in(broker)
    assert conversation.principal == "alice"
    assert conversation.receive(b"hello") == [b"hello"]
    assert broker.authentications == 1
    assert broker.requests == [("SaslHandshake", 1), ("SaslAuthenticate", 2)]


def test_it_refuses_a_wrong_password_and_closes() -> None:
    broker = server()
    conversation = broker.connect()
    shake_hands(conversation)
    response = authenticate(conversation, BAD)
    assert response.error_code == 58
    assert response.error_message == "Authentication failed: Invalid username or password"
    assert conversation.is_closed
    assert (broker.authentications, broker.failed_authentications) == (0, 1)


def test_it_refuses_a_mechanism_that_it_does_not_have() -> None:
    conversation = server().connect()
    assert shake_hands(conversation, "GSSAPI") == SaslHandshakeResponse(33, ("PLAIN",))
    assert conversation.is_closed


@pytest.mark.parametrize("frame", [b"", b"\xff" * 100, b"\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff"])
def test_it_closes_on_what_is_not_due(frame: bytes) -> None:
    conversation = server().connect()
    assert conversation.receive(frame) == []
    assert conversation.is_closed


def test_it_closes_on_a_frame_that_is_too_large() -> None:
    conversation = server(max_receive_bytes=10).connect()
    assert ask(conversation, ApiKey.API_VERSIONS, 0, b"x" * 10) == []
    assert conversation.is_closed


def test_a_session_is_renewed_or_ends() -> None:
    clock = MockClock()
    broker = server(session_lifetime_ms=100)
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


def test_a_handshake_that_comes_too_soon_is_a_request_like_any_other() -> None:
    broker = server(session_lifetime_ms=2_000)
    conversation = logged_in(broker)
    shake_hands(conversation)
    authenticate(conversation, GOOD)
    request = HANDSHAKE
    assert conversation.receive(request) == [request]


def test_without_a_session_there_is_nothing_to_renew() -> None:
    conversation = logged_in(server())
    request = HANDSHAKE
    assert conversation.receive(request) == [request]


def test_nobody_becomes_somebody_else() -> None:
    broker = server(session_lifetime_ms=100)
    conversation = logged_in(broker)
    shake_hands(conversation)
    response = authenticate(conversation, b"\0bob\0secret")
    assert response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert broker.failed_reauthentications == 1


def test_held_answers_come_before_the_handshakes() -> None:
    broker = server(session_lifetime_ms=100)
    conversation = logged_in(broker)
    broker.holds_answers = True
    assert conversation.receive(b"one") == []
    frames = ask(conversation, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN").encode(1))
    assert frames[0] == b"one"
    assert len(frames) == 2


def test_faults() -> None:
    broker = server()
    for fault, frames, is_closed in [
        (Fault.CLOSE, 0, True),
        (Fault.SILENCE, 0, False),
        (Fault.GARBAGE, 1, False),
        (Fault.WRONG_CORRELATION_ID, 1, False),
    ]:
        broker.faults[ApiKey.API_VERSIONS] = fault
        conversation = broker.connect()
        assert len(ask(conversation, ApiKey.API_VERSIONS, 0, b"")) == frames
        assert conversation.is_closed is is_closed


def test_plain_wants_three_parts_and_no_other_identity() -> None:
    with pytest.raises(Refused, match="expected 3 tokens, got 2"):
        PlainServer({}).evaluate(b"alice\0secret")
    with pytest.raises(Refused, match="authorization id"):
        PlainServer({"alice": "secret"}).evaluate(b"bob\0alice\0secret")


def test_scram_as_rfc_7677_has_it() -> None:
    """The server's half of the RFC's example: it takes the proof, and gives the signature."""
    scram = ScramServer(
        "SCRAM-SHA-256",
        {"user": "pencil"},
        salt=bytes.fromhex("5b6d99689d12358eeca04b141236fa81"),
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    assert scram.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        scram.evaluate(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert scram.principal == "user"


def test_oauth_bearer_reads_token_and_extensions() -> None:
    bearer = OAuthBearerServer({"a.b.c": "alice"})
    assert bearer.evaluate(b"n,,\x01auth=Bearer a.b.c\x01one=1\x01two=2\x01\x01") == b""
    assert bearer.principal == "alice"
    assert bearer.extensions == {"one": "1", "two": "2"}
    with pytest.raises(Refused, match="Invalid OAUTHBEARER client first message"):
        OAuthBearerServer({}).evaluate(b"hello")


def test_oauth_bearer_refuses_in_two_steps() -> None:
    bearer = OAuthBearerServer({})
    assert bearer.evaluate(b"n,,\x01auth=Bearer a.b.c\x01\x01") == OAuthBearerServer.ERROR
    with pytest.raises(Refused, match="a lone"):
        bearer.evaluate(b"\x01")
