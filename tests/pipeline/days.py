"""Days of one fleet's events, written in bulk: a simulated day, copied as often as needed.

Each copy is a day later, its boots are others, and its leader epochs go on from those of the day before. So a
day of any number costs no more than the first.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.simulate import plan_for, write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FIRST_DAY: Final = datetime(2025, 1, 1, tzinfo=UTC)
_TIMES: Final = ("observed_at", "started_at")


class Days:
    """The events of a simulated day, from which those of every day are made."""

    def __init__(self, scratch: Path, events: int = 600, *, seed: int = 3, **plan: Any) -> None:
        """`scratch` is a new folder; `plan` is passed on to `plan_for`."""
        size = {"sidecars": 4, "topics": 2, "partitions": 3, "hours": 0.5, "churn": 6.0, "incidents": 4.0}
        noon = FIRST_DAY + timedelta(hours=12)
        wanted = plan_for(
            events, seed, end=noon, **({"clock_skew_s": 0.0, "late": 0.0, "broken": 0.0} | size | plan)
        )
        write(wanted, scratch, scratch.with_suffix(".truth.json"))
        lines = [line for file in sorted(scratch.iterdir()) for line in file.read_text().splitlines()]
        self._events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._epochs = 1 + max(event.get("leader_epoch") or 0 for event in self._events)

    def write(self, folder: Path, numbers: Iterable[int]) -> None:
        """Writes a file for each of these days, counted from 0, into a folder that exists."""
        for number in numbers:
            lines = [json.dumps(self._on_day(event, number)) for event in self._events]
            (folder / f".{number}").write_text("\n".join([*lines, ""]))
            (folder / f".{number}").rename(folder / f"day-{number:04}.jsonl")

    def _on_day(self, event: dict[str, Any], number: int) -> dict[str, Any]:
        times = {name: datetime.fromisoformat(event[name]) for name in _TIMES if name in event}
        later = {
            name: (time + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for name, time in times.items()
        }
        epoch = event.get("leader_epoch")
        moved = {} if epoch is None or epoch < 0 else {"leader_epoch": epoch + number * self._epochs}
        return event | later | moved | {"boot_id": event["boot_id"] + number}
