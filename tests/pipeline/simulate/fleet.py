"""Plans the fleet: the sidecars, their refresh intervals, lifetimes and faults.

In a large enough fleet, one or two sidecars are held back (as by SIGSTOP) from just after a broker fails
until three refresh intervals later. One stops silently. The sidecars of one service are redeployed, one after
the other. One in fifty has a wrong clock, alternately ahead and behind. With `silent`, a share of those
without such a fault is killed; every other one of these is started again, up to a minute later.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.pipeline.simulate import cluster
from tests.pipeline.simulate.plan import SECOND_US, Plan

if TYPE_CHECKING:
    from tests.pipeline.simulate.timeline import Timeline

#: metadata.max.age.ms of the services, in order: Kafka's default first.
_INTERVALS_S: Final = (300, 30, 60, 120, 20, 180, 60, 30)
_DELAY_INTERVALS: Final = 3
_CLOCKS: Final = 50
_DEPLOY_EVERY_US: Final = 20 * SECOND_US
_DEPLOY_TAKES_US: Final = 8 * SECOND_US

GOODBYE: Final = "goodbye"  #: ended normally, with a last heartbeat
SILENCE: Final = "silence"  #: ended without a last heartbeat
RUNNING: Final = "running"  #: still alive at the end of the run


class Boot(NamedTuple):
    """A process of a sidecar. Its id is the microsecond of its start."""

    boot_id: int
    started_us: int
    ended_us: int
    end: str


class Member(NamedTuple):
    """A sidecar of the fleet."""

    number: int
    sidecar_id: str
    service: str
    topics: frozenset[str]
    interval_us: int
    clock_offset_us: int
    is_idle: bool  #: produces so little that it refreshes only when its interval is over
    delayed: tuple[int, int] | None
    boots: tuple[Boot, ...]
    events: int  #: how many it sends, over all its boots


def fleet_of(plan: Plan, timeline: Timeline) -> list[Member]:
    """Returns the sidecars. Each gets a share of the plan's events in proportion to its awake time."""
    source = random.Random(f"{plan.seed} fleet")
    services = cluster.services(min(max(plan.sidecars // 3, 1), 40))
    followed = _followed(source, timeline, len(services))
    boots = _boots(plan, source, len(services))
    held = _delayed(plan, timeline, len(services))
    awake = [
        sum(b.ended_us - b.started_us for b in boots[n]) - (held[n][1] - held[n][0] if n in held else 0)
        for n in range(plan.sidecars)
    ]
    members = []
    share = total = 0
    for n in range(plan.sidecars):
        total += awake[n]
        events = plan.events * total // sum(awake) - share
        share += events
        service = n % len(services)
        clock = _clock_offset_us(plan, n) + round(source.gauss(0, 5_000))
        members.append(
            Member(
                number=n,
                sidecar_id=f"{services[service]}-{n // len(services):03d}",
                service=services[service],
                topics=followed[service],
                interval_us=_interval_us(plan, service),
                clock_offset_us=clock,
                is_idle=n % 7 == 6,
                delayed=held.get(n),
                boots=boots[n],
                events=events,
            )
        )
    return members


def _followed(source: random.Random, timeline: Timeline, services: int) -> list[frozenset[str]]:
    """Returns by service: the first three topics and half of the others; each pair of services has all."""
    topics = list(dict.fromkeys(life.name for life in timeline.lives))
    if services == 1:
        return [frozenset(topics)]
    followed: list[frozenset[str]] = []
    rest = topics[3:]
    for service in range(services):
        if service % 2 == 0:
            source.shuffle(rest)
        followed.append(frozenset(topics[:3]) | frozenset(rest[service % 2 :: 2]))
    return followed


def _interval_us(plan: Plan, service: int) -> int:
    """Returns the service's interval, or a shorter one if the whole run is short."""
    interval_us = _INTERVALS_S[service % len(_INTERVALS_S)] * SECOND_US
    return min(interval_us, max((plan.end_us - plan.start_us) // 24, SECOND_US))


def _clock_offset_us(plan: Plan, number: int) -> int:
    if plan.sidecars < 3 or number % _CLOCKS != 2:
        return 0
    sign = 1 if number // _CLOCKS % 2 == 0 else -1
    return round(sign * plan.clock_skew_s * SECOND_US)


def _boots(plan: Plan, source: random.Random, services: int) -> list[tuple[Boot, ...]]:
    span_us = plan.end_us - plan.start_us
    boots: list[tuple[Boot, ...]] = []
    # The last sidecar without another fault.
    lonely = [n for n in range(3, plan.sidecars) if n % _CLOCKS != 2 and (services == 1 or n % services != 1)]
    silent = lonely[-1] if lonely else None
    for n in range(plan.sidecars):
        first_us = plan.start_us + round(source.uniform(0, min(60 * SECOND_US, span_us * 0.05)))
        deploy_us = plan.start_us + round(span_us * 0.55)
        deploy_us += n // services * min(_DEPLOY_EVERY_US, round(span_us * 0.3) * services // plan.sidecars)
        if services > 1 and n % services == 1:
            again_us = deploy_us + _DEPLOY_TAKES_US
            boots.append(
                (
                    Boot(first_us, first_us, deploy_us, GOODBYE),
                    Boot(again_us, again_us, plan.end_us, RUNNING),
                )
            )
        elif n == silent:
            boots.append((Boot(first_us, first_us, plan.start_us + round(span_us * 0.7), SILENCE),))
        else:
            boots.append((Boot(first_us, first_us, plan.end_us, RUNNING),))
    killed = random.Random(f"{plan.seed} killed")
    victims = [n for n in lonely if n != silent]
    for count, n in enumerate(killed.sample(victims, min(round(plan.silent * plan.sidecars), len(victims)))):
        killed_us = plan.start_us + round(span_us * killed.uniform(0.1, 0.9))
        again_us = killed_us + round(killed.uniform(2, 60) * SECOND_US)
        boots[n] = (boots[n][0]._replace(ended_us=killed_us, end=SILENCE),)
        if count % 2 == 0:
            boots[n] += (Boot(again_us, again_us, plan.end_us, RUNNING),)
    return boots


def _delayed(plan: Plan, timeline: Timeline, services: int) -> dict[int, tuple[int, int]]:
    """Delays one or two sidecars of the first service, which have no other fault."""
    if plan.sidecars < 3 or not timeline.failures:
        return {}
    held: dict[int, tuple[int, int]] = {}
    interval_us = _interval_us(plan, 0)
    for index, number in enumerate(range(0, plan.sidecars - 1, services)):
        if index == min(2, len(timeline.failures)) or number == 2:
            break
        failure = timeline.failures[index]
        from_us = failure.down_us + SECOND_US
        if from_us + _DELAY_INTERVALS * interval_us < plan.end_us - interval_us:
            held[number] = (from_us, from_us + _DELAY_INTERVALS * interval_us)
    return held
