"""Generates what a sidecar sees of the cluster in one boot: its refreshes and the changes in each.

A refresh shows the current state of the cluster: several changes in between are reported as one, and epochs
in between are never seen. A sidecar that produces also refreshes outside its interval, after a lost
connection or a leader error, as the real one does.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import event_v1
from tests.pipeline.simulate import lines
from tests.pipeline.simulate.plan import SECOND_US

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.pipeline.simulate.fleet import Boot, Member
    from tests.pipeline.simulate.timeline import Life, PartitionChange, State, Timeline, TopicChange

HEARTBEAT_US: Final = 60 * SECOND_US
_FIRST_REFRESH_US: Final = 60_000
_RETRY_US: Final = SECOND_US
#: The longest time of a refresh, with its second try.
_LONGEST_US: Final = 3 * SECOND_US
#: The share of refreshes that end without an answer.
_FAILING: Final = 0.003
#: The share of leader moves of followed topics that a sidecar notices while it produces.
_MET: Final = 0.7
#: The mean time until it notices one.
_MEETS_AFTER_US: Final = 2 * SECOND_US


class Item(NamedTuple):
    """An event at a time. Then `slots` have this `leader`, or no longer exist if it is None."""

    at_us: int
    kind: str
    tail: str
    slots: range
    leader: int | None


_NOTHING: Final = range(0)


class Views:
    """The timeline restricted to certain topics; shared by all sidecars of a service."""

    def __init__(self, timeline: Timeline, topics: frozenset[str]) -> None:
        is_followed = [life.name in topics for life in timeline.lives]
        slots = timeline.slots
        self.timeline: Final = timeline
        self.partitions: Final[list[PartitionChange]] = [
            change for change in timeline.partition_changes if is_followed[slots[change.slot].life]
        ]
        self.topics: Final[list[TopicChange]] = [c for c in timeline.topic_changes if is_followed[c.life]]
        self._partition_times: Final = [change.at_us for change in self.partitions]
        self._topic_times: Final = [change.at_us for change in self.topics]
        self.moves_us: Final = self._moves()

    def until(self, at_us: int) -> tuple[int, int]:
        """Returns the numbers of partition changes and topic changes up to and including this time."""
        return bisect_right(self._partition_times, at_us), bisect_right(self._topic_times, at_us)

    def _moves(self) -> list[int]:
        """Returns the times at which leaders moved."""
        epochs: dict[int, int] = {}
        moved: dict[int, None] = {}
        for change in self.partitions:
            if epochs.get(change.slot, change.state.epoch) != change.state.epoch:
                moved[change.at_us] = None
            epochs[change.slot] = change.state.epoch
        return list(moved)


def sightings(source: random.Random, views: Views, member: Member, boot: Boot) -> list[Item]:
    """Returns all events of the boot but its produce windows, in order of time."""
    reported = [*_Looking(source, views, member).refreshed(_refreshes(source, views, member, boot))]
    reported += _connections(source, views.timeline, member, boot)
    reported += _heartbeats(reported, boot)
    reported.sort(key=lambda item: item.at_us)
    if member.delayed is not None:
        from_us, to_us = member.delayed
        reported = [item for item in reported if not from_us <= item.at_us < to_us]
    return reported


def _refreshes(source: random.Random, views: Views, member: Member, boot: Boot) -> Iterator[tuple[int, str]]:
    """Yields the times and reasons of the boot's refreshes."""
    wanted: list[tuple[int, str]] = []
    if not member.is_idle:
        wanted += [
            (at_us + round(source.expovariate(1 / _MEETS_AFTER_US)), "leader_error")
            for at_us in views.moves_us
            if at_us > boot.started_us and source.random() < _MET
        ]
        wanted += [
            (failure.down_us + round(source.uniform(0, 1.5) * SECOND_US), "disconnect")
            for failure in views.timeline.failures
            if failure.down_us > boot.started_us
        ]
    wanted.sort()
    wanted.append((boot.ended_us, "end"))
    due = iter(wanted)
    met_us, met = next(due)
    at_us, reason = boot.started_us + _FIRST_REFRESH_US, "initial"
    held_from_us, held_to_us = member.delayed or (boot.ended_us, boot.ended_us)
    while at_us < boot.ended_us - _LONGEST_US:
        if held_from_us - _LONGEST_US <= at_us < held_to_us:
            at_us = held_to_us + _FIRST_REFRESH_US
        yield at_us, reason
        while met_us <= at_us + _FIRST_REFRESH_US and met != "end":
            met_us, met = next(due)
        at_us, reason = min((at_us + member.interval_us, "expired"), (met_us, met))


