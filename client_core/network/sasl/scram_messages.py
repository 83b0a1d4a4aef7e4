"""Encodes and decodes the client's SCRAM messages.

    client-first   n,,n=<name>,r=<nonce>[,extensions]
    server-first   [m=<reserved>,]r=<nonce><more nonce>,s=<salt>,i=<iterations>[,extensions]
    client-final   c=biws,r=<nonce><more nonce>,p=<proof>            biws: base64 of `n,,`
    server-final   e=<error>  or  v=<signature>[,extensions]

Salt, proof and signature are base64. Pure. Source: ScramMessages, Kafka 4.3; RFC 5802.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import SaslAuthenticationError
from client_core.network.sasl.sasl_client import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_VALUE_SAFE: Final = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]+"  # neither `,` nor `=`
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"  # no `,`
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"  # no `,`
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"

_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_SERVER_FINAL: Final = re.compile(rf"e=(?P<error>{_VALUE_SAFE})|v=(?P<signature>{_BASE64}){_EXTENSIONS}")

#: Java counts iterations in an int.
_LARGEST_INT: Final = (1 << 31) - 1
_INT_DIGITS: Final = 10

#: Shown characters of an invalid message, and of an error.
_SHOWN_CHARACTERS: Final = 1_000

#: No channel binding, no other identity.
_GS2_HEADER: Final = "n,,"


@dataclass(frozen=True, slots=True)
class ClientFirstMessage:
    """Our name and our part of the nonce."""

    sasl_name: str
    nonce: str
    extensions: Mapping[str, str]

    @property
    def bare(self) -> str:
        """The message without its header, as the proofs use it."""
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return f"n={self.sasl_name},r={self.nonce}{extensions}"

    def __str__(self) -> str:
        return f"{_GS2_HEADER}{self.bare}"


@dataclass(frozen=True, slots=True)
class ServerFirstMessage:
    """The whole nonce, salt and iterations. `text` is the received message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int

    @staticmethod
    def parse(message: bytes) -> ServerFirstMessage:
        """Raises SaslAuthenticationError."""
        text = message.decode(errors="replace")
        found = _SERVER_FIRST.fullmatch(text)
        if found is None:
            raise SaslAuthenticationError(f"Invalid SCRAM server first message format: {_shown(text)}")
        digits = found["iterations"].lstrip("0")  # `int` takes only 4,300 digits, zeros included
        iterations = int(digits or "0") if len(digits) <= _INT_DIGITS else _LARGEST_INT + 1
        if iterations > _LARGEST_INT:
            raise SaslAuthenticationError("Invalid SCRAM server first message format: invalid iterations")
        if iterations == 0:
            raise SaslAuthenticationError("Invalid SCRAM server first message format: invalid iterations 0")
        return ServerFirstMessage(text, found["nonce"], base64.b64decode(found["salt"]), iterations)


@dataclass(frozen=True, slots=True)
class ClientFinalMessage:
    """The whole nonce again, and the proof that we know the password."""

    nonce: str

    @property
    def without_proof(self) -> str:
        """The part that the proofs use."""
        return f"c={_base64(_GS2_HEADER.encode())},r={self.nonce}"

    def with_proof(self, proof: bytes) -> str:
        """Returns the whole message."""
        return f"{self.without_proof},p={_base64(proof)}"


@dataclass(frozen=True, slots=True)
class ServerFinalMessage:
    """The broker's error, or its proof that it knows the password, too."""

    error: str | None
    server_signature: bytes | None

    @staticmethod
    def parse(message: bytes) -> ServerFinalMessage:
        """Raises SaslAuthenticationError."""
        text = message.decode(errors="replace")
        found = _SERVER_FINAL.fullmatch(text)
        if found is None:
            raise SaslAuthenticationError(f"Invalid SCRAM server final message format: {_shown(text)}")
        if found["error"] is not None:
            return ServerFinalMessage(_shown(found["error"]), None)
        return ServerFinalMessage(None, base64.b64decode(found["signature"]))


def auth_message(
    client_first: ClientFirstMessage, server_first: ServerFirstMessage, client_final: ClientFinalMessage
) -> bytes:
    """Returns the text of the exchange over which the client's proof and the server's signature are computed.

    Java rebuilds the broker's message from its parsed fields, which loses extensions. RFC 5802 requires the
    received text. Kafka's brokers send no extensions.
    """
    return f"{client_first.bare},{server_first.text},{client_final.without_proof}".encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _shown(text: str) -> str:
    return in_one_line(text, _SHOWN_CHARACTERS)
