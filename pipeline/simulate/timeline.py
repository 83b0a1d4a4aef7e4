"""A cluster's history as values: what `cluster.py` makes, and the sidecars look at.

A *life* is a topic from its creation to its end: one that is created again is another life of that name, with
another id and epochs from 0. A *slot* is a partition of a life; slots of a life follow each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1


class State(NamedTuple):
    """A partition at a moment."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class PartitionChange(NamedTuple):
    """From then on a slot is so."""

    at_us: int
    slot: int
    state: State
    cause: str


class TopicChange(NamedTuple):
    """A life began, ended (partitions None) or has more partitions."""

    at_us: int
    life: int
    partitions: int | None


class Life(NamedTuple):
    """A topic from its creation to its end. Its slots are first_slot + partition."""

    name: str
    topic_id: str
    first_slot: int
    most_partitions: int


class Failure(NamedTuple):
    """A broker was away."""

    broker: int
    down_us: int
    back_us: int


class Slot(NamedTuple):
    """A partition of a life, and where its copies are."""

    life: int
    partition: int
    replicas: tuple[int, ...]


class Timeline(NamedTuple):
    """All that happened, each list in the order of time."""

    cluster_id: str
    slow_broker: int
    lives: list[Life]
    slots: list[Slot]
    partition_changes: list[PartitionChange]
    topic_changes: list[TopicChange]
    failures: list[Failure]
