"""Days of a producer in minutes: a whole KafkaProducer over brokers in this process and a MockClock.

    soak = SimulatedSoak(7)
    soak.live(minutes=30)
    measured = soak.measure()

What happens in it is what an hour of operation has, at Kafka's own settings: topics that are made, written
to, forgotten and deleted; look-ups of names that nobody has; brokers that restart at other ports, connections
that are cut, leaders that move; outages that outlast the delivery timeout; credentials that change; requests
that are given up. The sidecar's collectors of metrics and slowness listen. One thread, no socket; the same
each time for a seed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from client_core import ProducerConfig, ProducerRecord
from client_core.network.selectable import CredentialsVersion
from client_core.testing.metadata_cache import AliveBroker
from service.observe.metrics import ClientMetrics
from service.observe.slowness.collector import Slowness
from tests.soak.inventory import take_inventory
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.hostile_load import hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from client_core import Event, EventSink, Result

_START_MS: Final = 1_000_000
_BROKERS: Final = 3
_STEADY: Final = tuple(f"steady-{number}" for number in range(10))
_PARTITIONS: Final = 3
#: Between two moments in which something is asked of the producer.
_STEP_MS: Final = 2_000
_MINUTE_MS: Final = 60_000
#: Longer than delivery.timeout.ms and max.block.ms, so that batches and waits expire.
_OUTAGE_MS: Final = 150_000
_SETTLE_MS: Final = 180_000
_MOST_CHURNING: Final = 30

_SETTINGS: Final[Mapping[str, str | int]] = {
    "bootstrap.servers": f"127.0.0.1:{FIRST_PORT}",
    "linger.ms": 0,
    "compression.type": "gzip",
    "partitioner.lost.leader.probe.interval.ms": 300,
}


class _Reported:
    """Hands each event to every sink."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def emit(self, event: Event, /) -> None:
        for sink in self._sinks:
            sink.emit(event)


