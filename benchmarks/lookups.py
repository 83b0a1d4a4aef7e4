"""Measures HTTP look-ups against bare uvicorn, the server's ceiling; idle, and during refreshes.

The sidecar runs as in production: metrics, freshness headers, ETag and the I/O thread are on. Bare uvicorn
answers with the same body, and with two headers where ours has six.

The second table compares the sidecar with itself. It knows 100,000 partitions. In every other turn it fetches
them each second, with changes in one topic of a hundred, including the looked-up topic. wrk sends its next
request when the last is answered, so a stall affects one request of each connection. So the longest time is
shown beside the p99. The brokers and wrk share the cores with the sidecar.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import tempfile
from pathlib import Path
from statistics import median as median_of
from typing import TYPE_CHECKING, Final

from benchmarks.load import Load, free_port, load, process, wrk
from benchmarks.measure import ROUNDS, Sample, goal, in_turns, median, report, table
from benchmarks.sidecar import sidecar
from benchmarks.wide_brokers import topic_name, wide_brokers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Goal
    from benchmarks.sidecar import Sidecar

SECONDS: Final = 2
WIDE_SECONDS: Final = 3
TOPICS: Final = 1_000
PARTITIONS: Final = 100
REFRESH_MS: Final = 1_000

LEADER: Final = "/v1/topics/demo/leader?partition=0"
TOPIC: Final = "/v1/topics/demo"
_WIDE_LEADER: Final = f"/v1/topics/{topic_name(0)}/leader?partition=0"

_BARE_LEADER: Final = "bare uvicorn, a leader's bytes"
_BARE_TOPIC: Final = "bare uvicorn, a topic's bytes"
_STILL: Final = "no refreshes"
_BUSY: Final = "a refresh every second"
#: Otherwise the topic that is looked up would be refreshed every two seconds in both kinds of turn.
_NO_REVALIDATION: Final = {
    "PILOTFISH_LOOKUP_REVALIDATE_AFTER_MS": "600000",
    "PILOTFISH_LOOKUP_MAX_STALE_MS": "600000",
}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true", help="one round: no figures worth keeping")
    rounds = 1 if arguments.parse_args().quick else ROUNDS
    report([*_at_rest(rounds), *_with_refreshes(rounds)])


def _at_rest(rounds: int) -> Sequence[Goal]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(sidecar(None))

        def bare(path: str) -> tuple[int, int]:
            """Returns the port and process of a uvicorn that returns our path's body."""
            port = free_port()
            (folder / str(port)).write_bytes(ours.get(path))
            command = ["-m", "benchmarks.bare_uvicorn", str(port), str(folder / str(port))]
            return port, stack.enter_context(process(command, port, "/")).pid

        def ours_at(path: str, *headers: str) -> Sample:
            return wrk(ours.port, path, ours.pid, seconds=SECONDS, headers=headers)

        def ceiling(port: int, pid: int) -> Sample:
            return wrk(port, "/", pid, seconds=SECONDS)

        bare_leader, bare_topic = bare(LEADER), bare(TOPIC)
        known = f"If-None-Match: {ours.etag(LEADER)}"
        _require_304(ours, known)
        samples = in_turns(
            {
                _BARE_LEADER: lambda: ceiling(*bare_leader),
                "GET leader": lambda: ours_at(LEADER),
                "GET leader, 304": lambda: ours_at(LEADER, known),
                _BARE_TOPIC: lambda: ceiling(*bare_topic),
                "GET topic": lambda: ours_at(TOPIC),
            },
            rounds,
        )
    rate = {name: median(turns, lambda s: s.per_wall_s) for name, turns in samples.items()}
    cpu_us = {name: median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()}
    peer = {name: _BARE_TOPIC if "topic" in name else _BARE_LEADER for name in samples}
    table(
        "look-ups, 16 connections that are kept; ours with ETag, age, version and metrics on",
        ("what", "requests/s", "CPU us/request", "rate, ratio", "CPU, ratio"),
        [
            (name, rate[name], cpu_us[name], rate[name] / rate[peer[name]], cpu_us[name] / cpu_us[peer[name]])
            for name in samples
        ],
    )
    goals = []
    for short, name in {"leader": "GET leader", "topic": "GET topic", "304": "GET leader, 304"}.items():
        theirs = peer[name]
        goals += [
            goal(
                f"look-ups/s, {short}, against bare uvicorn",
                ours=rate[name],
                peer=rate[theirs],
                at_least=0.9,
            ),
            goal(
                f"look-up CPU, {short}, against bare uvicorn",
                ours=cpu_us[name],
                peer=cpu_us[theirs],
                at_most=1.15,
            ),
        ]
    return goals


def _require_304(ours: Sidecar, header: str) -> None:
    name, _, value = header.partition(": ")
    connection = http.client.HTTPConnection("127.0.0.1", ours.port)
    connection.request("GET", LEADER, headers={name: value})
    status = connection.getresponse().status
    connection.close()
    if status != 304:
        raise SystemExit(f"a look-up with {header} was answered with {status}, not with 304")


def _with_refreshes(rounds: int) -> Sequence[Goal]:
    loads: dict[str, list[Load]] = {_STILL: [], _BUSY: []}
    refreshes: dict[str, list[int]] = {_STILL: [], _BUSY: []}
    names = [topic_name(n) for n in range(TOPICS)]
    with wide_brokers(TOPICS, PARTITIONS) as bootstrap_servers:

        def turn(name: str, **kafka: str) -> Sample:
            with sidecar(bootstrap_servers, kafka, names, **_NO_REVALIDATION) as ours:
                ours.await_partitions(TOPICS * PARTITIONS)
                ours.get(_WIDE_LEADER)
                before = ours.metadata()["update_version"]
                loaded = load(f"{ours.url}{_WIDE_LEADER}", ours.pid, seconds=WIDE_SECONDS)
                refreshes[name].append(ours.metadata()["update_version"] - before)
            loads[name].append(loaded)
            return loaded.sample

        samples = in_turns(
            {
                _STILL: lambda: turn(_STILL),
                _BUSY: lambda: turn(_BUSY, **{"metadata.max.age.ms": str(REFRESH_MS)}),
            },
            rounds,
        )
    if min(refreshes[_BUSY]) < WIDE_SECONDS - 1 or max(refreshes[_STILL]):
        raise SystemExit(f"there were other refreshes than there should be: {refreshes}")
    p99_ms = {name: median_of(one.p99_ms for one in loads[name]) for name in samples}
    table(
        f"GET leader, 16 connections, {TOPICS * PARTITIONS:,} partitions known",
        ("with", "refreshes", "requests/s", "CPU us/request", "p50 ms", "p99 ms", "longest ms"),
        [
            (
                name,
                float(median_of(refreshes[name])),
                median(turns, lambda s: s.per_wall_s),
                median(turns, lambda s: s.cpu_us_per_operation),
                median_of(one.p50_ms for one in loads[name]),
                p99_ms[name],
                median_of(one.longest_ms for one in loads[name]),
            )
            for name, turns in samples.items()
        ],
    )
    return [
        goal(
            "look-up p99, 100k partitions refreshed every second, against none",
            ours=p99_ms[_BUSY],
            peer=p99_ms[_STILL],
            at_most=1.5,
        )
    ]


if __name__ == "__main__":
    main()
