"""What a folder of tables says of itself, so that no store writes over another's tables.

    <out>/_pilotfish.json   {"store": "parquet", "layout": 1}, written before the first table

Needs no Spark: who reads Parquet without it (the report) looks here first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.stores.store import LAYOUT, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK: Final = "_pilotfish.json"
#: The tables that the last run could not make, with the reasons (refresh.py).
FAILED: Final = "_failed.json"


def mark_of(kind: str) -> dict[str, Any]:
    """The mark of a folder of this kind of store, as this version of Pilotfish writes it."""
    return {"store": kind, "layout": LAYOUT}


def read_json_object(path: str, text: str) -> Mapping[str, Any]:
    """What the file says. Raises StoreError if that is nothing."""
    try:
        said = json.loads(text)
    except ValueError as e:
        raise StoreError(f"{path} is no JSON: it isn't Pilotfish's, or was cut short.") from e
    return said if isinstance(said, dict) else {}


def no_tables(out: str) -> StoreError:
    """What to say of a place that no run has written to."""
    return StoreError(f"{out} holds no tables: `pilotfish-pipeline run` with --out {out} makes them.")


def require_mark_on_disk(out: str, kind: str) -> None:
    """Raises StoreError unless this folder of a disk holds tables of this kind of store. Without Spark."""
    mark = Path(out, MARK)
    try:
        text = mark.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise no_tables(out) from error
    refuse_if_foreign(read_json_object(str(mark), text), out, kind)


def failed_tables_on_disk(out: str) -> Mapping[str, Any]:
    """The tables in this folder of a disk that the last run could not make, and why. Without Spark."""
    try:
        text = Path(out, FAILED).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return read_json_object(f"{out}/{FAILED}", text)


def refuse_if_foreign(mark: Mapping[str, Any], out: str, kind: str) -> None:
    """Raises StoreError unless the mark of a folder says that this kind of store can read it."""
    if mark.get("layout") != LAYOUT:
        raise StoreError(
            f"The tables in {out} are of layout {mark.get('layout')}, and this version of Pilotfish knows"
            f" layout {LAYOUT}: give a new --out, and have the events read again."
        )
    if mark.get("store") != kind:
        raise StoreError(
            f"The tables in {out} are of the store {mark.get('store')}: say --store {mark.get('store')}, or"
            " give a new --out."
        )
