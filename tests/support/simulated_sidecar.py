"""The sidecar's application over a whole client and brokers of this process, in simulated time.

    sidecar = SimulatedSidecar()
    sidecar.create("orders", 3)
    answer = await sidecar.get("/v1/topics/orders")
    await sidecar.sleep(60_000)
    sidecar.brokers.silent = {1, 2, 3}              these brokers read requests and never answer

No socket and no thread: `get` and `sleep` turn the client's I/O thread by hand. An hour without look-ups
costs some milliseconds. A request takes as long as the client needs, in simulated milliseconds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import httpx

from client_core import NO_EVENTS
from client_core.protocol.api_keys import ApiKey
from client_core.testing.metadata_cache import MetadataCache, UpdateMetadata
from client_core.testing.reactions import Reaction
from service.base.settings import Settings
from service.process.app import App
from service.process.health import Health
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.hostile_load import LocalNames, hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core import Event, EventSink, KafkaProducer
    from client_core.testing.reactions import Sending
    from client_core.testing.requests import Response
    from service.spool.spool import Spool

_START_MS: Final = 1_000_000


class _Brokers(InProcessBrokers):
    """Brokers that count what they answer. They may be silent, or know no topic."""

    def __init__(self, brokers: int) -> None:
        super().__init__(brokers)
        self.silent: set[int] = set()
        #: Brokers that read requests of an API and never answer them.
        self.silent_for: set[tuple[int, ApiKey | None]] = set()
        #: The pause that brokers ask for in answers to Produce.
        self.throttle_ms = 0
        self.amnesiac: set[int] = set()
        self.asked: list[int] = []
        self.answered_bytes = 0

    def answer(self, broker_id: int, payload: bytes) -> Sending | None:
        self.asked.append(broker_id)
        if broker_id in self.silent or (broker_id, api_of(payload)) in self.silent_for:
            return None
        caches = self.state.caches
        known = caches[broker_id]
        if broker_id in self.amnesiac:
            caches[broker_id] = _without_topics(known)
        sending = super().answer(broker_id, payload)
        caches[broker_id] = known
        if sending is not None:
            self.answered_bytes += sum(map(len, sending.pieces))
        return sending

    def reaction(self, broker_id: int, api: ApiKey) -> Reaction:
        if self.throttle_ms and api is ApiKey.PRODUCE:
            return _Throttled(self.throttle_ms)
        return super().reaction(broker_id, api)


def api_of(payload: bytes) -> ApiKey | None:
    """The API of a request without its size."""
    return ApiKey.of(int.from_bytes(payload[:2], "big"))


@dataclass(frozen=True, slots=True)
class _Throttled(Reaction):
    throttle_ms: int = 0

    def encode(self, response: Response, version: int) -> bytes:
        return response._replace(throttle_time_ms=self.throttle_ms).encode(version)  # type: ignore[call-arg]


def _without_topics(cache: MetadataCache) -> MetadataCache:
    """What a broker knows that has just started."""
    empty = MetadataCache()
    empty.update_cache(UpdateMetadata(cache.controller_id or 0, 0, tuple(cache.alive_brokers), {}))
    return empty


class LateSink:
    """Passes events on, once it is known where to."""

    def __init__(self) -> None:
        self.sink: EventSink = NO_EVENTS

    def emit(self, event: Event, /) -> None:
        self.sink.emit(event)


class SimulatedSidecar:
    """One app, its client and its brokers."""

    def __init__(self, *, brokers: int = 3, kafka: Mapping[str, str] | None = None, **settings: Any) -> None:
        """`kafka` and `settings` are settings by their names."""
        self.clock = MockClock(now_ms=_START_MS)
        self.brokers = _Brokers(brokers)
        self.network = HostileNetwork(self.clock, self.brokers, Random(3))
        bootstrap = {"bootstrap.servers": f"{HOST}:{FIRST_PORT}", "linger.ms": "0"}
        self.settings = Settings(kafka=bootstrap | dict(kafka or {}), **settings)
        self._wakeup_ms = 0
        self.names = LocalNames(HOST)
        sink, of_client = LateSink(), LateSink()
        self.producer: KafkaProducer = hostile_producer(
            self.settings.producer_config(),
            self.clock,
            self.network,
            Random(5),
            (HOST, FIRST_PORT),
            sink,
            client_events=of_client,
            names=self.names,
        )
        of_client.sink = self.producer._refreshes
        self.app = App(self.settings, self.producer, spool=self._spool())
        sink.sink = self.app.events

    def _spool(self) -> Spool | None:
        """The spool that the app gets: none here."""
        return None

    @property
    def cluster_id(self) -> str:
        return "in-process"

    @property
    def sent(self) -> list[int]:
        """The brokers that were sent a request, for each one."""
        return self.brokers.asked

    @property
    def controller(self) -> Any:
        """The controller of the brokers: topics are made, changed and deleted there."""
        return self.brokers.state.controller

    @property
    def refreshes(self) -> int:
        """The number of refreshes for age that brokers have answered."""
        metrics = self.app.client_metrics.collect()
        (family,) = [f for f in metrics if f.name == "pilotfish_metadata_refreshes"]
        wanted = {"reason": "age", "outcome": "success"}
        return int(sum(s.value for s in family.samples if s.labels == wanted and s.name.endswith("_total")))

    async def ask(self, method: str, path: str, *, step_ms: int = 1, **sent: Any) -> httpx.Response:
        """One request. The clock goes on in steps, and stops when it is answered."""
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = asyncio.ensure_future(client.request(method, path, **sent))
            while not asked.done():
                for _ in range(20):
                    await asyncio.sleep(0)
                if not asked.done():
                    self._turn(step_ms)
            return await asked

    async def get(self, path: str) -> httpx.Response:
        return await self.ask("GET", path)

    async def sleep(self, ms: int) -> None:
        """Lets so much time pass."""
        until_ms = self.clock.now_ms() + ms
        while (left_ms := until_ms - self.clock.now_ms()) > 0:
            self._turn(left_ms)
            await asyncio.sleep(0)

    def _turn(self, at_most_ms: int) -> None:
        now_ms = self.clock.now_ms()
        # One wakeup at a time: those of turns that ended earlier would make all later turns shorter.
        if not now_ms < self._wakeup_ms <= now_ms + at_most_ms:
            self._wakeup_ms = now_ms + at_most_ms
            self.network.after(at_most_ms, self.network.wakeup)
        self.producer.io_thread.turn()

    async def readiness(self) -> str | None:
        """What /readyz finds at fault. The time that it waits for a broker is not simulated."""
        health = Health(self.app.sidecar, asyncio.get_running_loop(), lambda: True)
        return await health.fault_of_readiness()

    def close(self) -> None:
        self.producer.close(0)
