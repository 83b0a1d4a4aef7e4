"""Precision and recall of gold_incidents against the simulator's own account, over seeds.

    tables, true = fleets(spark, folder, seeds=range(100))
    print(Scores(tables.rows(GOLD_INCIDENTS), true).table())

    python -m tests.pipeline.incident_scores 100       the rules alone, in the true history, without Spark

All seeds go through one set of tables: each is a cluster of its own, whose sidecars have names of their own.

A found incident is right if there was one of its kind and subject within WITHIN_S of it. Sidecars see changes
only at their next refresh, so these may be found or not: a partition that was short for less than twice the
time that makes it an incident, and an incident that is hardly more than APART_US after another one.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import bronze, tables
from pipeline.event_v1 import WINDOW
from pipeline.gold.incident_rules import (
    APART_US,
    REPLICAS_BEHIND,
    SHORT_FOR_US,
    Absence,
    Failure,
    Move,
    incidents_of,
)
from pipeline.sources import FilesSource
from tests.pipeline.simulate import plan_for, simulate
from tests.pipeline.simulate.account import absences_of
from tests.pipeline.simulate.account import incidents_of as incidents_of_history
from tests.pipeline.simulate.cluster import timeline_of
from tests.pipeline.simulate.timeline import NO_LEADER
from tests.pipeline.whole_pipeline import Tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.simulate.plan import Plan
    from tests.pipeline.simulate.timeline import PartitionChange, Timeline
    from tests.pipeline.whole_pipeline import Row

#: How far an incident's seen times may be from the true ones: a refresh interval of five minutes.
WITHIN_S: Final = 300
_HARDLY_S: Final = 60
_MINUTE_US: Final = 60_000_000
_SPAN: Final = ("started_at", "observed_at")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: Final = ("broker_down", "replicas_behind", "leader_flapping", "produces_failing")


class Seen(NamedTuple):
    """An incident, found or true."""

    cluster_id: str
    kind: str
    broker: int
    topic: str
    partition: int
    began: datetime
    ended: datetime | None
    is_wanted: bool = True

    def is_of(self, other: Seen) -> bool:
        """Returns whether it has the other one's subject and time."""
        slack = timedelta(seconds=WITHIN_S)
        return (
            self[:5] == other[:5]
            and (other.ended is None or self.began - slack <= other.ended)
            and (self.ended is None or other.began - slack <= self.ended)
        )


def plan_of(seed: int) -> Plan:
    """Returns a fleet of another size for each seed, with several incidents an hour."""
    drawn = random.Random(f"{seed} size")
    sidecars, hours = drawn.randrange(6, 11), drawn.choice([0.8, 1.0, 1.3])
    return plan_for(
        round(sidecars * hours * 1_400),
        seed,
        sidecars=sidecars,
        hours=hours,
        topics=drawn.randrange(4, 7),
        partitions=4,
        brokers=drawn.randrange(4, 8),
        incidents=drawn.choice([2.0, 4.0, 6.0]),
        silent=0.15,
        churn=drawn.choice([0.5, 1.0, 2.0]),
    )


def fleets(spark: SparkSession, folder: Path, seeds: Iterable[int]) -> tuple[Tables, list[Seen]]:
    """Returns the tables of all seeds' fleets, and their true incidents. `folder` is new."""
    true: list[Seen] = []
    folder.mkdir(parents=True)
    for seed in seeds:
        plan = plan_of(seed)
        name = f'"sidecar_id":"s{seed}-'.encode()
        lines = (line.replace(b'"sidecar_id":"', name) for line in simulate(plan))
        (folder / f"events-{seed}.jsonl").write_bytes(b"".join(lines))
        true += _account(plan)
    parsed = bronze.parse(FilesSource(str(folder)).batch(spark)).localCheckpoint()
    return Tables(spark, (), **{tables.BRONZE_EVENTS: bronze.events(parsed)}), true


class Scores:
    """The incidents of all seeds: found, true, and how they agree."""

    def __init__(self, rows: Iterable[Row], true: Iterable[Seen]) -> None:
        self.found: Final = [
            Seen(*(row[name] for name in ("cluster_id", *Seen._fields[1:5], "began_by", "over_by")))
            for row in rows
        ]
        left = list(self.found)
        self.hit: Final[Counter[str]] = Counter()
        self.missed: Final[list[Seen]] = []
        self.neutral: Final[Counter[str]] = Counter()
        # The ones that must be found choose first.
        true = list(true)
        for one in sorted(true, key=lambda seen: (not seen.is_wanted, seen)):
            match = next((seen for seen in left if seen.is_of(one)), None)
            if match is not None:
                left.remove(match)
                (self.hit if one.is_wanted else self.neutral)[one.kind] += 1
            elif one.is_wanted and self._is_joined(one, true):
                self.neutral[one.kind] += 1
            elif one.is_wanted:
                self.missed.append(one)
        self.wrong: Final = left

    def _is_joined(self, one: Seen, true: Iterable[Seen]) -> bool:
        """Returns whether it was found as one with the incident shortly before it, or after it."""
        gap = timedelta(microseconds=APART_US) + timedelta(seconds=_HARDLY_S)
        near = [
            other
            for other in true
            if other != one
            and other[:5] == one[:5]
            and one.began - (other.ended or one.began) <= gap
            and other.began - (one.ended or other.began) <= gap
        ]
        return any(found.is_of(one) and found.is_of(other) for found in self.found for other in near)

    def precision(self, kind: str | None = None) -> float:
        """Returns the share of the found that are true; of all kinds if `kind` is None."""
        hit, wrong = self._of(self.hit, kind), sum(kind in (None, one.kind) for one in self.wrong)
        return hit / max(hit + wrong, 1)

    def recall(self, kind: str | None = None) -> float:
        """Returns the share of the true ones that were found."""
        hit, missed = self._of(self.hit, kind), sum(kind in (None, one.kind) for one in self.missed)
        return hit / max(hit + missed, 1)

    def _of(self, counts: Counter[str], kind: str | None) -> int:
        return counts[kind] if kind else counts.total()

    def table(self) -> str:
        """Returns the figures of each kind and of all, as text."""
        heads = ("incidents", "true", "found", "wrong", "missed", "either", "precision", "recall")
        lines = [f"{heads[0]:18}" + "".join(f"{head:>10}" for head in heads[1:])]
        for kind in (*KINDS, None):
            wrong, missed = (
                sum(kind in (None, one.kind) for one in which) for which in (self.wrong, self.missed)
            )
            hit = self._of(self.hit, kind)
            counts = (hit + missed, hit + wrong, wrong, missed, self._of(self.neutral, kind))
            lines.append(
                f"{kind or 'all':18}"
                + "".join(f"{count:10}" for count in counts)
                + f"{self.precision(kind):10.3f}{self.recall(kind):10.3f}"
            )
        return "\n".join(lines)


