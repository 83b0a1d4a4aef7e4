"""The tables of a store as they are on the disk, read without Spark: an independent look at a run's result.

Bronze is compared as sets, all others as bags.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.dataset

from pipeline.stores.folders import MARK

if TYPE_CHECKING:
    from pathlib import Path

Tables = dict[str, Counter[str]]


def kept_tables(out: Path) -> Tables:
    """Every table of the store in the folder, by name: its rows as texts, and how often each is there."""
    is_delta = json.loads((out / MARK).read_text())["store"] == "delta"
    folders = [path for path in sorted(out.iterdir()) if path.is_dir() and path.name[0] not in "._"]
    return {path.name: _rows(_delta_files(path) if is_delta else _parquet_files(path)) for path in folders}


def differences(tables: Tables, others: Tables) -> dict[str, dict[str, list[str]]]:
    """What is in one and not in the other, by table; empty if they are the same."""
    found = {}
    for name in tables | others:
        ours, theirs = tables.get(name, Counter()), others.get(name, Counter())
        if name.startswith("bronze_"):
            ours, theirs = Counter(set(ours)), Counter(set(theirs))
        if ours != theirs or (name in tables) != (name in others):
            found[name] = {"only here": list(ours - theirs)[:3], "only there": list(theirs - ours)[:3]}
    return found


def _parquet_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.parquet")) if path.name[0] not in "._"]


def _delta_files(folder: Path) -> list[Path]:
    """Those that the table's log has added and not removed."""
    files: dict[str, Path] = {}
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action: dict[str, Any] = json.loads(line)
            if "remove" in action:
                del files[action["remove"]["path"]]
            if "add" in action:
                assert action["add"].get("deletionVector") is None, "rows that are deleted within a file"
                files[action["add"]["path"]] = folder / action["add"]["path"]
    return list(files.values())


def _rows(files: list[Path]) -> Counter[str]:
    if not files:
        return Counter()
    table = pyarrow.dataset.dataset([str(path) for path in files], format="parquet").to_table()
    names = sorted(table.column_names)
    return Counter(repr({name: row[name] for name in names}) for row in table.to_pylist())