class SimulatedSoak:
    """One producer and its brokers. `more` are sinks of a test's own, which hear every event. Every `step_ms`
    something is asked of the producer.
    """

    def __init__(self, seed: int, *more: EventSink, step_ms: int = _STEP_MS) -> None:
        self._step_ms = step_ms
        self.random = Random(f"simulated soak {seed}")
        self.clock = MockClock(now_ms=_START_MS)
        self.brokers = InProcessBrokers(_BROKERS, seed=seed)
        self.network = HostileNetwork(self.clock, self.brokers, self.random)
        for topic in _STEADY:
            self._create(topic)
        self.credentials = CredentialsVersion()
        self.metrics = ClientMetrics(by_topic=True, topic_limit=20)
        self.slowness = Slowness(self.clock)
        events = _Reported(self.metrics, self.slowness, *more)
        config = ProducerConfig.from_mapping(_SETTINGS)
        self.producer = hostile_producer(
            config,
            self.clock,
            self.network,
            self.random,
            (HOST, FIRST_PORT),
            events,
            client_events=events,
            credentials=lambda: self.credentials,
        )
        #: The number of requests to the producer, and of those that it has reported.
        self.asked = self.reported = 0
        #: What happened, for the report.
        self.counts: dict[str, int] = {}
        self._churning: list[str] = []
        self._names = self._next_port = 0
        self._under_way: set[int] = set()

    # -- time ------------------------------------------------------------------------------------------------

    def live(self, minutes: int) -> None:
        """Lets so much time pass with all that happens in it, then waits until nothing is under way."""
        for _ in range(minutes):
            self._trouble()
            until_ms = self.clock.now_ms() + _MINUTE_MS
            while self.clock.now_ms() < until_ms:
                self._ask()
                self._turn_for(self._step_ms)
        self._turn_for(_SETTLE_MS)
        assert self.asked == self.reported, (
            f"{self.asked - self.reported} of {self.asked} requests were never reported"
        )
        assert not self.producer.io_thread.failed_turns

    def _turn_for(self, ms: int) -> None:
        until_ms = self.clock.now_ms() + ms
        self.network.after(ms, self.network.wakeup)
        while self.clock.now_ms() < until_ms:
            self.producer.io_thread.turn()

    def measure(self) -> dict[str, float]:
        """What the client and the sidecar's collectors hold now, by name, and the metric series."""
        self._forget_the_past()
        inventory = take_inventory()
        ours = ("client_core.", "service.")
        objects = {f"objects {name}": n for name, n in inventory.objects.items() if name.startswith(ours)}
        lengths = {f"length {name}": n for name, n in inventory.containers.items()}
        series = sum(len(family.samples) for family in self.metrics.collect())
        return {**objects, **lengths, "metric_series": series}

    @property
    def simulated_ms(self) -> int:
        """How long it has lived."""
        return self.clock.now_ms() - _START_MS

    def close(self) -> None:
        self.producer.close(0)

    def _forget_the_past(self) -> None:
        """Clears what brokers and network record for observers: it is not the client's memory."""
        self.network.connects.clear()
        for log in self.brokers.state.logs.values():
            log.batches.clear()

    # -- calls -----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._submit(self.random.choice(_STEADY))
        if self._churning and self.random.random() < 0.5:
            self._submit(self.random.choice(self._churning))
        if self.random.random() < 0.5:
            self._look_up(self._new_name("nobodys"))
        if self.random.random() < 0.1:
            self._submit(self._new_name("nobodys"))
        if self.random.random() < 0.05:
            self._note("lists")
            self.producer.list_topics(deadline_ms=self._in(30_000), done=self._asked())
        if self.random.random() < 0.05:
            self._note("configs")
            topic = self.random.choice(_STEADY)
            self.producer.describe_topic_configs(topic, deadline_ms=self._in(30_000), done=self._asked())

    def _submit(self, topic: str) -> None:
        self._note("produce requests")
        records = [
            ProducerRecord(topic, self.random.randbytes(50), key=self.random.choice((None, b"k", b"l")))
            for _ in range(self.random.choice((1, 1, 5)))
        ]
        ticket = self.producer.submit(
            topic,
            records,
            block_deadline_ms=self._in(60_000),
            deadline_ms=self._in(120_000),
            done=self._asked(),
            create=False,
        )
        if self.random.random() < 0.05:
            self._note("given up")
            ticket.cancel()
            self.reported += 1  # nobody hears of it any more

    def _look_up(self, topic: str) -> None:
        self._note("look-ups of unknown topics")
        self.producer.request_topics(
            (topic,), deadline_ms=self._in(5_000), create=False, settle=True, done=self._asked()
        )

    def _asked(self) -> Callable[[Result], None]:
        self.asked += 1

        def reported(_: Result) -> None:
            self.reported += 1

        return reported

    def _in(self, ms: int) -> int:
        return self.clock.now_ms() + ms

    # -- events and faults -----------------------------------------------------------------------------------

    def _trouble(self) -> None:
        """One minute's share of faults, and of topics that come and go."""
        for _ in range(4):
            topic = self._new_name("churn")
            self._create(topic)
            self._churning.append(topic)
        while len(self._churning) > _MOST_CHURNING:
            self._delete(self._churning.pop(0))
        for happens, odds in (
            (self._move_leader, 0.5),
            (self._cut_connections, 0.3),
            (self._restart_broker, 0.2),
            (self._change_credentials, 0.1),
            (self._outage, 0.03),
        ):
            if self.random.random() < odds:
                happens()

    def _create(self, topic: str) -> None:
        controller = self.brokers.state.controller
        controller.create_topic(topic, partitions=_PARTITIONS, replication_factor=_BROKERS)

    def _delete(self, topic: str) -> None:
        self._note("topics deleted")
        state = self.brokers.state
        state.controller.delete_topic(topic)
        for key in [key for key in state.logs if key[0] == topic]:
            del state.logs[key]

    def _move_leader(self) -> None:
        self._note("leaders moved")
        topic, partition = self.random.choice(_STEADY), self.random.randrange(_PARTITIONS)
        self.brokers.state.controller.move_leader(topic, partition, self.random.randint(1, _BROKERS))

    def _cut_connections(self) -> None:
        self._note("connections cut")
        self.network.disconnect_all()

    def _restart_broker(self) -> None:
        """A broker comes back at a port where none was before."""
        self._note("brokers at new ports")
        port = self.random.choice(sorted(self.brokers.ports))
        broker_id = self.brokers.ports.pop(port)
        self._next_port = self._next_port % 1_000 + 1
        at = FIRST_PORT + 100 + self._next_port
        self.brokers.ports[at] = broker_id
        cache = self.brokers.state.caches[broker_id]
        self.brokers.state.controller.broker_started(AliveBroker(broker_id, HOST, at), cache)
        # A client may know only bootstrap.servers, so a broker must always answer there.
        self.brokers.ports.setdefault(FIRST_PORT, min(self.brokers.state.caches))
        if port != FIRST_PORT:
            self.network.disconnect_all()

    def _outage(self) -> None:
        """No broker is there for longer than the delivery timeout of a record."""
        self._note("outages")
        ports = dict(self.brokers.ports)
        self.brokers.ports.clear()
        self.network.disconnect_all()
        until_ms = self.clock.now_ms() + _OUTAGE_MS
        while self.clock.now_ms() < until_ms:
            self._ask()
            self._turn_for(self._step_ms)
        self.brokers.ports.update(ports)

    def _change_credentials(self) -> None:
        self._note("credentials changed")
        self.credentials = self.network.credentials = CredentialsVersion(sasl=self.credentials.sasl + 1)

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}-{self.random.getrandbits(32):08x}"

    def _note(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def live_through(
    seed: int, *more: EventSink, rounds: int, minutes: int
) -> tuple[Mapping[str, int], Sequence[dict[str, float]]]:
    """So many rounds of so many simulated minutes: what happened, and what was held after each."""
    soak = SimulatedSoak(seed, *more)
    measured = []
    try:
        for _ in range(rounds):
            soak.live(minutes)
            measured.append(soak.measure())
    finally:
        soak.close()
    return soak.counts, measured
