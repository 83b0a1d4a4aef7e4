"""`pilotfish-pipeline forget`: events leave every table, and no other event is lost whenever it is killed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pipeline.cli import main
from pipeline.commands.forget import ForgetError, condition
from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA, KINDS, PARQUET, BatchId
from pipeline.tables import BRONZE_EVENTS, GOLD_DATA_QUALITY
from tests.pipeline.kept_tables import kept_tables
from tests.pipeline.simulate import plan_for, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("event", ["a", "a/1", "a/1/x", "a/1/9223372036854775808", "/"])
def test_an_event_that_is_not_named_by_sidecar_boot_and_number_is_refused(event: str) -> None:
    with pytest.raises(ForgetError, match=f"--event {event}: it is sidecar_id/boot_id/seq"):
        condition([], [event])


def test_forgetting_nothing_and_in_no_folder_is_refused(tmp_path: Path) -> None:
    for words, said in (
        (["--out", str(tmp_path)], "Say what to forget: --sidecar ID"),
        (["--out", str(tmp_path / "none"), "--sidecar", "a"], "none is no folder: give the one that `run`"),
    ):
        refused = CliRunner().invoke(main, ["forget", *words])
        assert refused.exit_code == 2
        assert said in refused.output


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_named_rows_are_removed_whatever_their_names_hold(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    store = open_store(spark, str(tmp_path / "it's `out`"), kind, to_write=True)
    odd = "it's\\ \"a\"`/%\u202e' OR true --"
    schema = "sidecar_id string, boot_id bigint, seq bigint"
    batches = [[(odd, 1, 1), ("a", 1, 1)], [("a", -1, 2), ("a/b", 1, 2), (None, 1, 2)], [("c", 1, 1)]]
    for number, rows in enumerate(batches):
        store.append("bronze_x", spark.createDataFrame(rows, schema), BatchId("files-1", number))

    store.remove("bronze_x", condition([odd], ["a/-1/2", "a/b/1/2", "nobody/1/1"]))

    assert {tuple(row) for row in store.read("bronze_x").collect()} == {
        ("a", 1, 1),
        (None, 1, 2),
        ("c", 1, 1),
    }


@pytest.mark.parametrize("left", ["both", "half of the old", "the new", "the new in place"])
def test_a_batch_whose_removal_was_cut_short_is_there_once(
    left: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The states after `_exchange.json` is written, up to its deletion."""
    store = open_store(spark, str(tmp_path), PARQUET, to_write=True)
    for number in (0, 1):
        store.append("bronze_x", spark.range(4).repartition(2), BatchId("files-1", number))
    batch, new = tmp_path / "bronze_x" / "batch=files-1-1", tmp_path / ".bronze_x.new"
    spark.range(3).write.parquet(str(new))
    (tmp_path / "_exchange.json").write_text(
        json.dumps({"new": new.name, "to": "bronze_x/batch=files-1-1"}), encoding="utf-8"
    )
    if left == "half of the old":
        next(batch.glob("part-*")).unlink()
    elif left != "both":
        shutil.rmtree(batch)
    if left == "the new in place":
        new.rename(batch)

    again = open_store(spark, str(tmp_path), PARQUET, to_write=True)

    assert sorted(row.id for row in again.read("bronze_x").collect()) == [0, 0, 1, 1, 2, 2, 3]
    assert not (tmp_path / "_exchange.json").exists()
    assert not new.exists()


def test_a_forgotten_sidecar_and_event_are_in_no_table(spark: SparkSession, tmp_path: Path) -> None:
    events, out = tmp_path / "events", str(tmp_path / "out")
    truth: dict[str, Any] = write(plan_for(1_000, seed=5), events, tmp_path / "truth.json")
    run = CliRunner().invoke(main, ["run", "--source", "files", "--input", str(events), "--out", out])
    assert run.exit_code == 0, run.output
    before = kept_tables(tmp_path / "out")
    gone, other = (sidecar["sidecar_id"] for sidecar in truth["sidecars"][:2])
    store = open_store(spark, out)
    one = store.read(BRONZE_EVENTS).where(f"sidecar_id = '{other}'").first()
    assert one is not None
    words = ["forget", "--out", out, "--sidecar", gone, "--event", f"{other}/{one.boot_id}/{one.seq}"]

    tried = CliRunner().invoke(main, [*words, "--dry-run"])
    assert "events would be removed" in tried.output
    assert kept_tables(tmp_path / "out") == before

    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    left = open_store(spark, out).read(BRONZE_EVENTS)
    assert left.where(f"sidecar_id = '{gone}'").count() == 0
    assert left.where(f"boot_id = {one.boot_id} AND seq = {one.seq}").count() == 0
    after = kept_tables(tmp_path / "out")
    assert sum(before[BRONZE_EVENTS].values()) - left.count() == int(done.output.split(" events ")[0])
    assert not [row for name, rows in after.items() for row in rows if gone in row and "reject" not in name]
    assert len(after[GOLD_DATA_QUALITY]) == len(before[GOLD_DATA_QUALITY]) - len(
        truth["sidecars"][0]["boots"]
    )

    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "has none of these events" in again.output
    # The job goes on from there.
    more = CliRunner().invoke(main, ["run", "--source", "files", "--input", str(events), "--out", out])
    assert more.exit_code == 0, more.output
    assert kept_tables(tmp_path / "out") == after


def test_forgetting_in_a_folder_without_tables_is_refused_for_delta_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    refused = CliRunner().invoke(
        main, ["forget", "--out", str(tmp_path), "--store", DELTA, "--sidecar", "a", "--dry-run"]
    )
    assert refused.exit_code == 2
    assert f"{tmp_path} holds no tables" in refused.output
