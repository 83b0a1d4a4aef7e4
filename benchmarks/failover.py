"""Measures the time from a new leader's election, after kill -9, to the first acknowledgement.

Three real brokers; broker.session.timeout.ms is 9 s, as in production. Three kinds of kills, in turn:

  library    five clients, each in its own process, send 20 records/s to the same partition (acks=all,
             min.insync.replicas 2, idempotence, linger 0, 64 KiB batches). Measured: the time from the new
             leader's first appearance in a survivor's metadata, which an observer requests every 20 ms, to
             each client's first acknowledgement
  acks=1     the sidecar with its defaults gets 200 keyless single-record requests/s; six partitions, of which
  acks=all   the killed broker led four. Measured: the longest time without a success, and the share of the
             requests sent from the kill to a second after the election that took longer than a second.
             Java's client sends as many records, also keyless, to the same topic with the same settings
             (linger 0, 16 KiB batches, idempotence with acks=all only)

All acknowledged records are read back. With acks=1 they may be lost with their leader, with acks=all not.

`--timeline` prints our client's events around each election. `--kills N` and `--kind library|acks=1|acks=all`
shorten the run, and then nothing is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import three_brokers
from benchmarks.failover_contestants import BATCH_BYTES
from benchmarks.java_peer import JavaPeer
from benchmarks.leader_observer import LeaderObserver
from benchmarks.line_peer import LinePeer
from benchmarks.load import free_port, process
from benchmarks.measure import goal, report, table
from benchmarks.steady_load import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.line_peer import Peer
    from benchmarks.measure import Goal
    from tests.support.kraft import KraftCluster

#: Per kind. One takes about sixteen seconds: nine until the election, five until the broker is back.
KILLS: Final[Mapping[str, int]] = {"library": 5, "acks=1": 3, "acks=all": 5}
WARM_UP_S: Final = 1.5
RECORDS_PER_S: Final = 20
REQUESTS_PER_S: Final = 200
#: The sidecar's default, which is Kafka's. It determines how often keyless records change partitions.
SIDECAR_BATCH_BYTES: Final = 16_384
#: An acknowledgement later than this after the kill comes from the new leader.
ON_ITS_WAY_S: Final = 1.0
LATEST_S: Final = 15.0
#: The timeline starts this long before the kill.
_BEFORE_S: Final = 0.1
SLOW_S: Final = 1.0


LIBRARIES: Final = ("pilotfish", "aiokafka", "confluent-kafka", "kafka-python")
_CONTESTANTS: Final = "benchmarks.failover_contestants"
#: The earliest of all clients, per kill: the new leader acknowledges when the other replica has fetched.
EARLIEST: Final = "the earliest of all"
JAVA: Final = "java"
SIDECAR: Final = "sidecar"


@dataclass(frozen=True, slots=True)
class Kill:
    """The time of a kill, and the time when a survivor first named another leader."""

    killed_s: float
    elected_s: float


@dataclass(slots=True)
class Fate:
    """The effect of one kill on one contestant."""

    first_after_election_s: float
    longest_gap_s: float
    slow_share: float
    acknowledged: int
    failed: int
    lost: int


@dataclass(slots=True)
class Fates:
    """All kills of one kind, by contestant."""

    kind: str
    of: dict[str, list[Fate]] = field(default_factory=dict)

    def median(self, name: str, figure: str) -> float:
        return float(statistics.median(getattr(fate, figure) for fate in self.of[name]))

    def total(self, name: str, figure: str) -> int:
        return sum(int(getattr(fate, figure)) for fate in self.of[name])

    @property
    def kills(self) -> int:
        return len(next(iter(self.of.values())))


def main() -> None:
    arguments = _arguments()
    _raise_file_limit()
    kinds = [arguments.kind] if arguments.kind else list(KILLS)
    kills = {kind: arguments.kills or KILLS[kind] for kind in kinds}
    in_turn = [kind for turn in range(max(kills.values())) for kind in kinds if turn < kills[kind]]
    fates = {kind: Fates(kind) for kind in kinds}
    with three_brokers() as kafka, contextlib.ExitStack() as stack:
        peers = {kind: stack.enter_context(_contestants(kind, kafka)) for kind in kinds}
        for number, kind in enumerate(in_turn):
            victim, topic = number // len(kinds) % len(kafka.broker_ids) + 1, f"failover-{number}"
            _one_kill(kafka, victim, topic, peers[kind], fates[kind], arguments.timeline)
            if number + 1 < len(in_turn):
                kafka.restart(victim)
                kafka.admin.wait_until_in_sync(topic)
    goals: list[Goal] = []
    for kind in kinds:
        goals += _library_outcome(fates[kind]) if kind == "library" else _http_outcome(fates[kind])
    if arguments.kind or arguments.kills:
        table("goals, not recorded", ("goal", "ratio"), [(g.name, g.ratio) for g in goals])
    else:
        report(goals)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--kind", choices=tuple(KILLS))
    parser.add_argument("--timeline", action="store_true")
    return parser.parse_args()


# -- contestants ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _contestants(kind: str, kafka: KraftCluster) -> Iterator[Mapping[str, Peer]]:
    """Yields the contestants' processes, which are idle until `start`."""
    servers = kafka.bootstrap_servers
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer] = {}
        if kind == "library":
            for name in LIBRARIES:
                peers[name] = stack.enter_context(LinePeer("benchmarks.failover_contestants", name, servers))
        else:
            api, admin = free_port(), free_port()
            sidecar = [
                *("-m", "service", "serve", "--api-port", str(api), "--admin-port", str(admin)),
                *("--kafka", f"bootstrap.servers={servers}", "--kafka", kind, "--log-level", "error"),
            ]
            stack.enter_context(process(sidecar, admin, "/readyz"))
            peers[SIDECAR] = stack.enter_context(LinePeer("benchmarks.http_load", str(api)))
        peers[JAVA] = stack.enter_context(JavaPeer("FailoverPeer", servers))
        yield peers


