"""Requests a token from an OAuth token endpoint. `token_requests.py` formats the requests.

    POST /token
    grant_type=client_credentials&scope=...
                                          200 {"access_token": "...", ...}

It blocks, on the login's own thread. A temporary failure (no connection, timeout, 5xx, 429) raises
DisconnectError. A permanent one (other 4xx, a certificate, a response without a token) raises
SaslAuthenticationError. Errors never show a response, because it may hold tokens or repeat the request; only
an error JSON's code and description are shown. No proxies, no redirects. https is verified against the
system's authorities (OpenSSL's SSL_CERT_FILE counts), which are read for each request: they may be rotated.

Source: HttpJwtRetriever, JwtResponseParser, Kafka 4.3.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from client_core import forks
from client_core.errors import ConfigError, DisconnectError, SaslAuthenticationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.network.sasl.token_requests import RequestFormatter, TokenRequest
    from client_core.network.security_config import OAuthBearerConfig

TOKEN_ENDPOINT_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting

#: Tokens are some kilobytes.
_MAX_ANSWER_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024

_OK: Final = frozenset({200, 201})
#: Permanent codes outside 4xx, and temporary codes of 4xx.
_DEFINITE: Final = frozenset({501, 505})
_TEMPORARY: Final = frozenset({408, 425, 429})

_TOKEN_MEMBERS: Final = ("access_token", "id_token")

#: Error fields of RFC 6749, and Okta's.
_ERROR_MEMBERS: Final = (("error", "error_description"), ("errorCode", "errorSummary"))
_SHOWN_CHARACTERS: Final = 200

_REQUEST_TARGET: Final = re.compile(r"[\x21-\x7e]*")


class _Inherited:
    """The socket whose copy a forked child closes.

    It does not call the socket's `close`, which waits for the reading thread: the child lacks that thread,
    which may hold a lock.
    """

    __slots__ = ("__weakref__", "socket")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None

    def close(self) -> None:
        if self.socket is not None:
            os.close(self.socket.detach())


class HttpJwtRetriever:
    """One token endpoint. One thread calls `retrieve`, any `cancel`."""

    setting: Final = TOKEN_ENDPOINT_URL

    def __init__(self, config: OAuthBearerConfig, requests: RequestFormatter) -> None:
        """Raises ConfigError when the address is invalid."""
        self._config = config
        self._requests = requests
        self._is_https, self._host, self._port, self._target = _parts(config.token_endpoint_url or "")
        #: The endpoint for people: an address may hold secrets in its query.
        self.shown = _without_query(self._is_https, self._host, self._port, self._target)
        self._lock = threading.Lock()
        #: The current connection's socket: http.client drops it during a response that ends with it.
        self._inherited = _Inherited()
        forks.close_in_child(self._inherited)
        self._is_cancelled = False

    def retrieve(self) -> str:
        """Returns the token, unvalidated. Raises DisconnectError, SaslAuthenticationError."""
        request = self._requests.format()
        try:
            status, body = self._ask(request)
        except ssl.SSLCertVerificationError as error:
            raise SaslAuthenticationError(
                f"the certificate of {self.shown} was refused: {error.verify_message}"
            ) from None
        except TimeoutError:
            raise DisconnectError(f"{self.shown} did not answer in time") from None
        except (OSError, http.client.IncompleteRead) as error:
            raise DisconnectError(f"{self.shown} can't be reached: {_sentence(error)}") from None
        except http.client.HTTPException as error:
            raise SaslAuthenticationError(
                f"{self.shown} does not speak HTTP ({type(error).__name__})"
            ) from None
        if status not in _OK:
            raise self._refusal(status, body, request)
        return self._token(body, request)

    def cancel(self) -> None:
        """Makes `retrieve` fail, now and always; a connect in progress ends at its timeout."""
        with self._lock:
            self._is_cancelled = True
        self._shut_down()

    def _shut_down(self) -> None:
        """Ends the connection, if any, while another thread may wait for it."""
        with self._lock:
            opened = self._inherited.socket
        if opened is not None:
            with suppress(OSError):  # already ended
                # Not SSLSocket's shutdown, which would remove the TLS object of the reading thread.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    def _ask(self, request: TokenRequest) -> tuple[int, bytes]:
        try:
            with self._within(2 * self._config.connect_timeout_ms):  # TCP, then TLS
                connection = self._connect()
            with self._within(self._config.read_timeout_ms):
                return self._exchange(connection, request)
        finally:
            with self._lock:
                opened, self._inherited.socket = self._inherited.socket, None
            if opened is not None:
                opened.close()

    def _connect(self) -> http.client.HTTPConnection:
        """Returns a connection; `_inherited` has its socket from the start."""
        context = _context() if self._is_https else None
        connection = (
            http.client.HTTPConnection(self._host, self._port)
            if context is None
            else http.client.HTTPSConnection(self._host, self._port, context=context)
        )
        self._ensure_not_cancelled()
        connect_timeout_s = self._config.connect_timeout_ms / 1000
        opened = socket.create_connection((connection.host, connection.port), connect_timeout_s)
        self._inherited.socket = opened
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            secured = context.wrap_socket(
                opened, server_hostname=connection.host, do_handshake_on_connect=False
            )
            self._inherited.socket = opened = secured
            self._ensure_not_cancelled()
            secured.do_handshake()
        connection.sock = opened
        return connection

    def _ensure_not_cancelled(self) -> None:
        with self._lock:
            if self._is_cancelled:
                raise DisconnectError("the client is closing")

    def _exchange(self, connection: http.client.HTTPConnection, request: TokenRequest) -> tuple[int, bytes]:
        """Returns status and body of the response."""
        connection.sock.settimeout(self._config.read_timeout_ms / 1000)
        connection.request("POST", self._target, request.body, request.headers)
        self._ensure_not_cancelled()
        response = connection.getresponse()
        try:
            body = bytearray()
            # Not `read`: of a chunk with a negative size it reads all that comes.
            while len(body) <= _MAX_ANSWER_BYTES and (piece := response.read1(_PIECE_BYTES)):
                body += piece
            if response.length and len(body) <= _MAX_ANSWER_BYTES:  # `read1` does not raise this
                raise http.client.IncompleteRead(bytes(body))
        finally:
            response.close()
        return response.status, bytes(body)

    @contextmanager
    def _within(self, timeout_ms: int) -> Iterator[None]:
        """Ends the connection, and raises TimeoutError, if the block takes longer.

        A socket's own timeout restarts with each byte: a slow endpoint could block the thread forever.
        """
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self._shut_down()

        timer = threading.Timer(timeout_ms / 1000, end)
        timer.name, timer.daemon = "pilotfish-oauthbearer-deadline", True
        timer.start()
        try:
            yield
            if is_late.is_set():  # the result is truncated
                raise TimeoutError
        except (OSError, http.client.HTTPException):
            if is_late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
            timer.join()

    def _refusal(
        self, status: int, body: bytes, request: TokenRequest
    ) -> DisconnectError | SaslAuthenticationError:
        text = f"{self.shown} answered {status}{_said(body, request)}"
        if 300 <= status < 400:
            return SaslAuthenticationError(f"{text}: redirects are not followed; set {TOKEN_ENDPOINT_URL}")
        is_definite = (400 <= status < 500 and status not in _TEMPORARY) or status in _DEFINITE
        return SaslAuthenticationError(text) if is_definite else DisconnectError(text)

    def _token(self, body: bytes, request: TokenRequest) -> str:
        if len(body) > _MAX_ANSWER_BYTES:
            raise SaslAuthenticationError(
                f"the answer of {self.shown} is larger than {_MAX_ANSWER_BYTES} bytes"
            )
        answer = _json_object(body)
        for member in _TOKEN_MEMBERS:
            value = answer.get(member)
            if isinstance(value, str) and value.strip():
                return value.strip()
        said = _said(body, request)  # some answer an error with 200
        raise SaslAuthenticationError(f"the answer of {self.shown} did not contain a token{said}")

    def __repr__(self) -> str:
        return f"<HttpJwtRetriever {self.shown}>"


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # Set since Python 3.13. It refuses authorities that Java accepts, and that we accept of brokers.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _parts(url: str) -> tuple[bool, str, int | None, str]:
    """Returns whether it is https, the host, the port and the request target. Raises ConfigError."""
    try:
        split = urlsplit(url)
        port = split.port
        (split.hostname or "").encode("idna")  # the socket will do the same
    except ValueError:
        raise ConfigError(f"{TOKEN_ENDPOINT_URL} is not a URL", name=TOKEN_ENDPOINT_URL) from None
    if split.scheme not in ("http", "https") or not split.hostname:
        raise ConfigError(
            f"{TOKEN_ENDPOINT_URL} must begin with https://, http:// or file:///", name=TOKEN_ENDPOINT_URL
        )
    if split.username is not None or split.password is not None:
        raise ConfigError(
            f"{TOKEN_ENDPOINT_URL} contains a user name; set "
            "sasl.oauthbearer.client.credentials.client.id and"
            " .client.secret instead",
            name=TOKEN_ENDPOINT_URL,
        )
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    if not _REQUEST_TARGET.fullmatch(target) or not _REQUEST_TARGET.fullmatch(split.hostname):
        raise ConfigError(
            f"{TOKEN_ENDPOINT_URL} has invalid characters; percent-encode them",
            name=TOKEN_ENDPOINT_URL,
        )
    return split.scheme == "https", split.hostname, port, target


def _without_query(is_https: bool, host: str, port: int | None, target: str) -> str:
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority = f"{authority}:{port}"
    return f"{'https' if is_https else 'http'}://{authority}{target.partition('?')[0]}"


def _said(body: bytes, request: TokenRequest) -> str:
    """Returns what is shown of an error, in parentheses; empty without one."""
    # Shortened last: of a secret that was cut in two, a half would be shown.
    said = request.masked(_explanation(body))[:_SHOWN_CHARACTERS]
    return f" ({said})" if said else ""


def _explanation(body: bytes) -> str:
    """Returns an error JSON's code and description in one line; empty without them."""
    answer = _json_object(body)
    for members in _ERROR_MEMBERS:
        said = [answer[member] for member in members if isinstance(answer.get(member), str)]
        if said:
            text = " - ".join(str(part) for part in said)
            return "".join(c if c.isprintable() else " " for c in text)
    return ""


def _json_object(body: bytes) -> dict[str, object]:
    """Returns an empty object when the body is no JSON object."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _sentence(error: OSError | http.client.IncompleteRead) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended within the answer"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection ended before the answer"
    return (error.strerror or type(error).__name__).lower()
