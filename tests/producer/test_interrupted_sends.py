"""Ctrl-C in `send` or `submit`, wherever it comes: other records, the batch and the locks stay whole.

Python runs a signal's handler after a call, or as a function begins, and the handler may raise there. A
profile function sees just these places, so each is tried in turn: the first, the second, until a call comes
through. One producer takes them all; whatever an interrupt left behind would show in the records after it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import client_core
from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.clock import SystemClock
from client_core.testing import FakeCluster
from tests.support.live_producer import PATIENCE_MS, PATIENCE_S, QUICK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from client_core import FutureRecordMetadata

#: Where an interrupt is tried. In a callback of a weak reference, or of the garbage collector, Python would
#: swallow it.
_CODE = (str(Path(client_core.__file__).parent), threading.__file__)

#: A call with more places than this does not end.
MOST_PLACES = 3_000

LINGERING = {"linger.ms": 60_000, "delivery.timeout.ms": 120_000, "max.block.ms": 20_000}


def is_interrupted(call: Callable[[], object], place: int) -> bool:
    """Makes the call and raises KeyboardInterrupt at one place of it; returns whether it has so many."""
    left = place
    before = sys.getprofile()

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event not in {"call", "c_return"} or not frame.f_code.co_filename.startswith(_CODE):
            return
        left -= 1
        if left < 0:
            sys.setprofile(before)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    assert left >= 0, "the interrupt was swallowed"
    return False


def at_each_place(call: Callable[[int], object], between: Callable[[int], None]) -> int:
    """Interrupts `call` at each place in turn, with `between` after each; returns how many there were."""
    for place in range(MOST_PLACES):
        was_interrupted = is_interrupted(lambda number=place: call(number), place)  # type: ignore[misc]
        between(place)
        if not was_interrupted:
            return place
    raise AssertionError(f"{MOST_PLACES} places, and no end")


class TickingClock(SystemClock):
    """Each record has a timestamp of its own."""

    def __init__(self) -> None:
        self._ticks = count(1_700_000_000_000, 70)

    def wall_ms(self) -> int:
        return next(self._ticks)


@contextmanager
def producing(overrides: Mapping[str, object] | None = None) -> Iterator[tuple[FakeCluster, KafkaProducer]]:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, **QUICK, **LINGERING, **(overrides or {})}
        with KafkaProducer(ProducerConfig.from_mapping(settings), clock=TickingClock()) as producer:
            yield cluster, producer
        assert producer.io_thread.failed_turns == 0


def assert_whole(
    cluster: FakeCluster, producer: KafkaProducer, sent: Mapping[bytes, FutureRecordMetadata]
) -> None:
    """Each record with a future is where that says, none is stored twice, and all memory is free."""
    producer.flush()
    stored = {
        record.value: (partition, record.offset, record.timestamp_ms)
        for partition in range(3)
        for record in cluster.records("orders", partition)
    }
    assert len(stored) == len(cluster.records("orders"))
    for value, future in sent.items():
        at = future.result(PATIENCE_S)
        assert stored[value] == (at.partition, at.offset, at.timestamp_ms)
    assert producer._pool.available_bytes == producer._pool.total_bytes
    assert not producer._accumulator.incomplete()


SETTINGS = {
    "plain": {},
    "packed": {"compression.type": "gzip"},
    "small": {"batch.size": 200, "buffer.memory": 600, "linger.ms": 0},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("key", [None, b"key"], ids=["keyless", "keyed"])
@pytest.mark.parametrize("flushed", [False, True], ids=["to an open batch", "to a new batch"])
def test_an_interrupt_in_send_costs_no_other_record(
    flushed: bool, key: bytes | None, settings: Mapping[str, object]
) -> None:
    sent: dict[bytes, FutureRecordMetadata] = {}
    with producing(settings) as (cluster, producer):

        def send(kind: bytes, place: int) -> None:
            value = b"%s %d" % (kind, place)
            sent[value] = producer.send(ProducerRecord("orders", value, key))

        def between(place: int) -> None:
            send(b"after", place)
            if flushed:
                producer.flush()

        send(b"before", 0)
        if flushed:
            producer.flush()
        assert at_each_place(lambda place: send(b"interrupted", place), between) > 10
        for number in range(2):
            producer.flush()
            send(b"next", number)
        assert_whole(cluster, producer, sent)


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_an_interrupt_in_submit_costs_no_other_record(
    settings: Mapping[str, object], in_chunks: bool
) -> None:
    sent: dict[bytes, FutureRecordMetadata] = {}
    with producing(settings) as (cluster, producer):

        def submit(place: int) -> None:
            now_ms = producer.clock.now_ms()
            records = [
                ProducerRecord("orders", b"%d of %d" % (number, place), partition=number % 3)
                for number in range(6)
            ]
            producer.submit(
                "orders",
                records,
                block_deadline_ms=now_ms + PATIENCE_MS,
                deadline_ms=now_ms + PATIENCE_MS,
                done=lambda _: None,
                in_chunks=in_chunks,
            )

        def between(place: int) -> None:
            value = b"after %d" % place
            sent[value] = producer.send(ProducerRecord("orders", value, partition=place % 3))
            producer.flush()

        between(-1)
        assert at_each_place(submit, between) > 10
        assert_whole(cluster, producer, sent)
