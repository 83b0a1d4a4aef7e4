"""Both stores: rows that are written twice are there once, and a wrong folder is reported with the remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.testing import assertDataFrameEqual

from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.stores.folders import MARK, Folders, require_mark_on_disk
from pipeline.stores.formats import open_store
from pipeline.stores.store import CLOSED_LAYOUT, DELTA, KINDS, PARQUET, BatchId, StoreError

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
    (1, "gone", 4, 6, (2, "a"), 131, ["a", "b", "c"]),
    (2, "gone", None, 7, None, None, []),
    (3, "a", 0, 0, (1, "x"), 4, ["x"]),
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Store:
    """An empty one, in a folder whose name needs quoting nearly everywhere."""
    return open_store(spark, str(tmp_path / "it's `out`"), request.param, to_write=True)


def _facts(spark: SparkSession, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, _SCHEMA)


def _assert_merged(frame: DataFrame) -> None:
    columns = Row("partition", "change", "least", "greatest", "first", "bits", "all")
    assertDataFrameEqual(frame.select(*columns), [columns(*row) for row in _MERGED])


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
    late, all_of_them = _facts(spark, _LATE), _facts(spark, [*_EARLY, *_LATE])
    store.merge(_FACTS, late)
    store.merge(_FACTS, all_of_them)

    _assert_merged(store.read("silver_facts"))
    _assert_merged(_FACTS.of(all_of_them))


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


def test_closed_rows_stay_when_the_others_are_replaced(store: Store, spark: SparkSession) -> None:
    closed = "id < 3"
    store.replace("gold_x", spark.range(6))
    # Nothing is stored apart yet, and so nothing is left out.
    assert sorted(row.id for row in store.read("gold_x", closed).collect()) in ([0, 1, 2, 3, 4, 5], [3, 4, 5])

    store.close("gold_x", closed, "id = 1")
    assert sorted(row.id for row in store.read("gold_x").collect()) == [0, 2, 3, 4, 5]
    assert sorted(row.id for row in store.read("gold_x", closed).collect()) == [3, 4, 5]

    store.replace("gold_x", store.read("gold_x", closed).where("id = 5"), closed)
    store.replace("gold_x", store.read("gold_x", closed).union(spark.range(7, 8)), closed)
    store.close("gold_x", "id < 6", "false")
    assert store.read("gold_x").columns == ["id"]
    assert sorted(row.id for row in store.read("gold_x").collect()) == [0, 2, 5, 7]
    assert [row.id for row in store.read("gold_x", "id < 6").collect()] == [7]

    # All rows closed, then none.
    store.close("gold_x", "id < 9", "id = 0")
    assert store.read("gold_x", "id < 9").collect() == []
    store.close("gold_x", "id < 0", "id <> 5")
    store.replace("gold_x", store.read("gold_x", "id < 0").union(spark.range(1)), "id < 0")
    assert sorted(row.id for row in store.read("gold_x").collect()) == [0, 5]
    store.replace("gold_x", spark.range(1))
    assert [row.id for row in store.read("gold_x").collect()] == [0]


def test_small_batches_are_written_together_and_are_no_news(store: Store, spark: SparkSession) -> None:
    for number in range(4):
        store.append("bronze_x", spark.range(number, number + 1), BatchId("files-1", number))
    if not store.merges_in_place:
        news = store.unmerged("bronze_x")
        assert news is not None
        assert news.count() == 4
    store.note_merged("bronze_x")
    assert store.unmerged("bronze_x") is None

    assert store.compact("bronze_x") == 4
    assert store.compact("bronze_x") == 0
    store.append("bronze_x", spark.range(4, 5), BatchId("files-1", 4))
    if not store.merges_in_place:
        news = store.unmerged("bronze_x")
        assert news is not None
        assert [row.id for row in news.collect()] == [4]
    assert store.compact("bronze_x") == 2
    store.vacuum(["bronze_x"])

    assert sorted(row.id for row in store.read("bronze_x").collect()) == [0, 1, 2, 3, 4]
    store.remove("bronze_x", "id >= 0")
    store.append("bronze_x", spark.range(1), BatchId("files-1", 5))
    assert [row.id for row in store.read("bronze_x").collect()] == [0]


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
    (out / MARK).write_text(json.dumps({"store": "parquet", "layout": CLOSED_LAYOUT + 1}))
    with pytest.raises(StoreError, match="of layout 3, and this version of Pilotfish knows layouts 1 and 2:"):
        open_store(spark, str(out), "parquet", to_write=True)
    (out / MARK).write_text('{"store": "par')
    with pytest.raises(StoreError, match=f"{out / MARK} is no JSON"):
        open_store(spark, str(out), "parquet")


def test_a_folder_that_cannot_be_made_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for kind in KINDS:
        with pytest.raises(StoreError, match=rf"{tmp_path}/file/out can't be written: .*not a directory"):
            open_store(spark, f"{tmp_path}/file/out", kind, to_write=True)


def test_a_small_file_that_a_killed_driver_left_beside_its_place_is_read_if_it_is_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders, path = Folders(spark), tmp_path / "_failed.json"
    folders.write_json(str(path), {"a": "why"})
    path.rename(f"{path}.new")
    assert folders.read_json(str(path)) == {"a": "why"}
    folders.write_json(str(path), {"b": "why"})
    assert folders.read_json(str(path)) == {"b": "why"}

    path.rename(f"{path}.new")
    folders.delete_json(str(path))
    assert folders.read_json(str(path)) is None
    (tmp_path / "_failed.json.new").write_text('{"a": "wh')
    assert folders.read_json(str(path)) is None


def test_a_mark_that_a_killed_driver_left_beside_its_place_is_found_without_spark_and_put_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    for kind in KINDS:
        out = tmp_path / kind
        mark, beside = out / MARK, out / f"{MARK}.new"
        open_store(spark, str(out), kind, to_write=True)
        mark.rename(beside)
        require_mark_on_disk(str(out), kind)
        open_store(spark, str(out), kind, to_write=True)
        beside.unlink(missing_ok=True)
        require_mark_on_disk(str(out), kind)
        mark.rename(beside)
        beside.write_text('{"store": "par')
        with pytest.raises(StoreError, match="holds no tables"):
            require_mark_on_disk(str(out), kind)


# -- a driver that was killed in the first write of a table --------------------------------------------------

_COMMIT = "00000000000000000000.json"
#: Files, and folders with a slash at the end, below the store's folder; `t` is the table.
_LEFT = {
    (DELTA, "an empty log"): ["t/part-00000-1f0c.c000.snappy.parquet", "t/_delta_log/"],
    (DELTA, "a log with a folder for commits"): ["t/_delta_log/_staged_commits/"],
    (DELTA, "a commit that was written and not renamed"): [
        "t/part-00000-1f0c.c000.snappy.parquet",
        "t/_delta_log/_staged_commits/",
        f"t/_delta_log/.{_COMMIT}.1f0c93aa.tmp",
        f"t/_delta_log/..{_COMMIT}.1f0c93aa.tmp.crc",
    ],
    (PARQUET, "a folder"): ["t/"],
    (PARQUET, "rows on their way"): [".t.new/_temporary/0/_temporary/attempt_1/part-00000.parquet"],
    (PARQUET, "the old rows aside"): [".t.old/part-00000.parquet", ".t.new/part-00000.parquet"],
}


def leave(out: Path, table: str, what: Sequence[str]) -> None:
    """Makes what a killed driver left of a table."""
    for place in what:
        path = out / place.replace("t/", f"{table}/", 1).replace(".t.", f".{table}.", 1)
        (path if place.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not place.endswith("/"):
            path.write_bytes(b"half of it")


@pytest.mark.parametrize(
    ("store", "left"),
    [(kind, what) for (kind, _), what in _LEFT.items()],
    ids=map(str, _LEFT),
    indirect=["store"],
)
def test_what_a_killed_driver_left_before_a_tables_first_commit_is_no_table_and_in_nobodys_way(
    left: list[str], store: Store, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "it's `out`"
    for table in ("created", "appended", "silver_facts", "replaced"):
        leave(out, table, left)
        assert not store.has(table)
        with pytest.raises(StoreError, match=f"has no table {table}"):
            store.read(table)

    store.create("created", _facts(spark, []).schema)
    store.append("appended", _facts(spark, _LATE), BatchId("files-1", 0))
    store.merge(_FACTS, _facts(spark, _EARLY))
    store.merge(_FACTS, _facts(spark, _LATE))
    store.replace("replaced", _facts(spark, _EARLY))

    assert store.read("created").count() == 0
    assert store.read("appended").count() == len(_LATE)
    _assert_merged(store.read("silver_facts"))
    assert store.read("replaced").count() == len(_EARLY)
