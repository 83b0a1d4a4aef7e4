"""Reads gold tables for the report: Parquet on a disk without Spark, everything else through the store.

A table comes whole as a pandas frame, times in UTC; only staleness, which has a row for each epoch and
sidecar, is read in batches. A table that is not there has no rows: an older job may not have made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import pyarrow.dataset as ds

from pipeline.stores.mark import failed_tables_on_disk, require_mark_on_disk
from pipeline.stores.store import PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from pipeline.stores.store import Store


class Gold(Protocol):
    """Gold tables, wherever they are kept."""

    def frame(self, table: str) -> pd.DataFrame | None:
        """All rows; None if the table is not there."""
        ...

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, piece by piece; nothing if the table is not there."""
        ...

    def failed(self) -> Mapping[str, str]:
        """The tables that the last run could not make, and why."""
        ...


class ParquetGold:
    """The Parquet store's folders, read by pyarrow. Raises StoreError for a folder that is none of them."""

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
        # pyarrow skips what begins with a dot or a lowline, as Spark does.
        if not folder.is_dir():
            return None
        dataset = ds.dataset(folder, format="parquet")
        # A folder whose first file a killed run had not moved there yet.
        return dataset if dataset.files else None


class StoreGold:
    """Any store, read by Spark and handed over as Arrow: what is read must fit into this process."""

    def __init__(self, store: Store, failed: Mapping[str, str] | None = None) -> None:
        """`failed`: what the store's folder says of tables that could not be made."""
        self._store: Final = store
        self._failed: Final = failed or {}

    def failed(self) -> Mapping[str, str]:
        return self._failed

    def frame(self, table: str) -> pd.DataFrame | None:
        return self._store.read(table).toArrow().to_pandas() if self._store.has(table) else None

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._store.has(table):
            yield from self._store.read(table).select(*columns).toArrow().to_batches()
