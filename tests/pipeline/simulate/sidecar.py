"""Generates all events of one sidecar, in order and numbered: sightings, with produce windows in between.

The number of events is exactly the member's. The sightings (sightings.py) are counted first. Windows fill the
rest, evenly over the time in which the sidecar is awake.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import event_v1
from tests.pipeline.simulate import lines
from tests.pipeline.simulate.lines import LEADERLESS, QUICK, REFUSALS, REFUSED, SLOW, TROUBLED
from tests.pipeline.simulate.plan import SECOND_US, WINDOW_US, Plan, PlanError
from tests.pipeline.simulate.sightings import Item, Views, sightings
from tests.pipeline.simulate.timeline import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.pipeline.simulate.fleet import Boot, Member
    from tests.pipeline.simulate.timeline import Timeline

#: How long produces to a partition are in trouble after its leader moved.
_TROUBLE_US: Final = 30 * SECOND_US
#: A queue overflows once in this many ticks (in one of ten sidecars more often), and loses up to 39.
_OVERFLOW_TICKS: Final = 2_000
_LOSSY_TICKS: Final = 120
_MOST_LOST: Final = 40


class Said(NamedTuple):
    """The lines of some seconds, without line ends. `at_us` is the true time of the last one."""

    at_us: int
    boot: Boot
    lines: list[str]


class BootTruth(NamedTuple):
    """The counts of a boot's events."""

    boot_id: int
    events: int
    last_seq: int
    dropped: int
    on_hot_partition: int


class Scene(NamedTuple):
    """What all sidecars of a fleet have in common. Each process derives its own from the plan."""

    plan: Plan
    timeline: Timeline
    stock: dict[tuple[int, int], list[str]]
    views: dict[frozenset[str], Views]

    def views_of(self, member: Member) -> Views:
        """Returns the view of all sidecars that follow the member's topics."""
        if member.topics not in self.views:
            self.views[member.topics] = Views(self.timeline, member.topics)
        return self.views[member.topics]


class Sidecar:
    """Generates the events of one member. `boots` has their counts at the end."""

    def __init__(self, scene: Scene, member: Member) -> None:
        self._scene: Final = scene
        self._member: Final = member
        self._random: Final = random.Random(f"{scene.plan.seed} sidecar {member.number}")
        self.boots: Final[list[BootTruth]] = []

    def speak(self) -> Iterator[Said]:
        """Yields the sidecar's lines. Raises PlanError if the plan's number of events cannot be met."""
        member = self._member
        views = self._scene.views_of(member)
        heard = [sightings(self._random, views, member, boot) for boot in member.boots]
        ticks = [_ticks(member, boot) for boot in member.boots]
        windows = member.events - sum(map(len, heard))
        if windows < 0:
            raise PlanError(
                f"Sidecar {member.sidecar_id} has {sum(map(len, heard)):,} events besides its produce"
                f" windows, but its share is only {member.events:,} events: ask for more events; for fewer"
                " sidecars, topics or partitions; or for a shorter time or less churn."
            )
        ticks_so_far, total = 0, sum(map(len, ticks))
        if windows and not total:
            raise PlanError(
                f"Sidecar {member.sidecar_id} does not run long enough for a window of 10 s:"
                " ask for more hours."
            )
        for boot, items, times in zip(member.boots, heard, ticks, strict=True):
            before = windows * ticks_so_far // max(total, 1)
            ticks_so_far += len(times)
            share = windows * ticks_so_far // max(total, 1) - before
            yield from _Speaking(self._scene, member, boot, self._random).speak(
                items, times, share, self.boots
            )


def _ticks(member: Member, boot: Boot) -> range | list[int]:
    """Returns the ends of the boot's windows."""
    ticks = range(boot.started_us + WINDOW_US, boot.ended_us, WINDOW_US)
    if member.delayed is None:
        return ticks
    from_us, to_us = member.delayed
    return [at_us for at_us in ticks if not from_us <= at_us < to_us + WINDOW_US]


