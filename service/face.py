"""What the sidecar asks of client_core: the producer, its snapshot and its topics, as far as they are used here.

Two implementations: `client_core.KafkaProducer` with its MetadataCache, and `tests/support/fake_producer.py`. Every call
may come from any thread and none blocks, but for `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from client_core import (
    Clock,
    ClientStatus,
    CloseReport,
    Done,
    KafkaError,
    Node,
    PartitionInfo,
    ProducerRecord,
    Ticket,
)


class Use(Protocol):
    """The mark that somebody asked for a topic: a plain store renews its idle expiry."""

    touched: bool


class Topic(Protocol):
    """One topic of a snapshot. The same object from snapshot to snapshot for as long as nothing of it changes."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def numbers(self) -> Sequence[int]:
        """The partitions there are, ascending."""
        ...

    @property
    def use(self) -> Use: ...
    def leader_id(self, partition: int) -> int | None: ...
    def partition(self, partition: int, nodes: Mapping[int, Node]) -> PartitionInfo | None: ...


class Snapshot(Protocol):
    """What is known of the cluster at one moment. Immutable."""

    @property
    def update_version(self) -> int: ...
    @property
    def cluster_id(self) -> str | None: ...
    @property
    def is_bootstrap(self) -> bool: ...
    @property
    def nodes_by_id(self) -> Mapping[int, Node]: ...
    @property
    def topics(self) -> Mapping[str, Topic]: ...
    @property
    def last_successful_refresh_ms(self) -> int | None: ...
    def refreshed_ms(self, topic: str) -> int | None: ...
    def refreshed_wall_ms(self, topic: str) -> int | None: ...


class ListedTopic(Protocol):
    """A topic in the list of all topics."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def partition_count(self) -> int: ...


class AllTopics(Protocol):
    """Every topic of the cluster that we may see, at one moment."""

    @property
    def topics(self) -> Sequence[ListedTopic]: ...


class TopicsAnswer(Protocol):
    """What `request_topics` and `request_update` end with."""

    @property
    def cache(self) -> Snapshot: ...
    @property
    def topic_errors(self) -> Mapping[str, KafkaError]: ...
    @property
    def error(self) -> KafkaError | None: ...
    @property
    def waited_ms(self) -> int: ...


class ListAnswer(Protocol):
    """What `list_topics` ends with."""

    @property
    def listing(self) -> AllTopics | None: ...
    @property
    def error(self) -> KafkaError | None: ...
    @property
    def waited_ms(self) -> int: ...


class Producer(Protocol):
    """KafkaProducer. Deadlines are absolute, by the producer's own clock."""

    @property
    def clock(self) -> Clock: ...
    @property
    def cache(self) -> Snapshot: ...
    def start(self) -> None: ...
    def close(self, timeout_ms: int) -> CloseReport: ...
    def wakeup(self) -> None: ...
    def status(self) -> ClientStatus: ...
    def configure_topics(self, names: Iterable[str]) -> None: ...
    def request_topics(
        self, names: Iterable[str], *, deadline_ms: int, create: bool, settle: bool, done: Done
    ) -> Ticket: ...
    def request_update(
        self, *, min_version: int | None, max_age_ms: int | None, deadline_ms: int, done: Done
    ) -> Ticket: ...
    def list_topics(self, *, deadline_ms: int, done: Done) -> Ticket: ...
    def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        *,
        block_deadline_ms: int,
        deadline_ms: int,
        done: Done,
    ) -> Ticket: ...
