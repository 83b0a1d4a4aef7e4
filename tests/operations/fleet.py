"""Many sidecars and three brokers of limited speed, in simulated time: how a fleet recovers.

    with Fleet(100, seed=1) as fleet:
        fleet.run(60_000)                           milliseconds
        fleet.kill_all(20_000)                      every broker is down for so long
        fleet.run(60_000)
        fleet.rate("Metadata", 1, since, until)     requests a second that came to a broker

`python -m tests.operations.fleet 1000` prints what a restart of all brokers costs each of them: the table in
docs/operations.md.

Each sidecar is the product's own, from Guards to NetworkClient (tests/simulation/sidecar.py): none of its
times is a copy. A broker takes requests in their order, and each takes time, so that queues grow. What it
has read is served even if the client has left meanwhile, as in Kafka: that work is wasted. A caller is an
open loop; one that is refused repeats its request.
"""

from __future__ import annotations

import heapq
import logging
import math
import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.protocol.api_keys import ApiKey
from client_core.testing.metadata_cache import AliveBroker, MetadataCache
from service.base.settings import Settings
from tests.simulation.callers import post_scope
from tests.simulation.network import Link
from tests.simulation.sidecar import Process
from tests.simulation.wire import WireTrace
from tests.simulation.world import SimulatedClock, SimulatedLoop, World
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.simulated_sidecar import api_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.wire.asgi import Message, Scope
    from tests.simulation.network import Connection

BROKERS: Final = (1, 2, 3)
TOPICS: Final = tuple(f"topic-{n}" for n in range(12))
PARTITIONS: Final = 6
#: How long a broker works on a request of each API, and on each record of it, in milliseconds.
_WORK_MS: Final[Mapping[ApiKey, float]] = {ApiKey.METADATA: 0.5, ApiKey.PRODUCE: 1.0}
_LEAST_WORK_MS: Final = 0.1
#: What rates are counted in.
BUCKET_MS: Final = 100
_BOOTSTRAP: Final = ",".join(f"{HOST}:{FIRST_PORT + n}" for n in range(len(BROKERS)))
#: The fleet's brokers keep no more than that of a partition.
_RETAINED_BYTES: Final = 10_000
_CALLERS_TIMEOUT_MS: Final = 10_000
_MOST_TRIES: Final = 10


class _Untraced(WireTrace):
    """Keeps nothing: a fleet's traffic is much, and nobody judges it."""

    def sent(self, client: str, now_ms: int, frame: bytes) -> None:
        """Ignored."""


class _Turns(World):
    """The threads of one sidecar. They run when something has happened to it, and until none of them can."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        super().__init__(number)
        self._wakes_at_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The fleet's time."""
        return self._fleet.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        """Nothing: only the fleet's time passes."""

    def at(self, delay_ms: int, act: Callable[[], object]) -> None:
        self._fleet.at(delay_ms, partial(self.do, act))

    def do(self, act: Callable[[], object]) -> None:
        """Has something happen to the sidecar, and its threads take the turns that follow from it."""
        act()
        now_ms = self._fleet.now_ms
        next_ms: int | None = now_ms
        while next_ms is not None and next_ms <= now_ms:
            next_ms = None
            for actor in self._actors:
                due_ms = actor.due_ms(now_ms)
                if due_ms is not None and due_ms <= now_ms:
                    actor.run()
                    next_ms = now_ms
                elif due_ms is not None and (next_ms is None or due_ms < next_ms):
                    next_ms = due_ms
        if next_ms is not None and (self._wakes_at_ms is None or next_ms < self._wakes_at_ms):
            self._wakes_at_ms = next_ms
            self.at(next_ms - now_ms, self._woken)

    def _woken(self) -> None:
        if self._wakes_at_ms is not None and self._wakes_at_ms <= self._fleet.now_ms:
            self._wakes_at_ms = None

    def log(self, who: str, what: str) -> None:
        """Counts attempts to connect, which the network reports to nobody else."""
        before, _, broker_id = what.rpartition(" ")
        if before == "connection to broker":
            self._fleet.count("connect", int(broker_id))


