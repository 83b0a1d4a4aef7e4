"""Produces with `delivery=spool`: answers 202 once the records are in the log on the disk.

What can be checked without the brokers is checked first, so that impossible records are refused at once:
their size, and their partition if metadata of the last `lookup_max_stale_ms` has the topic. With an
Idempotency-Key a request is spooled once, however often it reaches this process. Delivery is still at least
once.

Loaded only if there is a spool. Event loop only; large bodies are parsed on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from client_core import Errors, KafkaError, Phase, ProducerRecord, Ticket
from service.base.fast_metrics import Counter
from service.base.producer_protocol import Producer
from service.observe.request_trace import REQUEST_TRACE, marked
from service.produce.body_threads import BodyThreads
from service.produce.idempotency import IdempotencyKeys, Name, digest_of
from service.produce.many_topics import OWN_TOPICS, Group, check_group, grouped
from service.produce.once import STAYS, repeated
from service.produce.produce_answers import Answer, answer_of_problem, json_answer
from service.produce.produce_forms import Form
from service.spool.spool import Spool
from service.spool.writer import SpoolClosedError, Spooled, SpoolFault, SpoolFullError, TooLargeForSpoolError
from service.wire.asgi import Receive
from service.wire.errors import WHOLE_BODY, Problem, ProblemError
from service.wire.reasons import SHUTTING_DOWN, SPOOL, UNKNOWN_PARTITION
from service.wire.waiting import refusal_of, wait_for_result

#: When to retry: a full spool drains once Kafka is reachable; a faulty disk needs an operator.
_FULL_RETRY_AFTER: Final = (b"retry-after", b"30")
_FAULT_RETRY_AFTER: Final = (b"retry-after", b"5")


class SpooledProduce:
    """Answers requests whose records go to the spool."""

    def __init__(
        self,
        spool: Spool,
        producer: Producer,
        keys: IdempotencyKeys,
        replays: Counter,
        body_threads: BodyThreads,
        *,
        max_stale_ms: int,
        trace_headers: bool,
    ) -> None:
        """`max_stale_ms`: a partition that is missing from older metadata may exist by now."""
        self._spool = spool
        self._producer = producer
        self._clock = producer.clock
        self._keys = keys
        self._replays = replays
        self._body_threads = body_threads
        self._max_stale_ms = max_stale_ms
        self._trace_headers = trace_headers

    async def answer(
        self, name: Name | None, topic: str, form: Form, body: bytes, *, since_ms: int, receive: Receive
    ) -> Answer:
        """Returns the answer once the records are on the disk, or the write failed.

        Raises ProblemError, BodyError, or CallerGoneError if the caller leaves.
        """
        if name is None:
            records = await self._body_threads.read(partial(self._parsed, topic, form), body)
            return await self._wait(form, since_ms, receive, lambda done: self._submit(topic, records, done))
        digest = await self._body_threads.read(partial(digest_of, form.meaning), body)
        attempt = self._keys.find(name, digest)
        if attempt is None:
            records = await self._body_threads.read(partial(self._parsed, topic, form), body)
            attempt = self._keys.find(name, digest)  # another request may have begun meanwhile
            if attempt is None:
                return await self._first(name, digest, form, records, since_ms, receive)
        elapsed_ms = self._clock.now_ms() - since_ms
        return await repeated(attempt, elapsed_ms, form.times.timeout_ms, self._replays, receive)

    async def _first(
        self,
        name: Name,
        digest: bytes,
        form: Form,
        records: Sequence[ProducerRecord],
        since_ms: int,
        receive: Receive,
    ) -> Answer:
        attempt = self._keys.begin(name, digest, 1)

        def launch(done: Callable[[Answer], None]) -> None:
            def ended(answer: Answer) -> None:
                attempt.end(answer, keep=answer.status == 202)
                done(answer)

            try:
                self._submit(name.topic, records, ended)
            except BaseException:
                attempt.forget()
                raise

        return await self._wait(form, since_ms, receive, launch)

    async def _wait(
        self,
        form: Form,
        since_ms: int,
        receive: Receive,
        launch: Callable[[Callable[[Answer], None]], None],
    ) -> Answer:
        """Returns the answer of `launch`, or a 504 at the deadline. Does not cancel the write to the disk."""

        def take_ticket(done: Callable[[Answer], None]) -> Ticket:
            launch(done)
            return STAYS

        timeout_ms = form.times.timeout_ms
        left_ms = timeout_ms - (self._clock.now_ms() - since_ms)
        try:
            async with asyncio.timeout(max(left_ms, 0) / 1000):
                return await wait_for_result(take_ticket, receive)
        except TimeoutError:
            return answer_of_problem(
                Problem(
                    504,
                    f"the disk of the spool did not answer within {timeout_ms} ms",
                    retriable=True,
                    written="unknown",
                    phase=Phase.DELIVERY.value,
                    waited_ms=timeout_ms,
                )
            )

    def _parsed(self, topic: str, form: Form, body: bytes) -> Sequence[ProducerRecord]:
        return self._checked(topic, form.parse(body))

    def _checked(self, topic: str, records: Sequence[ProducerRecord]) -> Sequence[ProducerRecord]:
        """Returns the records to spool. Raises ProblemError for a record that can never be sent."""
        trace = REQUEST_TRACE.get()
        if self._trace_headers and trace is not None and trace.context is not None:
            records = marked(records, trace.context)  # before the check: the headers count towards the size
        whole = Group(topic, list(range(len(records))), list(records))
        for group in grouped(records) if topic == OWN_TOPICS else (whole,):
            self._check(group)
        return records

    def _check(self, group: Group) -> None:
        topic, indices, records = group
        try:
            check_group(self._producer, group, records)
        except KafkaError as e:
            raise ProblemError(refusal_of(e)) from e
        cache, since_ms = self._producer.cache, self._clock.now_ms() - self._max_stale_ms
        for index, record in zip(indices, records, strict=True):
            if record.partition is not None and cache.lacks_partition(topic, record.partition, since_ms):
                count = cache.partition_count(topic)
                raise ProblemError(_no_partition(topic, index, record.partition, count))

    def _submit(self, topic: str, records: Sequence[ProducerRecord], done: Callable[[Answer], None]) -> None:
        try:
            self._spool.submit(records, lambda outcomes: done(_answer_of(topic, outcomes)))
        except TooLargeForSpoolError as e:
            raise ProblemError(Problem(413, str(e), place=WHOLE_BODY)) from e
        except SpoolFullError as e:
            raise ProblemError(
                Problem(503, str(e), retriable=True, headers=(_FULL_RETRY_AFTER,), reason=SPOOL)
            ) from e
        except SpoolClosedError as e:
            raise ProblemError(
                Problem(503, "the sidecar is shutting down", retriable=True, reason=SHUTTING_DOWN)
            ) from e


def _answer_of(topic: str, outcomes: Spooled | SpoolFault) -> Answer:
    if isinstance(outcomes, SpoolFault):
        headers = (_FAULT_RETRY_AFTER,)
        return answer_of_problem(
            Problem(
                503,
                outcomes.detail,
                retriable=True,
                written=outcomes.written,
                headers=headers,
                reason=SPOOL,
            )
        )
    document: dict[str, object] = {} if topic == OWN_TOPICS else {"topic": topic}
    document |= {
        "spooled": outcomes.records,
        "first_sequence": outcomes.first_sequence,
        "last_sequence": outcomes.first_sequence + outcomes.records - 1,
        "status": "/v1/status",
    }
    return json_answer(202, msgspec.json.encode(document))


def _no_partition(topic: str, index: int, partition: int, count: int | None) -> Problem:
    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    place = f"records[{index}].partition"
    detail = f"{place}: topic {topic} has {count} partitions, and no partition {partition}"
    return Problem(
        404,
        detail,
        kafka_error=missing.name,
        code=missing.code,
        place=place,
        reason=UNKNOWN_PARTITION,
    )
