"""Defines the plan of a simulation: size, activity, faults. It determines all else, with its seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pipeline.errors import PipelineError

SECOND_US: Final = 1_000_000
#: A sidecar reports its produce windows every 10 s (event v1).
WINDOW_US: Final = 10 * SECOND_US

#: The default end of a simulated run: fixed, so that a seed always gives the same bytes.
DEFAULT_END: Final = datetime(2026, 9, 1, 12, tzinfo=UTC)

#: The default number of events per sidecar and hour. It can't be more if a fifth of all events are about one
#: partition, which has one window in 10 s.
_EVENTS_AN_HOUR: Final = 1_800
#: Bronze rejects events more than an hour ahead of their arrival; a wrong clock must stay below that.
_MAX_CLOCK_SKEW_S: Final = 3_000
_MIN_HOURS: Final = 0.05
_SHARES: Final = ("skew", "silent", "duplicates", "late", "broken")


class PlanError(PipelineError):
    """A plan that is not possible; the message names the number and the allowed values."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet and its history. Made by `plan_for`, which fills in defaults."""

    events: int  #: distinct valid lines, exactly; duplicates and broken lines are added
    seed: int
    sidecars: int
    topics: int
    partitions: int  #: of each topic
    brokers: int
    hours: float
    skew: float = 0.2  #: share of all events that are about one partition of the first topic
    churn: float = 2.0  #: failures of brokers per hour; 0: nothing ever changes
    incidents: float = 0.0  #: other incidents per hour, which may overlap (`cluster.py`)
    silent: float = 0.0  #: share of sidecars that are killed; every other one starts again
    clock_skew_s: float = 900.0  #: the error of wrong clocks; 0: no clock is wrong
    duplicates: float = 0.01  #: share of lines that are written twice
    late: float = 0.005  #: share of lines that are in a later file than they should be
    broken: float = 0.001  #: additional unreadable lines, as a share of the events
    end: datetime = DEFAULT_END
    file_bytes: int = 16 * 2**20  #: the size at which a sidecar begins another file

    @property
    def end_us(self) -> int:
        """Returns microseconds since 1970."""
        return round(self.end.timestamp()) * SECOND_US

    @property
    def start_us(self) -> int:
        """Returns microseconds since 1970."""
        return self.end_us - round(self.hours * 3600) * SECOND_US


def plan_for(
    events: int,
    seed: int = 1,
    *,
    sidecars: int | None = None,
    topics: int | None = None,
    partitions: int | None = None,
    brokers: int | None = None,
    hours: float | None = None,
    skew: float = 0.2,
    churn: float = 2.0,
    incidents: float = 0.0,
    silent: float = 0.0,
    clock_skew_s: float = 900.0,
    duplicates: float = 0.01,
    late: float = 0.005,
    broken: float = 0.001,
    end: datetime = DEFAULT_END,
    file_bytes: int = 16 * 2**20,
) -> Plan:
    """Returns a plan for this number of events; parameters that are None grow with it.

    A thousand events are 3 sidecars for a quarter of an hour, a million 100 for six hours, a hundred million
    1,000 for two days. Raises PlanError.
    """
    root = math.sqrt(max(events, 0))
    sidecars = _between(root / 10, 3, 10_000) if sidecars is None else sidecars
    if hours is None:
        hours = max(round(events / max(sidecars, 1) / _EVENTS_AN_HOUR, 2), 0.25)
    plan = Plan(
        events=events,
        seed=seed,
        sidecars=sidecars,
        topics=_between(root / 15, 3, 100) if topics is None else topics,
        partitions=6 if partitions is None else partitions,
        brokers=(3 if events < 20_000 else 6) if brokers is None else brokers,
        hours=hours,
        skew=skew,
        churn=churn,
        incidents=incidents,
        silent=silent,
        clock_skew_s=clock_skew_s,
        duplicates=duplicates,
        late=late,
        broken=broken,
        end=end,
        file_bytes=file_bytes,
    )
    _check(plan)
    return plan


def _between(wanted: float, least: int, most: int) -> int:
    return min(max(round(wanted), least), most)


def _check(plan: Plan) -> None:
    for name in ("events", "sidecars", "topics", "partitions", "brokers", "file_bytes"):
        if getattr(plan, name) < 1:
            raise PlanError(f"{name} is {getattr(plan, name)}: at least 1.")
    for name in _SHARES:
        if not 0 <= getattr(plan, name) < 1:
            raise PlanError(f"{name} is {getattr(plan, name)}: a share, from 0 to below 1.")
    if plan.hours < _MIN_HOURS:
        raise PlanError(f"hours is {plan.hours}: at least {_MIN_HOURS}, or nothing can happen.")
    if plan.churn < 0:
        raise PlanError(f"churn is {plan.churn}: failures of brokers an hour, 0 or more.")
    if plan.incidents < 0:
        raise PlanError(f"incidents is {plan.incidents}: incidents an hour, 0 or more.")
    if abs(plan.clock_skew_s) > _MAX_CLOCK_SKEW_S:
        raise PlanError(
            f"clock-skew is {plan.clock_skew_s:g} s: at most {_MAX_CLOCK_SKEW_S}, or bronze would reject"
            " all that the sidecar says, for a clock that is ahead."
        )
    if plan.end.tzinfo is None:
        raise PlanError(f"end {plan.end.isoformat()} says no time zone: write it with a Z.")
