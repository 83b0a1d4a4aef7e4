"""Gold tables as Parquet, made without Spark: a healthy fleet, a troubled one, a hostile one, any size.

    write_gold(folder, healthy())            one cluster, nothing to do
    write_gold(folder, troubled())           one case for each sentence of the report
    write_gold(folder, troubled(topics=400)) a large one

The columns are those of the gold tables; a test with Spark checks that they are equal.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import tables

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
Gold = dict[str, list[Row]]

END: Final = datetime(2026, 9, 1, 12, tzinfo=UTC)
CLUSTER: Final = "p9KxQ2uVRkSHRr1R5gqM3w"
_TIME: Final = pa.timestamp("us", tz="UTC")
_ERRORS: Final = pa.list_(pa.struct({"error": pa.string(), "records": pa.int64()}))

_TOPIC: Final = {"cluster_id": pa.string(), "topic": pa.string(), "topic_key": pa.string()}
_PARTITION: Final = _TOPIC | {"partition": pa.int32()}

SCHEMAS: Final[dict[str, dict[str, pa.DataType]]] = {
    tables.GOLD_LEADER_HISTORY: _PARTITION
    | {
        "leader_epoch": pa.int32(),
        "leader": pa.int32(),
        "valid_from": _TIME,
        "valid_to": _TIME,
        "is_current": pa.bool_(),
        "first_observer": pa.string(),
        "last_seen": _TIME,
        "observers": pa.int64(),
        "missed_epochs": pa.int32(),
        "is_conflict": pa.bool_(),
        "is_clock_suspect": pa.bool_(),
        "is_leader_change": pa.bool_(),
    },
    tables.GOLD_CURRENT_LEADER: _PARTITION
    | {"leader": pa.int32(), "leader_epoch": pa.int32(), "since": _TIME, "last_seen": _TIME},
    tables.GOLD_CHURN: {
        "cluster_id": pa.string(),
        "hour": _TIME,
        "topic": pa.string(),
        "elections": pa.int64(),
        "leader_changes": pa.int64(),
        "partitions": pa.int64(),
    },
    tables.GOLD_CHURN_BROKERS: {
        "cluster_id": pa.string(),
        "hour": _TIME,
        "broker": pa.int32(),
        "gained": pa.int64(),
        "lost": pa.int64(),
    },
    tables.GOLD_FLAPPING: _PARTITION
    | {"flapping_from": _TIME, "flapping_to": _TIME, "leader_changes": pa.int64()},
    tables.GOLD_URP: _PARTITION
    | {
        "start_after": _TIME,
        "start_by": _TIME,
        "end_after": _TIME,
        "end_by": _TIME,
        "min_isr": pa.int32(),
        "replicas": pa.int32(),
        "missing": pa.list_(
            pa.struct({"since": _TIME, "until": _TIME, "brokers": pa.list_(pa.int32())}),
        ),
        "is_leaderless": pa.bool_(),
        "min_duration_ms": pa.int64(),
        "max_duration_ms": pa.int64(),
    },
    tables.GOLD_STALENESS: _PARTITION
    | {
        "leader_epoch": pa.int32(),
        "sidecar_id": pa.string(),
        "boot_id": pa.int64(),
        "service": pa.string(),
        "fleet_first_seen": _TIME,
        "reached_at": _TIME,
        "delay_ms": pa.int64(),
        "is_censored": pa.bool_(),
        "metadata_max_age_ms": pa.int64(),
        "is_beyond_twice_the_interval": pa.bool_(),
    },
    tables.GOLD_STALENESS_SUMMARY: {
        "cluster_id": pa.string(),
        "service": pa.string(),
        "sidecar_id": pa.string(),
        "observations": pa.int64(),
        "censored": pa.int64(),
        "beyond_twice_the_interval": pa.int64(),
        "p50_ms": pa.int64(),
        "p95_ms": pa.int64(),
        "p99_ms": pa.int64(),
        "max_ms": pa.int64(),
    },
    tables.GOLD_PRODUCE_SLO: {
        "cluster_id": pa.string(),
        "hour": _TIME,
        "topic": pa.string(),
        "broker": pa.int32(),
        "records": pa.int64(),
        "batches": pa.int64(),
        "bytes": pa.int64(),
        "retries": pa.int64(),
        "failed": pa.int64(),
        "error_rate": pa.float64(),
        "errors": _ERRORS,
        "p50_us": pa.int64(),
        "p95_us": pa.int64(),
        "p99_us": pa.int64(),
    },
    tables.GOLD_LEADER_SKEW: {
        "cluster_id": pa.string(),
        "broker": pa.int32(),
        "leaders": pa.int64(),
        "share": pa.float64(),
        "fair_share": pa.float64(),
        "excess": pa.float64(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "load_share": pa.float64(),
    },
    tables.GOLD_DATA_QUALITY: {
        "cluster_id": pa.string(),
        "sidecar_id": pa.string(),
        "boot_id": pa.int64(),
        "service": pa.string(),
        "version": pa.string(),
        "first_event": _TIME,
        "last_event": _TIME,
        "received": pa.int64(),
        "missing": pa.int64(),
        "dropped_reported": pa.int64(),
        "is_silent": pa.bool_(),
        "clock_offset_ms": pa.int64(),
        "is_clock_suspect": pa.bool_(),
        "is_left_out": pa.bool_(),
        "clock_shift_ms": pa.int64(),
        "clock_shift_error_ms": pa.int64(),
        "epoch_conflicts": pa.int64(),
    },
    tables.GOLD_INCIDENTS: {
        "cluster_id": pa.string(),
        "kind": pa.string(),
        "broker": pa.int32(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "began_by": _TIME,
        "over_by": _TIME,
        "times": pa.int64(),
        "partitions_short": pa.int64(),
        "leaders_moved": pa.int64(),
        "failed": pa.int64(),
        "errors": _ERRORS,
        "topics": pa.list_(pa.string()),
        "services": pa.list_(pa.string()),
    },
    tables.GOLD_REJECTS: {
        "reason": pa.string(),
        "lines": pa.int64(),
        "first_received": _TIME,
        "last_received": _TIME,
        "example": pa.string(),
    },
}


def write_gold(folder: Path, gold: Gold) -> Path:
    """The folder, with each table as the Parquet store leaves it; one without rows is there, and empty."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = {"store": "parquet", "layout": 1}
    (folder / "_pilotfish.json").write_text(json.dumps(mark), encoding="utf-8")
    for table, columns in SCHEMAS.items():
        (folder / table).mkdir(exist_ok=True)
        rows = pa.Table.from_pylist(gold.get(table, []), schema=pa.schema(columns))
        pq.write_table(rows, folder / table / "part-00000.snappy.parquet")
        (folder / table / "_SUCCESS").touch()
    return folder


