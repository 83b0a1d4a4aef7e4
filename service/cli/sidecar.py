"""Calls a running sidecar over HTTP; reports each failure as a short text, with a remedy if one is known.

Uses TCP, or the Unix domain socket if one is given. The standard library's client is enough: a command makes
one connection and a few requests. A health check runs this every half minute, so pydantic is not loaded here.
"""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import click

from service.base.environment import TOKEN_VARIABLE
from service.base.logs import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

_Model = TypeVar("_Model", bound="BaseModel")

PORT: Final = click.IntRange(1, 65535)

#: A produce may wait for max.block.ms (60 s) and delivery.timeout.ms (120 s) before the answer.
_PATIENCE_S: Final = 190.0

#: One can listen at these addresses, but not connect to them. A server that listens there also listens at
#: loopback.
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - asked, not bound


class SidecarFailedError(click.ClickException):
    """The sidecar refused, or did not answer. Exit code 1, the text on standard error."""


class InterruptedByUserError(click.ClickException):
    """The user pressed Ctrl-C; the message has the known progress.

    The exit code is the one that shells use for SIGINT.
    """

    exit_code = 130


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar's address, and the token for it.

    `port_option` is the option that a user would set for another port.
    """

    host: str
    port: int
    timeout_s: float = _PATIENCE_S
    port_option: str = "--api-port"
    token: str | None = field(default=None, repr=False)
    socket_path: str = ""

    @property
    def address(self) -> str:
        if self.socket_path:
            return self.socket_path
        host = _LOOPBACK_OF.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def get(self, model: type[_Model], *segments: str, **query: str | int | bool | None) -> Answer[_Model]:
        """Returns the answer to a GET; quotes path segments, leaves out parameters that are None.

        Raises SidecarFailedError with the problem's own text.
        """
        status, body = self.ask("GET", _path(segments, query))
        return self.answer_of(model, status, body)

    def post(
        self, model: type[_Model], *segments: str, body: bytes, **query: str | int | bool | None
    ) -> Answer[_Model]:
        """Returns the answer to a POST. A 207 is a success: its items contain the failures."""
        status, answer = self.ask("POST", _path(segments, query), body)
        return self.answer_of(model, status, answer)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body, unparsed. Raises SidecarFailedError if there is no answer."""
        connection = self._connection()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            raise SidecarFailedError(
                f"no Pilotfish answers at {self.address} ({_reason(error)}). "
                f"Start one with `pilotfish serve`, or name its {self._where_else()}."
            ) from error
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise SidecarFailedError(
                f"{self.address} accepted the request, but has not answered for {self.timeout_s:g} s. "
                f"{self._if_not_pilotfish()}"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            limit = "the sidecar's limit is max_body_bytes"
            size = f"The request had {len(body)} bytes ({limit}). " if body else ""
            raise SidecarFailedError(
                f"{self.address} closed the connection: {_reason(error)}. {size}{self._if_not_pilotfish()}"
            ) from error
        finally:
            connection.close()

    def answer_of(self, model: type[_Model], status: int, body: bytes) -> Answer[_Model]:
        """Returns the parsed result of `ask`. Raises SidecarFailedError with the problem's own text."""
        try:
            raw = json.loads(body)
            if status >= 400:
                raise SidecarFailedError(_problem(status, raw))
            return Answer(raw, model.model_validate(raw))
        except ValueError as error:  # no JSON, or not the model's; pydantic's error is a ValueError
            raise SidecarFailedError(
                f"{self.address} answers with status {status}, but not as Pilotfish's API does. "
                f"Give Pilotfish's {self._where_else()}."
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        if self.socket_path:
            return _UnixConnection(self.socket_path, self.timeout_s)
        host = _LOOPBACK_OF.get(self.host, self.host)
        return http.client.HTTPConnection(host, self.port, timeout=self.timeout_s)

    def _if_not_pilotfish(self) -> str:
        return f"If this is not Pilotfish, give Pilotfish's {self._where_else()}."

    def _where_else(self) -> str:
        """Returns the option for another address."""
        return "socket with --api-socket" if self.socket_path else f"port with {self.port_option}"


class _UnixConnection(http.client.HTTPConnection):
    """The standard library's client over a Unix domain socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(self.timeout)
            made.connect(self._path)
        except BaseException:
            made.close()
            raise
        self.sock = made


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Model]):
    """The sidecar's answer: raw, and parsed."""

    raw: object
    read: _Model


def _path(segments: tuple[str, ...], query: Mapping[str, str | int | bool | None]) -> str:
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    asked = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(asked)}" if asked else path


def _problem(status: int, answer: object) -> str:
    """Returns a problem+json document's text, on one line."""
    if not isinstance(answer, dict):
        return f"the sidecar answered {status}"
    reported = harmless(str(answer.get("detail") or answer.get("title") or f"the sidecar answered {status}"))
    if status == 401:
        reported = f"{reported}. Give one in {TOKEN_VARIABLE}, or in a file by --token-file"
    name = answer.get("kafka_error")
    reported = f"{reported} [{harmless(str(name))}]" if name else reported
    return f"{reported} (it may still have been written)" if answer.get("written") == "unknown" else reported


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
