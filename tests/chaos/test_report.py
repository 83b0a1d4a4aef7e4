"""The tables agree with the rows, and the last whole run may be published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.chaos.duplicates import Rule
from tests.chaos.report import RESULTS, chaos_tables, write

if TYPE_CHECKING:
    from pathlib import Path


def row(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "fault": "a storm",
        "group": "weather",
        "at_least_once": "",
        "callers": 10,
        "requests": 1_234,
        "acknowledged": 1_200,
        "failed": 30,
        "unanswered": 4,
        "lost": 0,
        "duplicated": 0,
        "gap_ms": 9_101,
        "java_gap_ms": 9_055,
        "java_duplicated": None,
        "before_mb": 70.4,
        "after_mb": 71.6,
        "withstood": True,
    }
    return given | changes


def tables(folder: Path, *rows: dict[str, Any]) -> str:
    run = {"date": "2026-01-31", "machine": "an abacus", "kafka": "4.3.1", "seed": 7, "seconds": 61}
    write({**run, "rows": rows}, folder / "results.json")
    return chaos_tables(folder / "results.json")


def test_a_row_has_its_figures_in_order(tmp_path: Path) -> None:
    assert "\n| a storm | 1,200 | 0 | 9,101 | 9,055 |\n" in tables(tmp_path, row())


def test_the_whole_run_is_counted(tmp_path: Path) -> None:
    text = tables(tmp_path, row(lost=2), row(after_mb=90.2), row(after_mb=None))
    assert (
        "\n3,702 requests, 3,600 records acknowledged, 2 of them lost. "
        "The sidecar's memory (RSS) was 90 MB at most.\n"
    ) in text


def test_a_fault_that_was_not_withstood_is_marked_and_duplicates_have_their_cause(tmp_path: Path) -> None:
    text = tables(
        tmp_path,
        row(withstood=False),
        row(withstood=False, lost=2),
        row(duplicated=3, at_least_once="it is posted twice"),
    )
    assert "| a storm: **not withstood** |" in text
    assert "| a storm: **not withstood, 2 lost** |" in text
    assert "| it is posted twice | 9,101 | 9,055 |" in text
    causes = f"2: {Rule.BROKERS_FORGET.value}; 1: {Rule.RETRIED.value}"
    beside_java = tables(tmp_path, row(duplicated=3, at_least_once=causes, java_duplicated=4))
    assert "| 2: D; 1: B | 9,101 | 9,055 |" in beside_java
    assert f"\n- B: {Rule.RETRIED.value}.\n" in beside_java


def test_duplicates_are_counted_for_both_clients(tmp_path: Path) -> None:
    text = tables(tmp_path, row(duplicated=3), row(duplicated=1, java_duplicated=4), row(java_duplicated=0))
    assert (
        "\nRecords that were stored twice: 4 of the sidecar's, 4 of the Java client's, which took part in 2 "
        "faults.\n"
    ) in text


def test_a_missing_measurement_is_a_dash(tmp_path: Path) -> None:
    text = tables(tmp_path, row(java_gap_ms=None, before_mb=None, after_mb=None))
    assert "| 9,101 | - |" in text
    assert "was - MB at most" in text


def test_each_group_has_its_heading_once(tmp_path: Path) -> None:
    text = tables(tmp_path, row(), row(fault="hail"), row(group="tide", fault="flood"))
    assert text.count("### Weather") == text.count("### Tide") == 1


def test_the_last_whole_run_played_enough_faults_and_lost_nothing() -> None:
    """A run that lost a record, or was cut short, must not be published."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert len(rows) >= 40
    assert [row["fault"] for row in rows if row["lost"]] == []
    assert [row["fault"] for row in rows if row["duplicated"] and not row["at_least_once"]] == []
