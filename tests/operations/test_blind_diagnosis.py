"""Planted faults are found from scrapes and alerts alone, within three minutes; the status shows them too.

`diagnosis.py` does not know which fault was planted (`planted.py`), if any. All sidecars of a test are in one
Prometheus.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.deploy.promql_terms import terms_of
from tests.operations.diagnosis import diagnose
from tests.operations.planted import FAULTS, LOOK_ALIKES, PAIRS, QUIET, Planted, start
from tests.operations.watched import EVERY_S, Watched, alerts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.deploy.promql_terms import Term
    from tests.operations.watched import Scrape, Series

pytestmark = pytest.mark.tools

ROOT: Final = Path(__file__).parents[2]
_BOARD: Final[dict[str, Any]] = json.loads((ROOT / "helm/pilotfish/files/dashboard.json").read_text())
PLANTED_S: Final = 120
FOUND_S: Final = 300
_WINDOW: Final = (FOUND_S - PLANTED_S) // EVERY_S + 1
#: A recovery, a scrape and an evaluation.
_CLEAR_S: Final = 75


class Played:
    """What is known of a sidecar three minutes after the fault, and the scrapes until it was healed."""

    def __init__(self, watched: Watched) -> None:
        self.at_hand: Sequence[Scrape] = list(watched.scrapes)
        self.status = watched.status
        findings = [finding["detail"] for finding in self.status["slow"]]
        #: What `pilotfish status` prints of findings, and in the column of last errors.
        self.said = " ".join([*findings, *(node["last_error"] or "" for node in self.status["nodes"])])
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
    played = {case.name: asyncio.run(_play(case)) for case in FAULTS}
    alerts = alerts_of({name: one.scrapes for name, one in played.items()}, tmp_path)
    assert len(FAULTS) >= 25
    assert {case.name: played[case.name].found(alerts[case.name]) for case in FAULTS} == {
        case.name: {case.found} for case in FAULTS
    }
    for case in FAULTS:
        quiet = _quiet(tuple(case.kafka.items()), tuple(case.settings.items()))
        _assert_status_has(case, played[case.name], quiet)
        _assert_panel_shows(case, played[case.name], quiet)
        of = alerts[case.name]
        if case.alert is not None and not case.is_late:
            assert case.alert in {name for name, _ in of.get(FOUND_S, set())}, (case.name, of)
        assert not any(of.get(second) for second in range(0, PLANTED_S, EVERY_S)) or case.since_start
        late = {one for second, ones in of.items() if second >= FOUND_S + _CLEAR_S for one in ones}
        assert {name for name, severity in late if severity == "critical"} == set(), (case.name, of)


def _assert_status_has(case: Planted, played: Played, quiet: Played) -> None:
    if case.status is not None:
        assert case.status, case.name
        assert case.status in played.said, (case.name, played.said)
    elif case.member:
        values = _values(played.status, case.member)
        assert any(values), (case.name, values)
        assert case.name in values or not case.name.isupper(), (case.name, values)
        assert not any(_values(quiet.status, case.member)), case.name
    else:
        assert case.why_not, case.name


def _assert_panel_shows(case: Planted, played: Played, quiet: Played) -> None:
    """Some series that the panel asks for is there alone, or far from what it is without the fault."""
    (panel,) = [one for one in _BOARD["panels"] if one["title"] == case.panel]
    terms = [term for target in panel["targets"] for term in terms_of(target["expr"])]
    assert any(
        _is_far(_shown(term, played.at_hand[-_WINDOW:]), _shown(term, quiet.at_hand[-_WINDOW:]))
        for term in terms
    ), case.name


@cache
def _quiet(kafka: tuple[tuple[str, str], ...], settings: tuple[tuple[str, int], ...]) -> Played:
    """The usual load with these settings, and nothing else."""
    case = Planted(
        "no fault", _nothing, _nothing, "", None, "", None, kafka=dict(kafka), settings=dict(settings)
    )
    return asyncio.run(_play(case))


def _nothing(_: Watched) -> None:
    """Plants nothing, and heals nothing."""


def _values(document: Any, member: str) -> list[Any]:
    """The values of a member such as `nodes[].last_failure.error`, without those that are null."""
    found = [document]
    for name in member.split("."):
        found = [one[name.removesuffix("[]")] for one in found]
        if name.endswith("[]"):
            found = [one for many in found for one in many]
        found = [one for one in found if one is not None]
    return found


def _shown(term: Term, window: Sequence[Scrape]) -> dict[Series, float]:
    """What a term has at the end: a gauge's value, or what a counter grew by."""

    def of(scrape: Scrape) -> dict[Series, float]:
        return {
            (name, labels): value
            for (name, labels), value in scrape.items()
            if name == term.metric and _matches(term, dict(labels))
        }

    first, last = of(window[0]), of(window[-1])
    is_counter = term.metric.endswith(("_total", "_sum", "_count", "_bucket"))
    return {series: value - first.get(series, 0) if is_counter else value for series, value in last.items()}


def _matches(term: Term, labels: Mapping[str, str]) -> bool:
    return all(
        (re.fullmatch(value if "~" in operator else re.escape(value), labels.get(label, "")) is not None)
        == (not operator.startswith("!"))
        for label, (operator, value) in term.matchers.items()
    )


def _is_far(one: Mapping[Series, float], other: Mapping[Series, float]) -> bool:
    """Whether a series that is not 0 is missing from the other, or differs by more than a half."""
    return any(
        abs(one.get(series, 0) - other.get(series, 0)) > max(one.get(series, 0), other.get(series, 0)) / 2
        for series in {*one, *other}
    )


def test_both_of_two_faults_are_found(tmp_path: Path) -> None:
    by_name = {case.name: case for case in FAULTS}
    played = {f"{one} and {other}": asyncio.run(_play(by_name[one], by_name[other])) for one, other in PAIRS}
    alerts = alerts_of({name: of.scrapes for name, of in played.items()}, tmp_path)
    assert {name: of.found(alerts[name]) for name, of in played.items()} == {
        f"{one} and {other}": {by_name[one].found, by_name[other].found} for one, other in PAIRS
    }


def test_what_is_no_fault_is_not_found_and_pages_nobody(tmp_path: Path) -> None:
    cases = (*LOOK_ALIKES, *QUIET)
    played = {case.name: asyncio.run(_play(case)) for case in cases}
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
    shown, not_shown = (
        re.findall(r"`([A-Z_]+)`", part)
        for part in re.split(r"`nodes\[\]\.last_failure`\s+of\s+/v1/status", above)
    )
    assert shown == [case.name for case in errors if case.status == case.name]
    assert not_shown == [case.name for case in errors if case.status is None]
    assert len(shown) + len(not_shown) == len(errors)


def row_of(case: Planted) -> str:
    """The row of docs/alerts.md."""
    alert = f"[{case.alert}](#{case.alert.lower()})" if case.alert else "none"
    member = f"`{case.member}` of /v1/status" if case.member else f"nothing: {case.why_not}"
    status = member if case.status is None else f"“{case.status}”"
    return f"| {case.name} | {alert}{', later' if case.is_late else ''} | “{case.panel}” | {status} |"
