"""The gold tables, computed another way: by loops over polars' rows, as docs/pipeline-tables.md defines them.

No code of the pipeline is used here. `Oracle(events)` takes bronze events as dicts; each method gives the
rows of a table as dicts. It is slow and plain on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Row = dict[str, Any]

_MICROSECOND = timedelta(microseconds=1)
#: Columns of gold_data_quality.
_OF_CLOCKS = (
    "clock_offset_ms", "is_clock_suspect", "is_left_out", "clock_shift_ms", "clock_shift_error_ms",
)  # fmt: skip


class Partition(NamedTuple):
    cluster_id: str
    topic_key: str
    partition: int


class Boot(NamedTuple):
    sidecar_id: str
    boot_id: int


class Seen(NamedTuple):
    """One metadata.partition event."""

    at: datetime
    boot: Boot
    topic: str
    service: str
    epoch: int
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Oracle:
    def __init__(self, events: Iterable[Row], judged: Iterable[Row]) -> None:
        """`judged`: rows of gold_data_quality, for what it says of clocks; clock_judge.py judges that."""
        self._events = [event | {"cluster_id": event["cluster_id"] or ""} for event in events]
        self._judged = {Boot(row["sidecar_id"], row["boot_id"]): row for row in judged}
        #: The boots whose clocks are not believed, with the error of each clock in milliseconds.
        self._left_out: dict[Boot, int] = {
            boot: row["clock_shift_ms"] for boot, row in self._judged.items() if row["is_left_out"]
        }

    # -- reported events -----------------------------------------------------------------------------------

    def _of(self, kind: str) -> Iterator[Row]:
        return (event for event in self._events if event["type"] == kind)

    @cached_property
    def _seen(self) -> dict[Partition, list[Seen]]:
        """The reports about each partition, in the order of (epoch, time, sidecar); null comes first."""
        seen = defaultdict(set)
        for e in self._of("metadata.partition"):
            epoch = -1 if e["leader_epoch"] is None else e["leader_epoch"]
            leader = -1 if e["leader"] is None else e["leader"]
            isr, replicas = tuple(sorted(e["isr"])), tuple(sorted(e["replicas"]))
            boot = Boot(e["sidecar_id"], e["boot_id"])
            seen[Partition(e["cluster_id"], e["topic_id"] or e["topic"], e["partition"])].add(
                Seen(e["observed_at"], boot, e["topic"], e["service"], epoch, leader, isr, replicas)
            )
        return {
            key: sorted(reported, key=lambda s: (s.epoch, s.at, s.boot)) for key, reported in seen.items()
        }

    @cached_property
    def _epochs(self) -> dict[Partition, dict[int, list[Seen]]]:
        """The same, of epochs that can be relied on, by epoch, ascending."""
        return {
            partition: {epoch: list(reported) for epoch, reported in groupby(reliable, lambda s: s.epoch)}
            for partition, seen in self._seen.items()
            if (reliable := [s for s in seen if s.epoch >= 0])
        }

    @cached_property
    def _boots(self) -> dict[Boot, Row]:
        frame = pl.DataFrame(
            [
                {
                    name: event.get(name)
                    for name in (
                        "cluster_id", "sidecar_id", "boot_id", "service", "observed_at", "seq", "version",
                        "dropped", "metadata_max_age_ms",
                    )
                }
                for event in self._events
            ],
            infer_schema_length=None,
        )  # fmt: skip
        rows = (
            frame.sort("observed_at", "cluster_id")
            .group_by("sidecar_id", "boot_id")
            .agg(
                pl.col("cluster_id").filter(pl.col("cluster_id") != "").last(),
                pl.col("service").min(),
                pl.col("version").max(),
                pl.col("observed_at").min().alias("first_event"),
                pl.col("observed_at").max().alias("last_event"),
                pl.col("seq").max().alias("max_seq"),
                pl.col("seq").filter(pl.col("seq") >= 1).n_unique().alias("received"),
                pl.col("dropped").max(),
                pl.col("metadata_max_age_ms").max(),
            )
        )
        return {Boot(row["sidecar_id"], row["boot_id"]): row for row in rows.iter_rows(named=True)}

    @cached_property
    def _ends_of_boots(self) -> dict[tuple[str, str, Boot], list[tuple[datetime, str]]]:
        ends = defaultdict(list)
        for e in self._of("metadata.topic"):
            if e["change"] in ("gone", "recreated", "forgotten"):
                boot = Boot(e["sidecar_id"], e["boot_id"])
                ends[e["cluster_id"], e["topic_id"] or e["topic"], boot].append(
                    (e["observed_at"], e["change"])
                )
        return ends

    @cached_property
    def _ends(self) -> dict[tuple[str, str], list[datetime]]:
        """When each topic is believed to have ended."""
        ends: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        last_reported: dict[tuple[str, str], datetime] = {}
        lives: dict[tuple[str, str], dict[str, datetime]] = defaultdict(dict)
        for partition, epochs in self._epochs.items():
            key = partition.cluster_id, partition.topic_key
            for reported in epochs.values():
                first, last, _ = self._sight(reported)
                last_reported[key] = max(last_reported.get(key, last), last)
                life = lives[partition.cluster_id, reported[0].topic]
                life[partition.topic_key] = min(life.get(partition.topic_key, first[0]), first[0])
        by_others: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        for (cluster, topic_key, boot), reported_ends in self._ends_of_boots.items():
            for reported_at, change in reported_ends:
                at = self._right(reported_at, boot)
                if change != "forgotten" and last_reported.get((cluster, topic_key), at) <= at:
                    (by_others if boot in self._left_out else ends)[cluster, topic_key].append(at)
        for (cluster, name), life in lives.items():
            for topic_key, began in life.items():
                later = [
                    (other_began, other)
                    for other, other_began in life.items()
                    if other != name and (other_began, other) > (began, topic_key)
                ]
                if later:
                    ends[cluster, topic_key].append(min(later)[0])
        return {**by_others, **ends}

    def _first_end_after(self, partition: Partition, at: datetime) -> datetime | None:
        ends = self._ends.get((partition.cluster_id, partition.topic_key), [])
        return min((end for end in ends if end > at), default=None)

    # -- clocks --------------------------------------------------------------------------------------------

    def _right(self, at: datetime, boot: Boot) -> datetime:
        return at - timedelta(milliseconds=self._left_out.get(boot, 0))

    def _sight(self, reported: Sequence[Seen]) -> tuple[tuple[datetime, str], datetime, bool]:
        """Of an epoch: its first report (time and sidecar), its last time, and whether that is believed."""
        believed = [s for s in reported if s.boot not in self._left_out]
        times = [(self._right(s.at, s.boot), s.boot.sidecar_id) for s in believed or reported]
        return min(times), max(times)[0], bool(believed)

    # -- leaders -------------------------------------------------------------------------------------------

    @cached_property
    def leader_history(self) -> list[Row]:
        rows: list[Row] = []
        for partition, epochs in self._epochs.items():
            before: Row | None = None
            all_epochs = list(epochs.values())
            for n, (epoch, reported) in enumerate(epochs.items()):
                leaders = sorted({s.leader for s in reported if s.leader >= 0}) or [-1]
                (seen_at, observer), last_seen, is_believed = self._sight(reported)
                if not is_believed and n + 1 < len(all_epochs):
                    seen_at = min(seen_at, self._sight(all_epochs[n + 1])[0][0])
                row = {
                    "cluster_id": partition.cluster_id,
                    "topic": min(s.topic for s in reported),
                    "topic_key": partition.topic_key,
                    "partition": partition.partition,
                    "leader_epoch": epoch,
                    "leader": leaders[0],
                    "valid_from": seen_at,
                    "valid_to": None,
                    "is_current": False,
                    "first_observer": observer,
                    "last_seen": last_seen,
                    "observers": len({s.boot.sidecar_id for s in reported}),
                    "missed_epochs": 0 if before is None else epoch - before["leader_epoch"] - 1,
                    "is_conflict": len(leaders) > 1,
                    "is_clock_suspect": not is_believed
                    or (before is not None and seen_at < before["valid_from"]),
                    "is_leader_change": before is not None and leaders[0] != before["leader"],
                }
                if before is not None:
                    before["valid_to"] = seen_at
                rows.append(row)
                before = row
            assert before is not None
            before["valid_to"] = self._first_end_after(partition, before["valid_from"])
            before["is_current"] = before["valid_to"] is None
        return rows

    @cached_property
    def current_leader(self) -> list[Row]:
        same = ("cluster_id", "topic", "topic_key", "partition", "leader", "leader_epoch")
        return [
            {name: row[name] for name in same} | {"since": row["valid_from"], "last_seen": row["last_seen"]}
            for row in self.leader_history
            if row["is_current"]
        ]

    def _elections(self) -> Iterator[tuple[Row, Row]]:
        """Rows of the history with the one before each, of one partition."""
        for _, rows in groupby(self.leader_history, _partition_of):
            before, *others = rows
            for row in others:
                yield before, row
                before = row

    def churn(self) -> list[Row]:
        rows = [
            {
                "cluster_id": row["cluster_id"],
                "hour": _hour(row["valid_from"]),
                "topic": row["topic"],
                "of": f"{row['topic_key']} {row['partition']}",
                "is_leader_change": row["is_leader_change"],
            }
            for _, row in self._elections()
        ]
        if not rows:
            return []
        return (
            pl.DataFrame(rows)
            .group_by("cluster_id", "hour", "topic")
            .agg(
                pl.len().alias("elections"),
                pl.col("is_leader_change").sum().alias("leader_changes"),
                pl.col("of").n_unique().alias("partitions"),
            )
            .to_dicts()
        )

    def churn_brokers(self) -> list[Row]:
        moves: dict[tuple[str, datetime, int], Row] = defaultdict(lambda: {"gained": 0, "lost": 0})
        for before, row in self._elections():
            if row["is_leader_change"]:
                hour = _hour(row["valid_from"])
                moves[row["cluster_id"], hour, row["leader"]]["gained"] += 1
                moves[row["cluster_id"], hour, before["leader"]]["lost"] += 1
        return [
            {"cluster_id": cluster, "hour": hour, "broker": broker} | counts
            for (cluster, hour, broker), counts in moves.items()
            if broker != -1
        ]

    def flapping(self) -> list[Row]:
        found = []
        for _, rows in groupby(self.leader_history, _partition_of):
            runs: list[list[Row]] = []
            for row in rows:
                if not row["is_leader_change"]:
                    continue
                if runs and abs(row["valid_from"] - runs[-1][-1]["valid_from"]) <= timedelta(minutes=10):
                    runs[-1].append(row)
                else:
                    runs.append([row])
            found += [run for run in runs if len(run) >= 3]
        return [
            {name: run[0][name] for name in ("cluster_id", "topic", "topic_key", "partition")}
            | {
                "flapping_from": min(row["valid_from"] for row in run),
                "flapping_to": max(row["valid_from"] for row in run),
                "leader_changes": len(run),
            }
            for run in found
        ]

    # -- replicas ------------------------------------------------------------------------------------------

    def _states(self, partition: Partition) -> list[Seen]:
        """One state for an epoch, an instant and a boot, the least; in that order."""
        states: dict[tuple[int, datetime, Boot], Seen] = {}
        for s in self._seen[partition]:
            key = (s.epoch, s.at, s.boot)
            if key not in states or _state(s) < _state(states[key]):
                states[key] = s
        return [states[key] for key in sorted(states)]

    def urp(self) -> list[Row]:
        rows = []
        for partition in self._seen:
            believed = [s for s in self._states(partition) if s.boot not in self._left_out]
            runs = [
                (short, list(states))
                for short, states in groupby(believed, lambda s: len(s.isr) < len(s.replicas))
            ]
            for n, (short, states) in enumerate(runs):
                if not short:
                    continue
                first, last = states[0].at, max(states[0].at, states[-1].at)
                start_after = runs[n - 1][1][-1].at if n else None
                if start_after is not None and start_after > first:
                    start_after = None
                whole = runs[n + 1][1][0].at if n + 1 < len(runs) else None
                end_by = self._first_end_after(partition, last) if whole is None else max(whole, last)
                most_ms = None
                if start_after is not None and end_by is not None and (whole is None or whole >= last):
                    most_ms = _ms(start_after, end_by)
                rows.append(
                    {
                        "cluster_id": partition.cluster_id,
                        "topic": min(s.topic for s in states),
                        "topic_key": partition.topic_key,
                        "partition": partition.partition,
                        "start_after": start_after,
                        "start_by": first,
                        "end_after": last,
                        "end_by": end_by,
                        "min_isr": min(len(s.isr) for s in states),
                        "replicas": max(len(s.replicas) for s in states),
                        "missing": _missing(states, whole),
                        "is_leaderless": any(s.leader == -1 for s in states),
                        "min_duration_ms": _ms(first, last),
                        "max_duration_ms": most_ms,
                    }
                )
        return rows

    # -- staleness -----------------------------------------------------------------------------------------

    @cached_property
    def staleness(self) -> list[Row]:
        return [
            row
            for partition, epochs in self._epochs.items()
            for epoch, reported in epochs.items()
            for boot in {s.boot for of_epoch in epochs.values() for s in of_epoch}
            if (row := self._wait(partition, epoch, reported, boot)) is not None
        ]

    def _wait(self, partition: Partition, epoch: int, reported: Sequence[Seen], boot: Boot) -> Row | None:
        """How long the boot waited for the epoch; None if it was not at risk."""
        own = [
            s._replace(at=self._right(s.at, boot))
            for of_epoch in self._epochs[partition].values()
            for s in of_epoch
            if s.boot == boot
        ]
        (began, _), _, is_believed = self._sight(reported)
        error_ms = self._judged[boot]["clock_shift_error_ms"]
        if boot in self._left_out and (error_ms is None or error_ms > 5_000):
            return None
        lower = [s for s in own if s.epoch < epoch]
        reached_at = min((s.at for s in own if s.epoch >= epoch), default=None)
        alive_until = self._right(self._boots[boot]["last_event"], boot)
        if not is_believed or not lower or min(s.at for s in lower) > began:
            return None
        if reached_at is None and alive_until < began:
            return None
        until = reached_at or alive_until
        last_lower = max(s.at for s in lower)
        ends = self._ends_of_boots.get((partition.cluster_id, partition.topic_key, boot), [])
        if any(last_lower < self._right(at, boot) <= until for at, _ in ends):
            return None
        delay_ms = max(_ms(began, until), 0)
        interval_ms = self._boots[boot]["metadata_max_age_ms"]
        return {
            "cluster_id": partition.cluster_id,
            "topic": min(s.topic for s in reported),
            "topic_key": partition.topic_key,
            "partition": partition.partition,
            "leader_epoch": epoch,
            "sidecar_id": boot.sidecar_id,
            "boot_id": boot.boot_id,
            "service": self._boots[boot]["service"],
            "fleet_first_seen": began,
            "reached_at": reached_at,
            "delay_ms": delay_ms,
            "is_censored": reached_at is None,
            "metadata_max_age_ms": interval_ms,
            "is_beyond_twice_the_interval": None if interval_ms is None else delay_ms > 2 * interval_ms,
        }

    def staleness_summary(self) -> list[Row]:
        groups: dict[tuple[str, str | None, str | None], list[Row]] = defaultdict(list)
        for row in self.staleness:
            cluster, service, sidecar = row["cluster_id"], row["service"], row["sidecar_id"]
            for group in ((cluster, service, sidecar), (cluster, service, None), (cluster, None, None)):
                groups[group].append(row)
        return [
            {
                "cluster_id": cluster,
                "service": service,
                "sidecar_id": sidecar,
                "observations": len(rows),
                "censored": sum(row["is_censored"] for row in rows),
                "beyond_twice_the_interval": sum(bool(row["is_beyond_twice_the_interval"]) for row in rows),
                "max_ms": max(row["delay_ms"] for row in rows),
                **kaplan_meier([(row["delay_ms"], row["is_censored"]) for row in rows]),
            }
            for (cluster, service, sidecar), rows in groups.items()
        ]

    # -- produces ------------------------------------------------------------------------------------------

    def _windows(self) -> list[Row]:
        """One window for each boot and line number: of several, the least value of each field."""
        windows: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        for e in self._of("produce.window"):
            windows[e["sidecar_id"], e["boot_id"], e["seq"]].append(
                e | {"broker": -1 if e["broker"] is None else e["broker"]}
            )
        return [min(several, key=_window) for several in windows.values()]

    def produce_slo(self) -> list[Row]:
        groups: dict[tuple[str, datetime, str, int], list[Row]] = defaultdict(list)
        for window in self._windows():
            boot = Boot(window["sidecar_id"], window["boot_id"])
            hour = _hour(self._right(window["started_at"], boot))
            groups[window["cluster_id"], hour, window["topic"], window["broker"]].append(window)
        rows = []
        for (cluster, hour, topic, broker), windows in groups.items():
            errors: dict[str, int] = defaultdict(int)
            latencies: list[int] = []
            for window in windows:
                for error, records in window["errors"].items():
                    errors[error] += records
                for bucket, records in window["latency_us"].items():
                    latencies += [int(bucket)] * records
            failed = sum(errors.values())
            counts = {
                name: sum(window[name] for window in windows)
                for name in ("records", "batches", "bytes", "retries")
            }
            tried = counts["records"] + failed
            rows.append(
                {"cluster_id": cluster, "hour": hour, "topic": topic, "broker": broker, "failed": failed}
                | counts
                | {
                    "error_rate": failed / tried if tried else None,
                    "errors": [{"error": name, "records": errors[name]} for name in sorted(errors)],
                }
                | {f"p{percent}_us": _quantile_us(sorted(latencies), percent) for percent in (50, 95, 99)}
            )
        return rows

    # -- brokers and sidecars ------------------------------------------------------------------------------

    def leader_skew(self) -> list[Row]:
        leaders: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for row in self.current_leader:
            brokers = leaders[row["cluster_id"]]
            if row["leader"] >= 0:
                brokers[row["leader"]] += 1
            partition = Partition(row["cluster_id"], row["topic_key"], row["partition"])
            states = self._states(partition)
            states = [s for s in states if s.boot not in self._left_out] or states
            latest = max(self._right(s.at, s.boot) for s in states)
            for state in states:
                if self._right(state.at, state.boot) == latest:
                    for broker in state.replicas:
                        brokers[broker] += 0
        load: dict[tuple[str, int], Row] = defaultdict(lambda: {"records": 0, "bytes": 0})
        for window in self._windows():
            for name in ("records", "bytes"):
                load[window["cluster_id"], window["broker"]][name] += window[name]
        rows = []
        for cluster, brokers in leaders.items():
            led = sum(brokers.values())
            all_bytes = sum(row["bytes"] for (of, _), row in load.items() if of == cluster)
            for broker, count in brokers.items():
                share = count / led if led else None
                own = load[cluster, broker]
                rows.append(
                    {
                        "cluster_id": cluster,
                        "broker": broker,
                        "leaders": count,
                        "share": share,
                        "fair_share": 1 / len(brokers),
                        "excess": None if share is None else share * len(brokers) - 1,
                        "load_share": own["bytes"] / all_bytes if all_bytes else None,
                    }
                    | own
                )
        return rows

    def data_quality(self) -> list[Row]:
        conflicts: dict[Boot, int] = defaultdict(int)
        for row in self.leader_history:
            if row["is_conflict"]:
                partition = Partition(*_partition_of(row))
                for boot in {s.boot for s in self._epochs[partition][row["leader_epoch"]]}:
                    conflicts[boot] += 1
        last_ms, trusted = {}, []
        for boot, row in self._boots.items():
            last_ms[boot] = _epoch_ms(row["last_event"]) - self._left_out.get(boot, 0)
            if boot not in self._left_out:
                trusted.append(last_ms[boot])
        now_ms = max(trusted or last_ms.values())
        last_boot = {
            boot.sidecar_id: boot
            for boot in sorted(self._boots, key=lambda boot: (self._boots[boot]["first_event"], boot.boot_id))
        }
        return [
            {
                "cluster_id": row["cluster_id"] or "",
                "sidecar_id": boot.sidecar_id,
                "boot_id": boot.boot_id,
                "service": row["service"],
                "version": row["version"],
                "first_event": row["first_event"],
                "last_event": row["last_event"],
                "received": row["received"],
                "missing": max(row["max_seq"] - row["received"], 0),
                "dropped_reported": row["dropped"] or 0,
                "is_silent": last_boot[boot.sidecar_id] == boot and now_ms - last_ms[boot] > 180_000,
                "epoch_conflicts": conflicts[boot],
            }
            | {name: self._judged[boot][name] for name in _OF_CLOCKS}
            for boot, row in self._boots.items()
        ]


def kaplan_meier(waits: Sequence[tuple[int, bool]]) -> dict[str, int | None]:
    """The quantiles of waits, (milliseconds, is censored) each, in exact fractions."""
    found: dict[str, int | None] = {"p50_ms": None, "p95_ms": None, "p99_ms": None}
    surviving = Fraction(1)
    for delay in sorted({delay for delay, _ in waits}):
        at_risk = sum(other >= delay for other, _ in waits)
        ended = sum(other == delay and not censored for other, censored in waits)
        surviving *= 1 - Fraction(ended, at_risk)
        for percent in (50, 95, 99):
            if surviving <= 1 - Fraction(percent, 100) and found[f"p{percent}_ms"] is None:
                found[f"p{percent}_ms"] = delay
    return found


def _quantile_us(buckets: Sequence[int], percent: int) -> int | None:
    if not buckets:
        return None
    rank = -(-len(buckets) * percent // 100)
    bucket = buckets[rank - 1]
    # Four buckets per doubling; the first four are of one microsecond each.
    widths = [1, 1, 1, 1] + [2 ** (n // 4 - 1) for n in range(4, bucket + 1)]
    return sum(widths[: bucket + 1])


def _window(e: Row) -> tuple[Any, ...]:
    """The window in the order of its fields, maps as sorted pairs."""
    errors = sorted(e["errors"].items())
    latency = sorted((int(bucket), records) for bucket, records in e["latency_us"].items())
    names = (
        "cluster_id", "service", "topic", "partition", "broker", "started_at", "observed_at",
        "records", "batches", "bytes", "retries",
    )  # fmt: skip
    return (*(e[name] for name in names), errors, latency)


def _state(s: Seen) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return s.leader, s.isr, s.replicas


def _missing(states: Sequence[Seen], whole: datetime | None) -> list[Row]:
    """The brokers that were missing in turn, in a run of states that is followed by a complete one."""
    pieces = [
        (list(brokers), [s.at for s in of_brokers])
        for brokers, of_brokers in groupby(states, lambda s: [b for b in s.replicas if b not in s.isr])
    ]
    following = [times[0] for _, times in pieces[1:]] + [whole]
    rows = [
        {
            "since": times[0],
            "until": None if until is None else max(until, times[0]),
            "brokers": brokers,
        }
        for (brokers, times), until in zip(pieces, following, strict=True)
    ]
    return sorted(
        rows, key=lambda row: (row["since"], row["until"] is not None, row["until"] or row["since"])
    )


def _partition_of(row: Row) -> tuple[str, str, int]:
    return row["cluster_id"], row["topic_key"], row["partition"]


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _ms(start: datetime, end: datetime) -> int:
    return (end - start) // timedelta(milliseconds=1)


def _epoch_us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=at.tzinfo)) // _MICROSECOND


def _epoch_ms(at: datetime) -> int:
    return _epoch_us(at) // 1000
