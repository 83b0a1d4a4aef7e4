"""Both stores: what is written twice is there once, and a folder that is none is named with the remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.stores.mark import MARK
from pipeline.stores.opening import open_store
from pipeline.stores.store import KINDS, LAYOUT, BatchId, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.stores.store import Store

#: A key that is a word of SQL, and a value of each kind.
_FACTS = SilverTable(
    "silver_facts",
    ("partition", "change"),
    lambda rows: rows,
    {
        "least": Merge.MIN,
        "greatest": Merge.MAX,
        "first": Merge.MIN,
        "bits": Merge.OR,
        "all": Merge.UNION,
    },
)
_SCHEMA = (
    "partition int, change string, least int, greatest int, first struct<at: int, by: string>, bits bigint,"
    " all array<string>"
)
_EARLY = [(1, "gone", 5, 5, (2, "b"), 1, ["b"]), (2, "gone", None, 7, None, None, None)]
_LATE = [
    (1, "gone", 6, 6, (2, "a"), 128, ["c", "a"]),
    (1, "gone", 4, 4, (3, "c"), 2, ["b"]),
    (3, "a", 0, 0, (1, "x"), 4, ["x"]),
]
_MERGED = [
    (1, "gone", 4, 6, (2, "a"), 131, ("a", "b", "c")),
    (2, "gone", None, 7, None, None, ()),
    (3, "a", 0, 0, (1, "x"), 4, ("x",)),
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Store:
    """An empty one, in a folder whose name needs quoting nearly everywhere."""
    return open_store(spark, str(tmp_path / "it's `out`"), request.param, to_write=True)


def _facts(spark: SparkSession, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, _SCHEMA)


def _rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(
        (
            row.partition,
            row.change,
            row.least,
            row.greatest,
            row.first and tuple(row.first),
            row.bits,
            tuple(row.all),
        )
        for row in frame.collect()
    )


def test_a_batch_that_is_added_again_is_there_once_and_the_others_stay(
    store: Store, spark: SparkSession
) -> None:
    lines = spark.range(3).select(f.col("id").cast("string").alias("line"))
    store.create("bronze_lines", lines.schema)
    # The last one twice, as after a driver that was killed between the batch's writes and its commit.
    for batch in (BatchId("files-1", 1), BatchId("kafka-2", 1), BatchId("kafka-2", 1)):
        store.append("bronze_lines", lines, batch)

    table = store.read("bronze_lines")

    assert table.columns == ["line"]
    assert sorted(row.line for row in table.collect()) == ["0", "0", "1", "1", "2", "2"]


def test_facts_merged_late_and_twice_are_the_facts_merged_at_once(store: Store, spark: SparkSession) -> None:
    early, late = _facts(spark, _EARLY), _facts(spark, _LATE)
    store.merge(_FACTS, late)
    store.merge(_FACTS, early)
    store.merge(_FACTS, late)

    assert _rows(store.read("silver_facts")) == _MERGED
    assert _rows(_FACTS.of(early.union(late))) == _MERGED


def test_a_table_is_replaced_whole_whatever_a_killed_driver_left_beside_it(
    store: Store, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "it's `out`"
    store.create("gold_x", spark.range(0).schema)
    assert store.read("gold_x").count() == 0
    for left in (out / ".gold_x.new", out / ".gold_x.old"):
        left.mkdir()
        (left / "part-00000.parquet").write_bytes(b"half a file")

    store.replace("gold_x", spark.range(5))
    store.replace("gold_x", store.read("gold_x").where("id > 2"))
    store.create("gold_x", spark.range(0).schema)

    assert sorted(row.id for row in store.read("gold_x").collect()) == [3, 4]


def test_what_is_no_store_is_named_with_the_remedy(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for kind in KINDS:
        with pytest.raises(StoreError, match=f"{out} holds no tables: `pilotfish-pipeline run` with --out"):
            open_store(spark, str(out), kind)
    open_store(spark, str(out), "parquet", to_write=True)

    with pytest.raises(
        StoreError, match=f"{out} are of the store parquet: say --store parquet, or give a new"
    ):
        open_store(spark, str(out), "delta", to_write=True)
    with pytest.raises(StoreError, match=f"{out} has no table gold_x: `pilotfish-pipeline run`"):
        open_store(spark, str(out), "parquet").read("gold_x")

    (out / f".{MARK}.crc").unlink()
    (out / MARK).write_text(json.dumps({"store": "parquet", "layout": LAYOUT + 1}))
    with pytest.raises(
        StoreError, match=f"of layout {LAYOUT + 1}, and this version of Pilotfish knows layout {LAYOUT}:"
    ):
        open_store(spark, str(out), "parquet", to_write=True)
    (out / MARK).write_text('{"store": "par')
    with pytest.raises(StoreError, match=f"{out / MARK} is no JSON"):
        open_store(spark, str(out), "parquet")


def test_a_folder_that_cannot_be_made_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for kind in KINDS:
        with pytest.raises(StoreError, match=rf"{tmp_path}/file/out can't be written: .*not a directory"):
            open_store(spark, f"{tmp_path}/file/out", kind, to_write=True)
