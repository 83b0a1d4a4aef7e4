"""Our own parts over a network without sockets: what java/Lockstep.java is for Kafka's.

ours = OurSide(settings, on_step)
ours.turn()             one turn of the sender; a poll that would sleep calls on_step(timeout_ms)
ours.happen(acts)       inside on_step: what happens in that poll
ours.state(timeout_ms)  what was done since the last step

The parts are wired as `client_core.producer.sender.wiring` does, from the same settings. Random numbers come
from the steps; the factor of each backoff is 1. One thread.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from client_core.backoff import ExponentialBackoff
from client_core.client.metadata_updater import DefaultMetadataUpdater
from client_core.client.network_client import NetworkClient
from client_core.cluster import TopicPartition
from client_core.errors import KafkaError, SaslAuthenticationError
from client_core.events import NO_EVENTS
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.network.selectable import ChannelState, ChannelStateName, CompletedReceive, CompletedSend
from client_core.producer.accumulator.batch_drain import DrainOrder
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.partitioner import partition_for_key
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.accumulator.record_accumulator import RecordAccumulator
from client_core.producer.requests.quick_append import QuickAppend
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.sender import Sender
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.producer.sender.wiring import (
    accumulator_config,
    causes_of,
    metadata_config,
    network_client_config,
    sender_config,
)
from client_core.producer.settings.config import ProducerConfig
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from client_core.client.kafka_client import ClientResponse
    from client_core.cluster import Node
    from client_core.network.selectable import AnswerReader, CredentialsVersion
    from client_core.producer.results.batch_outcome import BatchOutcome

#: Of each queue a state has the number of batches and records, and so many batches. As in Lockstep.java.
SHOWN_BATCHES: Final = 4
#: As many as in Lockstep.java.
_MOST_IDLE_POLLS: Final = 4
#: The largest value of any request; noise is made once.
_LARGEST: Final = 1 << 17
_FLOAT: Final = Struct("f")
_FOREVER: Final = (1 << 63) - 1


class Steered(Random):
    """Random numbers that the steps give."""

    number = 0

    def getrandbits(self, bits: int, /) -> int:
        return self.number

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self.number % start

    def uniform(self, a: float, b: float) -> float:
        return 1.0

    def shuffle(self, x: list[Any]) -> None:  # type: ignore[override]
        """The brokers' order."""


@lru_cache(maxsize=16)
def _noise(seed: int) -> bytes:
    state, made = seed, bytearray()
    for _ in range(_LARGEST):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        made.append(state >> 16 & 0xFF)
    return bytes(made)


def value(record_id: int, seed: int, size: int) -> bytes:
    """The bytes of a record: its number, and one letter for seed 0, else noise that Java makes too."""
    return record_id.to_bytes(4, "big") + (b"a" * size if seed == 0 else _noise(seed)[:size])


class _Owner:
    """One record's owner."""

    was_given_up = False
    __slots__ = ("_outcomes", "_record")

    def __init__(self, record: int, outcomes: list[tuple[int, int, str | None]]) -> None:
        self._record = record
        self._outcomes = outcomes

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        error = outcome.error_for(first_in_batch)
        offset = -1
        if error is None and outcome.base_offset is not None:
            offset = outcome.base_offset + first_in_batch
        self._outcomes.append((self._record, offset, None if error is None else type(error).__name__))


