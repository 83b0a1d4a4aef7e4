"""Reads the OAUTHBEARER token from a file, which another program renews, such as a kubelet.

Each authentication checks the file and reads it again if it changed, so no thread is needed. An invalid new
token is logged once; the last one stays in use until it expires. I/O thread. Source: FileJwtRetriever,
CachedFile, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from client_core.errors import ConfigError, SaslAuthenticationError
from client_core.network.sasl.http_jwt_retriever import TOKEN_ENDPOINT_URL
from client_core.network.secret import InForce, Secret, SecretSource

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.sasl.client_jwt_validator import ClientJwtValidator, OAuthBearerToken


class FileLogin:
    """TokenSource over a file. One owner thread."""

    def __init__(self, url: str, validator: ClientJwtValidator, clock: Clock, events: EventSink) -> None:
        """Raises ConfigError when the file is missing or holds no token."""
        self._path = _path(url)
        self._validator = validator
        self._clock = clock
        secret = Secret(SecretSource(TOKEN_ENDPOINT_URL, path=self._path), events)
        self._token = InForce(secret.read, self._validated, events)

    def token(self) -> OAuthBearerToken:
        """Returns the file's token. Raises SaslAuthenticationError when it has expired."""
        token = self._token.now()
        past_ms = self._clock.wall_ms() - token.lifetime_ms
        if past_ms >= 0:
            raise SaslAuthenticationError(
                f"the token in {self._path} expired {past_ms // 1000} s ago; renew the file,"
                " and check that the clocks agree"
            )
        return token

    @property
    def principal_name(self) -> str | None:
        return self._token.now().principal_name

    def close(self) -> None:
        """Does nothing."""

    def _validated(self, text: str) -> OAuthBearerToken:
        try:
            return self._validator.validate(text)
        except SaslAuthenticationError as error:
            raise ConfigError(
                f"{TOKEN_ENDPOINT_URL}: {self._path} has no usable token: {error.message}",
                name=TOKEN_ENDPOINT_URL,
            ) from None

    def __repr__(self) -> str:
        return f"<FileLogin {self._path}>"


def _path(url: str) -> str:
    split = urlsplit(url)
    path = unquote(split.path)
    if split.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(
            f"{TOKEN_ENDPOINT_URL} must be file:// and an absolute path, as file:///var/run/token",
            name=TOKEN_ENDPOINT_URL,
        )
    return path
