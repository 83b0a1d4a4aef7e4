"""uvicorn as the API's server, over listeners of our own: one lifespan, one set of connections, one end.

uvicorn serves one kind of socket only: all of them with TLS, or none. Event loop only.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections.abc import Generator, Sequence
from typing import Final

import uvicorn

from service.listener.connections import KEEP_ALIVE_S, Connections
from service.listener.http_protocol import ApiProtocol
from service.listener.listeners import Listener
from service.wire.asgi import ASGIApp
from service.wire.cors import Cors

_log: Final = logging.getLogger(__name__)

#: After the producer has ended, every answer is there and only has to be written. Who does not take it by
#: then would cost a pod its grace period, of which 5 s are meant for all that comes after the drain.
_LAST_ANSWERS_S: Final = 2

#: Files that are not the API's connections: those of the brokers, of probes, and what Python has open.
_OTHER_FILES: Final = 256


class ApiServer(uvicorn.Server):
    """The API on its listeners."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[Listener],
        connections: Connections,
        *,
        access_log: bool,
        cors: Cors,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=ApiProtocol,
            ws="none",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            access_log=access_log,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
        )
        super().__init__(config)
        self._listeners = listeners
        self._connections = connections
        self._cors = cors

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """None of uvicorn's own: ours know what to do first."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, then accepts."""
        await super().startup(sockets=[])
        for listener in self._listeners:
            listener.open(self._protocol, self._connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts nothing more, lets the answers that are due go out, and ends the application."""
        for listener in self._listeners:
            listener.close()
        await super().shutdown()

    def _protocol(self) -> ApiProtocol:
        return ApiProtocol(self.config, self.server_state, self.lifespan.state, self._connections, self._cors)


def connections_that_fit(wanted: int) -> int:
    """How many connections the process may have: its limit of files is raised as far as that goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        raised = files if hard == resource.RLIM_INFINITY else min(files, hard)
        with contextlib.suppress(OSError, ValueError):  # not allowed here: it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    fit = max(soft - _OTHER_FILES, soft // 2, 1)
    _log.warning(
        "max_connections: %d are wanted, and %d fit into the limit of %d files (ulimit -n)", wanted, fit, soft
    )
    return fit
