"""Submits records to the client for every produce endpoint: native, streams, and dialects.

    check     the topic's name, and the caller's right to produce to it
    submit    passes the records to the client as one ticket, with a permit of admission control
    outcomes  one receipt or one Problem per record, in order

The wait for a topic or partition that does not exist: a request that sets `max_block_ms` waits so long. One
that does not waits for `unknown_topic_wait_ms`, natively once the brokers have reported it missing, in the
dialects whether or not they have. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from client_core import (
    Done,
    Errors,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    Phase,
    ProducerConfig,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    Result,
    Ticket,
)
from service.admission.admission_control import Permit, RetryAfter
from service.admission.caller import ANYONE, Caller
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.topic_names import fault_of_topic_name
from service.lookup.unknown_topics import UnknownTopics
from service.observe.http_metrics import produce_outcome
from service.observe.request_trace import REQUEST_TRACE, ProduceSpan
from service.produce.body_threads import FEW_RECORDS, BodyThreads, let_go
from service.produce.many_topics import (
    OWN_TOPICS,
    Group,
    JoinedResult,
    check_group,
    grouped,
    in_order,
    submit_groups,
)
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError, problem_of, problem_of_failure
from service.wire.reasons import UNKNOWN_PARTITION
from service.wire.waiting import refusal_of, wait_for_result

_T = TypeVar("_T")

#: Hashing keys of this total length takes 3 ms.
_LONG_KEYS_BYTES: Final = 32_768

#: A partition count this much older than a record is fresh: a response came while the record was read.
_FRESH_MS: Final = 1_000

#: The outcome of one record.
RecordOutcome = RecordMetadata | Problem


def outcome_of(outcomes: Sequence[RecordOutcome]) -> str:
    """Returns the outcome in the metrics of a request with these outcomes of records."""
    return produce_outcome(sum(isinstance(one, Problem) for one in outcomes), len(outcomes))


def _nothing_to_forget() -> None:
    """Does nothing: the topic is known."""


class Checked(NamedTuple):
    """Records as they will be sent, with the headers of their trace, and their span.

    Only an ended span is exported. So records that are checked and never submitted leave no span. `parts`:
    the same by topic, for a request whose records name their topics (`OWN_TOPICS`).
    """

    records: Sequence[ProducerRecord]
    span: ProduceSpan | None
    parts: Sequence[tuple[Group, Checked]] = ()


class Times(NamedTuple):
    """Time limits of a request, counted from its head: for metadata and memory, and for the whole.

    `missing_wait_ms`: for a topic or partition that brokers report missing, counted from the end of the body;
    None: as for other metadata.
    """

    max_block_ms: int
    timeout_ms: int
    missing_wait_ms: int | None = None

    @property
    def block_ms(self) -> int:
        """The wait for metadata and memory."""
        return min(self.max_block_ms, self.timeout_ms)


class Producing:
    """Checks and submits records, and returns their outcomes. Shared by all produce endpoints."""

    def __init__(
        self,
        producer: Producer,
        config: ProducerConfig,
        settings: Settings,
        unknown: UnknownTopics,
        retry_after: RetryAfter,
        body_threads: BodyThreads,
    ) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._unknown = unknown
        self._retry_after = retry_after
        self._body_threads = body_threads
        self._create = settings.auto_create_topics
        self._unknown_topic_wait_ms = settings.unknown_topic_wait_ms
        #: Kafka's own settings, max.block.ms and delivery.timeout.ms, and ours.
        self.times: Final = Times(
            config.max_block_ms, config.delivery_timeout_ms, settings.unknown_topic_wait_ms
        )
        #: Whether brokers acknowledge at all; with acks=0 offsets are null.
        self.acknowledges: Final = config.acks != "0"

    def check(self, topic: str, caller: Caller) -> None:
        """Raises ProblemError for an invalid topic name (400), or one that the caller may not use (403)."""
        if topic == OWN_TOPICS:
            return  # known once the body is read
        fault = fault_of_topic_name(topic)
        if fault is not None:
            raise ProblemError(problem_of(InvalidTopicError(fault)))
        if caller is not ANYONE:
            caller.check_produce(topic)

    def dialect_times(
        self, topic: str, partition: int | None = None, *, since_ms: int | None = None
    ) -> Times:
        """Returns times for callers that can't set them, with a shorter wait for an unknown topic.

        A partition that the topic does not have counts as unknown; `partition` is the greatest requested one.
        With `since_ms`, the arrival of the request, the time for its body does not count as part of the wait.
        """
        count = self._producer.cache.partition_count(topic)
        if count is not None and (partition is None or partition < count):
            return self.times
        read_ms = 0 if since_ms is None else self._clock.now_ms() - since_ms
        wait_ms = min(self._unknown_topic_wait_ms + read_ms, self.times.max_block_ms)
        return self.times._replace(max_block_ms=wait_ms)

    async def check_many(
        self, topic: str, records: Sequence[ProducerRecord], *, in_envelopes: bool = False
    ) -> Checked | None:
        """Checks many records on a thread, and adds trace headers. None for few: `submit` does it.

        Those of several topics are always checked: all of them before any is submitted. The result is for
        `submit` or `launch`. Raises ProblemError for the first record that can't be sent.
        """
        if len(records) <= FEW_RECORDS and topic != OWN_TOPICS:
            return None

        def check() -> Checked:
            if topic == OWN_TOPICS:
                return Checked(records, None, self._checked_parts(records))
            begun = _begun(topic, records, in_envelopes=in_envelopes)
            self._producer.check(topic, begun.records)
            return begun

        try:
            return check() if len(records) <= FEW_RECORDS else await self._body_threads.do(check)
        except KafkaError as e:
            raise ProblemError(refusal_of(e)) from e

    def _checked_parts(self, records: Sequence[ProducerRecord]) -> list[tuple[Group, Checked]]:
        """Returns the records by topic. Raises KafkaError for one that can't be sent."""
        parts: list[tuple[Group, Checked]] = []
        for group in grouped(records):
            begun = _begun(group.topic, group.records, in_envelopes=False)
            check_group(self._producer, group, begun.records)
            parts.append((group, begun))
        return parts

    async def answered(
        self,
        records: Sequence[ProducerRecord],
        result: Result,
        spell: Callable[[Sequence[RecordOutcome]], _T],
    ) -> _T:
        """Returns what `spell` makes of the outcomes: at once for few records, else on a thread.

        The thread also frees the records: their list is empty afterwards.
        """
        if len(records) <= FEW_RECORDS:
            return spell(self.outcomes(records, result))

        def spelled() -> _T:
            answer = spell(self.outcomes(records, result))
            let_go(records)
            return answer

        return await self._body_threads.report(spelled)

    async def deliver(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        times: Times,
        *,
        since_ms: int,
        permit: Permit,
        receive: Receive,
        in_envelopes: bool = False,
    ) -> Result:
        """Submits records to a checked topic, and waits for all outcomes.

        The permit's bytes count until the client has delivered them, even if the caller leaves.
        `in_envelopes`: the records' values already have their trace. Raises ProblemError if nothing was
        accepted, such as 429 for more records than fit, CallerGoneError if the caller leaves. `receive` must
        have returned the whole body.
        """
        permit.grow_for(len(records))
        checked = None
        if len(records) > FEW_RECORDS or topic == OWN_TOPICS:
            checked = await self.check_many(topic, records, in_envelopes=in_envelopes)
        forget = self._count_unknown(_topics_of(topic, checked), permit.caller)
        try:
            return await wait_for_result(
                lambda done: self.submit(
                    topic,
                    records,
                    times,
                    since_ms=since_ms,
                    permit=permit,
                    done=done,
                    in_envelopes=in_envelopes,
                    checked=checked,
                ),
                receive,
            )
        finally:
            forget()

    def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        times: Times,
        *,
        since_ms: int,
        permit: Permit,
        done: Done,
        settled: Callable[[Result], None] | None = None,
        in_envelopes: bool = False,
        checked: Checked | None = None,
    ) -> Ticket:
        """Passes records to the client, which calls `done` when they have ended or their time is over.

        `settled` is called with the final outcomes when the client holds none of them any more. `checked`:
        the result of `check_many`. Raises KafkaError or IllegalStateError if the client accepts none.
        """
        if checked is not None and checked.parts:
            of_parts = {group.topic: part for group, part in checked.parts}

            def submit_one(group: Group, share: Permit, done: Done, settled: Done) -> Ticket:
                return self.submit(
                    group.topic,
                    group.records,
                    times,
                    since_ms=since_ms,
                    permit=share,
                    done=done,
                    settled=settled,
                    checked=of_parts[group.topic],
                )

            return submit_groups([group for group, _ in checked.parts], submit_one, permit, done, settled)
        records, span, _ = checked or _begun(topic, records, in_envelopes=in_envelopes)

        def released(result: Result) -> None:
            self._retry_after.settled(result, permit.bytes)
            permit.release_bytes()
            if settled is not None:
                settled(result)
            if span is not None:  # last: an exception must not keep a request under a key open
                span.settled(result)

        try:
            ticket = self._producer.submit(
                topic,
                records,
                block_deadline_ms=since_ms + times.block_ms,
                deadline_ms=since_ms + times.timeout_ms,
                since_ms=since_ms,
                done=done,
                settled=released,
                create=self._create,
                missing_deadline_ms=self._missing_deadline_ms(times),
                checked=checked is not None,
                in_chunks=len(records) > FEW_RECORDS
                or (permit.bytes > _LONG_KEYS_BYTES and _has_long_keys(records)),
            )
        except (KafkaError, IllegalStateError) as e:
            if span is not None:
                span.refused(e)
            raise
        permit.hand_on()
        return ticket

    def _missing_deadline_ms(self, times: Times) -> int | None:
        return None if times.missing_wait_ms is None else self._clock.now_ms() + times.missing_wait_ms

    def launch(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        times: Times,
        *,
        since_ms: int,
        permit: Permit,
        done: Done,
        settled: Callable[[Result], None] | None = None,
        checked: Checked | None = None,
    ) -> None:
        """Does `submit` for records that are never cancelled: an unknown topic is counted until `done`.

        Raises what `submit` raises, and ProblemError (429) if there are too many unknown topics.
        """
        forget = self._count_unknown(_topics_of(topic, checked), permit.caller)

        def ended(result: Result) -> None:
            forget()
            done(result)

        try:
            self.submit(
                topic,
                records,
                times,
                since_ms=since_ms,
                permit=permit,
                done=ended,
                settled=settled,
                checked=checked,
            )
        except BaseException:
            forget()
            raise

    def _count_unknown(self, topics: Iterable[str], caller: Caller) -> Callable[[], None]:
        """Counts unknown topics until the returned function is called.

        Raises ProblemError (429) if there are too many; then none is counted.
        """
        known = self._producer.cache.topics
        begun: list[str] = []
        for topic in topics:
            if topic in known:
                continue
            try:
                self._unknown.begin(topic, self._clock.now_ms(), caller)
            except ProblemError:
                self._forget(begun)
                raise
            begun.append(topic)
        return partial(self._forget, begun) if begun else _nothing_to_forget

    def _forget(self, begun: Iterable[str]) -> None:
        known = self._producer.cache.topics
        for topic in begun:
            self._unknown.end(topic, exists=topic in known)

    def outcomes(self, records: Sequence[ProducerRecord], result: Result) -> Sequence[RecordOutcome]:
        """Returns one receipt or Problem per record, in order."""
        if isinstance(result, JoinedResult):
            return in_order((group, self.outcomes(group.records, part)) for group, part in result.parts)
        outcomes = result.outcomes
        if result.error is not None and not outcomes:
            return [replace(problem_of(result.error), written="unknown")] * len(records)
        if not any(type(outcome) is RecordFailure for outcome in outcomes):
            return outcomes  # type: ignore[return-value]  # each is a RecordMetadata
        request_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        cache, topic, now_ms = self._producer.cache, records[0].topic, self._clock.now_ms()
        #: Thousands of failures have few different reasons; each reason gets one Problem.
        known: dict[tuple[object, ...], Problem] = {}
        of_records: list[RecordOutcome] = []
        for record, outcome in zip(records, outcomes, strict=True):
            if not isinstance(outcome, RecordFailure):
                of_records.append(outcome)
                continue
            # Only brokers that answered since the record came can have reported the partition missing.
            asked_ms = now_ms - outcome.waited_ms - _FRESH_MS
            is_missing = cache.lacks_partition(topic, record.partition, asked_ms)
            reason = (id(outcome.error), outcome.phase, outcome.written, outcome.waited_ms, is_missing)
            problem = known.get(reason)
            if problem is None:
                problem = self._retry_after.on(_problem(outcome, is_missing=is_missing), request_bytes)
                known[reason] = problem
            of_records.append(problem)
        return of_records


def _topics_of(topic: str, checked: Checked | None) -> Iterable[str]:
    return (topic,) if checked is None or not checked.parts else [group.topic for group, _ in checked.parts]


def _begun(topic: str, records: Sequence[ProducerRecord], *, in_envelopes: bool) -> Checked:
    trace = REQUEST_TRACE.get()
    if trace is None:
        return Checked(records, None)
    return Checked(*trace.begin_produce(topic, records, in_envelopes=in_envelopes))


def _has_long_keys(records: Sequence[ProducerRecord]) -> bool:
    """Returns whether hashing the keys to choose partitions would take long."""
    return sum([len(record.key) for record in records if record.key is not None]) > _LONG_KEYS_BYTES


def _problem(failure: RecordFailure, *, is_missing: bool) -> Problem:
    """Returns the Problem of one record; a 404 if it waited for a partition that the topic does not have."""
    problem = problem_of_failure(failure)
    if failure.phase is Phase.METADATA and is_missing:
        missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
        return replace(
            problem, status=404, kafka_error=missing.name, code=missing.code, reason=UNKNOWN_PARTITION
        )
    return problem
