"""The producer's calls that the sidecar uses.

Two implementations: `client_core.KafkaProducer` and `tests/support/fake_producer.py`. Any thread may call any
method, and none blocks except `close`. Deadlines are absolute, by the producer's own clock. A done-callback
gets a MetadataResult, ListingResult, TopicConfigsResult or ProduceResult, depending on the call that made its
ticket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from client_core import (
    Backlog,
    ClientStatus,
    Clock,
    CloseReport,
    Done,
    LoopWork,
    MetadataCache,
    ProducerRecord,
    Ticket,
)


class Producer(Protocol):
    """The part of KafkaProducer that the sidecar uses."""

    @property
    def clock(self) -> Clock: ...
    @property
    def cache(self) -> MetadataCache: ...
    def start(self) -> None: ...
    def close(self, timeout_ms: int) -> CloseReport: ...
    def wakeup(self) -> None: ...
    def status(self) -> ClientStatus: ...
    def loop_work(self) -> LoopWork: ...
    def backlog(self) -> Backlog: ...
    def configure_topics(self, names: Iterable[str]) -> None: ...
    def lower_metadata_max_age(self, max_age_ms: int) -> None: ...
    def request_topics(
        self,
        names: Iterable[str],
        *,
        deadline_ms: int,
        create: bool = False,
        settle: bool = True,
        done: Done,
    ) -> Ticket: ...
    def request_update(
        self,
        *,
        min_version: int | None = None,
        max_age_ms: int | None = None,
        deadline_ms: int,
        done: Done,
    ) -> Ticket: ...
    def refresh_topics(self, names: Iterable[str], *, deadline_ms: int, done: Done) -> Ticket: ...
    def list_topics(self, *, deadline_ms: int, done: Done) -> Ticket: ...
    def describe_topic_configs(self, topic: str, *, deadline_ms: int, done: Done) -> Ticket: ...
    def list_offsets(self, topic: str, partition: int, *, deadline_ms: int, done: Done) -> Ticket: ...
    def check(self, topic: str, records: Sequence[ProducerRecord]) -> None: ...
    def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        *,
        block_deadline_ms: int,
        deadline_ms: int,
        done: Done,
        create: bool = True,
        missing_deadline_ms: int | None = None,
        settled: Done | None = None,
        since_ms: int | None = None,
        checked: bool = False,
        in_chunks: bool = False,
    ) -> Ticket: ...