class Network:
    """Selectable: see Network in Lockstep.java, which does the same."""

    def __init__(self, clock: MockClock, on_step: Callable[[int], None]) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self.closed: list[int] = []
        self.connecting: set[int] = set()
        self.open: set[int] = set()
        self.known: set[int] = set()
        self.waited_ms = 0
        self._clock = clock
        self._on_step = on_step
        self._under_way: dict[int, int] = {}
        self._inbox: dict[int, list[bytes]] = {}
        self._next_connected: list[int] = []
        self._next_disconnected: dict[int, ChannelState] = {}
        self._idle_polls = 0
        self.completed_sends: list[CompletedSend] = []
        self.completed_receives: list[CompletedReceive] = []
        self.connected: list[int] = []
        self.disconnected: dict[int, ChannelState] = {}

    # -- what a step says ------------------------------------------------------------------------------------

    def connect_succeeds(self, node_id: int) -> None:
        if node_id in self.connecting:
            self.connecting.discard(node_id)
            self.open.add(node_id)
            self._next_connected.append(node_id)

    def end(self, node_id: int) -> None:
        if node_id in self.connecting or node_id in self.open:
            name = ChannelStateName.READY if node_id in self.open else ChannelStateName.NOT_CONNECTED
            self._next_disconnected[node_id] = ChannelState(name, None, "127.0.0.1")
            self._forget(node_id)

    def refuse(self, node_id: int) -> None:
        if node_id in self.connecting:
            error = SaslAuthenticationError("refused")
            self._next_disconnected[node_id] = ChannelState(
                ChannelStateName.AUTHENTICATION_FAILED, error, "127.0.0.1"
            )
            self._forget(node_id)

    def receive(self, node_id: int, frame: bytes) -> None:
        if node_id in self.open:
            self._inbox.setdefault(node_id, []).append(frame)

    # -- Selectable ------------------------------------------------------------------------------------------

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        *,
        also: bool = False,
    ) -> None:
        assert node_id not in self.connecting | self.open
        self.connecting.add(node_id)
        self.known.add(node_id)
        self.asked.append(node_id)

    def addresses_of(self, node_id: int) -> Sequence[str]:
        return ["127.0.0.1:9092"] if node_id in self.connecting | self.open else []

    def wakeup(self) -> None:
        """A step ends its poll anyway."""

    def close(self) -> None:
        """Nothing to close."""

    def close_connection(self, node_id: int) -> None:
        if node_id in self.connecting or node_id in self.open:
            self.closed.append(node_id)
        self._forget(node_id)

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        assert node_id in self.open
        assert node_id not in self._under_way
        frame = b"".join(payload)
        self._under_way[node_id] = len(frame)
        self.sent.append((node_id, frame))

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        assert timeout_ms >= 0
        self.completed_sends = []
        self.completed_receives = []
        self.connected = []
        self.disconnected = {}
        self._deliver()
        has_more = self.completed_receives or self.connected or self.disconnected
        if has_more or (self.completed_sends and (writes_end_it or not timeout_ms)):
            self._idle_polls = 0
        elif timeout_ms == 0 and self._idle_polls < _MOST_IDLE_POLLS:
            self._idle_polls += 1
        else:
            self._idle_polls = 0
            self._on_step(timeout_ms)
            self._deliver()
        return self._clock.now_ms()

    def mute(self, node_id: int) -> None:
        """Frames are small."""

    def unmute(self, node_id: int) -> None:
        """Frames are small."""

    def is_channel_ready(self, node_id: int) -> bool:
        return node_id in self.open

    def awaits_credentials(self, node_id: int) -> bool:
        return False

    def credentials_of(self, node_id: int) -> CredentialsVersion | None:
        return None

    def _deliver(self) -> None:
        self.completed_sends += [CompletedSend(node, size) for node, size in self._under_way.items()]
        self._under_way = {}
        self.connected += self._next_connected
        self._next_connected = []
        self.disconnected.update(self._next_disconnected)
        self._next_disconnected = {}
        for node_id in sorted(self._inbox):
            frames = self._inbox[node_id]
            if frames:
                self.completed_receives.append(CompletedReceive(node_id, frames.pop(0)))

    def _forget(self, node_id: int) -> None:
        self.connecting.discard(node_id)
        self.open.discard(node_id)
        self._under_way.pop(node_id, None)
        self._inbox.pop(node_id, None)
        if node_id in self._next_connected:
            self._next_connected.remove(node_id)


