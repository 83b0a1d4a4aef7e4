"""SCRAM's messages as the client reads them. Twins of ScramMessagesTest (Kafka 4.3)."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import SaslAuthenticationError
from client_core.network.sasl.scram_messages import (
    ClientFinalMessage,
    ClientFirstMessage,
    ServerFinalMessage,
    ServerFirstMessage,
    auth_message,
)

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
@pytest.mark.parametrize(
    "message",
    [
        f"r={NONCE},s={SALT},i=4096",
        *[f"{reserved},r={NONCE},s={SALT},i=4096" for reserved in VALID_RESERVED],
        *[f"r={NONCE},s={SALT},i=4096,{extension}" for extension in VALID_EXTENSIONS],
    ],
)
def test_valid_server_first_message(message: str) -> None:
    parsed = ServerFirstMessage.parse(message.encode())
    assert parsed == ServerFirstMessage(message, NONCE, base64.b64decode(SALT), 4096)


@pytest.mark.java("ScramMessagesTest.invalidServerFirstMessage")
@pytest.mark.parametrize(
    "message",
    [
        f"r={NONCE},s={SALT},i=0",
        f"r={NONCE},s==123,i=4096",
        f"r={NONCE},invalid,s={SALT},i=4096",
        *[f"{reserved},r={NONCE},s={SALT},i=4096" for reserved in INVALID_RESERVED],
        *[f"r={NONCE},s={SALT},i=4096,{extension}" for extension in INVALID_EXTENSIONS],
    ],
)
def test_invalid_server_first_message(message: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="Invalid SCRAM server first message format"):
        ServerFirstMessage.parse(message.encode())


@pytest.mark.java("ScramMessagesTest.validServerFinalMessage")
@pytest.mark.parametrize(
    "message", [f"v={SIGNATURE}", *[f"v={SIGNATURE},{extension}" for extension in VALID_EXTENSIONS]]
)
def test_valid_server_final_message(message: str) -> None:
    parsed = ServerFinalMessage.parse(message.encode())
    assert parsed == ServerFinalMessage(None, b"signature of the server")


@pytest.mark.java("ScramMessagesTest.validServerFinalMessage")
@pytest.mark.parametrize("error", ["unknown-user", "other-error"])
def test_valid_server_final_message_with_an_error(error: str) -> None:
    assert ServerFinalMessage.parse(f"e={error}".encode()) == ServerFinalMessage(error, None)


@pytest.mark.java("ScramMessagesTest.invalidServerFinalMessage")
@pytest.mark.parametrize(
    "message",
    [
        "e=error1,error2",
        "v=1=23",
        *[f"v={SIGNATURE},{extension}" for extension in INVALID_EXTENSIONS],
        *[f"e=unknown-user,{extension}" for extension in INVALID_EXTENSIONS],
    ],
)
def test_invalid_server_final_message(message: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="Invalid SCRAM server final message format"):
        ServerFinalMessage.parse(message.encode())


@pytest.mark.parametrize("iterations", ["2147483648", "99999999999", "9" * 5000])
def test_iterations_beyond_an_int_are_refused_whatever_their_length(iterations: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=r"invalid iterations$"):
        ServerFirstMessage.parse(f"r={NONCE},s={SALT},i={iterations}".encode())


def test_iterations_may_have_zeros_in_front() -> None:
    message = f"r={NONCE},s={SALT},i=00000000000000008192".encode()
    assert ServerFirstMessage.parse(message).iterations == 8192


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
