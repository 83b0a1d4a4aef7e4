"""Reads one cluster's gold rows as pandas frames, once per report. Read-only.

`Gold` reads the tables: Parquet on a local disk without Spark, everything else through the store. A table is
read as a whole, with times in UTC. Only staleness, which has a row per epoch and sidecar, is read in batches.
A missing table is an empty frame with the expected columns: an older job may not have made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow.dataset as ds

from pipeline import tables
from pipeline.stores.folders import failed_tables_on_disk, require_mark_on_disk
from pipeline.stores.store import PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pipeline.stores.store import Store


_PARTITION: Final = ("cluster_id", "topic", "topic_key", "partition")
#: The columns that are used, by table. The staleness of each epoch is read separately.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    tables.GOLD_LEADER_HISTORY: (
        *(*_PARTITION, "leader_epoch", "leader", "valid_from", "valid_to", "is_current", "last_seen"),
        *("missed_epochs", "is_conflict", "is_clock_suspect", "is_leader_change"),
    ),
    tables.GOLD_CURRENT_LEADER: (*_PARTITION, "leader", "leader_epoch", "since", "last_seen"),
    tables.GOLD_INCIDENTS: (
        *("cluster_id", "kind", "broker", "topic", "partition", "began_by", "over_by", "times"),
        *("partitions_short", "leaders_moved", "failed", "errors", "topics", "services"),
    ),
    tables.GOLD_STALENESS_SUMMARY: (
        *("cluster_id", "service", "sidecar_id", "observations", "censored", "beyond_twice_the_interval"),
        *("p50_ms", "p95_ms", "p99_ms", "max_ms"),
    ),
    tables.GOLD_PRODUCE_SLO: (
        *("cluster_id", "hour", "topic", "broker", "records", "batches", "bytes", "retries", "failed"),
        *("errors", "p50_us", "p95_us", "p99_us"),
    ),
    tables.GOLD_LEADER_SKEW: (
        *("cluster_id", "broker", "leaders", "share", "fair_share", "excess", "records", "load_share"),
    ),
    tables.GOLD_DATA_QUALITY: (
        *("cluster_id", "sidecar_id", "boot_id", "service", "version", "first_event", "last_event"),
        *("received", "missing", "dropped_reported", "is_silent", "clock_offset_ms", "is_clock_suspect"),
        *("is_left_out", "epoch_conflicts"),
    ),
    tables.GOLD_REJECTS: ("reason", "lines", "first_received", "last_received", "example"),
}

#: Bounds of the staleness histogram: 24 bins per decade from 10 ms to twelve days, one below and one above.
BINS_MS: Final = np.concatenate([[0.0], np.logspace(1, 9, 8 * 24 + 1)])


class Gold(Protocol):
    """Reads gold tables, wherever they are kept."""

    def frame(self, table: str) -> pd.DataFrame | None:
        """Returns all rows; None if the table does not exist."""
        ...

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields some columns of all rows, in batches; nothing if the table does not exist."""
        ...

    def failed(self) -> Mapping[str, str]:
        """Returns the tables that the last run could not make, and why."""
        ...


class ParquetGold:
    """Reads the Parquet store's folders with pyarrow. Raises StoreError for any other folder."""

    def __init__(self, out: Path) -> None:
        require_mark_on_disk(str(out), PARQUET)
        self._out: Final = out

    def frame(self, table: str) -> pd.DataFrame | None:
        dataset = self._dataset(table)
        return None if dataset is None else dataset.to_table().to_pandas()

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        dataset = self._dataset(table)
        if dataset is not None:
            yield from dataset.to_batches(columns=list(columns))

    def failed(self) -> Mapping[str, str]:
        return {name: str(why) for name, why in failed_tables_on_disk(str(self._out)).items()}

    def _dataset(self, table: str) -> ds.Dataset | None:
        folder = self._out / table
        # pyarrow skips names that begin with a dot or underscore, as Spark does.
        if not folder.is_dir():
            return None
        dataset = ds.dataset(folder, format="parquet")
        # Empty if a run was killed before it moved the first file there.
        return dataset if dataset.files else None


class StoreGold:
    """Reads any store with Spark, as Arrow: the tables must fit into this process."""

    def __init__(self, store: Store, failed: Mapping[str, str] | None = None) -> None:
        """`failed`: the tables that could not be made, as the store's folder says."""
        self._store: Final = store
        self._failed: Final = failed or {}

    def failed(self) -> Mapping[str, str]:
        return self._failed

    def frame(self, table: str) -> pd.DataFrame | None:
        return self._store.read(table).toArrow().to_pandas() if self._store.has(table) else None

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._store.has(table):
            yield from self._store.read(table).select(*columns).toArrow().to_batches()


@dataclass(frozen=True)
class Staleness:
    """How long epochs took to reach sidecars: for each bin of BINS_MS, the reached and the censored waits."""

    reached: np.ndarray
    censored: np.ndarray

    @property
    def observations(self) -> int:
        return int(self.reached.sum() + self.censored.sum())


