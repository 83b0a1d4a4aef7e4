"""Opens a folder as a store, or says why it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.stores.delta_store import DeltaStore
from pipeline.stores.folders import Folders
from pipeline.stores.mark import MARK, mark_of, no_tables, refuse_if_foreign
from pipeline.stores.parquet_store import ParquetStore
from pipeline.stores.store import DELTA, PARQUET

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pipeline.stores.store import Store

_STORES: Final[dict[str, Callable[[SparkSession, str], Store]]] = {DELTA: DeltaStore, PARQUET: ParquetStore}


def open_store(spark: SparkSession, out: str, kind: str = PARQUET, *, to_write: bool = False) -> Store:
    """The store of this kind in the folder `out`; made there if it is `to_write`.

    Raises StoreError: no tables there, those of the other kind or of another layout, not writable, no Delta.
    """
    folders, out = Folders(spark), out.rstrip("/") or "/"
    mark = folders.read_json(f"{out}/{MARK}")
    if mark is not None:
        refuse_if_foreign(mark, out, kind)
    elif not to_write:
        raise no_tables(out)
    store = _STORES[kind](spark, out)
    if mark is None:
        folders.make(out)
        folders.write_json(f"{out}/{MARK}", mark_of(kind))
    return store
