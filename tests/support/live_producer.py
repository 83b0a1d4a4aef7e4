"""A KafkaProducer with its real I/O thread and real sockets, for tests against the fake cluster.

    with live_producer(cluster.bootstrap_servers, {"batch.size": 1}) as producer:
        outcome = submit(producer, "orders", [b"a", b"b"], partition=0)
        assert outcome.offsets() == [0, 1]

Pauses are short and timeouts are long: nothing here waits for time to pass, but for something to happen. An
`Outcome` counts its calls, so that a second report is noticed. Leaving the context closes the producer and
checks that its thread has ended.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from client_core import (
    NO_EVENTS,
    EventSink,
    KafkaError,
    KafkaProducer,
    ProducerConfig,
    ProduceResult,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    Result,
)
from client_core.testing import FakeCluster
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from client_core import Ticket

PATIENCE_S: Final = patient(20)
PATIENCE_MS: Final = PATIENCE_S * 1_000

#: Kafka's defaults with pauses that a test can afford.
QUICK: Final[Mapping[str, str | int | bool]] = {
    "linger.ms": 0,
    "retry.backoff.ms": 4,
    "retry.backoff.max.ms": 16,
    "reconnect.backoff.ms": 4,
    "reconnect.backoff.max.ms": 16,
    "request.timeout.ms": 10_000,
    "delivery.timeout.ms": PATIENCE_MS,
    "max.block.ms": PATIENCE_MS,
}

_R = TypeVar("_R")


class Outcome:
    """A done-callback that counts its calls and can be waited for."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self.results: list[Result] = []
        self.ticket: Ticket | None = None

    def __call__(self, result: Result) -> None:
        self.results.append(result)
        self._came.set()

    def cancel(self) -> None:
        assert self.ticket is not None
        self.ticket.cancel()

    @property
    def is_reported(self) -> bool:
        return self._came.is_set()

    def result(self, kind: type[_R]) -> _R:
        """The result, which was reported once."""
        assert self._came.wait(PATIENCE_S), "nothing was reported"
        (result,) = self.results
        assert isinstance(result, kind)
        return result

    def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]:
        return self.result(ProduceResult).outcomes

    def offsets(self) -> Sequence[int | None]:
        """The offsets of a request all of whose records were acknowledged."""
        outcomes = self.outcomes()
        failed = [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]
        assert not failed, failed
        return [outcome.offset for outcome in outcomes if isinstance(outcome, RecordMetadata)]

    def failures(self) -> Sequence[RecordFailure]:
        """Why each record of a request failed all of whose records did."""
        outcomes = self.outcomes()
        acknowledged = [outcome for outcome in outcomes if isinstance(outcome, RecordMetadata)]
        assert not acknowledged, acknowledged
        return [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]

    def error(self) -> KafkaError:
        """Why the one record failed."""
        (failure,) = self.failures()
        return failure.error


def submit(
    producer: KafkaProducer,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int | None = None,
    key: bytes | None = None,
    deadline_in_ms: int = PATIENCE_MS,
    block_in_ms: int = PATIENCE_MS,
    create: bool = True,
) -> Outcome:
    """Submits records and returns their callback."""
    reported = Outcome()
    now_ms = producer.clock.now_ms()
    reported.ticket = producer.submit(
        topic,
        [ProducerRecord(topic, value, key=key, partition=partition) for value in values],
        block_deadline_ms=now_ms + block_in_ms,
        deadline_ms=now_ms + deadline_in_ms,
        done=reported,
        create=create,
    )
    return reported


def look_up(
    producer: KafkaProducer, *names: str, deadline_in_ms: int = PATIENCE_MS, settle: bool = True
) -> Outcome:
    """Asks for topics and returns the callback."""
    reported = Outcome()
    deadline_ms = producer.clock.now_ms() + deadline_in_ms
    reported.ticket = producer.request_topics(names, deadline_ms=deadline_ms, settle=settle, done=reported)
    return reported


@contextmanager
def live_producer(
    bootstrap_servers: str,
    overrides: Mapping[str, object] | None = None,
    *,
    close_in_ms: int = PATIENCE_MS,
    events: EventSink = NO_EVENTS,
) -> Iterator[KafkaProducer]:
    """A producer that works; closed at the end, and its thread gone."""
    settings = {"bootstrap.servers": bootstrap_servers, **QUICK, **(overrides or {})}
    producer = KafkaProducer(ProducerConfig.from_mapping(settings), random=Random(0), events=events)
    producer.start()
    try:
        yield producer
    finally:
        producer.close(close_in_ms)
    assert producer.status().state == "closed"
    assert producer.io_thread.failed_turns == 0, "a turn of the I/O thread failed: see the log"


@contextmanager
def producing(
    overrides: Mapping[str, str | int | bool] | None = None,
    *,
    brokers: int = 1,
    partitions: int = 1,
    replication_factor: int = 1,
    close_in_ms: int = PATIENCE_MS,
    events: EventSink = NO_EVENTS,
) -> Iterator[tuple[FakeCluster, KafkaProducer]]:
    """Brokers with the topic orders, and a live producer of theirs."""
    with FakeCluster(brokers=brokers) as cluster:
        cluster.create_topic("orders", partitions=partitions, replication_factor=replication_factor)
        with live_producer(
            cluster.bootstrap_servers, overrides, close_in_ms=close_in_ms, events=events
        ) as producer:
            yield cluster, producer