@dataclass(frozen=True)
class ClusterView:
    """The tables of one cluster."""

    cluster_id: str
    history: pd.DataFrame
    current: pd.DataFrame
    incidents: pd.DataFrame
    staleness_summary: pd.DataFrame
    staleness: Staleness
    produce: pd.DataFrame
    skew: pd.DataFrame
    quality: pd.DataFrame

    @property
    def since(self) -> pd.Timestamp:
        """Returns the time of the first event."""
        return _of_right_clocks(self.quality)["first_event"].min()

    @property
    def until(self) -> pd.Timestamp:
        """Returns the time of the last event, which is the report's only "now"."""
        return _of_right_clocks(self.quality)["last_event"].max()

    @property
    def hours(self) -> float:
        """Returns how long the fleet was watched, at least a minute."""
        watched_s: float = (self.until - self.since).total_seconds()
        return max(watched_s, 60.0) / 3600


#: The table of each field of ClusterView.
_FIELDS: Final = {
    "history": tables.GOLD_LEADER_HISTORY,
    "current": tables.GOLD_CURRENT_LEADER,
    "incidents": tables.GOLD_INCIDENTS,
    "staleness_summary": tables.GOLD_STALENESS_SUMMARY,
    "produce": tables.GOLD_PRODUCE_SLO,
    "skew": tables.GOLD_LEADER_SKEW,
    "quality": tables.GOLD_DATA_QUALITY,
}


def views_of(gold: Gold, only: str | None = None) -> list[ClusterView]:
    """Returns every cluster with an id, the one with most events first; or only the cluster `only`.

    Boots that never reached a cluster are not in it; see `lost_boots`.
    """
    frames = {table: _frame(gold, table) for table in _FIELDS.values()}
    quality = frames[tables.GOLD_DATA_QUALITY]
    by_size = quality.groupby("cluster_id")["received"].sum().sort_values(ascending=False, kind="stable")
    wanted = [str(cluster) for cluster in by_size.index if cluster and only in (None, cluster)]
    staleness = _staleness(gold, wanted)
    return [
        ClusterView(
            cluster_id=cluster,
            staleness=staleness[cluster],
            **{field: _of(frames[table], cluster) for field, table in _FIELDS.items()},
        )
        for cluster in wanted
    ]


def rejects_of(gold: Gold) -> pd.DataFrame:
    """Returns the rejected lines, which belong to no cluster."""
    return _frame(gold, tables.GOLD_REJECTS).sort_values(["lines", "reason"], ascending=[False, True])


def lost_boots(gold: Gold) -> pd.DataFrame:
    """Returns each sidecar's last boot, if that never learned its cluster."""
    quality = _frame(gold, tables.GOLD_DATA_QUALITY).sort_values(["first_event", "boot_id"], kind="stable")
    lasts = quality.drop_duplicates("sidecar_id", keep="last").sort_values("sidecar_id")
    return lasts[lasts["cluster_id"] == ""]


def _frame(gold: Gold, table: str) -> pd.DataFrame:
    """Returns the used columns of a table, sorted, so that the order of its files has no effect."""
    frame = gold.frame(table)
    columns = list(_COLUMNS[table])
    if frame is None:
        frame = pd.DataFrame({column: pd.Series(dtype=_kind(column)) for column in columns})
    elif "is_left_out" in columns and "is_left_out" not in frame:
        # Written by an older job, which left no boot out.
        frame = frame.assign(is_left_out=False)
    sortable = [column for column in columns if column not in _LISTS]
    return frame[columns].sort_values(sortable, kind="stable", ignore_index=True)


_LISTS: Final = ("errors", "topics", "services")
_TIMES: Final = ("valid_", "since", "last_", "hour", "began_", "over_", "first_")
_TEXTS: Final = (
    "cluster_id",
    "topic",
    "service",
    "sidecar_id",
    "version",
    "reason",
    "example",
    "kind",
    "errors",
)
_FRACTIONS: Final = ("_ms", "_us", "share", "excess")


def _kind(column: str) -> str:
    """Returns pandas' dtype for a column without rows."""
    if column.startswith(_TIMES):
        return "datetime64[us, UTC]"
    if column.startswith(_TEXTS):
        return "object"
    if column.endswith(_FRACTIONS):
        return "float64"
    return "bool" if column.startswith("is_") else "int64"


def _of(frame: pd.DataFrame, cluster: str) -> pd.DataFrame:
    return frame[frame["cluster_id"] == cluster].reset_index(drop=True)


def _of_right_clocks(quality: pd.DataFrame) -> pd.DataFrame:
    """Returns the boots that are not left out for their clocks; all boots, if all are left out."""
    return quality[~quality["is_left_out"]] if not quality["is_left_out"].all() else quality


def _staleness(gold: Gold, clusters: Iterable[str]) -> dict[str, Staleness]:
    """Counts the staleness rows in one pass: the table may have a hundred million."""
    bins = len(BINS_MS)
    counted = {cluster: Staleness(np.zeros(bins), np.zeros(bins)) for cluster in clusters}
    for batch in gold.batches(tables.GOLD_STALENESS, ("cluster_id", "delay_ms", "is_censored")):
        ids = batch.column("cluster_id").dictionary_encode()
        places = ids.indices.to_numpy(zero_copy_only=False)
        delays = batch.column("delay_ms").to_numpy(zero_copy_only=False)
        is_censored = batch.column("is_censored").to_numpy(zero_copy_only=False).astype(bool)
        found = np.searchsorted(BINS_MS, delays, side="right") - 1
        for place, cluster in enumerate(ids.dictionary.to_pylist()):
            if cluster in counted:
                here = places == place
                counted[cluster].reached[:] += np.bincount(found[here & ~is_censored], minlength=bins)
                counted[cluster].censored[:] += np.bincount(found[here & is_censored], minlength=bins)
    return counted