class _Looking:
    """Tracks what a sidecar has reported, which determines what it reports next."""

    def __init__(self, source: random.Random, views: Views, member: Member) -> None:
        self._random: Final = source
        self._views: Final = views
        self._brokers: Final = sorted({b for slot in views.timeline.slots[:64] for b in slot.replicas})
        self._member: Final = member
        self._reported: Final[dict[int, State]] = {}
        self._lives: Final[dict[int, int]] = {}
        self._version = 0
        self._seen_partitions = self._seen_topics = 0

    def refreshed(self, refreshes: Iterator[tuple[int, str]]) -> Iterator[Item]:
        for at_us, reason in refreshes:
            duration_us = min(round(self._random.lognormvariate(0, 0.5) * 9_000), _RETRY_US)
            broker = self._random.choice(self._brokers)
            ended_us = at_us + duration_us
            if reason != "initial" and self._random.random() < _FAILING:
                outcome = self._random.choice(("error", "timeout", "no_node"))
                tail = lines.refresh_tail(
                    duration_us,
                    None if outcome == "no_node" else broker,
                    (len(self._lives), len(self._reported), 0),
                    reason,
                    outcome,
                    self._version,
                )
                yield Item(ended_us, event_v1.REFRESH, tail, _NOTHING, None)
                ended_us += _RETRY_US
            yield from self._look(ended_us, duration_us, broker, reason)

    def _look(self, at_us: int, duration_us: int, broker: int, reason: str) -> list[Item]:
        """Returns the events of a refresh: the differences of the snapshot from what was reported."""
        views = self._views
        partitions, topics = views.until(at_us - duration_us // 2)
        topic_changes = views.topics[self._seen_topics : topics]
        latest: dict[int, State] = {}
        for change in views.partitions[self._seen_partitions : partitions]:
            latest[change.slot] = change.state
        # A refresh with a second try may end after the next one began.
        self._seen_partitions = max(partitions, self._seen_partitions)
        self._seen_topics = max(topics, self._seen_topics)
        self._version += bool(latest or topic_changes)
        reported = self._topics(at_us, topic_changes, latest)
        changed = 0
        for slot, state in latest.items():
            if self._reported.get(slot) != state:
                self._reported[slot] = state
                changed += 1
                reported.append(self._partition(at_us, slot, state, broker, reason))
        counts = (len(self._lives), len(self._reported), changed)
        tail = lines.refresh_tail(duration_us, broker, counts, reason, "ok", self._version)
        return [Item(at_us, event_v1.REFRESH, tail, _NOTHING, None), *reported]

    def _partition(self, at_us: int, slot: int, state: State, broker: int, reason: str) -> Item:
        place = self._views.timeline.slots[slot]
        life = self._views.timeline.lives[place.life]
        tail = lines.partition_tail(life, place, state, self._version, broker, reason)
        return Item(at_us, event_v1.PARTITION, tail, range(slot, slot + 1), state.leader)

    def _topics(self, at_us: int, changes: list[TopicChange], latest: dict[int, State]) -> list[Item]:
        """Returns the changes of topics; removes slots of ended lives from `latest`."""
        lives = self._views.timeline.lives
        after = dict(self._lives)
        for change in changes:
            if change.partitions is None:
                after.pop(change.life, None)
                for slot in _slots_of(lives[change.life]):
                    latest.pop(slot, None)
            else:
                after[change.life] = change.partitions
        names_after = {lives[life].name for life in after}
        reported = []
        for life, count in self._lives.items():
            if life not in after:
                for slot in _slots_of(lives[life]):
                    self._reported.pop(slot, None)
                word = "recreated" if lives[life].name in names_after else "gone"
                tail = lines.topic_tail(word, lives[life], None, self._version)
                reported.append(Item(at_us, event_v1.TOPIC, tail, _slots_of(lives[life]), None))
            elif after[life] != count:
                tail = lines.topic_tail("grew", lives[life], after[life], self._version)
                reported.append(Item(at_us, event_v1.TOPIC, tail, _NOTHING, None))
        names_before = {lives[life].name for life in self._lives}
        for life, count in after.items():
            if life not in self._lives and lives[life].name not in names_before:
                tail = lines.topic_tail("appeared", lives[life], count, self._version)
                reported.append(Item(at_us, event_v1.TOPIC, tail, _NOTHING, None))
        self._lives.clear()
        self._lives.update(after)
        return reported


def _slots_of(life: Life) -> range:
    return range(life.first_slot, life.first_slot + life.most_partitions)


def _connections(source: random.Random, timeline: Timeline, member: Member, boot: Boot) -> list[Item]:
    def said(at_us: int, broker: int, state: str, reason: str | None) -> Item:
        tail = lines.connection_tail(broker, state, reason)
        return Item(at_us, event_v1.CONNECTION, tail, _NOTHING, None)

    reported = [said(boot.started_us + 20_000, timeline.slow_broker, "ready", None)]
    for failure in timeline.failures:
        lost_us = failure.down_us + round(source.uniform(0, SECOND_US))
        found_us = failure.back_us + round(source.uniform(0.1, 10) * SECOND_US)
        if not member.is_idle and boot.started_us + SECOND_US < lost_us and found_us < boot.ended_us:
            reported.append(said(lost_us, failure.broker, "disconnected", "remote_close"))
            reported.append(said(found_us, failure.broker, "ready", None))
    return reported


def _heartbeats(reported: list[Item], boot: Boot) -> Iterator[Item]:
    """Yields a heartbeat per minute, first and last; `sidecar.py` fills in the counts."""
    last = [boot.ended_us] if boot.end == "goodbye" else []
    for at_us in [*range(boot.started_us, boot.ended_us, HEARTBEAT_US), *last]:
        yield Item(at_us, event_v1.HEARTBEAT, "", _NOTHING, None)
