"""A whole KafkaProducer over MockClient and MockClock, turned by hand instead of by its thread.

rig = ProducerRig(topics={"orders": 2})
result = rig.submit("orders", b"a", b"b")         a Waiting, until it is reported
rig.turn()
rig.answer(produced(ORDERS_0, offset=7))          result.reported
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.results import ListingResult, MetadataResult, ProduceResult
from client_core.producer.results.ticket import CallInline, RecordFailure
from client_core.producer.sender.io_thread import wake_now
from client_core.producer.sender.wiring import metadata_config
from client_core.producer.settings.config import ProducerConfig
from tests.support.metadata_responses import metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.producer.results.ticket import CompletionSink, Done, Result, Ticket
    from client_core.producer.sender.io_thread import WakeSoon


class Waiting:
    """What one ticket is waited for with."""

    def __init__(self) -> None:
        self.reported: list[Result] = []
        self.ticket: Ticket | None = None

    def __call__(self, result: Result) -> None:
        self.reported.append(result)

    def cancel(self) -> None:
        assert self.ticket is not None
        self.ticket.cancel()

    @property
    def produced(self) -> ProduceResult:
        (result,) = self.reported
        assert isinstance(result, ProduceResult)
        return result

    @property
    def looked_up(self) -> MetadataResult:
        (result,) = self.reported
        assert isinstance(result, MetadataResult)
        return result

    @property
    def listed(self) -> ListingResult:
        (result,) = self.reported
        assert isinstance(result, ListingResult)
        return result

    @property
    def offsets(self) -> list[int | None]:
        """The offsets of a request that succeeded whole."""
        offsets = []
        for outcome in self.produced.outcomes:
            assert isinstance(outcome, RecordMetadata), outcome
            offsets.append(outcome.offset)
        return offsets

    @property
    def failures(self) -> list[RecordFailure]:
        """The failures of a request that failed whole."""
        failures = []
        for outcome in self.produced.outcomes:
            assert isinstance(outcome, RecordFailure), outcome
            failures.append(outcome)
        return failures


class CountedPosts:
    """A CompletionSink that calls inline and counts how often it is posted to."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        self.sizes.append(len(finished))
        CallInline().post(finished)


class ProducerRig:
    """A KafkaProducer that a test turns. Kafka's settings, but for fixed backoffs and no idempotence."""

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        wake_soon: WakeSoon = wake_now,
        whole_requests: bool = False,
        clock: MockClock | None = None,
        client_type: type[MockClient] = MockClient,
        completions: CompletionSink | None = None,
        **settings: object,
    ) -> None:
        self.settings: dict[str, object] = {
            "bootstrap.servers": "localhost:9092",
            "enable.idempotence": False,
            "linger.ms": 0,
            "retry.backoff.ms": 100,
            "retry.backoff.max.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        config = ProducerConfig.from_mapping(self.settings)
        self.clock = MockClock(now_ms=1_000_000) if clock is None else clock
        self.events = RecordedEvents()
        self.posts = CountedPosts()
        random = Random(3)
        self.metadata = ProducerMetadata(metadata_config(config), random, self.clock, self.events)
        self.metadata.bootstrap([("localhost", 9092)])
        self.client = client_type(self.clock, self.metadata)
        self.producer = KafkaProducer(
            config,
            clock=self.clock,
            events=self.events,
            completions=self.posts if completions is None else completions,
            wake_soon=wake_soon,
            random=random,
            metadata=self.metadata,
            client=self.client,
            whole_requests=whole_requests,
        )
        if topics is not None:
            for topic in topics:
                self.metadata.add(topic, self.clock.now_ms())
            self.know(topics)

    def know(self, topics: Mapping[str, int], *, errors: Mapping[str, int] | None = None) -> None:
        """Applies a metadata response now."""
        self.client.update_metadata(metadata_response(nodes=1, topics=topics, errors=errors), 13)

    def will_know(self, topics: Mapping[str, int], *, errors: Mapping[str, int] | None = None) -> None:
        """Answers the next metadata request so."""
        self.client.prepare_metadata_update(metadata_response(nodes=1, topics=topics, errors=errors), 13)

    def learn(
        self, topics: Mapping[str, int], turns: int = 1, *, errors: Mapping[str, int] | None = None
    ) -> None:
        """Answers the next metadata request so, and turns."""
        self.will_know(topics, errors=errors)
        self.turn(turns)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.producer.io_thread.turn()

    def turn_after(self, pause_ms: int, times: int = 1) -> None:
        self.clock.advance(pause_ms)
        self.turn(times)

    def respond(self, body: object) -> None:
        self.client.respond(body)

    def answer(self, body: object, turns: int = 1) -> None:
        """Answers the oldest request, and turns."""
        self.respond(body)
        self.turn(turns)

    def submit(
        self,
        topic: str,
        *records: bytes | ProducerRecord,
        block_ms: int = 60_000,
        timeout_ms: int = 120_000,
        create: bool = True,
        missing_ms: int | None = None,
        settled: Done | None = None,
        since_ms: int | None = None,
        turns: int = 0,
    ) -> Waiting:
        """Submits values, or records; so many turns follow."""
        waiting = Waiting()
        now_ms = self.clock.now_ms()
        waiting.ticket = self.producer.submit(
            topic,
            [r if isinstance(r, ProducerRecord) else ProducerRecord(topic, r) for r in records],
            block_deadline_ms=now_ms + block_ms,
            deadline_ms=now_ms + timeout_ms,
            done=waiting,
            create=create,
            missing_deadline_ms=None if missing_ms is None else now_ms + missing_ms,
            settled=settled,
            since_ms=since_ms,
        )
        self.turn(turns)
        return waiting

    def look_up(
        self, *topics: str, wait_ms: int = 60_000, create: bool = False, settle: bool = True
    ) -> Waiting:
        waiting = Waiting()
        deadline_ms = self.clock.now_ms() + wait_ms
        waiting.ticket = self.producer.request_topics(
            topics, deadline_ms=deadline_ms, create=create, settle=settle, done=waiting
        )
        return waiting


def full_buffer_rig(**settings: Any) -> ProducerRig:
    """A producer with memory for one batch of 1,000 bytes, taken by a request to orders-0."""
    rig = ProducerRig(topics={"orders": 1, "other": 1}, buffer_memory=1_000, batch_size=1_000, **settings)
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)
    rig.submit("orders", b"x" * 800)
    return rig
