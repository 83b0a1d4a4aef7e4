"""GOLD as a whole: its columns; and that docs/pipeline-tables.md has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from pipeline.silver import SILVER
from tests.pipeline.gold_samples import SCHEMAS

if TYPE_CHECKING:
    from tests.pipeline.whole_pipeline import Tables


def test_a_table_has_the_columns_that_the_report_is_tried_on(tables: Tables) -> None:
    schemas = {table: tables(table).limit(0).toArrow().schema for table in SCHEMAS}
    assert {name: {field.name: field.type for field in schema} for name, schema in schemas.items()} == SCHEMAS


def test_silver_and_gold_can_be_imported_without_a_session() -> None:
    subprocess.run([sys.executable, "-c", "import pipeline.gold, pipeline.silver"], check=True, timeout=60)


# -- docs/pipeline-tables.md ---------------------------------------------------------------------------------

_PAGE = (Path(__file__).parents[2] / "docs" / "pipeline-tables.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"^## `(?P<table>gold_\w+)`$(?P<text>.*?)(?=^#)", re.MULTILINE | re.DOTALL)
_SECTIONS = {section["table"]: section["text"] for section in _SECTION.finditer(_PAGE)}
_QUERIES = re.findall(r"^```sql\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_the_columns_of_each_table_in_their_order() -> None:
    rows = {table: re.findall(r"^\| (`.*?`) \|", _SECTIONS[table], re.MULTILINE) for table in SCHEMAS}
    assert {table: re.findall(r"`(\w+)`", " ".join(named)) for table, named in rows.items()} == {
        table: [*columns] for table, columns in SCHEMAS.items()
    }


def test_the_page_has_the_columns_of_each_silver_table() -> None:
    for table in SILVER:
        (key, values) = re.findall(rf"^\| `{table.name}` \| (.*) \| (.*) \|$", _PAGE, re.MULTILINE)[0]
        assert tuple(re.findall(r"`(\w+)`", key)) == table.keys, table.name
        assert set(re.findall(r"`(\w+)`", values)) >= set(table.merges), table.name


def test_every_query_of_the_page_runs() -> None:
    with duckdb.connect() as connection:
        for name, columns in SCHEMAS.items():
            connection.register(name, pa.schema(columns).empty_table())
        assert len(_QUERIES) > 3
        for query in _QUERIES:
            assert connection.execute(query).fetchall() == [], query
