"""Measures growth over waiting requests in process: their effect on look-ups and records.

A real client with a fake broker in this process. The requests wait for a topic that does not exist: half are
produces, half look-ups, none has a thread. The client keeps asking for the topic, so its I/O thread checks
the waiting requests again and again while look-ups and records are timed.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Final, cast

from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.testing import FakeCluster
from service.lookup.lookup_table import LookupTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core import Result, Ticket
    from service.base.producer_protocol import Producer

TOPIC: Final = "known"
MISSING: Final = "not-there"
WAIT_MS: Final = 600_000
PATIENCE_S: Final = 30.0
#: Look-ups are timed in hundreds, and long enough that the missing topic is requested meanwhile.
LOOK_UPS_AT_ONCE: Final = 100
LOOK_UP_S: Final = 0.4
RECORDS: Final = 300
RECORD: Final = ProducerRecord(TOPIC, b"v" * 100)


def measure_waiting(sizes: Sequence[int], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Measures every size once a round, with the same client."""
    look_ups: dict[int, list[float]] = {size: [] for size in sizes}
    produces: dict[int, list[float]] = {size: [] for size in sizes}
    with FakeCluster(brokers=1) as kafka:
        kafka.create_topic(TOPIC, partitions=1)
        config = ProducerConfig.from_mapping(
            {"bootstrap.servers": kafka.bootstrap_servers, "acks": "1", "linger.ms": "0"}
        )
        with KafkaProducer(config) as producer:
            table = LookupTable(cast("Producer", producer), "growth")
            _produce_us(producer)
            for _ in range(rounds):
                for size in sizes:
                    tickets = _park(producer, size)
                    look_ups[size].append(_look_up_us(table))
                    produces[size].append(_produce_us(producer))
                    _leave(producer, tickets, size)
    return {"look-up, us": look_ups, "produce, p50 us": produces}


def _park(producer: KafkaProducer, count: int) -> list[Ticket]:
    """Starts `count` waiting requests; returns when all wait."""
    deadline_ms = producer.clock.now_ms() + WAIT_MS
    tickets = [
        producer.request_topics([MISSING], deadline_ms=deadline_ms, settle=False, done=_reported)
        if number % 2
        else producer.submit(
            MISSING,
            [ProducerRecord(MISSING, b"v")],
            block_deadline_ms=deadline_ms,
            deadline_ms=deadline_ms,
            create=False,
            done=_reported,
        )
        for number in range(count)
    ]
    _wait_until_waiting(producer, count)
    return tickets


def _reported(_: Result) -> None:
    """Ignores the outcome."""


def _leave(producer: KafkaProducer, tickets: Sequence[Ticket], count: int) -> None:
    if producer.status().waiting_for_metadata != count:
        raise SystemExit(f"{producer.status().waiting_for_metadata} of {count} requests still wait")
    for ticket in tickets:
        ticket.cancel()
    _wait_until_waiting(producer, 0)


def _wait_until_waiting(producer: KafkaProducer, count: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while (waiting := producer.status().waiting_for_metadata) != count:
        if time.monotonic() > until_s:
            raise SystemExit(f"{waiting} instead of {count} requests wait after {PATIENCE_S} s")
        time.sleep(0.01)


def _look_up_us(table: LookupTable) -> float:
    """Returns the mean time of a look-up over half a second, including pauses for other threads."""
    path, find = f"/v1/topics/{TOPIC}/leader?partition=0".encode(), table.find
    if find(path) is None:
        raise SystemExit("a look-up of a known topic found nothing")
    began_s, count = time.perf_counter(), 0
    while time.perf_counter() - began_s < LOOK_UP_S:
        for _ in range(LOOK_UPS_AT_ONCE):
            find(path)
        count += LOOK_UPS_AT_ONCE
    return (time.perf_counter() - began_s) / count * 1e6


def _produce_us(producer: KafkaProducer) -> float:
    """Returns the median time from a record's send to its acknowledgement."""
    took_us = []
    for _ in range(RECORDS):
        began_s = time.perf_counter()
        producer.send(RECORD).result(PATIENCE_S)
        took_us.append((time.perf_counter() - began_s) * 1e6)
    return median(took_us)
