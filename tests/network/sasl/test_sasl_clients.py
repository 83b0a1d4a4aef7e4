"""One exchange of each mechanism, and SCRAM's messages and arithmetic.

Twins of ScramFormatterTest, ScramMessagesTest; after OAuthBearerSaslClientTest (Kafka 4.3). The golden
exchanges are in tests/golden/test_scram.py.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import (
    ConfigError,
    IllegalArgumentError,
    IllegalSaslStateError,
    SaslAuthenticationError,
)
from client_core.network.sasl import scram_sasl_client
from client_core.network.sasl.oauth_bearer_sasl_client import (
    OAuthBearerSaslClient,
    client_initial_response,
    validate_extensions,
)
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.scram_messages import (
    ClientFinalMessage,
    ClientFirstMessage,
    ServerFinalMessage,
    ServerFirstMessage,
    auth_message,
)
from client_core.network.sasl.scram_sasl_client import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    ScramSaslClient,
)
from client_core.testing.sasl import ScramServer


def client(password: str = "pencil", username: str = "user") -> ScramSaslClient:
    return ScramSaslClient(ScramMechanism.SCRAM_SHA_512, username, password, {})


def converse(ours: ScramSaslClient, theirs: ScramServer) -> None:
    answer: bytes | None = ours.evaluate_challenge(b"")
    while answer is not None:
        answer = ours.evaluate_challenge(theirs.evaluate(answer))


@pytest.mark.behaviour("SASL-04")
def test_both_sides_are_convinced() -> None:
    ours, theirs = client(), ScramServer("SCRAM-SHA-512", {"user": "pencil"})
    converse(ours, theirs)
    assert ours.complete
    assert theirs.principal == "user"


def test_a_server_that_speaks_first_is_refused_and_nothing_is_said_after_a_failure() -> None:
    ours = client()
    with pytest.raises(SaslAuthenticationError, match="Expected empty challenge"):
        ours.evaluate_challenge(b"r=nonce")
    with pytest.raises(IllegalSaslStateError, match="FAILED"):
        ours.evaluate_challenge(b"")
    ours = client()
    ours.evaluate_challenge(b"")
    with pytest.raises(SaslAuthenticationError):
        ours.evaluate_challenge(b"nonsense")
    with pytest.raises(IllegalSaslStateError, match="Unexpected challenge in Sasl client state FAILED"):
        ours.evaluate_challenge(b"")


@pytest.mark.behaviour("SASL-04")
def test_passwords_are_hashed_as_the_utf_8_that_they_are() -> None:
    """SASLprep would make of the soft hyphen nothing, and of the ligature two letters."""
    theirs = ScramServer("SCRAM-SHA-512", {"user": "I\u00adX \ufb01"})
    converse(client("I\u00adX \ufb01"), theirs)
    assert theirs.principal == "user"


def with_iterations(iterations: int) -> bytes | None:
    """What a client answers to a server that wants so many."""
    ours = client()
    nonce = (ours.evaluate_challenge(b"") or b"").partition(b",r=")[2].decode()
    return ours.evaluate_challenge(f"r={nonce}x,s=AAE=,i={iterations}".encode())


@pytest.mark.behaviour("SASL-04")
def test_a_server_that_wants_to_keep_us_busy_or_a_weak_hash_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match="iterations 2147483647 is more than the maximum"):
        with_iterations(2147483647)
    assert MAX_ITERATIONS < 1_000_000
    with pytest.raises(SaslAuthenticationError, match="iterations 4095 is less than the minimum 4096"):
        with_iterations(4095)
    assert with_iterations(4096)


@pytest.mark.behaviour("SASL-04")
@pytest.mark.parametrize("said", ["x{nonce}", "x{nonce}x", "{half}x", "x"])
def test_a_server_whose_nonce_does_not_begin_with_ours_is_refused(said: str) -> None:
    ours = client()
    nonce = (ours.evaluate_challenge(b"") or b"").partition(b",r=")[2].decode()
    theirs = said.format(nonce=nonce, half=nonce[: len(nonce) // 2])
    with pytest.raises(SaslAuthenticationError, match="does not start with client nonce"):
        ours.evaluate_challenge(f"r={theirs},s=AAE=,i=4096".encode())


def test_repr_says_how_far_it_is_and_nothing_else() -> None:
    ours = client("hunter2", "alice")
    assert repr(ours) == "<ScramSaslClient SCRAM-SHA-512 SEND_CLIENT_FIRST_MESSAGE>"


# -- SCRAM's arithmetic --------------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-04")
@pytest.mark.java("ScramFormatterTest.rfc7677Example")
def test_rfc_7677_example() -> None:
    nonce = "rOprNGfwEbeRWgbNEkqO"
    whole_nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    client_first = ClientFirstMessage("user", nonce, {})
    assert str(client_first) == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = ServerFirstMessage.parse(f"r={whole_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert server_first.nonce.removeprefix(nonce) == "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server_first.salt == base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    assert server_first.iterations == 4096
    server_final = ServerFinalMessage.parse(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    mechanism = ScramMechanism.SCRAM_SHA_256
    client_final = ClientFinalMessage(whole_nonce)
    exchange = auth_message(client_first, server_first, client_final)
    salted = scram_sasl_client.salted_password(
        mechanism, "pencil", server_first.salt, server_first.iterations
    )
    proof = scram_sasl_client.client_proof(mechanism, salted, exchange)
    assert client_final.with_proof(proof) == (
        f"c=biws,r={whole_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram_sasl_client.server_signature(mechanism, salted, exchange) == server_final.server_signature
    assert MIN_ITERATIONS == 4096


@pytest.mark.behaviour("SASL-04")
@pytest.mark.java("ScramFormatterTest.saslName")
def test_sasl_name() -> None:
    names = ["user1", "123", "1,2", "user=A", "user==B", "user,1", "user 1", ",", "=", ",=", "=="]
    for username in names:
        name = scram_sasl_client.sasl_name(username)
        assert "," not in name
        assert "=" not in name.replace("=2C", "").replace("=3D", "")
        assert scram_sasl_client.username_of(name) == username


@given(st.text())
def test_any_user_name_survives_its_escaping(username: str) -> None:
    assert scram_sasl_client.username_of(scram_sasl_client.sasl_name(username)) == username


def test_an_equals_sign_of_its_own_is_no_user_name_and_xor_wants_two_of_a_length() -> None:
    with pytest.raises(IllegalArgumentError, match="Invalid username: a=b"):
        scram_sasl_client.username_of("a=b")
    assert scram_sasl_client.xor(b"\x0f\xff", b"\xff\xff") == b"\xf0\x00"
    with pytest.raises(IllegalArgumentError, match="Argument arrays must be of the same length"):
        scram_sasl_client.xor(b"\x00", b"")


def test_nonces_differ_and_are_printable_without_a_comma() -> None:
    nonces = {scram_sasl_client.secure_random_string() for _ in range(100)}
    assert len(nonces) == 100
    assert all(nonce.isalnum() and nonce.isascii() and len(nonce) > 15 for nonce in nonces)


# -- SCRAM's messages ----------------------------------------------------------------------------------------


NONCE: Final = "1y4rlkzq6jqg3k0uvcvwcsmdq"
SALT: Final = base64.b64encode(b"2zv6n1o0gwcbxsxm0bjkqy").decode()
SIGNATURE: Final = base64.b64encode(b"signature of the server").decode()

VALID_EXTENSIONS: Final = (
    "ext=val1",
    "anotherext=name1=value1 name2=another test value \"'!$[]()",
    "first=val1,second=name1 = value ,third=123",
)
INVALID_EXTENSIONS: Final = ("ext1=value", "ext", "ext=value1,value2", "ext=,", "ext =value")
VALID_RESERVED: Final = ("m=reserved-value", "m=name1=value1 name2=another test value \"'!$[]()")
INVALID_RESERVED: Final = ("m", "m=name,value", "m=,")


@pytest.mark.java("ScramMessagesTest.validServerFirstMessage")
def test_valid_server_first_message() -> None:
    for message in (
        f"r={NONCE},s={SALT},i=4096",
        *[f"{reserved},r={NONCE},s={SALT},i=4096" for reserved in VALID_RESERVED],
        *[f"r={NONCE},s={SALT},i=4096,{extension}" for extension in VALID_EXTENSIONS],
    ):
        parsed = ServerFirstMessage.parse(message.encode())
        assert parsed == ServerFirstMessage(message, NONCE, base64.b64decode(SALT), 4096)


@pytest.mark.java("ScramMessagesTest.invalidServerFirstMessage")
def test_invalid_server_first_message() -> None:
    for message in (
        f"r={NONCE},s={SALT},i=0",
        f"r={NONCE},s==123,i=4096",
        f"r={NONCE},invalid,s={SALT},i=4096",
        *[f"{reserved},r={NONCE},s={SALT},i=4096" for reserved in INVALID_RESERVED],
        *[f"r={NONCE},s={SALT},i=4096,{extension}" for extension in INVALID_EXTENSIONS],
    ):
        with pytest.raises(SaslAuthenticationError, match="Invalid SCRAM server first message format"):
            ServerFirstMessage.parse(message.encode())


@pytest.mark.java("ScramMessagesTest.validServerFinalMessage")
def test_valid_server_final_message() -> None:
    for message in (f"v={SIGNATURE}", *[f"v={SIGNATURE},{extension}" for extension in VALID_EXTENSIONS]):
        parsed = ServerFinalMessage.parse(message.encode())
        assert parsed == ServerFinalMessage(None, b"signature of the server"), message
    for error in ("unknown-user", "other-error"):
        assert ServerFinalMessage.parse(f"e={error}".encode()) == ServerFinalMessage(error, None)


@pytest.mark.java("ScramMessagesTest.invalidServerFinalMessage")
def test_invalid_server_final_message() -> None:
    for message in (
        "e=error1,error2",
        "v=1=23",
        *[f"v={SIGNATURE},{extension}" for extension in INVALID_EXTENSIONS],
        *[f"e=unknown-user,{extension}" for extension in INVALID_EXTENSIONS],
    ):
        with pytest.raises(SaslAuthenticationError, match="Invalid SCRAM server final message format"):
            ServerFinalMessage.parse(message.encode())


def test_iterations_may_have_zeros_in_front_and_are_refused_beyond_an_int_whatever_their_length() -> None:
    message = f"r={NONCE},s={SALT},i="
    for zeros in ("0" * 16, "0" * 5000):
        assert ServerFirstMessage.parse(f"{message}{zeros}8192".encode()).iterations == 8192
        with pytest.raises(SaslAuthenticationError, match=r"invalid iterations 0$"):
            ServerFirstMessage.parse(f"{message}{zeros}".encode())
    for iterations in ("2147483648", "99999999999", "9" * 5000):
        with pytest.raises(SaslAuthenticationError, match=r"invalid iterations$"):
            ServerFirstMessage.parse(f"{message}{iterations}".encode())


def test_of_an_endless_message_only_the_beginning_is_shown() -> None:
    with pytest.raises(SaslAuthenticationError) as caught:
        ServerFirstMessage.parse(b"x" * 1_000_000)
    assert len(caught.value.message) < 1_100


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(message: bytes) -> None:
    for parse in (ServerFirstMessage.parse, ServerFinalMessage.parse):
        with suppress(SaslAuthenticationError):
            parse(message)


def test_client_messages_are_as_the_rfc_has_them() -> None:
    first = ClientFirstMessage("user", "abc", {"tokenauth": "true"})
    assert str(first) == "n,,n=user,r=abc,tokenauth=true"
    final = ClientFinalMessage("abcdef")
    assert final.with_proof(b"\x00\x01") == "c=biws,r=abcdef,p=AAE="
    text = "r=abcdef,s=AAE=,i=4096,ext=1"
    assert auth_message(first, ServerFirstMessage.parse(text.encode()), final) == (
        b"n=user,r=abc,tokenauth=true,r=abcdef,s=AAE=,i=4096,ext=1,c=biws,r=abcdef"
    )


# -- PLAIN on literal bytes ----------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-05")
def test_plains_one_token_is_nothing_the_name_and_the_password() -> None:
    plain = PlainSaslClient("alice", "päss wörd")
    assert (repr(plain), plain.complete) == ("<PlainSaslClient INITIAL>", False)
    assert plain.evaluate_challenge(b"") == b"\x00alice\x00p\xc3\xa4ss w\xc3\xb6rd"
    assert plain.complete
    assert repr(plain) == "<PlainSaslClient COMPLETE>"
    with pytest.raises(IllegalSaslStateError, match="already completed"):
        plain.evaluate_challenge(b"more")


# -- OAUTHBEARER on literal bytes ----------------------------------------------------------------------------


def test_the_first_message_carries_the_token_and_extensions_follow_it() -> None:
    assert client_initial_response("123.345.567", {}) == b"n,,\x01auth=Bearer 123.345.567\x01\x01"
    assert client_initial_response("123.345.567", {"propA": "valueA1, valueA2", "propB": "valueB"}) == (
        b"n,,\x01auth=Bearer 123.345.567\x01propA=valueA1, valueA2\x01propB=valueB\x01\x01"
    )


def test_an_empty_answer_is_consent() -> None:
    client = OAuthBearerSaslClient("a.b.c", {})
    client.evaluate_challenge(b"")
    assert client.evaluate_challenge(b"") is None
    assert client.complete
    with pytest.raises(IllegalSaslStateError, match="Unexpected challenge in Sasl client state COMPLETE"):
        client.evaluate_challenge(b"")


def test_an_error_is_answered_with_one_byte_so_that_the_refusal_may_come() -> None:
    client = OAuthBearerSaslClient("a.b.c", {})
    client.evaluate_challenge(b"")
    assert client.evaluate_challenge(b'{"status":"invalid_token"}') == b"\x01"
    assert not client.complete
    with pytest.raises(IllegalSaslStateError, match="RECEIVE_SERVER_MESSAGE_AFTER_FAILURE"):
        client.evaluate_challenge(b"more")


def test_nothing_may_come_before_the_first_message() -> None:
    bearer = OAuthBearerSaslClient("a.b.c", {})
    assert repr(bearer) == "<OAuthBearerSaslClient SEND_CLIENT_FIRST_MESSAGE>"
    with pytest.raises(SaslAuthenticationError, match="Expected empty challenge"):
        bearer.evaluate_challenge(b"x")


def test_names_and_values_that_no_extension_may_have() -> None:
    for name in ("auth", "", "propA1", "prop-A", "prop A"):
        with pytest.raises(ConfigError, match=f"Extension name {name} is invalid"):
            validate_extensions({name: "value"}, "sasl.jaas.config")
    for value in ("", "a\x01b", "naïve"):
        with pytest.raises(ConfigError) as caught:
            validate_extensions({"traceId": value}, "sasl.jaas.config")
        assert str(caught.value) == (
            "sasl.jaas.config: Extension value for extension traceId is invalid: printable ASCII only"
        )
