"""A producer without brokers: the producer protocol of the sidecar, controlled by the test.

`set_topics` swaps the snapshot as a refresh would, with real tables in a real MetadataCache. Requests that
the snapshot can't answer wait in `waiting` until the test ends them (`finish`, `say_unknown`), or are
answered at once from `on_brokers`. Records are acknowledged at once unless `outcome_of` says otherwise or
`holds_records` is set. Callers come on one thread; results go through the given sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from client_core.errors import (
    IllegalStateError,
    KafkaError,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from client_core.events import NO_EVENTS, EventSink, MetadataRefreshed
from client_core.metadata.metadata_cache import ClusterAnswer, MetadataCache, RefreshTime
from client_core.metadata.metadata_changes import changes_between
from client_core.metadata.metadata_response import ListedTopic
from client_core.metadata.topic_answers import TopicAnswers
from client_core.metadata.topic_configs import TopicConfig
from client_core.metadata.topic_listing import TopicListing
from client_core.metadata.topic_table import TopicTable
from client_core.producer.accumulator.backlog import Backlog
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.results import (
    ListingResult,
    MetadataResult,
    OffsetsResult,
    TopicConfigsResult,
)
from client_core.producer.results.status import BufferStatus, ClientStatus, CloseReport, MetadataStatus
from client_core.producer.results.ticket import CallInline, CompletionSink, Done, RecordFailure, Result
from client_core.producer.sender.io_thread import LoopWork, TurnTimes
from tests.support.metadata_responses import node, read
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from client_core.cluster import Node
    from client_core.errors import Cause

Outcome = RecordMetadata | RecordFailure


@dataclass(frozen=True, slots=True)
class FakeResult:
    """Any result at all."""

    outcomes: Sequence[Outcome] = ()
    error: KafkaError | None = None

    @property
    def any_acknowledged(self) -> bool:
        return any(isinstance(outcome, RecordMetadata) for outcome in self.outcomes)


@dataclass(eq=False)
class FakeTicket:
    """A request that waits. `asked` are the arguments of its call."""

    kind: str
    asked: dict[str, Any]
    done: Done
    producer: FakeProducer
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.kind == "records" and self in self.producer.waiting:
            self.producer.undelivered.append(self)
        self.producer.leave(self)

    def __repr__(self) -> str:
        return f"<FakeTicket {self.kind} {self.asked}>"


@dataclass
class FakeProducer:
    """Satisfies service.base.producer_protocol.Producer."""

    clock: MockClock = field(default_factory=lambda: MockClock(now_ms=1_000_000))
    sink: CompletionSink = field(default_factory=CallInline)
    cache: MetadataCache = field(
        default_factory=lambda: MetadataCache.bootstrap([("bootstrap-1", 9092), ("bootstrap-2", 9092)])
    )
    #: Topics that brokers know of and that a look-up or a listing will find: name to partition count.
    on_brokers: dict[str, int] = field(default_factory=dict)
    #: The configs of topics, answered at once; other topics have none. None: a request waits for the test.
    configs: dict[str, dict[str, str | None]] | None = field(default_factory=dict)
    #: The offsets of partitions, answered at once; others have none yet. None: a request waits for the test.
    offsets: dict[tuple[str, int], tuple[int, int]] | None = field(default_factory=dict)
    #: Where events go; an app's own, where it is to hear of refreshes.
    events: EventSink = NO_EVENTS
    waits: Backlog = field(default_factory=Backlog)
    outcome_of: Callable[[int, ProducerRecord], Outcome] | None = None
    holds_records: bool = False
    #: Produce requests whose caller left, and whose records are still to be delivered.
    undelivered: list[FakeTicket] = field(default_factory=list)
    #: What `submit` raises, as for a record that is too large.
    refuses: Exception | None = None
    #: The values of records that are refused as too large.
    too_large: frozenset[bytes] = frozenset()
    waiting: list[FakeTicket] = field(default_factory=list)
    submitted: list[list[ProducerRecord]] = field(default_factory=list)
    #: Refreshes for the age of answers: no broker answers one, at once, unless `holds_refreshes` is set.
    refreshes: list[FakeTicket] = field(default_factory=list)
    holds_refreshes: bool = False
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    configured: list[str] = field(default_factory=list)
    #: metadata.max.age.ms; `lower_metadata_max_age` lowers it.
    max_age_ms: int = 300_000
    report: CloseReport = field(default_factory=CloseReport)
    state: str = "starting"
    #: What `status` says.
    cause_of_silence: Cause | None = None
    turns: int = 0
    turns_when_woken: bool = True
    #: How long turns took, as a test adds them; and how many failed.
    turn_times: TurnTimes = field(default_factory=TurnTimes)
    failed_turns: int = 0
    nodes: Sequence[Node] = field(default_factory=lambda: [node(n) for n in (1, 2, 3)])
    closed_after_ms: int | None = None
    #: While set, `close` waits for it on its thread, as it waits for acknowledgements.
    closing: threading.Event | None = None

    # -- steering --------------------------------------------------------------------------------------------

    def set_topics(
        self, topics: Mapping[str, int] | Iterable[Any], *, partial: bool = False, **described: Any
    ) -> None:
        """A refresh with these topics; tables of unchanged ones stay the same objects.

        `partial`: others stay, and are as old as they were.
        """
        response = read(self.nodes, topics, known_topics=self.cache.topics, **described)
        tables = {t.name: t for t in response.topics if isinstance(t, TopicTable)}
        answer = ClusterAnswer(response.cluster_id, response.brokers, response.controller)
        answers = TopicAnswers(names=set(tables), tables=tables)
        time = RefreshTime(self.clock.now_ms(), self.clock.wall_ms())
        version = self.cache.update_version + 1
        before = self.cache
        if partial:
            after = before.merge_with(answer, answers, lambda _: True)
            self.cache = after.refreshed_at(time, version, answers)
        else:
            self.cache = before.replaced_by(answer, answers).refreshed_at(time, version, None)
        self._announce(before)
        self.events.emit(
            MetadataRefreshed("manual", version, 0, False, 1, len(tables), 0, 0, response.cluster_id)
        )

    def name_leader(self, topic: str, partition: int, leader_id: int, epoch: int) -> None:
        """A produce answer names a leader (KIP-951): no refresh, and no new version."""
        table = self.cache.topics[topic]
        known = table.metadata(partition)
        assert known is not None
        named = known._replace(leader_id=leader_id, leader_epoch=epoch)
        laid_over = table.with_overlay({**table.overlay, partition: named})
        before, nodes = self.cache, self.cache.nodes_by_id
        self.cache = before.with_leaders({topic: laid_over}, nodes)
        self._announce(before)

    def _announce(self, before: MetadataCache) -> None:
        """Emits the changes of the swap to the event sink, as Metadata does."""
        for event in changes_between(before, self.cache, {}, lambda _: True):
            self.events.emit(event)

    def finish(self, ticket: FakeTicket, result: Result) -> None:
        """Ends one request that waits."""
        self.leave(ticket)
        settled = ticket.asked.get("settled")
        self.sink.post([(ticket.done, result), *([(settled, result)] if settled else [])])

    def deliver(self, ticket: FakeTicket) -> None:
        """What a caller left behind is delivered."""
        self.undelivered.remove(ticket)
        self.sink.post([(ticket.asked["settled"], FakeResult())])

    def say_unknown(self, ticket: FakeTicket, waited_ms: int = 120) -> None:
        """The brokers said twice that there are no such topics."""
        errors = {
            name: UnknownTopicOrPartitionError(f"topic {name} is not there")
            for name in ticket.asked["names"]
            if name not in self.cache.topics
        }
        self.finish(ticket, MetadataResult(self.cache, topic_errors=errors, waited_ms=waited_ms))

    def time_out(self, ticket: FakeTicket, cause: KafkaError | None = None, waited_ms: int = 500) -> None:
        """The ticket's deadline has come."""
        error = TimeoutError(f"nothing came within {waited_ms} ms")
        error.__cause__ = cause
        self.finish(ticket, MetadataResult(self.cache, error=error, waited_ms=waited_ms))

    def leave(self, ticket: FakeTicket) -> None:
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    # -- the producer protocol -------------------------------------------------------------------------------

    def start(self) -> None:
        self.state = "running"

    def close(self, timeout_ms: int) -> CloseReport:
        self.closed_after_ms = timeout_ms
        if self.closing is not None:
            assert self.closing.wait(timeout_ms / 1000), "nobody let close() go on"
        for ticket in list(self.waiting):
            if ticket.kind == "records":
                self.acknowledge(ticket)
        self.state = "closed"
        return self.report

    def wakeup(self) -> None:
        if self.turns_when_woken:
            self.turns += 1

    def configure_topics(self, names: Iterable[str]) -> None:
        self.configured = list(names)

    def lower_metadata_max_age(self, max_age_ms: int) -> None:
        self.max_age_ms = min(self.max_age_ms, max_age_ms)

    def request_topics(
        self, names: Iterable[str], *, deadline_ms: int, create: bool = False, settle: bool = True, done: Done
    ) -> FakeTicket:
        wanted = list(names)
        ticket = self._take(
            "topics", done, names=wanted, deadline_ms=deadline_ms, create=create, settle=settle
        )
        found = {name: self.on_brokers[name] for name in wanted if name in self.on_brokers}
        if found:
            self.set_topics({**self._counts(), **found})
        if all(name in self.cache.topics for name in wanted):
            self.finish(ticket, MetadataResult(self.cache))
        return ticket

    def request_update(
        self, *, min_version: int | None = None, max_age_ms: int | None = None, deadline_ms: int, done: Done
    ) -> FakeTicket:
        return self._take(
            "update", done, min_version=min_version, max_age_ms=max_age_ms, deadline_ms=deadline_ms
        )

    def refresh_topics(self, names: Iterable[str], *, deadline_ms: int, done: Done) -> FakeTicket:
        ticket = FakeTicket(
            "refresh",
            {"names": list(names), "deadline_ms": deadline_ms, "at_ms": self.clock.now_ms()},
            done,
            self,
        )
        self.refreshes.append(ticket)
        if self.holds_refreshes:
            self.waiting.append(ticket)
        else:
            self.time_out(ticket)
        return ticket

    def list_topics(self, *, deadline_ms: int, done: Done) -> FakeTicket:
        ticket = self._take("listing", done, deadline_ms=deadline_ms)
        if self.on_brokers:
            listed = {
                name: ListedTopic(
                    name, None, name.startswith("__"), count, replication_factor=min(len(self.nodes), 3)
                )
                for name, count in self.on_brokers.items()
            }
            self.finish(ticket, ListingResult(TopicListing(MappingProxyType(listed)), waited_ms=0))
        return ticket

    def describe_topic_configs(self, topic: str, *, deadline_ms: int, done: Done) -> FakeTicket:
        ticket = self._take("configs", done, topic=topic, deadline_ms=deadline_ms)
        if self.configs is not None:
            self.finish(ticket, answered_configs(self.configs.get(topic, {})))
        return ticket

    def list_offsets(self, topic: str, partition: int, *, deadline_ms: int, done: Done) -> FakeTicket:
        ticket = self._take("offsets", done, topic=topic, partition=partition, deadline_ms=deadline_ms)
        if self.offsets is not None:
            beginning, end = self.offsets.get((topic, partition), (0, 0))
            self.finish(ticket, OffsetsResult(beginning, end, waited_ms=0))
        return ticket

    def check(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        if self.refuses is not None:
            raise self.refuses

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
    ) -> FakeTicket:
        if self.refuses is not None:
            raise self.refuses
        for index, record in enumerate(records):
            if record.value in self.too_large:
                error = RecordTooLargeError("The message is 2000000 bytes")
                error.record_index = index
                raise error
        self.submitted.append(list(records))
        ticket = self._take(
            "records",
            done,
            topic=topic,
            records=records,
            block_deadline_ms=block_deadline_ms,
            deadline_ms=deadline_ms,
            create=create,
            missing_deadline_ms=missing_deadline_ms,
            since_ms=since_ms,
            settled=settled,
            checked=checked,
        )
        if not self.holds_records:
            self.acknowledge(ticket)
        return ticket

    def acknowledge(self, ticket: FakeTicket) -> None:
        """Ends a produce request as `outcome_of` says."""
        outcome = self.outcome_of or self.receipt
        outcomes = [outcome(i, record) for i, record in enumerate(ticket.asked["records"])]
        self.finish(ticket, FakeResult(outcomes))

    def status(self) -> ClientStatus:
        refreshed_ms = self.cache.last_successful_refresh_ms
        return ClientStatus(
            state=self.state,
            loop_turns=self.turns,
            loop_age_ms=7,
            waiting_for_metadata=0,
            waiting_for_buffer=0,
            in_flight_batches=0,
            producer_id=None,
            last_answer_age_ms=None if refreshed_ms is None else self.clock.now_ms() - refreshed_ms,
            metadata=MetadataStatus(
                update_version=self.cache.update_version,
                request_version=0,
                age_ms=None if refreshed_ms is None else self.clock.now_ms() - refreshed_ms,
                max_age_ms=self.max_age_ms,
                refresh_in_progress=False,
                topics=len(self.cache.topics),
                partitions=sum(self._counts().values()),
                last_error=None,
                last_error_age_ms=None,
            ),
            buffer=BufferStatus(33_554_432, 33_554_432, 0, 0, 0, None),
            nodes=(),
            cause_of_silence=self.cause_of_silence,
        )

    def loop_work(self) -> LoopWork:
        return self.turn_times.read(failed_turns=self.failed_turns)

    def backlog(self) -> Backlog:
        return self.waits

    # -- inside ----------------------------------------------------------------------------------------------

    def _take(self, kind: str, done: Done, **asked: Any) -> FakeTicket:
        if self.state == "closed":
            raise IllegalStateError("Cannot perform operation after producer has been closed")
        self.calls.append((kind, asked))
        ticket = FakeTicket(kind, asked, done, self)
        self.waiting.append(ticket)
        return ticket

    def _counts(self) -> dict[str, int]:
        return {name: table.partition_count for name, table in self.cache.topics.items()}

    @staticmethod
    def receipt(index: int, record: ProducerRecord) -> RecordMetadata:
        timestamp_ms = 1_700_000_000_000 if record.timestamp_ms is None else record.timestamp_ms
        return RecordMetadata(record.topic, record.partition or 0, 100 + index, timestamp_ms)


def answered_configs(values: Mapping[str, str | None]) -> TopicConfigsResult:
    """What a ticket for configs ends with."""
    return TopicConfigsResult(MappingProxyType({name: TopicConfig(value) for name, value in values.items()}))


def with_status(producer: FakeProducer, **changed: Any) -> None:
    """Has `status()` answer with these fields changed from now on."""
    reported = producer.status
    producer.status = lambda: replace(reported(), **changed)  # type: ignore[method-assign]
