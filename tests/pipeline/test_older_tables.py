"""Tables and events of the tree before this one: read on, and no row of them is lost (tests/upgrades)."""

from __future__ import annotations

import json
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pipeline.cli import main
from pipeline.stores.store import DELTA, PARQUET
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS, GOLD_LEADER_HISTORY, GOLD_PRODUCE_SLO
from tests.upgrades.make_fixtures import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_EVENTS = (FIXTURES / "events.jsonl").read_text(encoding="utf-8").splitlines()


def _read(spark: SparkSession, store: str, tables: Path, name: str) -> int:
    if store == DELTA:
        return spark.read.format("delta").load(str(tables / name)).count()
    return spark.read.parquet(str(tables / name)).count()


@pytest.mark.spark
@pytest.mark.parametrize("store", [PARQUET, DELTA])
def test_a_run_goes_on_from_the_older_tables(spark: SparkSession, tmp_path: Path, store: str) -> None:
    with tarfile.open(FIXTURES / f"{store}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    tables, events = tmp_path / store, tmp_path / "events"
    before = {name: _read(spark, store, tables, name) for name in (GOLD_LEADER_HISTORY, GOLD_PRODUCE_SLO)}
    assert min(before.values()) > 0
    later = {**json.loads(_EVENTS[0]), "seq": 1_000_000}
    events.mkdir()
    (events / "all.jsonl").write_text("".join(f"{line}\n" for line in (*_EVENTS, json.dumps(later))))
    words = ["run", "--source", "files", "--input", str(events), "--out", str(tables), "--store", store]
    moved = CliRunner().invoke(main, words)
    checkpoint = tables / "_checkpoint" / "files"
    assert (moved.exit_code, f"delete {checkpoint}" in moved.output) == (2, True), moved.output
    shutil.rmtree(checkpoint)
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    assert _read(spark, store, tables, BRONZE_EVENTS) >= len(_EVENTS) + 1
    assert _read(spark, store, tables, BRONZE_REJECTS) == 0
    for name, count in before.items():
        assert _read(spark, store, tables, name) >= count, name
    reported = CliRunner().invoke(
        main, ["report", "--tables", str(tables), "--store", store, "--out", str(tmp_path / "r.html")]
    )
    assert reported.exit_code == 0, reported.output
