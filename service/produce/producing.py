"""Records on their way to Kafka, for every way to post them: native, streams, and the dialects.

    enter     a place in the waiting room; the body is read within the request's time
    submit    the caller's right to the topic is checked, the records go to the client as one ticket
    outcomes  one receipt or one Problem per record, in order

How long a topic that nobody knows is waited for is the way's own: natively as long as the request says
(`max_block_ms`), in the dialects, whose callers can't say it, `unknown_topic_wait_ms`. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from service.admission.admission_control import Place, RetryAfter
from service.admission.caller import Caller
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.topic_names import fault_of_topic_name
from service.lookup.unknown_topics import UnknownTopics
from service.observe.http_metrics import produce_outcome
from service.observe.request_trace import REQUEST_TRACE, ProduceSpan
from service.produce.body_threads import FEW_RECORDS, BodyThreads, let_go
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError, problem_of, problem_of_failure
from service.wire.waiting import refusal_of, wait_for_result

_T = TypeVar("_T")

#: A hash of keys that are so long together takes 3 ms.
_LONG_KEYS_BYTES: Final = 32 * 1024

#: What one record became.
RecordOutcome = RecordMetadata | Problem


def outcome_of(outcomes: Sequence[RecordOutcome]) -> str:
    """How the metrics call a request whose records became these."""
    return produce_outcome(sum(isinstance(one, Problem) for one in outcomes), len(outcomes))


def _nothing_to_forget() -> None:
    """The topic is known."""


class Checked(NamedTuple):
    """Records as they will be sent, with the headers of their trace, and their span.

    A span that nobody ends is not exported: records that were checked and never submitted have none.
    """

    records: Sequence[ProducerRecord]
    span: ProduceSpan | None


class Times(NamedTuple):
    """How long a request may take, from its head on: for metadata and memory, and for the whole."""

    max_block_ms: int
    timeout_ms: int


class Producing:
    """What every produce endpoint shares."""

    def __init__(
        self,
        producer: Producer,
        config: ProducerConfig,
        settings: Settings,
        unknown: UnknownTopics,
        retry_after: RetryAfter,
        aside: BodyThreads,
    ) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._unknown = unknown
        self._retry_after = retry_after
        self._aside = aside
        self._create = settings.auto_create_topics
        self._unknown_topic_wait_ms = settings.unknown_topic_wait_ms
        #: Kafka's own settings: max.block.ms and delivery.timeout.ms.
        self.times: Final = Times(config.max_block_ms, config.delivery_timeout_ms)
        #: Whether brokers acknowledge at all; with acks=0 offsets are null.
        self.acknowledges: Final = config.acks != "0"

    def check(self, topic: str, caller: Caller) -> None:
        """Raises ProblemError for a name that can't be a topic's (400) and for one not allowed (403)."""
        fault = fault_of_topic_name(topic)
        if fault is not None:
            raise ProblemError(problem_of(InvalidTopicError(fault)))
        caller.check_produce(topic)

    def dialect_times(
        self, topic: str, partition: int | None = None, *, since_ms: int | None = None
    ) -> Times:
        """For callers who can't say how long: an unknown topic is not waited for as long as memory is.

        Nor is a partition that the topic does not have; `partition` is the greatest that is asked for. With
        `since_ms`, when the request came, the time that its body took is no part of that wait.
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
        """Marks and checks the records aside where they are many; None: they are few, `submit` does it.

        The result is for `submit` or `launch`. Raises ProblemError for the first record that can't be sent.
        """
        if len(records) <= FEW_RECORDS:
            return None

        def check() -> Checked:
            begun = _begun(topic, records, in_envelopes=in_envelopes)
            self._producer.check(topic, begun.records)
            return begun

        try:
            return await self._aside.do(check)
        except KafkaError as e:
            raise ProblemError(refusal_of(e)) from e

    async def answered(
        self,
        records: Sequence[ProducerRecord],
        result: Result,
        spell: Callable[[Sequence[RecordOutcome]], _T],
    ) -> _T:
        """What `spell` makes of the records' outcomes: at once where they are few, else aside.

        Many records are let go of there, too: the list is empty then.
        """
        if len(records) <= FEW_RECORDS:
            return spell(self.outcomes(records, result))

        def spelled() -> _T:
            answer = spell(self.outcomes(records, result))
            let_go(records)
            return answer

        return await self._aside.report(spelled)

    async def deliver(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        times: Times,
        *,
        since_ms: int,
        place: Place,
        receive: Receive,
        in_envelopes: bool = False,
    ) -> Result:
        """Submits records that were checked and waits for all of them.

        The place's bytes count until the client has delivered them, whoever still waits. `in_envelopes`:
        their values say which trace they belong to. Raises ProblemError where nothing was taken on,
        CallerGoneError where the caller left. `receive` must have given the whole body.
        """
        checked = await self.check_many(topic, records, in_envelopes=in_envelopes)
        forget = self._count_if_unknown(topic, since_ms, place.caller)
        try:
            return await wait_for_result(
                lambda done: self.submit(
                    topic,
                    records,
                    times,
                    since_ms=since_ms,
                    place=place,
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
        place: Place,
        done: Done,
        settled: Callable[[Result], None] | None = None,
        in_envelopes: bool = False,
        checked: Checked | None = None,
    ) -> Ticket:
        """Hands records to the client, which calls `done` when they ended or their time is over.

        `settled` is called when the client has none of them any more, with what became of them in truth.
        `checked`: what `check_many` said of them. Raises KafkaError or IllegalStateError where it takes none.
        """
        records, span = checked or _begun(topic, records, in_envelopes=in_envelopes)

        def released(result: Result) -> None:
            self._retry_after.settled(result, place.bytes)
            place.settled()
            if span is not None:
                span.settled(result)
            if settled is not None:
                settled(result)

        try:
            ticket = self._producer.submit(
                topic,
                records,
                block_deadline_ms=since_ms + min(times),
                deadline_ms=since_ms + times.timeout_ms,
                since_ms=since_ms,
                done=done,
                settled=released,
                create=self._create,
                checked=checked is not None,
                in_chunks=checked is not None or _has_long_keys(records, place.bytes),
            )
        except (KafkaError, IllegalStateError) as e:
            if span is not None:
                span.refused(e)
            raise
        place.hand_on()
        return ticket

    def launch(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        times: Times,
        *,
        since_ms: int,
        place: Place,
        done: Done,
        settled: Callable[[Result], None] | None = None,
        checked: Checked | None = None,
    ) -> None:
        """`submit` for those who stay to the end, whoever leaves: an unknown topic is counted until `done`.

        Raises ProblemError where too many of those are asked for, besides what `submit` raises.
        """
        forget = self._count_if_unknown(topic, since_ms, place.caller)

        def ended(result: Result) -> None:
            forget()
            done(result)

        try:
            self.submit(
                topic,
                records,
                times,
                since_ms=since_ms,
                place=place,
                done=ended,
                settled=settled,
                checked=checked,
            )
        except BaseException:
            forget()
            raise

    def _count_if_unknown(self, topic: str, since_ms: int, caller: Caller) -> Callable[[], None]:
        """Counts a topic that nobody knows among those asked for, until what is returned is called.

        Raises ProblemError where too many of those are asked for.
        """
        if topic in self._producer.cache.topics:
            return _nothing_to_forget
        self._unknown.begin(topic, since_ms, caller)
        return partial(self._unknown.end, topic)

    def outcomes(self, records: Sequence[ProducerRecord], result: Result) -> Sequence[RecordOutcome]:
        """One receipt or Problem per record, in order."""
        outcomes = result.outcomes
        if result.error is not None and not outcomes:
            return [replace(problem_of(result.error), written="unknown")] * len(records)
        if not any(type(outcome) is RecordFailure for outcome in outcomes):
            return outcomes  # type: ignore[return-value]  # every one of them is a RecordMetadata
        request_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        count = self._producer.cache.partition_count(records[0].topic)
        #: What fails by the thousand fails for a few reasons: each is spelled once.
        known: dict[tuple[object, ...], Problem] = {}
        of_records: list[RecordOutcome] = []
        for record, outcome in zip(records, outcomes, strict=True):
            if not isinstance(outcome, RecordFailure):
                of_records.append(outcome)
                continue
            partition = record.partition
            is_missing = partition is not None and count is not None and partition >= count
            reason = (id(outcome.error), outcome.phase, outcome.written, outcome.waited_ms, is_missing)
            problem = known.get(reason)
            if problem is None:
                problem = self._retry_after.on(_problem(outcome, is_missing=is_missing), request_bytes)
                known[reason] = problem
            of_records.append(problem)
        return of_records


def _begun(topic: str, records: Sequence[ProducerRecord], *, in_envelopes: bool) -> Checked:
    trace = REQUEST_TRACE.get()
    if trace is None:
        return Checked(records, None)
    return Checked(*trace.begin_produce(topic, records, in_envelopes=in_envelopes))


def _has_long_keys(records: Sequence[ProducerRecord], body_bytes: int) -> bool:
    """Whether to choose partitions by the keys would take long."""
    return (
        body_bytes > _LONG_KEYS_BYTES
        and sum([len(record.key) for record in records if record.key is not None]) > _LONG_KEYS_BYTES
    )


def _problem(failure: RecordFailure, *, is_missing: bool) -> Problem:
    """One record's failure. Waiting in vain for a partition that the topic does not have is a 404."""
    problem = problem_of_failure(failure)
    if failure.phase is Phase.METADATA and is_missing:
        missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
        return replace(problem, status=404, kafka_error=missing.name, code=missing.code)
    return problem
