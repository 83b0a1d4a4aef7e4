"""The sidecar's server in this process, over a fake producer, with clients of both of its listeners.

    running = RunningServer(drain_delay_ms=300)
    async with running.clients() as (api, admin):
        terminate()
    assert running.ended.result() == 0

Signals go to the test's own process, whose event loop the server runs on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

from service.base.settings import LIMITS, InternalLimits, Settings
from service.process.app import App
from service.process.server import SidecarServer, bound_socket
from tests.support.fake_producer import FakeProducer
from tests.support.plain_http import NO_TLS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RunningServer:
    """One server; `own`: it starts and closes the producer. `settings` may name InternalLimits too."""

    def __init__(self, *, own: bool = True, **settings: Any) -> None:
        self.producer = FakeProducer()
        self.producer.set_topics({"orders": 3})
        internal = InternalLimits(**{name: settings.pop(name) for name in LIMITS if name in settings})
        values = {"kafka": {"bootstrap.servers": "localhost:9092"}, "internal": internal, **settings}
        self.app = App(Settings.model_validate(values), self.producer, owns_producer=own)
        self.producer.sink = self.app.completions
        self._sockets = [bound_socket("127.0.0.1", 0, "port") for _ in range(2)]
        self.api_port, self.admin_port = (bound.getsockname()[1] for bound in self._sockets)
        self.ended: asyncio.Task[int]

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
        """Runs the server; at the end it is stopped, if it was not before."""
        api_url, admin_url = (f"http://127.0.0.1:{port}" for port in (self.api_port, self.admin_port))
        self.ended = asyncio.create_task(SidecarServer(self.app, *self._sockets).run())
        async with (
            httpx.AsyncClient(base_url=api_url, verify=NO_TLS) as api,
            httpx.AsyncClient(base_url=admin_url, verify=NO_TLS) as admin,
        ):
            while (await admin.get("/startupz")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            yield api, admin
            if not self.ended.done() and not self.app.sidecar.drain.announced:
                terminate()
            await self.ended

    async def raw(self, request: bytes) -> bytes:
        """What comes back of the API's port for these bytes, until the sidecar closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.api_port)
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()


def terminate() -> None:
    """SIGTERM, to this process."""
    os.kill(os.getpid(), signal.SIGTERM)