def _start(kind: str, topic: str, name: str, peer: Peer) -> None:
    if kind == "library":
        peer.ask(f"start {topic} all {RECORDS_PER_S}" + (f" {BATCH_BYTES} 0" if name == JAVA else ""))
    elif name == JAVA:
        peer.ask(f"start {topic} {kind.removeprefix('acks=')} {REQUESTS_PER_S} {SIDECAR_BATCH_BYTES}")
    else:
        peer.ask(f"start {topic} {REQUESTS_PER_S}")


# -- one kill ------------------------------------------------------------------------------------------------


def _one_kill(
    kafka: KraftCluster,
    victim: int,
    topic: str,
    peers: Mapping[str, Peer],
    fates: Fates,
    timeline: bool,
) -> None:
    """Kills a broker under load, waits until all clients resume, and checks the outcomes of the records."""
    second, third = (broker for broker in kafka.broker_ids if broker != victim)
    led = [[victim, second, third]]
    if fates.kind != "library":
        led += [[victim, third, second]] * 2 + [[victim, second, third], [second, third, victim]]
        led += [[third, victim, second]]
    kafka.admin.create_topic(topic, assignment=led, config={"min.insync.replicas": "2"})
    started_s = time.time()
    for name, peer in peers.items():
        _start(fates.kind, topic, name, peer)
    _wait_until_all_go_on(peers, started_s, "while all brokers ran")
    time.sleep(WARM_UP_S)
    lost = [number for number, replicas in enumerate(led) if replicas[0] == victim]
    with LeaderObserver([kafka.address(b) for b in (second, third)], topic, lost, victim) as observer:
        killed_s = time.time()
        kafka.kill(victim)
        kill = Kill(killed_s, observer.wait())
    time.sleep(ON_ITS_WAY_S)
    _wait_until_all_go_on(peers, kill.killed_s + ON_ITS_WAY_S, "after the election")
    books = {name: [Outcome(*row) for row in peer.ask("stop")["records"]] for name, peer in peers.items()}
    stored = {record.value for record in kafka.read_back(topic)}
    for name, outcomes in books.items():
        prefix = "http" if name == SIDECAR else name
        fates.of.setdefault(name, []).append(_fate(outcomes, kill, prefix, stored))
        failures = Counter(outcome.failure for outcome in outcomes if outcome.failure is not None)
        for failure, count in failures.most_common(3):
            print(f"{name}, {fates.kind}: {count:,} records failed: {failure[:200]}")
    if timeline and fates.kind == "library":
        _print_timeline(peers["pilotfish"], kill)


def _wait_until_all_go_on(peers: Mapping[str, Peer], since_s: float, when: str) -> None:
    """Waits until each client has an acknowledgement later than `since_s`."""
    waiting, until_s = dict(peers), time.monotonic() + LATEST_S
    while waiting and time.monotonic() < until_s:
        for name, peer in tuple(waiting.items()):
            if peer.ask(f"acknowledged {since_s:.6f}")["acknowledged"]:
                del waiting[name]
        time.sleep(0.1)
    if waiting:
        raise SystemExit(f"no acknowledgement within {LATEST_S} s {when}: {', '.join(waiting)}")


