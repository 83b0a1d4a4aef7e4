"""Planted faults are found from scrapes and alerts alone, within three minutes; the status shows them too.

`diagnosis.py` does not know which fault was planted (`planted.py`), if any. All sidecars of a test are in one
Prometheus.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.operations.diagnosis import diagnose
from tests.operations.planted import FAULTS, LOOK_ALIKES, PAIRS, QUIET, Planted, start
from tests.operations.watched import EVERY_S, Watched, alerts_of
from tests.support.coroutine_tests import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.operations.watched import Scrape

pytestmark = pytest.mark.tools

ROOT: Final = Path(__file__).parents[2]
PLANTED_S: Final = 120
FOUND_S: Final = 300
_WINDOW: Final = (FOUND_S - PLANTED_S) // EVERY_S + 1
#: A recovery, a scrape and an evaluation.
_CLEAR_S: Final = 75


class Played:
    """What is known of a sidecar three minutes after the fault, and the scrapes until it was healed."""

    def __init__(self, watched: Watched) -> None:
        self.at_hand: Sequence[Scrape] = list(watched.scrapes)
        self.said = " ".join(finding["detail"] for finding in watched.status["slow"])
        self.scrapes = watched.scrapes

    def found(self, alerts: Mapping[int, set[tuple[str, str]]]) -> set[str]:
        return diagnose(self.at_hand[-_WINDOW:], alerts.get(FOUND_S, set()), FOUND_S)


async def _play(*cases: Planted) -> Played:
    first = cases[0]
    watched = Watched(kafka=first.kafka, **first.settings)
    for case in cases:
        if case.since_start:
            case.plant(watched)
    start(watched)
    await watched.run(PLANTED_S, first.load)
    for case in cases:
        if not case.since_start:
            case.plant(watched)
    await watched.run(FOUND_S - PLANTED_S + 1, first.load)
    played = Played(watched)
    for case in cases:
        case.heal(watched)
    await watched.run(_CLEAR_S + 2 * EVERY_S, first.load)
    await watched.end()
    return played


def test_each_fault_is_found_and_its_alert_fires_and_clears(tmp_path: Path) -> None:
    played = {case.name: run(_play(case)) for case in FAULTS}
    alerts = alerts_of({name: one.scrapes for name, one in played.items()}, tmp_path)
    assert len(FAULTS) >= 25
    assert {case.name: played[case.name].found(alerts[case.name]) for case in FAULTS} == {
        case.name: {case.found} for case in FAULTS
    }
    for case in FAULTS:
        assert case.status in played[case.name].said, (case.name, played[case.name].said)
        of = alerts[case.name]
        if case.alert is not None and not case.is_late:
            assert case.alert in {name for name, _ in of.get(FOUND_S, set())}, (case.name, of)
        assert not any(of.get(second) for second in range(0, PLANTED_S, EVERY_S)) or case.since_start
        late = {one for second, ones in of.items() if second >= FOUND_S + _CLEAR_S for one in ones}
        assert {name for name, severity in late if severity == "critical"} == set(), (case.name, of)


def test_both_of_two_faults_are_found(tmp_path: Path) -> None:
    by_name = {case.name: case for case in FAULTS}
    played = {f"{one} and {other}": run(_play(by_name[one], by_name[other])) for one, other in PAIRS}
    alerts = alerts_of({name: of.scrapes for name, of in played.items()}, tmp_path)
    assert {name: of.found(alerts[name]) for name, of in played.items()} == {
        f"{one} and {other}": {by_name[one].found, by_name[other].found} for one, other in PAIRS
    }


def test_what_is_no_fault_is_not_found_and_pages_nobody(tmp_path: Path) -> None:
    cases = (*LOOK_ALIKES, *QUIET)
    played = {case.name: run(_play(case)) for case in cases}
    alerts = alerts_of({name: one.scrapes for name, one in played.items()}, tmp_path)
    assert alerts == {case.name: {} for case in cases}
    assert {case.name: played[case.name].found(alerts[case.name]) for case in cases} == {
        case.name: set() for case in cases
    }


def test_the_table_of_the_page_is_that_of_the_faults() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| [^|]+ \| [^|]* \| “", line)]
    errors = [case for case in FAULTS if case.name.isupper()]
    assert rows == [row_of(case) for case in FAULTS if case not in errors]
    assert {(case.alert, case.is_late, case.panel) for case in errors} == {
        ("ProduceErrors", True, "Records given up and sent again")
    }, "the sentences above the table"
    above = page[page.index("## Which fault shows where") : page.index("| fault |")]
    shown, not_shown = (re.findall(r"`([A-Z_]+)`", part) for part in re.split(r"It\s+has\s+nothing", above))
    assert shown == [case.name for case in errors if case.status == case.name]
    assert not_shown == [case.name for case in errors if not case.status]
    assert len(shown) + len(not_shown) == len(errors)
    panels = set(
        re.findall(r'"title": ("[^"]*")', (ROOT / "helm/pilotfish/files/dashboard.json").read_text())
    )
    assert {case.panel for case in FAULTS} <= {json.loads(panel) for panel in panels}


def row_of(case: Planted) -> str:
    """The row of docs/alerts.md."""
    alert = f"[{case.alert}](#{case.alert.lower()})" if case.alert else "none"
    status = f"“{case.status}”" if case.status else "nothing"
    return f"| {case.name} | {alert}{', later' if case.is_late else ''} | “{case.panel}” | {status} |"
