"""A kept-alive HTTP/1.1 connection to a sidecar, and the errors of the data source.

It uses TCP, TLS or a Unix domain socket, with the standard library's client only: executors need nothing
else. A connection belongs to one task and one thread. It retries nothing (answers.py decides when to retry).
Errors of the library become these:

    PilotfishError
    ├── InvalidOptionError        an option or a column is wrong; raised before any job runs
    ├── SidecarUnreachableError   no answer, or a broken connection: the same request may succeed later
    ├── SidecarRefusedError       an answer that will not change
    └── DeliveryFailedError       records that were not written, by row and reason

Spark wraps them and shows their text: errors of options in an AnalysisException, errors of tasks in a
PythonException once the task was tried spark.task.maxFailures times.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.datasource.options import Access


#: Added to the request's deadline: the sidecar needs time to report that the deadline has passed.
_GRACE_S: Final = 10.0


class PilotfishError(PipelineError):
    """Any failure that this data source reports, with a message for people."""


class InvalidOptionError(PilotfishError):
    """The caller's error, found before anything is sent."""


class SidecarUnreachableError(PilotfishError):
    """No answer came. The request may have been executed nevertheless."""


class SidecarRefusedError(PilotfishError):
    """A refusal that a retry does not change."""


class DeliveryFailedError(PilotfishError):
    """Records that could not be written, or whose outcome is unknown."""


class Answer(NamedTuple):
    """A complete response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SidecarConnection:
    """A client of one sidecar. Use it as a context manager, or close it."""

    def __init__(self, access: Access) -> None:
        """Raises InvalidOptionError if the token file or the CA file can't be read."""
        self.address = access.address
        token = access.current_token()
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = access.timeout_ms / 1000 + _GRACE_S
        self._connection = _connection(access, self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Returns the answer, whatever its status. Raises SidecarUnreachableError if it is not complete."""
        sent = {**self._headers, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            if self._connection.sock is None:
                self._connection.connect()
            # The sidecar may refuse and close the connection while the body is still being sent.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._connection.request(method, path, body, sent)
            response = self._connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._connection.close()
            raise SidecarUnreachableError(self._reported(error)) from error

    def _reported(self, error: Exception) -> str:
        where = f"the sidecar at {self.address}"
        if isinstance(error, ConnectionRefusedError | FileNotFoundError | socket.gaierror):
            return (
                f"no sidecar answers at {self.address} ({_reason(error)}); start a sidecar there (`pilotfish "
                "serve`), or name another with the option url. Each executor asks its own network"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{where} shows a certificate that is not trusted ({error.verify_message}); name ca_file"
        if isinstance(error, TimeoutError):
            return f"{where} has not answered for {self._timeout_s:g} s"
        return f"{where} closed the connection ({_reason(error)})"


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


def _connection(access: Access, timeout_s: float) -> http.client.HTTPConnection:
    address = access.address
    if address.socket_path:
        return _UnixConnection(address.socket_path, timeout_s)
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except OSError as error:  # ssl.SSLError is one too
        raise InvalidOptionError(
            f"ca_file {access.ca_file} can't be read here ({_reason(error)}); it is a PEM file with "
            "certificates of authorities, on the driver and on each executor"
        ) from error
    # Set since Python 3.13. It refuses authorities that sidecars and Java accept, such as keytool's.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
