"""Healthy sidecars have no alert. After an outage each ends in its time and none flaps, by settings and load.

The scrapes are those of real collectors in simulated time, every 15 s; of longer intervals, each second or
fourth of them. promtool evaluates the delivered rules, with their own `for`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from tests.deploy.test_rules_on_prometheus import SETTINGS
from tests.operations.planted import ALL, down, start, up, usual_load
from tests.operations.watched import ENDS_S, EVERY_S, Watched, alerts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.operations.watched import Scrape

pytestmark = pytest.mark.tools

#: Longer than any `for` and any range of the rules' usual causes, with room for the longest interval.
_HEALTHY_S: Final = 720
_DOWN_S: Final = 240
_AFTER_S: Final = 240
#: The shortest time of docs/alerts.md: longer ones are of rates.
_AT_ONCE_S: Final = 60
_RECOVERED_S: Final = _HEALTHY_S + _DOWN_S
#: By the interval, as docs/alerts.md says: until a scrape, and the evaluation after it.
_CLEARS_S: Final = {15: 60, 30: 60, 60: 90}


def _nobody(watched: Watched, second: int) -> None:
    """An idle sidecar."""


_LOADS: Final[Mapping[str, Callable[[Watched, int], None]]] = {"busy": usual_load, "idle": _nobody}


async def _play(kafka: Mapping[str, str], load: Callable[[Watched, int], None]) -> list[Scrape]:
    watched = Watched(kafka=kafka)
    start(watched)
    await watched.run(_HEALTHY_S, load)
    down(*ALL, elect=False)(watched)
    await watched.run(_DOWN_S, load)
    up(watched)
    await watched.run(_AFTER_S, load)
    await watched.end()
    return watched.scrapes


def test_no_false_alert_and_alerts_that_clear_once_whatever_the_interval_and_the_settings(
    tmp_path: Path,
) -> None:
    played = {
        f"{name}, {how}": asyncio.run(_play(kafka, load))
        for name, kafka in SETTINGS.items()
        for how, load in _LOADS.items()
    }
    fired: set[str] = set()
    for every_s, clears_s in _CLEARS_S.items():
        step = every_s // EVERY_S
        # Also scrapes that come as late as they can after what happened.
        for first in {0, step - 1}:
            scrapes = {name: of[first::step] for name, of in played.items()}
            alerts = alerts_of(scrapes, tmp_path, every_s=every_s)
            late_s = first * EVERY_S
            for name, of in alerts.items():
                where = f"{name}, every {every_s} s, from {late_s} s on: {of}"
                at = {second + late_s: {alert for alert, _ in ones} for second, ones in of.items()}
                assert not any(ones for second, ones in at.items() if second < _HEALTHY_S), where
                for alert in set[str]().union(*at.values()):
                    seconds = sorted(second for second, ones in at.items() if alert in ones)
                    fired.add(alert)
                    assert seconds == list(range(seconds[0], seconds[-1] + 1, EVERY_S)), (alert, where)
                    assert seconds[-1] <= _RECOVERED_S + clears_s + ENDS_S[alert] - _AT_ONCE_S, (alert, where)
    assert "NoBrokerConnected" in fired
