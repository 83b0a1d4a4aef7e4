"""An application behind the listener's protocol, and one caller, without sockets.

    wired = Wired(app, app.answer_at_once)
    wired.connect()
    wired.send(b"GET / HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
    wired.taken()

The caller takes every byte at once. What the application does in tasks needs a running loop.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import ServerState

from service.listener.connections import Connections
from service.listener.http_protocol import ApiProtocol
from service.wire.cors import NO_CORS
from tests.support.served import limits

if TYPE_CHECKING:
    from service.wire.asgi import AnswerAtOnce, ASGIApp
    from service.wire.cors import Cors


class _Wire(asyncio.Transport):
    """A connection to a caller at once near and patient: takes every byte, and may close."""

    def __init__(self, *, is_unix: bool, is_tls: bool) -> None:
        class Own:
            family = socket.AF_UNIX if is_unix else socket.AF_INET

            def getpeername(self) -> Any:
                return "" if is_unix else ("127.0.0.1", 4711)

            def getsockname(self) -> Any:
                return "/socket" if is_unix else ("127.0.0.1", 8085)

        super().__init__({"socket": Own(), **({"sslcontext": object()} if is_tls else {})})
        self.said = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.said += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes unasked."""

    def resume_reading(self) -> None:
        """Nothing comes unasked."""


class Wired:
    """One connection after the other."""

    def __init__(
        self, app: ASGIApp, answer_at_once: AnswerAtOnce | None = None, cors: Cors = NO_CORS
    ) -> None:
        self._config = uvicorn.Config(
            app,
            http=ApiProtocol,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._config.load()
        self._state, self._connections, self._cors = ServerState(), Connections(limits()), cors
        self._answer_at_once = answer_at_once
        self._protocol: ApiProtocol | None = None
        self._wire = _Wire(is_unix=False, is_tls=False)

    def connect(self, *, is_unix: bool = False, is_tls: bool = False) -> None:
        """A new connection, in place of the one before."""
        self.hang_up()
        self._connections.accepted()
        self._wire = _Wire(is_unix=is_unix, is_tls=is_tls)
        self._protocol = ApiProtocol(
            self._config, self._state, {}, self._connections, self._cors, self._answer_at_once
        )
        self._protocol.connection_made(self._wire)

    def hang_up(self) -> None:
        """Ends the connection, if there is one."""
        if self._protocol is not None:
            self._protocol.connection_lost(None)
            self._protocol = None

    def send(self, data: bytes) -> None:
        assert self._protocol is not None
        self._protocol.data_received(data)

    def taken(self) -> bytes:
        """What was written since the last call."""
        said, self._wire.said = self._wire.said, b""
        return said

    @property
    def is_closed(self) -> bool:
        """Whether the server closes the connection."""
        return self._wire.is_closed

    @property
    def tasks(self) -> int:
        """How many requests the application works on."""
        return len(self._state.tasks)
