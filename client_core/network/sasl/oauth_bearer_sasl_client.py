"""OAUTHBEARER: sends the broker an identity provider's token.

    n,,^Aauth=Bearer <token>^A<extension>=<value>^A^A                    ^A: one byte, 1

The broker responds with an empty token, or with its error as JSON. The client answers an error with one ^A
(RFC 7628), and the broker then refuses in an error of SaslAuthenticate.

    SEND_CLIENT_FIRST_MESSAGE -> RECEIVE_SERVER_FIRST_MESSAGE -> COMPLETE
                                              └──> RECEIVE_SERVER_MESSAGE_AFTER_FAILURE

Pure. Source: OAuthBearerSaslClient, OAuthBearerClientInitialResponse, Kafka 4.3; RFC 7628, KIP-255, KIP-342.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError, IllegalSaslStateError, SaslAuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class _State(Enum):
    SEND_CLIENT_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_MESSAGE_AFTER_FAILURE = auto()
    COMPLETE = auto()


class OAuthBearerSaslClient:
    """One exchange of OAUTHBEARER."""

    __slots__ = ("_extensions", "_state", "_token")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._state = _State.SEND_CLIENT_FIRST_MESSAGE

    @property
    def complete(self) -> bool:
        return self._state is _State.COMPLETE

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        match self._state:
            case _State.SEND_CLIENT_FIRST_MESSAGE:
                if challenge:
                    raise SaslAuthenticationError("Expected empty challenge")
                self._state = _State.RECEIVE_SERVER_FIRST_MESSAGE
                return client_initial_response(self._token, self._extensions)
            case _State.RECEIVE_SERVER_FIRST_MESSAGE if challenge:
                self._state = _State.RECEIVE_SERVER_MESSAGE_AFTER_FAILURE
                return _SEPARATOR.encode()
            case _State.RECEIVE_SERVER_FIRST_MESSAGE:
                self._state = _State.COMPLETE
                return None
            case _:
                raise IllegalSaslStateError(f"Unexpected challenge in Sasl client state {self._state.name}")

    def __repr__(self) -> str:
        return f"<OAuthBearerSaslClient {self._state.name}>"


def client_initial_response(token: str, extensions: Mapping[str, str]) -> bytes:
    """Returns the only message with content."""
    pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions.items())
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}".encode()


def validate_extensions(extensions: Mapping[str, str], setting: str) -> None:
    """Raises ConfigError for an invalid name or value; values are not shown."""
    for name, value in extensions.items():
        if name == _AUTH or not _EXTENSION_NAME.fullmatch(name):
            raise ConfigError(
                f"{setting}: Extension name {name} is invalid: letters only, and not {_AUTH}", name=setting
            )
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(
                f"{setting}: Extension value for extension {name} is invalid: printable ASCII only",
                name=setting,
            )