class _Speaking:
    """Generates the events of one boot."""

    def __init__(self, scene: Scene, member: Member, boot: Boot, source: random.Random) -> None:
        timeline = scene.timeline
        self._scene: Final = scene
        self._member: Final = member
        self._boot: Final = boot
        self._random: Final = source
        # The cluster is unknown until the first answer.
        self._heads = lines.heads(None, member.sidecar_id, member.service, boot.boot_id)
        self._known_heads: Final = lines.heads(
            timeline.cluster_id, member.sidecar_id, member.service, boot.boot_id
        )
        self._clock: Final = lines.Clock()
        self._window_clock: Final = lines.Clock()
        self._seq = 0
        self._dropped = 0
        self._hot = 0
        self._leaders: Final[dict[int, int]] = {}
        self._moved_us: Final[dict[int, int]] = {}
        # Each sidecar has its own order of partitions, so that they do not all produce to the same ones.
        self._order: Final = list(range(len(timeline.slots)))
        random.Random(f"{scene.plan.seed} order {member.number}").shuffle(self._order)
        self._active: list[int] = []
        self._is_active_stale = True
        self._places: Final[dict[int, str]] = {}

    def speak(
        self, items: list[Item], ticks: range | list[int], windows: int, reported: list[BootTruth]
    ) -> Iterator[Said]:
        """Yields the boot's lines in order of time; appends its counts to `reported` at the end."""
        due = iter([*items, None])
        item = next(due)
        hot_due = 0.0
        skew = self._scene.plan.skew
        for number, tick_us in enumerate(ticks):
            said: list[str] = []
            while item is not None and item.at_us <= tick_us:
                said.append(self._say(item))
                item = next(due)
            count = windows * (number + 1) // len(ticks) - windows * number // len(ticks)
            hot_due = min(hot_due + skew * (count + len(said)), 2.0)
            is_hot = hot_due >= 1 and count > 0
            hot_due -= is_hot
            self._lose(number)
            said += self._windows(tick_us, count, is_hot=is_hot)
            yield Said(tick_us, self._boot, said)
        rest = []
        while item is not None:
            rest.append(self._say(item))
            item = next(due)
        yield Said(self._boot.ended_us, self._boot, rest)
        events = len(items) + windows
        reported.append(BootTruth(self._boot.boot_id, events, self._seq, self._dropped, self._hot))

    def _say(self, item: Item) -> str:
        member = self._member
        self._seq += 1
        tail = item.tail
        if item.kind == event_v1.HEARTBEAT:
            uptime_ms = (item.at_us - self._boot.started_us) // 1_000
            topics = len({self._scene.timeline.slots[slot].life for slot in self._leaders})
            interval_ms = member.interval_us // 1_000
            tail = lines.heartbeat_tail(uptime_ms, self._dropped, topics, len(self._leaders), interval_ms)
        elif item.kind == event_v1.REFRESH:
            self._heads = self._known_heads
        self._learn(item)
        at = self._clock.at(item.at_us + member.clock_offset_us)
        return f'{self._heads[item.kind]}{self._seq},"observed_at":"{at}"{tail}'

    def _learn(self, item: Item) -> None:
        for slot in item.slots:
            before = self._leaders.get(slot)
            if item.leader is None:
                self._leaders.pop(slot, None)
            else:
                self._leaders[slot] = item.leader
            if (before is None) != (item.leader is None):
                self._is_active_stale = True
            elif before != item.leader:
                self._moved_us[slot] = item.at_us
            self._hot += slot == 0 and item.leader is not None

    def _lose(self, tick: int) -> None:
        """Simulates a queue overflow now and then: numbers are used up by events that are lost."""
        often = _LOSSY_TICKS if self._member.number % 10 == 3 else _OVERFLOW_TICKS
        if self._random.random() * often < 1 and tick > 0:
            lost = self._random.randrange(1, _MOST_LOST)
            self._seq += lost
            self._dropped += lost

    def _windows(self, tick_us: int, count: int, *, is_hot: bool) -> list[str]:
        if count == 0:
            return []
        active = self._partitions_to_choose_from(count)
        head = self._heads[event_v1.WINDOW]
        at = self._clock.at(tick_us + self._member.clock_offset_us)
        started = self._window_clock.at(tick_us - WINDOW_US + self._member.clock_offset_us)
        times = f',"observed_at":"{at}","started_at":"{started}"'
        start = int(self._random.random() * len(active))
        chosen = [*active, *active][start : start + count - is_hot] if count < len(active) else active
        if is_hot:
            chosen = [0, *chosen[: count - 1]]
            self._hot += 1
        said = []
        seq = self._seq
        drawn = self._random.random
        stock = self._scene.stock
        for slot in chosen:
            seq += 1
            leader = self._leaders[slot]
            bodies = stock[self._kind(slot, leader, tick_us), slot % 3 if slot else 2]
            place = self._places.get(slot) or self._place(slot)
            said.append(
                f"{head}{seq}{times}{place}{leader if leader >= 0 else 'null'}"
                f",{bodies[int(drawn() * len(bodies))]}"
            )
        self._seq = seq
        return said

    def _partitions_to_choose_from(self, count: int) -> list[int]:
        """Returns the partitions that the sidecar follows.

        If the plan has skew, the busiest one is left out, because it has its own share. Raises PlanError if
        there are fewer than `count`.
        """
        if self._is_active_stale:
            skewed = self._scene.plan.skew > 0
            self._active = [s for s in self._order if s in self._leaders and not (skewed and s == 0)]
            self._is_active_stale = False
        if len(self._active) < count:
            raise PlanError(
                f"Sidecar {self._member.sidecar_id} would have to report {count:,} windows in 10 s, and"
                f" follows {len(self._active):,} partitions; ask for more sidecars, hours or"
                " partitions, or for fewer events."
            )
        return self._active

    def _kind(self, slot: int, leader: int, tick_us: int) -> int:
        if leader == NO_LEADER:
            return LEADERLESS
        timeline = self._scene.timeline
        for refusal in timeline.refusals:
            if refusal.from_us < tick_us <= refusal.to_us and refusal.life == timeline.slots[slot].life:
                return REFUSED + REFUSALS.index(refusal.error)
        if tick_us - self._moved_us.get(slot, 0) < _TROUBLE_US:
            return TROUBLED
        return SLOW if leader == timeline.slow_broker else QUICK

    def _place(self, slot: int) -> str:
        place = self._scene.timeline.slots[slot]
        name = self._scene.timeline.lives[place.life].name
        text = f',"topic":"{name}","partition":{place.partition},"broker":'
        self._places[slot] = text
        return text
