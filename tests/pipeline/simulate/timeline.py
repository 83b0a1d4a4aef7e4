"""A cluster's history as values: made by `cluster.py`, read by the sidecars.

A *life* is a topic from its creation to its end: a topic that is created again is another life with that
name, another id and epochs from 0. A *slot* is a partition of a life; the slots of a life are consecutive.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1
#: The causes of changes that are incidents by themselves; the first one is behind the name of a broker.
BEHIND: Final = "fell behind"
BY_HAND: Final = "leader moved by hand"


class State(NamedTuple):
    """The state of a partition at one time."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class PartitionChange(NamedTuple):
    """A slot has this state from this time on."""

    at_us: int
    slot: int
    state: State
    cause: str


class TopicChange(NamedTuple):
    """A life began, ended (partitions None) or got more partitions."""

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
    """The time in which a broker was away."""

    broker: int
    down_us: int
    back_us: int


class Refusal(NamedTuple):
    """The time in which brokers refused all records for a topic with this error."""

    life: int
    error: str
    from_us: int
    to_us: int


class Slot(NamedTuple):
    """A partition of a life, and the brokers of its replicas."""

    life: int
    partition: int
    replicas: tuple[int, ...]


class Timeline(NamedTuple):
    """The whole history; each list is in order of time."""

    cluster_id: str
    slow_broker: int
    lives: list[Life]
    slots: list[Slot]
    partition_changes: list[PartitionChange]
    topic_changes: list[TopicChange]
    failures: list[Failure]
    refusals: list[Refusal]