def _account(plan: Plan) -> list[Seen]:
    timeline = timeline_of(plan)
    return [
        Seen(
            timeline.cluster_id,
            one.kind,
            one.broker,
            one.topic,
            one.partition,
            _at(one.began_us),
            _at(one.ended_us),
            one.kind != REPLICAS_BEHIND or one.lasted_us >= 2 * SHORT_FOR_US,
        )
        for one in incidents_of_history(timeline, plan.end_us)
    ]


def _at(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def found_in_truth(plan: Plan) -> tuple[list[Row], list[Seen]]:
    """Returns the incidents that the rules find in a fleet's true history, and the true ones, without Spark.

    Failed records are those that its sidecars report: the history has none. All clocks are right.
    """
    plan = replace(plan, broken=0.0, duplicates=0.0, clock_skew_s=0.0)
    timeline = timeline_of(plan)
    rows: list[Row] = [
        {"cluster_id": timeline.cluster_id, **incident._asdict(), "began_by": _at(incident.began_us)}
        | {"over_by": None if incident.over_us is None else _at(incident.over_us)}
        for incident, _ in incidents_of(
            _absences(timeline, plan.end_us),
            _moves(timeline),
            _failures(json.loads(line) for line in simulate(plan)),
            _replicas(timeline),
            plan.end_us,
        )
    ]
    return rows, _account(plan)


def _place(timeline: Timeline, number: int) -> tuple[str, str, int]:
    slot = timeline.slots[number]
    life = timeline.lives[slot.life]
    return life.name, life.topic_id, slot.partition


def _replicas(timeline: Timeline) -> Counter[int]:
    ended = {change.life for change in timeline.topic_changes if change.partitions is None}
    there = {change.slot for change in timeline.partition_changes} - {
        number for number, slot in enumerate(timeline.slots) if slot.life in ended
    }
    return Counter(broker for number in there for broker in timeline.slots[number].replicas)


def _absences(timeline: Timeline, end_us: int) -> Iterator[Absence]:
    for slot, broker, _, (from_us, to_us) in absences_of(timeline, end_us):
        yield Absence(*_place(timeline, slot), broker, from_us, to_us if to_us < end_us else None)


def _moves(timeline: Timeline) -> Iterator[Move]:
    by_slot: dict[int, list[PartitionChange]] = defaultdict(list)
    for change in timeline.partition_changes:
        epochs = by_slot[change.slot]
        if not epochs or epochs[-1].state.epoch != change.state.epoch:
            epochs.append(change)
    for slot, epochs in by_slot.items():
        leaders = [None if epoch.state.leader == NO_LEADER else epoch.state.leader for epoch in epochs]
        until = [*(epoch.at_us for epoch in epochs[2:]), None]
        for before, leader, epoch, until_us in zip(leaders, leaders[1:], epochs[1:], until, strict=False):
            if leader != before:
                yield Move(*_place(timeline, slot), leader, before, epoch.at_us, until_us)


def _failures(events: Iterable[Row]) -> Iterator[Failure]:
    windows = [event for event in events if event["type"] == WINDOW]
    spans = [tuple(_us(datetime.fromisoformat(w[name])) for name in _SPAN) for w in windows]
    acknowledged: Counter[tuple[str, int]] = Counter()
    for window, (_, to_us) in zip(windows, spans, strict=True):
        acknowledged[window["topic"], to_us // _MINUTE_US] += window["records"]
    for window, (from_us, to_us) in zip(windows, spans, strict=True):
        topic, minute = window["topic"], to_us // _MINUTE_US
        broker = -1 if window["broker"] is None else window["broker"]
        for error, records in window["errors"].items():
            where = (topic, minute, acknowledged[topic, minute], window["partition"], broker)
            yield Failure(*where, window["service"], error, records, from_us, to_us)


def main(seeds: int) -> None:
    """Prints the table of so many seeds, and each incident that was found wrongly or missed."""
    found, true = zip(*(found_in_truth(plan_of(seed)) for seed in range(1, seeds + 1)), strict=True)
    scores = Scores([row for rows in found for row in rows], [one for ones in true for one in ones])
    print(scores.table())
    for name, which in (("wrong", scores.wrong), ("missed", scores.missed)):
        for one in which:
            print(name, *one)


if __name__ == "__main__":
    main(int(sys.argv[1]))