def joined(*parts: Gold) -> Gold:
    """The tables of several clusters together."""
    return {table: [row for part in parts for row in part.get(table, [])] for table in SCHEMAS}


def healthy(
    *, cluster: str = CLUSTER, topics: int = 6, partitions: int = 6, brokers: int = 4, sidecars: int = 9
) -> Gold:
    """A fleet over three hours in which one leader moved once, as leaders do."""
    return _Fleet(cluster, topics, partitions, brokers, sidecars, seed=1).healthy()


def troubled(
    *,
    cluster: str = CLUSTER,
    topics: int = 12,
    partitions: int = 6,
    brokers: int = 6,
    sidecars: int = 24,
    name: str = "topic-{n}",
) -> Gold:
    """A fleet with one of each trouble; `name` is what the later topics are called.

    Broker 3 fails, broker 2 is slow, a partition flaps, replicas are short, sidecars are held back, silent,
    or have wrong clocks, and there are lines that nobody can read.
    """
    fleet = _Fleet(cluster, topics, partitions, brokers, sidecars, seed=2, name=name)
    return fleet.troubled()


_NAMES: Final = ("orders", "payments", "shipments", "invoices", "customers", "clicks")
_SERVICES: Final = ("checkout", "billing", "search")


class _Fleet:
    """Makes the rows; what happens is drawn from a seed."""

    def __init__(
        self,
        cluster: str,
        topics: int,
        partitions: int,
        brokers: int,
        sidecars: int,
        *,
        seed: int,
        name: str = "topic-{n}",
    ) -> None:
        self.cluster: Final = cluster
        self.random: Final = random.Random(seed)
        later = (name.replace("{n}", f"{n + 1:03d}") for n in range(len(_NAMES), topics))
        self.topics: Final = [*_NAMES[:topics], *later]
        self.partitions: Final = partitions
        self.brokers: Final = list(range(1, brokers + 1))
        self.sidecars: Final = [f"{_SERVICES[n % 3]}-{n // 3:03d}" for n in range(sidecars)]
        self.start: Final = END - timedelta(hours=3)
        self.gold: Final[Gold] = {table: [] for table in SCHEMAS}
        #: When each partition's leader moved, and to which broker.
        self.moves: Final[dict[tuple[str, int], list[tuple[datetime, int]]]] = {
            (topic, partition): [(self.start, self.brokers[(t + partition) % brokers])]
            for t, topic in enumerate(self.topics)
            for partition in range(partitions)
        }

    def healthy(self) -> Gold:
        self.move("orders", 0, self.at(70), self.brokers[1])
        self.leadership()
        self.staleness(held_back=())
        self.produce(slow=None)
        self.skew(heavy=None)
        self.quality(troubled=False)
        return self.gold

    def troubled(self) -> Gold:
        for failing_at in (31, 95, 150):
            for (topic, partition), moves in self.moves.items():
                if moves[-1][1] == 3:
                    self.move(topic, partition, self.at(failing_at), self.random.choice([1, 2, 4]))
                    if failing_at < 150:
                        self.move(topic, partition, self.at(failing_at + 5), 3)
        for n in range(12):
            self.move("payments", 1, self.at(100 + 2 * n), 1 + n % 2)
        self.move("orders", 4, self.at(170), -1)
        self.leadership()
        self.gold[tables.GOLD_LEADER_HISTORY][0]["is_conflict"] = True
        self.incidents()
        self.short_of_replicas()
        self.staleness(held_back=(0, 1))
        self.produce(slow=2)
        self.skew(heavy=1)
        self.quality(troubled=True)
        self.rejects()
        return self.gold

    def at(self, minutes: float) -> datetime:
        return self.start + timedelta(minutes=minutes)

    def move(self, topic: str, partition: int, at: datetime, leader: int) -> None:
        self.moves[topic, partition].append((at, leader))

    def of(self, topic: str, partition: int) -> Row:
        key = f"{topic}-id"
        return {"cluster_id": self.cluster, "topic": topic, "topic_key": key, "partition": partition}

    def leadership(self) -> None:
        churn: dict[tuple[datetime, str], Row] = {}
        brokers: dict[tuple[datetime, int], Row] = {}
        for (topic, partition), moves in self.moves.items():
            for epoch, (at, leader) in enumerate(moves):
                is_last = epoch == len(moves) - 1
                before = moves[epoch - 1][1] if epoch else None
                self.gold[tables.GOLD_LEADER_HISTORY].append(
                    self.of(topic, partition)
                    | {
                        "leader_epoch": epoch,
                        "leader": leader,
                        "valid_from": at,
                        "valid_to": None if is_last else moves[epoch + 1][0],
                        "is_current": is_last,
                        "first_observer": self.sidecars[0],
                        "last_seen": END if is_last else moves[epoch + 1][0],
                        "observers": len(self.sidecars),
                        "missed_epochs": 0,
                        "is_conflict": False,
                        "is_clock_suspect": False,
                        "is_leader_change": before is not None,
                    }
                )
                hour = at.replace(minute=0, second=0, microsecond=0)
                if before is not None:
                    blank = {"cluster_id": self.cluster, "hour": hour, "topic": topic}
                    row = churn.setdefault(
                        (hour, topic), blank | {"elections": 0, "leader_changes": 0, "partitions": 1}
                    )
                    row["elections"] += 1
                    row["leader_changes"] += 1
                    for broker, what in ((leader, "gained"), (before, "lost")):
                        blank = {"cluster_id": self.cluster, "hour": hour, "broker": broker}
                        counts = brokers.setdefault((hour, broker), blank | {"gained": 0, "lost": 0})
                        counts[what] += broker >= 0
            self.gold[tables.GOLD_CURRENT_LEADER].append(
                self.of(topic, partition)
                | {"leader": moves[-1][1], "leader_epoch": len(moves) - 1, "since": moves[-1][0]}
                | {"last_seen": END}
            )
        self.gold[tables.GOLD_CHURN] = list(churn.values())
        self.gold[tables.GOLD_CHURN_BROKERS] = [row for row in brokers.values() if row["broker"] >= 0]
        if len(self.moves.get(("payments", 1), ())) > 3:
            self.gold[tables.GOLD_FLAPPING] = [
                self.of("payments", 1)
                | {"flapping_from": self.at(100), "flapping_to": self.at(122), "leader_changes": 12}
            ]

    def short_of_replicas(self) -> None:
        for n, topic in enumerate(self.topics):
            for partition in range(self.partitions):
                began = self.at(30 + 64 * (n % 3) + self.random.uniform(0, 3))
                known_minutes = self.random.uniform(0, 9)
                is_open = topic == "orders" and partition in (0, 4)
                start_after = None if n == 1 else began - timedelta(seconds=self.random.uniform(5, 200))
                last_short = began + timedelta(minutes=known_minutes)
                end_by = None if is_open else last_short + timedelta(seconds=self.random.uniform(5, 250))
                longest = None if end_by is None or start_after is None else end_by - start_after
                self.gold[tables.GOLD_URP].append(
                    self.of(topic, partition)
                    | {
                        "start_after": start_after,
                        "start_by": began,
                        "end_after": END if is_open else last_short,
                        "end_by": end_by,
                        "min_isr": 1 if is_open else 2,
                        "replicas": 3,
                        "missing": [{"since": began, "until": end_by, "brokers": [3]}],
                        "is_leaderless": topic == "orders" and partition == 4,
                        "min_duration_ms": int(
                            ((END if is_open else last_short) - began).total_seconds() * 1e3
                        ),
                        "max_duration_ms": None if longest is None else int(longest.total_seconds() * 1e3),
                    }
                )

    def incidents(self) -> None:
        for kind, broker, topic, partition, began, over, times in (
            ("broker_down", 3, "", -1, 31, 36, 1),
            ("broker_down", 3, "", -1, 95, 101, 4),
            ("broker_down", 5, "", -1, 100, 102, 1),
            ("leader_flapping", -1, "payments", 1, 100, 122, 12),
            ("replicas_behind", -1, "orders", 0, 30, None, 1),
            ("produces_failing", -1, self.topics[-1], -1, 60, 70, 9),
            *(("replicas_behind", -1, topic, 2, 140, 150, 2) for topic in self.topics[6:]),
        ):
            is_broker = kind == "broker_down"
            failed = 564 if is_broker else 1_200 if kind == "produces_failing" else 0
            error = "REQUEST_TIMED_OUT" if is_broker else "TOPIC_AUTHORIZATION_FAILED"
            hurt = self.topics[:4] if is_broker else [topic]
            self.gold[tables.GOLD_INCIDENTS].append(
                {
                    "cluster_id": self.cluster,
                    "kind": kind,
                    "broker": broker,
                    "topic": topic,
                    "partition": partition,
                    "began_by": self.at(began),
                    "over_by": None if over is None else self.at(over),
                    "times": times,
                    "partitions_short": 12 if is_broker else int(kind == "replicas_behind"),
                    "leaders_moved": 5 if is_broker else int(kind == "leader_flapping"),
                    "failed": failed,
                    "errors": [{"error": error, "records": failed}] if failed else [],
                    "topics": hurt if failed else [],
                    "services": ["billing", "checkout"] if failed else [],
                }
            )

    def staleness(self, held_back: tuple[int, ...]) -> None:
        for number, sidecar_id in enumerate(self.sidecars):
            rows = []
            for (topic, partition), moves in self.moves.items():
                for epoch, (at, _) in enumerate(moves[1:], 1):
                    is_held = number in held_back and self.random.random() < 0.6
                    is_censored = is_held and self.random.random() < 0.3
                    delay_ms = round(self.random.lognormvariate(7.5, 1.1)) if not is_held else 700_000 + epoch
                    delay_ms = delay_ms if is_held else min(delay_ms, 59_000)
                    rows.append(
                        self.of(topic, partition)
                        | {
                            "leader_epoch": epoch,
                            "sidecar_id": sidecar_id,
                            "boot_id": number,
                            "service": sidecar_id[:-4],
                            "fleet_first_seen": at,
                            "reached_at": None if is_censored else at + timedelta(milliseconds=delay_ms),
                            "delay_ms": delay_ms,
                            "is_censored": is_censored,
                            "metadata_max_age_ms": 60_000,
                            "is_beyond_twice_the_interval": delay_ms > 120_000,
                        }
                    )
            self.gold[tables.GOLD_STALENESS] += rows
            self._summarise(sidecar_id[:-4], sidecar_id, rows)
        for service in (*_SERVICES, None):
            every = self.gold[tables.GOLD_STALENESS]
            self._summarise(service, None, [r for r in every if service in (None, r["service"])])

    def _summarise(self, service: str | None, sidecar_id: str | None, rows: list[Row]) -> None:
        delays = sorted(row["delay_ms"] for row in rows)
        censored = sum(row["is_censored"] for row in rows)
        quantile = {
            q: delays[min(int(q * len(delays)), len(delays) - 1)] if delays else None for q in (0.5, 0.95)
        }
        self.gold[tables.GOLD_STALENESS_SUMMARY].append(
            {
                "cluster_id": self.cluster,
                "service": service,
                "sidecar_id": sidecar_id,
                "observations": len(rows),
                "censored": censored,
                "beyond_twice_the_interval": sum(row["is_beyond_twice_the_interval"] for row in rows),
                "p50_ms": quantile[0.5],
                "p95_ms": quantile[0.95],
                "p99_ms": None if censored else delays[-1] if delays else None,
                "max_ms": delays[-1] if delays else None,
            }
        )

    def produce(self, slow: int | None) -> None:
        for hour in range(3):
            for n, topic in enumerate(self.topics):
                for broker in self.brokers:
                    factor = 8 if broker == slow else 1
                    records = 400_000 if topic == "orders" and slow else round(self.random.uniform(4e3, 9e3))
                    failed = records // 90 if slow and n == 2 else 0
                    p50_us = round(2_500 * factor * self.random.uniform(0.9, 1.1))
                    self.gold[tables.GOLD_PRODUCE_SLO].append(
                        {
                            "cluster_id": self.cluster,
                            "hour": self.at(60 * hour),
                            "topic": topic,
                            "broker": broker,
                            "records": records,
                            "batches": records // 30,
                            "bytes": records * 210,
                            "retries": failed // 10,
                            "failed": failed,
                            "error_rate": failed / (records + failed),
                            "errors": [{"error": "NOT_ENOUGH_REPLICAS", "records": failed}] if failed else [],
                            "p50_us": p50_us,
                            "p95_us": p50_us * 3,
                            "p99_us": round(p50_us * self.random.uniform(5, 6)),
                        }
                    )

    def skew(self, heavy: int | None) -> None:
        leaders = [moves[-1][1] for moves in self.moves.values()]
        slo = self.gold[tables.GOLD_PRODUCE_SLO]
        total = sum(row["records"] for row in slo)
        for broker in self.brokers:
            count = leaders.count(broker)
            share = count / len(leaders)
            records = sum(row["records"] for row in slo if row["broker"] == broker)
            load = records / total * (2.2 if broker == heavy else 1)
            self.gold[tables.GOLD_LEADER_SKEW].append(
                {
                    "cluster_id": self.cluster,
                    "broker": broker,
                    "leaders": count,
                    "share": share,
                    "fair_share": 1 / len(self.brokers),
                    "excess": share * len(self.brokers) - 1,
                    "records": records,
                    "bytes": records * 210,
                    "load_share": load,
                }
            )

    def quality(self, *, troubled: bool) -> None:
        for number, sidecar_id in enumerate(self.sidecars):
            is_lossy = troubled and number == 4
            is_silent = troubled and number == 5
            is_wrong = troubled and number == 6
            self.gold[tables.GOLD_DATA_QUALITY].append(
                {
                    "cluster_id": self.cluster,
                    "sidecar_id": sidecar_id,
                    "boot_id": number,
                    "service": sidecar_id[:-4],
                    "version": "0.1.0",
                    "first_event": self.start + timedelta(seconds=number),
                    "last_event": self.at(120) if is_silent else END - timedelta(seconds=number % 10),
                    "received": 3_000 + number,
                    "missing": 700 if is_lossy else 0,
                    "dropped_reported": 650 if is_lossy else 0,
                    "is_silent": is_silent,
                    "clock_offset_ms": 90_000 if is_wrong else number % 5,
                    "is_clock_suspect": is_wrong,
                    "is_left_out": is_wrong,
                    "clock_shift_ms": 400_000 if is_wrong else None,
                    "clock_shift_error_ms": 9_000 if is_wrong else None,
                    "epoch_conflicts": 0,
                }
            )

    def rejects(self) -> None:
        for reason, lines, example in (
            ("not_json", 41, '{"v":1,"type":"metadata.partition","topic":"<script>alert(1)</script>","par'),
            ("unknown_version", 7, '{"v":2,"topic":"<img src=x onerror=alert(2)>"}'),
            ("clock_ahead", 3, '{"v":1,"type":"heartbeat","observed_at":"2036-09-01T10:00:00.000000Z"}'),
            ("too_long", 1, '{"padding":"' + "x" * 988),
        ):
            self.gold[tables.GOLD_REJECTS].append(
                {
                    "reason": reason,
                    "lines": lines,
                    "first_received": self.at(5),
                    "last_received": self.at(140),
                    "example": example,
                }
            )