class _OrderedUpdater(DefaultMetadataUpdater):
    """Has the nodes in the order of their ids, as Lockstep.java; the order is random in Kafka."""

    def fetch_nodes(self) -> Collection[Node]:
        return sorted(super().fetch_nodes(), key=lambda node: node.id)


class _WatchedClient(NetworkClient):
    """Keeps how long the sender allows a poll to sleep."""

    sender_timeout_ms = 0

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        self.sender_timeout_ms = timeout_ms
        return super().poll(timeout_ms, now_ms)


class OurSide:
    """Sender, accumulator, idempotence, metadata and client of one trace."""

    def __init__(self, settings: Mapping[str, Any], on_step: Callable[[int], None]) -> None:
        config = ProducerConfig.from_mapping({"bootstrap.servers": "127.0.0.1:9092", **settings["config"]})
        now_ms: int = settings["now"]
        self.topics: dict[str, int] = settings["topics"]
        self.partitions = [TopicPartition(t, p) for t, count in self.topics.items() for p in range(count)]
        self.clock = MockClock(now_ms=now_ms, wall_ms=now_ms)
        self.random = Steered()
        self.network = Network(self.clock, on_step)
        events = NO_EVENTS
        self.metadata = ProducerMetadata(metadata_config(config), self.random, self.clock, events)
        self.metadata.bootstrap([(host, port) for host, port in settings["bootstrap"]])
        client_config = network_client_config(config)
        self.client = _WatchedClient(
            self.network,
            _OrderedUpdater(self.metadata, client_config, events),
            client_config,
            MockResolver("127.0.0.1"),
            self.random,
            events,
        )
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self.random)
        self.manager = TransactionManager(backoff) if config.enable_idempotence else None
        if self.manager is not None and "producer" in settings:
            self.manager.init_sent()
            self.manager.init_succeeded(ProducerIdAndEpoch(*settings["producer"]))
        self.pool = BufferPool(config.buffer_memory, config.batch_size, self.clock, events)
        self.accumulator = RecordAccumulator(
            accumulator_config(config, whole_requests=False),
            self.pool,
            backoff,
            self.random,
            self.manager,
            DrainOrder(int),
        )
        self.sender = Sender(
            self.client,
            self.metadata,
            self.accumulator,
            sender_config(config, whole_requests=False),
            self.clock,
            events,
            causes_of(self.metadata, self.client, self.manager),
            self.manager,
        )
        self._quick = QuickAppend(
            self.metadata,
            self.accumulator.appender,
            self.clock,
            most_bytes=config.max_request_size,
            ignore_keys=False,
        )
        self._codec = accumulator_config(config, whole_requests=False).compression.codec
        self.turns = 0
        self.outcomes: list[tuple[int, int, str | None]] = []
        self.appended: list[tuple[int, int, str | None]] = []
        self.failures: list[str] = []

    def turn(self) -> None:
        """One turn of the sender."""
        # Connections that end in one poll do so in the order of the nodes, as in Java's hash map.
        queues = self.client._in_flight._queues
        if len(queues) > 1:
            self.client._in_flight._queues = dict(sorted(queues.items()))
        self.turns += 1
        self.sender.run_once()

    def partition_count(self, topic: str) -> int:
        """The number of partitions that the client knows; 0 for an unknown topic."""
        return self.metadata.fetch().partition_count_for_topic(topic) or 0

    def use_ratios(self, ratios: Sequence[float]) -> None:
        """Takes Java's compression ratios: two libraries pack the same records differently."""
        for topic, ratio in zip(self.topics, ratios, strict=True):
            as_float = _FLOAT.unpack(_FLOAT.pack(ratio))[0]
            self.accumulator._ratios.set_estimation(topic, self._codec, as_float)

    def state(self, timeout_ms: int) -> dict[str, Any]:
        """What was done since the last step, and what is so now. The keys are those of Lockstep.java."""
        queues = []
        for tp in self.partitions:
            batches = self.accumulator.batches_of(tp)
            first = [
                [
                    batch.record_count,
                    batch.attempts,
                    -1 if batch.base_sequence is None else batch.base_sequence,
                ]
                for batch in batches[:SHOWN_BATCHES]
            ]
            queues.append([len(batches), sum(batch.record_count for batch in batches), first])
        leaders = []
        for tp in self.partitions:
            leader, epoch = self.metadata.current_leader(tp)
            leaders.append([-1 if leader is None else leader.id, -1 if epoch is None else epoch])
        state: dict[str, Any] = {
            "t": timeout_ms,
            "s": min(self.client.sender_timeout_ms, _FOREVER),
            "turns": self.turns,
            "sent": self.network.sent,
            "connect": self.network.asked,
            "closed": self.network.closed,
            "out": self.outcomes,
            "app": self.appended,
            "err": self.failures,
            "mem": self.pool.available_bytes,
            "inflight": {
                str(node): self.client.in_flight_request_count(node) for node in sorted(self.network.known)
            },
            "lead": leaders,
            "queues": queues,
        }
        if self.manager is not None:
            producer = self.manager.producer_id_and_epoch
            state["pid"] = [-1, -1] if producer is None else [producer.producer_id, producer.epoch]
        self.network.sent, self.network.asked, self.network.closed = [], [], []
        state["out"], state["app"] = self.outcomes.copy(), self.appended.copy()
        self.outcomes.clear()
        self.appended.clear()
        self.failures = []
        self.turns = 0
        return state

    def happen(self, acts: Sequence[Sequence[Any]]) -> None:
        """Does what one step says."""
        for act in acts:
            match act[0]:
                case "r":
                    self.random.number = act[1]
                case "t":
                    self.clock.advance(act[1])
                case "a":
                    self._append(*act[1:])
                case "w":
                    self.metadata.add(act[1], self.clock.now_ms())
                    self.metadata.request_update_for_topic(act[1])
                case "c":
                    self.network.connect_succeeds(int(act[1]))
                case "d":
                    self.network.end(int(act[1]))
                case "u":
                    self.network.refuse(int(act[1]))
                case "m":
                    self.network.receive(int(act[1]), bytes.fromhex(act[2]))
                case "f":
                    if not self.accumulator.flush_in_progress:
                        self.accumulator.begin_flush()
                case "x":
                    self.accumulator.close()
                case "k":
                    self.accumulator.abort_incomplete_batches(KafkaError("Producer is closed forcefully."))

    def _append(
        self, record_id: int, topic: str, partition: int, size: int, seed: int, key_bytes: int
    ) -> None:
        self.metadata.add(topic, self.clock.now_ms())
        record = ProducerRecord(
            topic,
            value(record_id, seed, size),
            None if key_bytes < 0 else bytes([record_id % 251]) * key_bytes,
            partition=None if partition < 0 else partition,
        )
        owner = _Owner(record_id, self.outcomes)
        error: str | None = None
        if self._quick.append(record, owner):
            # `add` has noted the use with its time, as Java does. A mere mark holds the topic longer.
            self.metadata.cache.topics[topic].use.touched = False
        else:
            try:
                result = self.accumulator.append_many(
                    topic,
                    self._partition_of(record),
                    (record,),
                    (0,),
                    owner,
                    self.metadata.fetch(),
                    self.clock.now_ms(),
                    self.clock.wall_ms(),
                )
            except KafkaError as problem:
                error = type(problem).__name__
            else:
                if not result.appended:
                    error = "BufferExhaustedError"
        self.appended.append((record_id, partition, error))

    def _partition_of(self, record: ProducerRecord) -> int | None:
        """As the requests of a producer do it."""
        if record.partition is None and record.key is not None:
            return partition_for_key(record.key, self.partition_count(record.topic))
        return record.partition
