"""A fleet whose clocks go wrong, for the judge of clocks: another model than the simulator's, and its truth.

    fleet = skewed_fleet(seed)
    fleet.events(skewed=True)      as bronze has them, by the sidecars' clocks
    fleet.events(skewed=False)     the same events by clocks that are right

    cluster    brokers fail for minutes, leaders move away and back; replicas fall behind by themselves, which
               raises no leader epoch; all of it Poisson
    sidecars   look at their intervals with jitter, at once after some moves, or not at all while they are
               held; answers take milliseconds and may be old by as much
    clocks     a tenth: off for good, stepped (by NTP), drifting, or behind after their machine was paused, by
               seconds up to an hour; all others by milliseconds

Seconds are those after T0 (fleets.py). Pure Python, without Spark, and without the pipeline's rules.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.pipeline.fleets import Boot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.pipeline.fleets import Event

HOURS: Final = 4.0
SIDECARS: Final = 30
BROKERS: Final = 5
TOPICS: Final = ("orders", "refunds", "stock")
PARTITIONS: Final = 4
_REPLICAS: Final = 3
_OUTAGES_AN_HOUR: Final = 3.0
_LAGS_AN_HOUR: Final = 8.0
_INTERVALS_S: Final = (300.0, 60.0, 30.0)
_WRONG: Final = 10
_LEAST_WRONG_S: Final = 2.0
_MOST_WRONG_S: Final = 3_500.0
PAUSED: Final = "paused"


class State(NamedTuple):
    """What a broker says of a partition from this time on."""

    at: float
    epoch: int
    leader: int | None
    isr: tuple[int, ...]


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    @property
    def topic_id(self) -> str:
        return f"id-of-{self.topic}"


@dataclass(slots=True)
class Sidecar:
    """Its looks are the times at which brokers answer, and the age of each answer."""

    name: str
    service: str
    interval_s: float
    clock: Callable[[float], float]
    kind: str
    looks: list[tuple[float, float]]
    start: float
    end: float
    #: When its process was held, or its whole machine: then no clock of it ran.
    held: tuple[float, float]

    def is_frozen(self, at: float) -> bool:
        return self.kind == PAUSED and self.held[0] <= at < self.held[1]

    def uptime_s(self, at: float) -> float:
        """By the clock that no NTP steps."""
        is_later = self.kind == PAUSED and at >= self.held[1]
        return at - (self.held[1] - self.held[0] if is_later else 0.0)


@dataclass(slots=True)
class Fleet:
    """Its truth, and the events that its sidecars make of it."""

    seed: int
    hours: float
    states: dict[Place, list[State]]
    replicas: dict[Place, tuple[int, ...]]
    sidecars: list[Sidecar] = field(default_factory=list)

    def events(self, *, skewed: bool) -> list[Event]:
        return [event for sidecar in self.sidecars for event in self._events_of(sidecar, skewed=skewed)]

    def shortages(self) -> dict[Place, list[tuple[float, float]]]:
        """When each partition truly had too few replicas in sync; the last one may be without an end."""
        found: dict[Place, list[tuple[float, float]]] = defaultdict(list)
        for place, states in self.states.items():
            began: float | None = None
            for state in states:
                is_short = len(state.isr) < _REPLICAS
                if is_short and began is None:
                    began = state.at
                elif not is_short and began is not None:
                    found[place].append((began, state.at))
                    began = None
            if began is not None:
                found[place].append((began, math.inf))
        return found

    def elections(self) -> dict[tuple[str, int, int], float]:
        """When each epoch of a partition began."""
        begun: dict[tuple[str, int, int], float] = {}
        for place, states in self.states.items():
            for state in states:
                begun.setdefault((place.topic, place.partition, state.epoch), state.at)
        return begun

    def _events_of(self, sidecar: Sidecar, *, skewed: bool) -> Iterator[Event]:
        def clock(true_s: float) -> float:
            return sidecar.clock(true_s) if skewed else true_s

        boot = Boot(sidecar.name, service=sidecar.service)
        minutes = range(int(sidecar.start // 60) + 1, int(sidecar.end // 60))
        due = sorted([*((at, age) for at, age in sidecar.looks), *((60.0 * m, -1.0) for m in minutes)])
        said: dict[Place, State] = {}
        for at, age in due:
            if age < 0:
                if sidecar.is_frozen(at):
                    continue
                boot.beats(
                    clock(at), max_age_ms=round(sidecar.interval_s * 1_000), uptime_s=sidecar.uptime_s(at)
                )
                if said:
                    boot.produces(clock(at), latency={900: 5}, topic=TOPICS[hash_of(sidecar.name) % 2])
                continue
            for place, states in self.states.items():
                now = _at(states, at - age)
                if said.get(place) != now:
                    said[place] = now
                    boot.sees(
                        clock(at),
                        topic=place.topic,
                        topic_id=place.topic_id,
                        partition=place.partition,
                        epoch=now.epoch,
                        leader=now.leader,
                        isr=now.isr,
                        replicas=self.replicas[place],
                    )
            boot.looks(clock(at), duration_s=age)
        yield from boot.events


def skewed_fleet(seed: int, *, hours: float = HOURS, sidecars: int = SIDECARS) -> Fleet:
    """A fleet of this seed."""
    chance = random.Random(f"skewed {seed}")
    span = hours * 3_600
    fleet = _cluster(chance, seed, hours)
    moves = sorted({s.at for states in fleet.states.values() for s in states if s.at > 0})
    wrong = {*chance.sample(range(sidecars), max(1, sidecars // _WRONG))}
    for number in range(sidecars):
        interval = _INTERVALS_S[number % len(_INTERVALS_S)]
        start = 0.0 if chance.random() < 0.8 else chance.uniform(0, span / 3)
        end = span if chance.random() < 0.9 else chance.uniform(2 * span / 3, span)
        held = _pause(chance, span) if chance.random() < 0.1 else (span, span)
        kind, clock = "right", _constant(chance.gauss(0, 0.004))
        if number in wrong:
            kind, clock, held = _wrong_clock(chance, span, held)
        looks = _looks(chance, start, end, interval, held, moves if number % 4 else [])
        service = f"service-{number % len(_INTERVALS_S)}"
        fleet.sidecars.append(
            Sidecar(f"{service}-{number}", service, interval, clock, kind, looks, start, end, held)
        )
    return fleet


def hash_of(name: str) -> int:
    """A number of a name, the same in each process."""
    return sum(name.encode())


def _cluster(chance: random.Random, seed: int, hours: float) -> Fleet:
    span = hours * 3_600
    places = [Place(topic, n) for topic in TOPICS for n in range(PARTITIONS)]
    replicas = {place: tuple(chance.sample(range(1, BROKERS + 1), _REPLICAS)) for place in places}
    down = [
        (begin, begin + chance.lognormvariate(5.0, 0.8), chance.randint(1, BROKERS))
        for begin in _poisson(chance, _OUTAGES_AN_HOUR / 3_600, span)
    ]
    happens: dict[Place, list[tuple[float, str, int]]] = {place: [] for place in places}
    for begin, back, broker in down:
        preferred = back + chance.uniform(30, 400)
        for place in places:
            if broker in replicas[place]:
                happens[place] += [(begin + chance.uniform(0, 0.2), "down", broker)]
                happens[place] += [(back + chance.uniform(1, 20), "up", broker)]
                happens[place] += [(preferred + chance.uniform(0, 0.5), "preferred", broker)]
    for begin in _poisson(chance, _LAGS_AN_HOUR / 3_600, span):
        place = chance.choice(places)
        broker = chance.choice(replicas[place])
        happens[place] += [(begin, "down", -broker), (begin + chance.lognormvariate(4.5, 1.0), "up", -broker)]
    states = {place: _states(replicas[place], sorted(happens[place])) for place in places}
    return Fleet(seed, hours, states, replicas)


def _states(replicas: tuple[int, ...], happens: list[tuple[float, str, int]]) -> list[State]:
    """A replica that lags (below 0) leaves the ISR within an epoch, unless it leads; a dead one raises it."""
    gone: dict[int, int] = defaultdict(int)
    states = [State(-1.0, 1, replicas[0], replicas)]
    for at, what, which in happens:
        last, broker = states[-1], abs(which)
        if which < 0 and what == "down" and last.leader == broker:
            continue
        gone[broker] = max(0, gone[broker] + {"down": 1, "up": -1, "preferred": 0}[what])
        isr = tuple(b for b in replicas if not gone[b])
        leader = last.leader if last.leader in isr else next(iter(isr), None)
        if what == "preferred" and replicas[0] in isr:
            leader = replicas[0]
        epoch = last.epoch + (leader != last.leader)
        if (epoch, leader, isr) != last[1:]:
            states.append(State(at, epoch, leader, isr))
    return states


def _at(states: list[State], at: float) -> State:
    return next(state for state in reversed(states) if state.at <= at)


def _poisson(chance: random.Random, rate: float, span: float) -> Iterator[float]:
    at = chance.expovariate(rate)
    while at < span:
        yield at
        at += chance.expovariate(rate)


def _looks(
    chance: random.Random,
    start: float,
    end: float,
    interval: float,
    held: tuple[float, float],
    moves: list[float],
) -> list[tuple[float, float]]:
    urged = [move + chance.expovariate(1 / 4) for move in moves if chance.random() < 0.5]
    looks: list[tuple[float, float]] = []
    at = start + 0.05
    for urge in sorted([*urged, end]):
        while at < min(urge, end):
            looks.append((at, chance.uniform(0.002, 0.2)))
            at += interval * chance.uniform(0.9, 1.0)
        if start < urge < end and urge > looks[-1][0] + 0.1:
            looks.append((urge, chance.uniform(0.002, 0.2)))
            at = urge + interval * chance.uniform(0.9, 1.0)
    # A process that is held looks when it is let go.
    awake = [look for look in looks if not held[0] <= look[0] < held[1]]
    if len(awake) < len(looks) and held[1] < end:
        awake = sorted([*awake, (held[1] + 0.01, 0.01)])
    return awake


# -- clocks --------------------------------------------------------------------------------------------------


def _pause(chance: random.Random, span: float) -> tuple[float, float]:
    begin = chance.uniform(span * 0.2, span * 0.8)
    return begin, begin + chance.uniform(120, 1_500)


def _constant(offset_s: float) -> Callable[[float], float]:
    return lambda at: at + offset_s


def _offset(chance: random.Random) -> float:
    """Either way, as often of seconds as of an hour."""
    size = math.exp(chance.uniform(math.log(_LEAST_WRONG_S), math.log(_MOST_WRONG_S)))
    return chance.choice((-1, 1)) * size


def _wrong_clock(
    chance: random.Random, span: float, held: tuple[float, float]
) -> tuple[str, Callable[[float], float], tuple[float, float]]:
    kind = chance.choice(("constant", "constant", "step", "drift", PAUSED))
    offset = _offset(chance)
    if kind == "constant":
        return kind, _constant(offset), held
    if kind == "step":
        when, before = chance.uniform(span * 0.2, span * 0.8), chance.random() < 0.5
        return kind, lambda at: at + (offset if (at < when) == before else 0.0), held
    if kind == "drift":
        rate = chance.choice((-1, 1)) * math.exp(chance.uniform(math.log(2e-4), math.log(2e-2)))
        return kind, lambda at: at + rate * at, held
    begin, end = _pause(chance, span)
    # The machine's clock lost the pause, until NTP steps it.
    right_again = end + chance.uniform(60, 1_800)
    return PAUSED, lambda at: at - (end - begin if end <= at < right_again else 0.0), (begin, end)
