"""The page says what the rows say, and docs/reliability.md is the page of the last whole run."""

from __future__ import annotations

import json
from typing import Any

from tests.chaos.report import PAGE, RESULTS, page


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
        "before_mb": 70.4,
        "after_mb": 71.6,
        "withstood": True,
    }
    return given | changes


def results(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"kafka": "4.3.1", "seed": 7, "seconds": 61, "partitions": 6, "rows": list(rows)}


def test_a_row_has_its_figures_in_order() -> None:
    assert "\n| a storm | 1,234 | 1,200 | 34 | 0 | 0 | 9,101 | 9,055 | 70, 72 |\n" in page(results(row()))


def test_what_was_not_withstood_stands_out_and_what_may_be_twice_says_why() -> None:
    text = page(results(row(withstood=False, lost=2), row(duplicated=3, at_least_once="it is posted twice")))
    assert "| a storm: **not withstood** |" in text
    assert "| 3 (at least once: it is posted twice) |" in text


def test_what_was_not_measured_is_a_dash() -> None:
    text = page(results(row(java_gap_ms=None, before_mb=None, after_mb=None)))
    assert "| 9,101 | - | -, - |" in text


def test_each_group_has_its_heading_once() -> None:
    text = page(results(row(), row(fault="hail"), row(group="tide", fault="flood")))
    assert text.count("### Weather") == text.count("### Tide") == 1


def test_the_page_is_that_of_the_last_whole_run() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_the_last_whole_run_played_enough_faults_and_lost_nothing() -> None:
    """What the page may claim: a run that lost a record, or was cut short, is not one to keep."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert len(rows) >= 40
    assert [row["fault"] for row in rows if row["lost"]] == []
    assert [row["fault"] for row in rows if row["duplicated"] and not row["at_least_once"]] == []
