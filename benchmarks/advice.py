"""Measures the first produce of a fresh sidecar: with advice, without it, and with a configured topic.

Three real brokers. In each round a sidecar of each kind is started. Where the sidecar should know the topic,
the benchmark waits until it does. After a short pause one record is sent to the topic, acks=all. Measured is
the time from the head of the request to its answer, and the same for a second record. Advice saves the wait
for the topic's metadata. Each kind's first produce also connects to the leader and gets a producer id.

A round trip costs a fraction of a millisecond on loopback, and more to remote brokers. Medians of rounds in
turn, ratios within one run; nothing is recorded.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.brokers import PARTITIONS, TOPIC, three_brokers
from benchmarks.measure import table
from benchmarks.sidecar import sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.sidecar import Sidecar

ROUNDS: Final = 10
#: The pause after the start, in which the sidecar does its other work.
SETTLE_S: Final = 0.3
SERVICE: Final = "bench"
WITHOUT: Final = "without advice"
ADVISED: Final = "with advice"
CONFIGURED: Final = "with warm_topics"
_TTL_MS: Final = 3_600_000
_BODY: Final = b'{"records":[{"value":"x"}]}'


class Times(NamedTuple):
    """The times of one start, in ms."""

    #: From ready until the topic is known; 0 if it should not be known.
    known_ms: float
    first_ms: float
    second_ms: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = arguments.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, three_brokers() as kafka:
        path = Path(folder) / "advice.json"
        path.write_text(json.dumps(_document(kafka.cluster_id)))
        advised = {"PILOTFISH_ADVICE": str(path), "PILOTFISH_SERVICE_NAME": SERVICE}
        kinds: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
            WITHOUT: ((), {}),
            ADVISED: ((), advised),
            CONFIGURED: ((TOPIC,), {}),
        }
        times: dict[str, list[Times]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, (warm_topics, environment) in kinds.items():
                with sidecar(kafka.bootstrap_servers, {}, warm_topics, **environment) as ours:
                    times[kind].append(_produced(ours, knows=kind is not WITHOUT))
    _report(times)


def _document(cluster_id: str) -> dict[str, object]:
    """Returns the pipeline's document for this service."""
    entry = {
        "cluster_id": cluster_id,
        "service": SERVICE,
        "warm_topics": [TOPIC],
        "refresh_max_age_ms": 300_000,
        "computed_at": datetime.now(UTC).isoformat(),
        "ttl_ms": _TTL_MS,
    }
    return {"version": 1, "advice": [entry]}


def _produced(ours: Sidecar, *, knows: bool) -> Times:
    began_s = time.perf_counter()
    if knows:
        ours.await_partitions(PARTITIONS)
    known_ms = (time.perf_counter() - began_s) * 1000 if knows else 0.0
    time.sleep(SETTLE_S)
    connection = http.client.HTTPConnection("127.0.0.1", ours.port, timeout=60)
    connection.connect()
    try:
        return Times(known_ms, _record_ms(connection), _record_ms(connection))
    finally:
        connection.close()


def _record_ms(connection: http.client.HTTPConnection) -> float:
    began_s = time.perf_counter()
    connection.request("POST", f"/v1/topics/{TOPIC}/records", _BODY, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    took_ms = (time.perf_counter() - began_s) * 1000
    if answer.status != 200:
        raise SystemExit(f"the sidecar answered a produce with {answer.status}: {body[:500]!r}")
    return took_ms


def _report(times: Mapping[str, Sequence[Times]]) -> None:
    middle = {
        kind: Times(*map(statistics.median, zip(*of_kind, strict=True))) for kind, of_kind in times.items()
    }
    rounds = len(times[WITHOUT])
    table(
        f"the first produce after a start, ms, medians of {rounds} starts each",
        ("sidecar", "ready to topic known", "first record", "second record", "slowest first"),
        [
            (
                kind,
                reported.known_ms,
                reported.first_ms,
                reported.second_ms,
                max(one.first_ms for one in times[kind]),
            )
            for kind, reported in middle.items()
        ],
    )
    without = middle[WITHOUT].first_ms
    table(
        "the first record against that without advice",
        ("sidecar", "ratio"),
        [(kind, middle[kind].first_ms / without) for kind in (ADVISED, CONFIGURED)],
    )


if __name__ == "__main__":
    main()
