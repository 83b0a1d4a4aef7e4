"""The load of a producer against hostile brokers, and the checks that its results came in time.

The KafkaProducer is wired as in client_core, except for its network and its names, and has short pauses.
Requests note when and how often they were reported. For hostile_simulation.py and hostile_runs.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from client_core import (
    NO_EVENTS,
    KafkaProducer,
    ProducerConfig,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    Result,
)
from client_core.client.metadata_updater import DefaultMetadataUpdater
from client_core.client.network_client import NetworkClient
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.sender.wiring import metadata_config, network_client_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from client_core import EventSink
    from client_core.clock import Clock
    from client_core.network.selectable import CredentialsVersion, Selectable
    from client_core.protocol.api_keys import ApiKey

_R = TypeVar("_R")

TOPIC: Final = "orders"
PARTITIONS: Final = 3
RECONNECT_MS: Final = 50
BLOCK_MS: Final = 1_000
DELIVERY_MS: Final = 2_000
DEADLINE_MS: Final = 5_000

SETTINGS: Final[dict[str, str | int | bool]] = {
    "linger.ms": 0,
    "batch.size": 200,
    "buffer.memory": 20_000,
    "reconnect.backoff.ms": RECONNECT_MS,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "request.timeout.ms": 500,
    "delivery.timeout.ms": DELIVERY_MS,
    "max.block.ms": BLOCK_MS,
    "socket.connection.setup.timeout.ms": 300,
    "socket.connection.setup.timeout.max.ms": 600,
    "metadata.recovery.rebootstrap.trigger.ms": 3_000,
    "metadata.max.age.ms": 500,
}


class LocalNames:
    """Knows the brokers' address and no other name: a test must not reach DNS."""

    def __init__(self, known: str) -> None:
        self._known = known
        self.is_down = False

    def resolve(self, host: str) -> Sequence[str]:
        if host != self._known or self.is_down:
            raise OSError(f"{host!r}: Name or service not known")
        return (host,)

    def name_at(self, host: str, address: str) -> str:
        return host

    def abandon(self, host: str) -> None:
        """Nothing is under way."""


@dataclass(slots=True)
class Asked(Generic[_R]):
    """A call, its time, and its results."""

    submitted_ms: int
    clock: Clock
    reported: list[_R] = field(default_factory=list)
    reported_ms: int = 0

    def __call__(self, result: _R) -> None:
        self.reported.append(result)
        self.reported_ms = self.clock.now_ms()


#: Records that were submitted, and a look-up that was asked for.
Request = Asked[Result]
LookUp = Asked[object]


@dataclass(frozen=True, slots=True)
class Survived:
    """What a run went through. `spoilt_answers`: to each API."""

    seed: int
    spoilt_answers: Mapping[ApiKey, int]
    acknowledged: int
    failed: int
    turns: int
    connects: int
    #: A lie has ended the idempotent producer for good, as Kafka has it.
    is_fatal: bool

    @property
    def spoilt(self) -> int:
        """How many answers were spoilt."""
        return sum(self.spoilt_answers.values())


def hostile_producer(
    config: ProducerConfig,
    clock: Clock,
    selector: Selectable,
    random: Random,
    bootstrap: tuple[str, int],
    events: EventSink = NO_EVENTS,
    *,
    client_events: EventSink = NO_EVENTS,
    credentials: Callable[[], CredentialsVersion] | None = None,
    whole_requests: bool = False,
    names: LocalNames | None = None,
) -> KafkaProducer:
    """The wiring of client_core, with a network and names of our own. `events` are the producer's own."""
    metadata = ProducerMetadata(metadata_config(config), random, clock, client_events)
    metadata.bootstrap([bootstrap])
    settings = network_client_config(config)
    updater = DefaultMetadataUpdater(metadata, settings, client_events)
    resolver = names or LocalNames(bootstrap[0])
    client = NetworkClient(selector, updater, settings, resolver, random, client_events, credentials)
    return KafkaProducer(
        config,
        clock=clock,
        random=random,
        metadata=metadata,
        client=client,
        events=events,
        whole_requests=whole_requests,
    )


def hostile_config(settings: Mapping[str, str | int | bool]) -> ProducerConfig:
    """SETTINGS, and what a run wants otherwise; where the brokers are is the network's business."""
    return ProducerConfig.from_mapping({"bootstrap.servers": "127.0.0.1:9092", **SETTINGS, **settings})


def submit(producer: KafkaProducer, random: Random, topic: str = TOPIC) -> Request:
    """Submits one to ten records, keyed or not."""
    now_ms = producer.clock.now_ms()
    request = Request(now_ms, producer.clock)
    records = [
        ProducerRecord(topic, random.randbytes(random.randrange(120)), key=random.choice((None, b"k", b"l")))
        for _ in range(random.choice((1, 1, 3, 10)))
    ]
    producer.submit(
        topic, records, block_deadline_ms=now_ms + BLOCK_MS, deadline_ms=now_ms + DEADLINE_MS, done=request
    )
    return request


def look_up(producer: KafkaProducer, random: Random) -> LookUp:
    """Asks for a topic, for all of them, for a topic's configs, or for a newer snapshot."""
    now_ms = producer.clock.now_ms()
    asked: LookUp = Asked(now_ms, producer.clock)
    topic, deadline_ms = random.choice((TOPIC, "nowhere")), now_ms + BLOCK_MS
    match random.randrange(4):
        case 0:
            producer.request_topics((topic,), deadline_ms=deadline_ms, done=asked)
        case 1:
            producer.list_topics(deadline_ms=deadline_ms, done=asked)
        case 2:
            producer.describe_topic_configs(topic, deadline_ms=deadline_ms, done=asked)
        case _:
            producer.request_update(deadline_ms=deadline_ms, done=asked)
    return asked


def check_look_ups(seed: int, look_ups: Sequence[LookUp], late_ms: int) -> None:
    """Each look-up was reported once, and in time."""
    for number, asked in enumerate(look_ups):
        assert len(asked.reported) == 1, (
            f"seed {seed}: look-up {number} was reported {len(asked.reported)} times"
        )
        took_ms = asked.reported_ms - asked.submitted_ms
        assert took_ms <= BLOCK_MS + late_ms, f"seed {seed}: look-up {number} took {took_ms} ms"


def counts(requests: Iterable[Request]) -> tuple[int, int]:
    """Records acknowledged, and records that failed."""
    outcomes = [outcome for request in requests for outcome in request.reported[0].outcomes]
    acknowledged = sum(isinstance(outcome, RecordMetadata) for outcome in outcomes)
    return acknowledged, len(outcomes) - acknowledged


def failures(requests: Iterable[Request]) -> set[str]:
    """Why records failed, for a message."""
    outcomes = (outcome for request in requests for outcome in request.reported[0].outcomes)
    return {
        f"{outcome.phase.name}: {outcome.error!r}"
        for outcome in outcomes
        if isinstance(outcome, RecordFailure)
    }


def check_reported(seed: int, requests: Sequence[Request], late_ms: int) -> None:
    """Each request was reported once, and in time."""
    for number, request in enumerate(requests):
        assert len(request.reported) == 1, (
            f"seed {seed}: request {number} was reported {len(request.reported)} times"
        )
        took_ms = request.reported_ms - request.submitted_ms
        assert took_ms <= BLOCK_MS + DELIVERY_MS + late_ms, f"seed {seed}: request {number} took {took_ms} ms"


def is_fatal(producer: KafkaProducer) -> bool:
    """Whether a lie has ended an idempotent producer for good, as Kafka has it."""
    manager = producer._transaction_manager
    return manager is not None and manager.has_fatal_error
