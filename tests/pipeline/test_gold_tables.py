"""GOLD as a whole: its order and its columns; and that docs/pipeline-tables.md has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS
from tests.pipeline.gold_samples import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.silver import SilverTable
    from tests.pipeline.whole_pipeline import Tables


@pytest.mark.parametrize("table", SCHEMAS)
def test_a_table_has_the_columns_that_the_report_is_tried_on(table: str, tables: Tables) -> None:
    schema = tables(table).limit(0).toArrow().schema
    assert {field.name: field.type for field in schema} == SCHEMAS[table]


def test_a_table_is_made_of_those_before_it(tables: Tables) -> None:
    there = {BRONZE_EVENTS, BRONZE_REJECTS, *(table.name for table in SILVER)}

    def read(name: str) -> DataFrame:
        assert name in there
        return tables(name)

    for name, table in GOLD.items():
        table(read)
        there.add(name)


def test_silver_and_gold_can_be_imported_without_a_session() -> None:
    subprocess.run([sys.executable, "-c", "import pipeline.gold, pipeline.silver"], check=True, timeout=60)


# -- docs/pipeline-tables.md ---------------------------------------------------------------------------------

_PAGE = (Path(__file__).parents[2] / "docs" / "pipeline-tables.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"^## `(?P<table>gold_\w+)`$(?P<text>.*?)(?=^#)", re.MULTILINE | re.DOTALL)
_SECTIONS = {section["table"]: section["text"] for section in _SECTION.finditer(_PAGE)}
_QUERIES = re.findall(r"^```sql\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("table", SCHEMAS)
def test_the_page_has_the_columns_of_a_table_in_their_order(table: str) -> None:
    rows = re.findall(r"^\| (`.*?`) \|", _SECTIONS[table], re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [*SCHEMAS[table]]


@pytest.mark.parametrize("table", SILVER, ids=lambda table: table.name)
def test_the_page_has_the_columns_of_a_silver_table(table: SilverTable) -> None:
    (key, values) = re.findall(rf"^\| `{table.name}` \| (.*) \| (.*) \|$", _PAGE, re.MULTILINE)[0]
    assert tuple(re.findall(r"`(\w+)`", key)) == table.keys
    assert set(re.findall(r"`(\w+)`", values)) >= set(table.merges)


@pytest.mark.parametrize("query", _QUERIES, ids=range(len(_QUERIES)))
def test_a_query_of_the_page_runs(query: str) -> None:
    with duckdb.connect() as connection:
        for name, columns in SCHEMAS.items():
            connection.register(name, pa.schema(columns).empty_table())
        assert connection.execute(query).fetchall() == []
