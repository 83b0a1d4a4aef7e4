"""The sidecar's application over a fake producer, asked without a socket.

    with_app = HttpApp()
    with_app.producer.set_topics({"orders": 3})
    with_app.get("/v1/topics/orders").json()

`get` and `post` run one request each on a loop of its own; scenarios with several at once use `client()`
inside one `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from service.base.settings import LIMITS, InternalLimits, Settings
from service.process.app import App
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeProducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.spool.spool import Spool
    from tests.support.fake_producer import FakeTicket


class HttpApp:
    """One app and its fake producer."""

    def __init__(
        self, *, kafka: dict[str, str] | None = None, producer: FakeProducer | None = None, **settings: Any
    ) -> None:
        self.producer = producer or FakeProducer()
        #: That of the spool, where there is one; it has the same clock.
        self.spool_producer = FakeProducer(clock=self.producer.clock)
        internal = InternalLimits(**{name: settings.pop(name) for name in LIMITS if name in settings})
        self.settings = Settings(
            kafka={"bootstrap.servers": "localhost:9092", **(kafka or {})}, internal=internal, **settings
        )
        self.app: App = App(self.settings, self.producer, spool=self._spool())
        self.producer.events = self.app.events

    def _spool(self) -> Spool | None:
        """On a disk that a test may have fail; nothing of it is loaded where there is no spool."""
        if not self.settings.spool_folder:
            return None
        from service.spool.spool import Spool
        from tests.support.spooling import BadDisk

        return Spool(self.settings, self.spool_producer, self.producer.clock, BadDisk())

    @property
    def version(self) -> str:
        """Pilotfish-Metadata-Version as it is now."""
        return f"{self.app.sidecar.boot}-{self.producer.cache.update_version}"

    def client(self, app: Any = None) -> httpx.AsyncClient:
        """A client of this app, or of a part of it."""
        transport = httpx.ASGITransport(app=app or self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def get(self, path: str, **sent: Any) -> httpx.Response:
        return self.ask("GET", path, **sent)

    def post(self, path: str, **sent: Any) -> httpx.Response:
        return self.ask("POST", path, **sent)

    def produce(self, body: bytes | str, topic: str = "orders", query: str = "") -> httpx.Response:
        """Posts a raw body of records."""
        headers = {"content-type": "application/json"}
        return self.post(f"/v1/topics/{topic}/records{query}", content=body, headers=headers)

    def ask(
        self,
        method: str,
        path: str,
        *,
        app: Any = None,
        ends: Callable[[FakeTicket], object] | None = None,
        **sent: Any,
    ) -> httpx.Response:
        """One request. `ends` gets the ticket that it waits with, and ends it."""

        async def once() -> httpx.Response:
            async with self.client(app) as client:
                asked = asyncio.ensure_future(client.request(method, path, **sent))
                if ends is not None:
                    await until(lambda: self.producer.waiting or asked.done())
                    ends(self.producer.waiting[0])
                return await asked

        return run(once())


class NativeApp(HttpApp):
    """The native API alone. Most of the time of a small test would go into the routes of the dialects."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(dialects=(), **settings)
