"""Runs uvicorn over our own listeners, for the API and for the admin listener.

All listeners share one lifespan, one set of connections and one shutdown. uvicorn alone serves its sockets
either all with TLS or all without. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Generator, Sequence
from typing import Final

import uvicorn

from service.listener.access_log import AccessLogged
from service.listener.connections import KEEP_ALIVE_S, Connections
from service.listener.http_protocol import ApiProtocol
from service.listener.listeners import Listener
from service.wire.asgi import AnswerAtOnce, ASGIApp
from service.wire.cors import NO_CORS, Cors

_log: Final = logging.getLogger(__name__)

#: After the producer has ended, all answers exist and only need writing. Slow readers would use up the pod's
#: grace period, of which 5 s are for everything after the drain.
_LAST_ANSWERS_S: Final = 2
#: How long requests may then take to notice that their connection was cut off. uvicorn cancels the others.
_LAST_REQUESTS_S: Final = 1

#: Files besides API connections: those of the brokers, of probes, and Python's own.
_OTHER_FILES: Final = 256


class ApiServer(uvicorn.Server):
    """An application on its listeners."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[Listener],
        connections: Connections,
        *,
        access_log: bool = False,
        cors: Cors = NO_CORS,
        answer_at_once: AnswerAtOnce | None = None,
        has_lifespan: bool = True,
    ) -> None:
        """`has_lifespan`: the application gets ASGI's lifespan events, and may fail at its start."""
        logged = AccessLogged(app) if access_log else None
        config = uvicorn.Config(
            app if logged is None else logged,
            http=ApiProtocol,
            ws="none",
            interface="asgi3",
            lifespan="on" if has_lifespan else "off",
            log_config=None,
            access_log=False,  # uvicorn's has neither duration nor trace
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            timeout_graceful_shutdown=_LAST_ANSWERS_S + _LAST_REQUESTS_S,
        )
        super().__init__(config)
        self._listeners = listeners
        self._connections = connections
        self._cors = cors
        if logged is not None and answer_at_once is not None:
            answer_at_once = logged.at_once(answer_at_once)
        self._answer_at_once = answer_at_once

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Installs none of uvicorn's signal handlers: ours have work to do first."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, then accepts."""
        await super().startup(sockets=[])
        for listener in self._listeners:
            listener.open(self._protocol, self._connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting, sends pending answers, and ends the application."""
        for listener in self._listeners:
            listener.close()
        cut_off = asyncio.get_running_loop().call_later(_LAST_ANSWERS_S, self._connections.cut_off)
        await super().shutdown()
        cut_off.cancel()

    def _protocol(self) -> ApiProtocol:
        return ApiProtocol(
            self.config,
            self.server_state,
            self.lifespan.state,
            self._connections,
            self._cors,
            self._answer_at_once,
        )


def connections_that_fit(wanted: int) -> int:
    """Returns how many connections the process may have. Raises its limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        raised = files if hard == resource.RLIM_INFINITY else min(files, hard)
        with contextlib.suppress(OSError, ValueError):  # not allowed here: the limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    fit = max(soft - _OTHER_FILES, soft // 2, 1)
    _log.warning(
        "%d connections are allowed, but only %d fit into the limit of %d open files; raise it (ulimit -n)",
        wanted,
        fit,
        soft,
    )
    return fit
