"""Asks a running sidecar over HTTP and turns every way to fail into one sentence with a remedy.

The standard library's client is enough: a command makes one connection and a few requests.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A produce may wait for max.block.ms (60 s) and delivery.timeout.ms (120 s) before the sidecar answers.
_PATIENCE_S: Final = 190.0


class SidecarFailedError(click.ClickException):
    """The sidecar refused, or nobody answered. Exit code 1, the sentence on standard error."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Where a sidecar listens."""

    host: str
    port: int
    timeout_s: float = _PATIENCE_S

    def get(self, *segments: str, **query: str | int | bool | None) -> object:
        """The JSON of a GET; path segments are quoted, parameters that are None left out.

        Raises SidecarFailedError with the problem's own words.
        """
        status, body = self.ask("GET", _path(segments, query))
        return _answer(status, body)

    def post(self, *segments: str, body: bytes, **query: str | int | bool | None) -> object:
        """The JSON of a POST. Answers of 207 count: their items tell which failed."""
        status, answer = self.ask("POST", _path(segments, query), body)
        return _answer(status, answer)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body as they came. Raises SidecarFailedError when nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise SidecarFailedError(
                f"no Pilotfish answers at {self.host}:{self.port} ({_reason(error)}). "
                "Start one with `pilotfish serve`, or name its port with --api-port / --admin-port."
            ) from error
        finally:
            connection.close()


def _path(segments: tuple[str, ...], query: Mapping[str, str | int | bool | None]) -> str:
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    asked = {name: str(value).lower() if value is True else value for name, value in query.items() if value}
    asked |= {name: value for name, value in query.items() if value == 0 and value is not False}
    return f"{path}?{urlencode(asked)}" if asked else path


def _answer(status: int, body: bytes) -> object:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise SidecarFailedError(f"not Pilotfish: an answer of status {status} without JSON") from error
    if status >= 400:
        raise SidecarFailedError(_problem(status, answer))
    return answer


def _problem(status: int, answer: object) -> str:
    """What problem+json says, on one line."""
    if not isinstance(answer, dict):
        return f"the sidecar answered {status}"
    told = answer.get("detail") or answer.get("title") or f"the sidecar answered {status}"
    named = answer.get("kafka_error")
    name = named.get("name") if isinstance(named, dict) else named
    return f"{told} [{name}]" if name else str(told)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
