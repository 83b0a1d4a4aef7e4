"""Every alert is fired by a planted cause, and ends within the time of docs/alerts.md once that is healed.

The faults are those of `planted_in_sidecar.py` and `planted.py`, here also those whose alert fires late:
each lasts until it does. A real sidecar's parts in simulated time make the scrapes. Only a process that is
gone has none: `up` is what Prometheus itself stores then (tests/deploy/test_rules_on_prometheus.py ends a
real process).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from tests.operations.planted import FAULTS, Planted, start
from tests.operations.planted_in_sidecar import OF_THE_SIDECAR, Lasting
from tests.operations.watched import ENDS_S, EVERY_S, RULES, Watched, alerts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.operations.watched import Scrape

pytestmark = pytest.mark.tools

PLANTED_S: Final = 120
#: Twice delivery.timeout.ms and five minutes, and some scrapes.
_LATE_S: Final = 585


def _lasting(case: Planted) -> Lasting:
    return Lasting(
        case.name,
        case.plant,
        case.heal,
        () if case.alert is None else (case.alert,),
        lasts_s=_LATE_S if case.is_late else 180,
        kafka=case.kafka,
        settings=lambda _: case.settings,
        load=case.load,
        since_start=case.since_start,
    )


async def _play(case: Lasting, settings: Mapping[str, Any]) -> Sequence[Scrape]:
    watched = Watched(kafka=case.kafka, **settings)
    if case.since_start:
        case.plant(watched)
    start(watched)
    await watched.run(PLANTED_S, case.load)
    if not case.since_start:
        case.plant(watched)
    await watched.run(case.lasts_s, case.load)
    case.heal(watched)
    ends_s = max(ENDS_S[alert] for alert in (*case.alerts, "RequestsRefused"))
    await watched.run(ends_s + 3 * EVERY_S, case.after or case.load)
    await watched.end()
    return watched.scrapes


def _fired(cases: Sequence[Lasting], tmp_path: Path) -> set[tuple[str, str]]:
    """The alerts of all cases. Asserts that each fires its own, and that all end in their time."""
    played: dict[str, Sequence[Scrape]] = {}
    for number, case in enumerate(cases):
        (folder := tmp_path / str(number)).mkdir()
        played[case.name] = asyncio.run(_play(case, case.settings(folder)))
    fired = alerts_of(played, tmp_path)
    ever: set[tuple[str, str]] = set()
    for case in cases:
        of, healed_s = fired[case.name], PLANTED_S + case.lasts_s
        ever |= set().union(*of.values())
        before = {alert for second, ones in of.items() if second <= healed_s for alert, _ in ones}
        assert before >= set(case.alerts), (case.name, of)
        for second, ones in of.items():
            lasting = {alert for alert, _ in ones if second > healed_s + ENDS_S[alert]}
            assert not lasting, (case.name, second, lasting)
    return ever


def test_every_alert_fires_by_a_planted_cause_and_ends_in_its_time(tmp_path: Path) -> None:
    prompt = [_lasting(case) for case in FAULTS if case.alert is not None and not case.is_late]
    ever = _fired([*prompt, *map(_lasting, _first_late()), *OF_THE_SIDECAR], tmp_path)
    assert ever == {
        (rule["alert"], rule["labels"]["severity"])
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    }


def test_each_fault_whose_alert_is_late_fires_it_and_it_ends_in_its_time(tmp_path: Path) -> None:
    late = [case for case in FAULTS if case.is_late and case not in _first_late()]
    assert len(late) >= 10
    assert {alert for alert, _ in _fired([*map(_lasting, late)], tmp_path)} >= {"ProduceErrors"}


def _first_late() -> list[Planted]:
    """One late fault of each alert."""
    return list({case.alert: case for case in reversed(FAULTS) if case.is_late}.values())
