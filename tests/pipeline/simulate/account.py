"""The simulator's own account of its incidents, from the history of the cluster and not from any event.

    broker_down        outages of a broker; it is over when the broker is in sync wherever it was
    replicas_behind    a partition lacks followers in sync whose brokers are up
    leader_flapping    a partition's leader was moved by hand, three times or more
    produces_failing   brokers refused the records of a topic

Of one subject, what is less than APART_US apart is one incident. Times are true ones, in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.pipeline.simulate.cluster import APART_US
from tests.pipeline.simulate.timeline import BEHIND, BY_HAND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.pipeline.simulate.timeline import Timeline

_LEAST_MOVES: Final = 3

Span = tuple[int, int]


class Incident(NamedTuple):
    """An incident. `broker` and `partition` are -1 and `topic` is "" where it is not about one.

    `spans` are its parts: outages, shortages, refusals, or the moves as spans without length.
    """

    kind: str
    broker: int
    topic: str
    topic_id: str
    partition: int
    spans: tuple[Span, ...]

    @property
    def began_us(self) -> int:
        return self.spans[0][0]

    @property
    def ended_us(self) -> int:
        return max(to_us for _, to_us in self.spans)

    @property
    def lasted_us(self) -> int:
        """Returns the length of its parts together."""
        return sum(to_us - from_us for from_us, to_us in self.spans)


def incidents_of(timeline: Timeline, end_us: int) -> list[Incident]:
    """Returns all incidents up to the end of the run, in order of time."""
    found = [
        *_down(timeline, end_us),
        *_behind(timeline, end_us),
        *_flapping(timeline),
        *_refused(timeline, end_us),
    ]
    return sorted(found, key=lambda incident: (incident.began_us, incident))


def _apart(spans: Iterable[Span]) -> Iterator[tuple[Span, ...]]:
    """Yields groups of spans that are less than APART_US from each other."""
    group: list[Span] = []
    for span in sorted(spans):
        if group and span[0] - max(to_us for _, to_us in group) >= APART_US:
            yield tuple(group)
            group = []
        group.append(span)
    if group:
        yield tuple(group)


def absences_of(timeline: Timeline, end_us: int) -> Iterator[tuple[int, int, str, Span]]:
    """Yields slot, broker, cause and span of each time in which a replica was not in sync."""
    ends = {change.life: change.at_us for change in timeline.topic_changes if change.partitions is None}
    since: dict[tuple[int, int], tuple[int, str]] = {}
    for change in timeline.partition_changes:
        for broker in timeline.slots[change.slot].replicas:
            key = (change.slot, broker)
            if broker not in change.state.isr:
                since.setdefault(key, (change.at_us, change.cause))
            elif key in since:
                from_us, cause = since.pop(key)
                yield *key, cause, (from_us, change.at_us)
    for key, (from_us, cause) in since.items():
        yield *key, cause, (from_us, min(ends.get(timeline.slots[key[0]].life, end_us), end_us))


def _down(timeline: Timeline, end_us: int) -> Iterator[Incident]:
    by_broker: dict[int, list[Span]] = defaultdict(list)
    for failure in timeline.failures:
        by_broker[failure.broker].append((failure.down_us, min(failure.back_us, end_us)))
    absent: dict[int, list[Span]] = defaultdict(list)
    for _, broker, cause, span in absences_of(timeline, end_us):
        if cause == f"broker {broker} failed":
            absent[broker].append(span)
    for broker, outages in by_broker.items():
        whole = []
        for from_us, to_us in outages:
            caught_up = [end for begin, end in absent[broker] if from_us <= begin <= to_us]
            whole.append((from_us, max([to_us, *caught_up])))
        for group in _apart(whole):
            yield Incident("broker_down", broker, "", "", -1, group)


def _behind(timeline: Timeline, end_us: int) -> Iterator[Incident]:
    by_slot: dict[int, list[Span]] = defaultdict(list)
    for slot, broker, cause, span in absences_of(timeline, end_us):
        if cause == f"broker {broker} {BEHIND}":
            by_slot[slot].append(span)
    for slot, spans in by_slot.items():
        for group in _apart(spans):
            yield Incident("replicas_behind", -1, *_partition(timeline, slot), group)


def _flapping(timeline: Timeline) -> Iterator[Incident]:
    by_slot: dict[int, list[Span]] = defaultdict(list)
    for change in timeline.partition_changes:
        if change.cause == BY_HAND:
            by_slot[change.slot].append((change.at_us, change.at_us))
    for slot, moves in by_slot.items():
        for group in _apart(moves):
            if len(group) >= _LEAST_MOVES:
                yield Incident("leader_flapping", -1, *_partition(timeline, slot), group)


def _refused(timeline: Timeline, end_us: int) -> Iterator[Incident]:
    ends = {change.life: change.at_us for change in timeline.topic_changes if change.partitions is None}
    by_life: dict[int, list[Span]] = defaultdict(list)
    for refusal in timeline.refusals:
        to_us = min(refusal.to_us, ends.get(refusal.life, end_us))
        if to_us > refusal.from_us:
            by_life[refusal.life].append((refusal.from_us, to_us))
    for number, spans in by_life.items():
        life = timeline.lives[number]
        for group in _apart(spans):
            yield Incident("produces_failing", -1, life.name, life.topic_id, -1, group)


def _partition(timeline: Timeline, number: int) -> tuple[str, str, int]:
    slot = timeline.slots[number]
    life = timeline.lives[slot.life]
    return life.name, life.topic_id, slot.partition