def _fate(outcomes: Sequence[Outcome], kill: Kill, prefix: str, stored: set[bytes | None]) -> Fate:
    acknowledged = {
        number: outcome.acknowledged_s
        for number, outcome in enumerate(outcomes)
        if outcome.acknowledged_s is not None
    }
    from_new_leader = [at for at in acknowledged.values() if at > kill.killed_s + ON_ITS_WAY_S]
    successes = sorted(at for at in acknowledged.values() if at > kill.killed_s - WARM_UP_S / 2)
    asked = [o for o in outcomes if kill.killed_s <= o.sent_s <= kill.elected_s + ON_ITS_WAY_S]
    slow = [o for o in asked if o.acknowledged_s is None or o.acknowledged_s - o.sent_s > SLOW_S]
    return Fate(
        first_after_election_s=min(from_new_leader) - kill.elected_s,
        longest_gap_s=max(b - a for a, b in pairwise(successes)),
        slow_share=len(slow) / len(asked),
        acknowledged=len(acknowledged),
        failed=len(outcomes) - len(acknowledged),
        lost=sum(f"{prefix}-{number}".encode() not in stored for number in acknowledged),
    )


def _print_timeline(peer: Peer, kill: Kill) -> None:
    print(f"\nour client's events; 0 is the election, {kill.elected_s - kill.killed_s:.3f} s after the kill")
    for at, event in peer.ask(f"events {kill.killed_s - _BEFORE_S:.6f}")["events"]:
        print(f"  {at - kill.elected_s:+8.3f} s  {event}")
        if at > kill.elected_s and event.startswith("ProduceFinished"):
            break


# -- results -------------------------------------------------------------------------------------------------


def _library_outcome(fates: Fates) -> list[Goal]:
    earliest_s = [
        min(f.first_after_election_s for f in of_one_kill)
        for of_one_kill in zip(*fates.of.values(), strict=True)
    ]
    table(
        f"one partition's failover, acks=all, min.insync 2, idempotence, linger 0; {fates.kills} kills",
        ("client", "median s after the election", "best", "worst", "acknowledged", "failed", "lost"),
        [
            (
                name,
                fates.median(name, "first_after_election_s"),
                min(fate.first_after_election_s for fate in each),
                max(fate.first_after_election_s for fate in each),
                *(fates.total(name, figure) for figure in ("acknowledged", "failed", "lost")),
            )
            for name, each in fates.of.items()
        ]
        + [(EARLIEST, statistics.median(earliest_s), min(earliest_s), max(earliest_s), "", "", "")],
    )
    ours, java = ([fate.first_after_election_s for fate in fates.of[name]] for name in ("pilotfish", JAVA))
    later_s = statistics.median(a - b for a, b in zip(ours, java, strict=True))
    what = "failover of a partition, first acknowledgement"
    return [
        goal(
            f"{what}, s later than Java's of the same kill, against 0.2", ours=later_s, peer=0.2, at_most=1.0
        ),
        goal(
            f"{what}, s after the election, against 0.2", ours=statistics.median(ours), peer=0.2, at_most=1.0
        ),
        _none_lost("failover of a partition", fates, "pilotfish"),
    ]


def _http_outcome(fates: Fates) -> list[Goal]:
    table(
        f"{REQUESTS_PER_S} keyless records/s, {fates.kind}, 4 of 6 leaders lost; {fates.kills} kills",
        ("client", "longest gap, s", "share over 1 s", "acknowledged", "failed", "lost"),
        [
            (
                name,
                fates.median(name, "longest_gap_s"),
                fates.median(name, "slow_share"),
                *(fates.total(name, figure) for figure in ("acknowledged", "failed", "lost")),
            )
            for name in fates.of
        ],
    )
    what = f"HTTP failover, {fates.kind}"
    gap_s = fates.median(SIDECAR, "longest_gap_s")
    if fates.kind == "acks=all":
        java_s = fates.median(JAVA, "longest_gap_s")
        return [
            goal(
                f"{what}, longest gap without a success, s, against Java",
                ours=gap_s,
                peer=java_s,
                at_most=1.0,
            ),
            _none_lost(what, fates, SIDECAR),
        ]
    share = fates.median(SIDECAR, "slow_share")
    return [
        goal(f"{what}, longest gap without a success, s, against 0.6", ours=gap_s, peer=0.6, at_most=1.0),
        goal(f"{what}, share of requests over 1 s, against 3 %", ours=share, peer=0.03, at_most=1.0),
    ]


def _none_lost(what: str, fates: Fates, name: str) -> Goal:
    lost, acknowledged = fates.total(name, "lost"), fates.total(name, "acknowledged")
    return goal(f"{what}, acknowledged and lost, of all", ours=lost, peer=acknowledged, at_most=0.0)


def _raise_file_limit() -> None:
    """Raises the limit that the sidecar inherits: without a leader, each request is a waiting connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
