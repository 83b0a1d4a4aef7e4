"""Builds the lines of event v1 as text; constant parts are built only once.

A line is head, seq, time, tail:

    {"v":1,"type":"heartbeat","cluster_id":"…","sidecar_id":"…","service":"…","boot_id":7,"seq": 12
    ,"observed_at":" 2026-09-01T10:00:00.123000Z ", "uptime_ms":60000,"dropped":0,…}

Bodies of produce windows are built in advance for each kind of broker (quick, slow, in trouble) and each size
of topic, and drawn at random afterwards. So thousands of partitions get realistic histograms at the cost of a
look-up. Latencies are log-normal.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pipeline import event_v1
from pipeline.event_v1 import bucket_of
from tests.pipeline.simulate.plan import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pipeline.simulate.timeline import Life, Slot, State


TYPES: Final = (
    event_v1.PARTITION,
    event_v1.TOPIC,
    event_v1.REFRESH,
    event_v1.WINDOW,
    event_v1.CONNECTION,
    event_v1.HEARTBEAT,
)
PILOTFISH_VERSION: Final = "0.1.0"


QUICK, SLOW, TROUBLED, LEADERLESS = range(4)
#: The errors with which brokers refuse all records of a topic; the body's kind is REFUSED and the place here.
REFUSALS: Final = ("MESSAGE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD")
REFUSED: Final = 4

#: The median latency of batches, in microseconds.
_MEDIAN_US: Final = {QUICK: 2_500, SLOW: 22_000, TROUBLED: 180_000, LEADERLESS: 0}
_SPREAD: Final = {QUICK: 0.45, SLOW: 0.5, TROUBLED: 1.0, LEADERLESS: 0.0}
#: Records of a window, by the size of its topic.
_RECORDS: Final = (12, 80, 600)
_STOCK: Final = 1024
_ERRORS: Final = ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS")

SIZES: Final = range(len(_RECORDS))


def stock(seed: int) -> dict[tuple[int, int], list[str]]:
    """Returns ends of window lines by (kind of broker, size of topic); all lists have the same length."""
    source = random.Random(f"{seed} produce")
    return {
        (kind, size): [_body(source, kind, size) for _ in range(_STOCK)]
        for kind in (QUICK, SLOW, TROUBLED, LEADERLESS, *range(REFUSED, REFUSED + len(REFUSALS)))
        for size in SIZES
    }


def _body(source: random.Random, kind: int, size: int) -> str:
    batches = max(round(source.lognormvariate(1.4, 0.6)), 1)
    latencies: Counter[int] = Counter()
    errors: Counter[str] = Counter()
    records = retries = 0
    for _ in range(batches):
        of_batch = max(round(source.lognormvariate(0, 0.5) * _RECORDS[size] / batches), 1)
        if kind >= REFUSED:
            errors[REFUSALS[kind - REFUSED]] += of_batch
            continue
        if kind == LEADERLESS or (kind == TROUBLED and source.random() < 0.08):
            errors["REQUEST_TIMED_OUT" if kind == LEADERLESS else source.choice(_ERRORS)] += of_batch
            retries += 3
            continue
        if kind == TROUBLED and source.random() < 0.6:
            retries += 1
        median_us = _MEDIAN_US[kind]
        latency_us = round(source.lognormvariate(0, _SPREAD[kind]) * median_us)
        if kind == QUICK and source.random() < 0.004:
            latency_us *= 12
        latencies[bucket_of(latency_us)] += of_batch
        records += of_batch
    return (
        f'"records":{records},"batches":{batches},"bytes":{records * source.randrange(180, 260)}'
        f',"retries":{retries},"errors":{text(dict(sorted(errors.items())))}'
        f',"latency_us":{text({str(bucket): latencies[bucket] for bucket in sorted(latencies)})}}}'
    )


def text(value: object) -> str:
    """Returns JSON as a sidecar writes it: without spaces."""
    return json.dumps(value, separators=(",", ":"))


def heads(cluster_id: str | None, sidecar_id: str, service: str, boot_id: int) -> dict[str, str]:
    """Returns the beginning of a line of each type, up to the line's number."""
    who = (
        f'"cluster_id":{text(cluster_id)},"sidecar_id":{text(sidecar_id)},"service":{text(service)},'
        f'"boot_id":{boot_id},"seq":'
    )
    return {kind: f'{{"v":{event_v1.VERSION},"type":{text(kind)},{who}' for kind in TYPES}


class Clock:
    """Formats times, fast if they ascend: each second is formatted once."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def at(self, at_us: int) -> str:
        """Returns the time as "2026-11-21T10:00:00.123000Z"."""
        second, micros = divmod(at_us, SECOND_US)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{micros:06d}Z"


def partition_tail(
    life: Life, slot: Slot, state: State, metadata_version: int, broker: int | None, reason: str
) -> str:
    return (
        f',"topic":"{life.name}","topic_id":"{life.topic_id}","partition":{slot.partition}'
        f',"leader":{state.leader if state.leader >= 0 else "null"},"leader_epoch":{state.epoch}'
        f',"isr":{_ids(state.isr)},"replicas":{_ids(slot.replicas)},"offline":{_ids(state.offline)}'
        f',"metadata_version":{metadata_version},"broker":{"null" if broker is None else broker}'
        f',"reason":"{reason}"}}'
    )


def _ids(brokers: Sequence[int]) -> str:
    return f"[{','.join(map(str, brokers))}]"


def topic_tail(change: str, life: Life, partitions: int | None, metadata_version: int) -> str:
    return (
        f',"change":"{change}","topic":"{life.name}","topic_id":"{life.topic_id}"'
        f',"partitions":{"null" if partitions is None else partitions}'
        f',"metadata_version":{metadata_version}}}'
    )


def refresh_tail(
    duration_us: int,
    broker: int | None,
    counts: tuple[int, int, int],
    reason: str,
    outcome: str,
    metadata_version: int,
) -> str:
    """`counts`: topics, partitions, and partitions reported because of it."""
    topics, partitions, changed = counts
    return (
        f',"duration_us":{duration_us},"broker":{"null" if broker is None else broker}'
        f',"topics":{topics},"partitions":{partitions},"changed":{changed}'
        f',"reason":"{reason}","outcome":"{outcome}","metadata_version":{metadata_version}}}'
    )


def connection_tail(broker: int, state: str, reason: str | None) -> str:
    return f',"broker":{broker},"state":"{state}","reason":{text(reason)}}}'


def heartbeat_tail(
    uptime_ms: int, dropped: int, topics: int, partitions: int, metadata_max_age_ms: int
) -> str:
    return (
        f',"uptime_ms":{uptime_ms},"dropped":{dropped},"topics":{topics},"partitions":{partitions}'
        f',"metadata_max_age_ms":{metadata_max_age_ms},"version":"{PILOTFISH_VERSION}"}}'
    )