class _Brokers(InProcessBrokers):
    """The brokers: what SimulatedNetwork needs of them, and their queues."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(len(BROKERS))
        self.state.retain_bytes = _RETAINED_BYTES
        for topic in TOPICS:
            self.state.controller.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        self.links = {broker_id: Link() for broker_id in BROKERS}
        self.running = set(BROKERS)
        self.networks: list[Any] = []
        self.wire = _Untraced()
        #: How much longer than usual a broker takes.
        self.slowness = dict.fromkeys(BROKERS, 1.0)
        self._fleet = fleet
        self._queues: dict[int, deque[tuple[Connection, bytes]]] = {one: deque() for one in BROKERS}
        self._busy: set[int] = set()
        self._lives = dict.fromkeys(BROKERS, 0)

    def take(self, connection: Connection, payload: bytes, sent_ms: int) -> None:
        """Queues a request. The broker answers it when it has done its work, unless it ends before."""
        broker_id = connection.broker_id
        if broker_id not in self.running:
            return
        api = api_of(payload)
        assert api is not None
        self._fleet.count(api.name, broker_id)
        self._queues[broker_id].append((connection, payload))
        if broker_id not in self._busy:
            self._serve_next(broker_id, float(self._fleet.now_ms))

    def _serve_next(self, broker_id: int, since_ms: float) -> None:
        """Works on the oldest request. The fraction of a millisecond is not lost."""
        connection, payload = self._queues[broker_id].popleft()
        api = api_of(payload)
        work_ms = _LEAST_WORK_MS if api is None else _WORK_MS.get(api, _LEAST_WORK_MS)
        if api is ApiKey.PRODUCE:
            work_ms += self._fleet.record_ms * payload.count(_RECORD)
        done_ms = since_ms + work_ms * self.slowness[broker_id]
        self._busy.add(broker_id)
        act = partial(self._served, self._lives[broker_id], connection, payload, done_ms)
        self._fleet.at(math.ceil(done_ms) - self._fleet.now_ms, act)

    def _served(self, life: int, connection: Connection, payload: bytes, done_ms: float) -> None:
        broker_id = connection.broker_id
        if life != self._lives[broker_id]:
            return
        self._busy.discard(broker_id)
        if self._queues[broker_id]:
            self._serve_next(broker_id, done_ms)
        sending = self.answer(broker_id, payload)
        if not connection.is_open:
            self._fleet.count("wasted", broker_id)
            return
        frame = None if sending is None else b"".join(sending.pieces)
        network: Any = connection.network  # its world is a _Turns
        network._world.do(partial(network.answered, connection, frame))

    def kill(self, broker_id: int) -> None:
        """The broker ends. Nobody else leads its partitions, as where it is back before its session ends."""
        self.running.discard(broker_id)
        self._lives[broker_id] += 1
        self._queues[broker_id].clear()
        self._busy.discard(broker_id)
        for network in self.networks:
            network._world.do(partial(network.broker_ended, broker_id))

    def start(self, broker_id: int) -> None:
        cache = self.state.caches[broker_id] = MetadataCache()
        self.running.add(broker_id)
        port = FIRST_PORT + broker_id - 1
        self.state.controller.broker_started(AliveBroker(broker_id, HOST, port), cache)


_RECORD: Final = b"<record>"


@dataclass(slots=True)
class _Call:
    """One request of a caller, over all its tries."""

    sidecar: int
    topic: str
    tries: int = 0


class Fleet:
    """See the module. `calls_per_s` is each sidecar's; `record_ms` is a broker's work on one record."""

    def __init__(
        self,
        sidecars: int,
        *,
        seed: int,
        calls_per_s: float = 0.2,
        record_ms: float = 1.0,
        record_bytes: int = 100,
        honours_retry_after: bool = True,
        kafka: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.now_ms = 1_000_000
        self._calls_per_s = calls_per_s
        self.record_ms = record_ms
        self.honours_retry_after = honours_retry_after
        self.random = Random(f"fleet {seed}")
        self._scheduled = 0
        #: How often callers' next requests were drawn: each time that their rate changes.
        self._drawn = 0
        self._body = b'{"records":[{"value":"%s"}]}' % _RECORD.ljust(record_bytes, b"x")
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        #: How many came to a broker, by what they are, the broker and the time in buckets.
        self._counts: defaultdict[tuple[str, int], Counter[int]] = defaultdict(Counter)
        #: Answers to callers by status.
        self.answers: Counter[int] = Counter()
        self.brokers = _Brokers(self)
        self.settings = Settings(kafka={"bootstrap.servers": _BOOTSTRAP} | dict(kafka or {}), **settings)
        self._turns = [_Turns(self, number) for number in range(sidecars)]
        self._processes: list[Process] = []
        for number, turns in enumerate(self._turns):
            turns.do(partial(self._start, number))

    def _start(self, number: int) -> None:
        turns = self._turns[number]
        clock = SimulatedClock(turns)
        random = Random(self.random.random())
        brokers: Any = self.brokers
        self._processes.append(Process(turns, brokers, None, clock, self.settings, random, number))
        self._call_later(number)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()

    # -- time ------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, act: Callable[[], object]) -> None:
        """Has something happen so much later."""
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + max(delay_ms, 0), self._scheduled, act))

    def run(self, ms: int) -> None:
        """Lets so much time pass."""
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
        self.now_ms = until_ms

    # -- faults ----------------------------------------------------------------------------------------------

    def kill_all(self, down_ms: int, apart_ms: int = 1_000) -> None:
        """Kills every broker. They come back one after the other; the last one after `down_ms`."""
        for broker_id in BROKERS:
            self.brokers.kill(broker_id)
        for index, broker_id in enumerate(reversed(BROKERS)):
            self.at(down_ms - apart_ms * index, partial(self.brokers.start, broker_id))

    def slow(self, broker_id: int, times: float, for_ms: int) -> None:
        """Has a broker take so many times longer for each request, for so long."""
        self.brokers.slowness[broker_id] = times
        self.at(for_ms, partial(self.brokers.slowness.__setitem__, broker_id, 1.0))

    # -- callers ---------------------------------------------------------------------------------------------

    @property
    def calls_per_s(self) -> float:
        """How many requests callers of one sidecar begin a second, each independent of the others."""
        return self._calls_per_s

    @calls_per_s.setter
    def calls_per_s(self, calls_per_s: float) -> None:
        """From now on: what was to come is drawn again."""
        self._calls_per_s = calls_per_s
        self._drawn += 1
        for number in range(len(self._turns)):
            self._call_later(number)

    def _call_later(self, number: int) -> None:
        pause_ms = round(self.random.expovariate(self._calls_per_s) * 1_000)
        self.at(pause_ms, partial(self._call, number, self._drawn))

    def _call(self, number: int, drawn: int) -> None:
        if drawn == self._drawn:
            self._try(_Call(number, TOPICS[number % len(TOPICS)]))
            self._call_later(number)

    def _try(self, call: _Call) -> None:
        call.tries += 1
        self.count("call")
        if call.tries > 1:
            self.count("repeated")
        process = self._processes[call.sidecar]
        exchange = _Exchange(call, self._body, process.loop, self._answered)
        self._turns[call.sidecar].do(partial(process.ask, exchange.scope, exchange.receive, exchange.send))

    def _answered(self, call: _Call, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.answers[status] += 1
        self.count("good" if status == 200 else "bad")
        if status == 200 or call.tries >= _MOST_TRIES:
            return
        pause_ms = 100
        if self.honours_retry_after:
            pause_ms = int(headers.get(b"retry-after", b"1")) * 1_000
        self.at(pause_ms, partial(self._try, call))

    # -- counts ----------------------------------------------------------------------------------------------

    def count(self, what: str, broker_id: int = 0) -> None:
        self._counts[what, broker_id][self.now_ms // BUCKET_MS] += 1

    def amounts(self, what: str, broker_id: int, since_ms: int, until_ms: int) -> list[int]:
        """Returns how many came in each bucket of that time."""
        counts = self._counts[what, broker_id]
        return [counts[bucket] for bucket in range(since_ms // BUCKET_MS, until_ms // BUCKET_MS)]

    def rate(self, what: str, broker_id: int, since_ms: int, until_ms: int) -> float:
        """Returns how many came a second."""
        return sum(self.amounts(what, broker_id, since_ms, until_ms)) * 1_000 / (until_ms - since_ms)


class _Exchange:
    """One try, as an ASGI exchange."""

    def __init__(
        self,
        call: _Call,
        body: bytes,
        loop: SimulatedLoop,
        done: Callable[[_Call, int, Mapping[bytes, bytes]], None],
    ) -> None:
        self._call = call
        self._loop = loop
        self._done = done
        self._is_sent = False
        self._body = body
        self._head: tuple[int, Mapping[bytes, bytes]] = (0, {})

    @property
    def scope(self) -> Scope:
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self._body)),
        ]
        path = f"/v1/topics/{self._call.topic}/records"
        return post_scope(path, f"timeout_ms={_CALLERS_TIMEOUT_MS}", headers)

    async def receive(self) -> Message:
        if self._is_sent:  # the caller waits for its answer, and never disconnects
            await self._loop.create_future()
        self._is_sent = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message["status"], dict(message["headers"])
        elif not message.get("more_body", False):
            self._done(self._call, *self._head)


def main(sidecars: int) -> None:
    """Prints a broker's load, the mean of all, before, during and after a restart of all brokers."""
    logging.disable(logging.CRITICAL)  # each sidecar names each broker
    rows: list[tuple[str, int, int]] = []
    with Fleet(sidecars, seed=1, calls_per_s=0.3) as fleet:

        def pass_by(title: str, ms: int) -> None:
            rows.append((title, fleet.now_ms, fleet.now_ms + ms))
            fleet.run(ms)

        fleet.run(15_000)  # they begin together, and learn of their topics
        fleet.calls_per_s = 0.02
        fleet.run(300_000)
        pass_by("before", 300_000)
        fleet.kill_all(10_000)
        pass_by("away, the first second", 1_000)
        pass_by("away, the next 7 s", 7_000)
        pass_by("back, one a second, and 2 s more", 4_000)
        pass_by("the next 8 s", 8_000)
        pass_by("the next 5 min", 300_000)
        print("| | connections a second | most in 100 ms | Metadata requests a second | most in 100 ms |")
        print("|---|---:|---:|---:|---:|")
        for title, since_ms, until_ms in rows:
            figures = [title]
            for what in ("connect", ApiKey.METADATA.name):
                rates = [fleet.rate(what, broker_id, since_ms, until_ms) for broker_id in BROKERS]
                most = max(max(fleet.amounts(what, broker_id, since_ms, until_ms)) for broker_id in BROKERS)
                figures += [f"{sum(rates) / len(BROKERS):.2f}", str(most)]
            print(f"| {' | '.join(figures)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]))
