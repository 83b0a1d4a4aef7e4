"""Produces a request with an Idempotency-Key once, for all of its repetitions.

The first request under a key cannot be cancelled. If its caller leaves or its deadline passes, the client
keeps the records and reports their final outcome. Repeated requests get the answer of that outcome:

    some or all acknowledged (200, 202, 207)   kept, with the failed records
    unknown (504, or a 207 with some of it)    open until the client reports the final outcome, then kept,
                                               even if still unknown; repeated requests wait
    nothing was written (4xx, 500, 503)        forgotten: a repeated request is a new attempt

Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from client_core import Clock, Phase, ProducerRecord, Result, Ticket
from service.admission.admission_control import Permit
from service.base.fast_metrics import Counter
from service.produce.body_threads import FEW_RECORDS, BodyThreads
from service.produce.idempotency import REPLAYED, TOPIC_BYTES, Attempt, IdempotencyKeys, Name, digest_of
from service.produce.many_topics import OWN_TOPICS
from service.produce.produce_answers import Answer, answer_of, answer_of_problem, answer_of_topics
from service.produce.produce_forms import Form
from service.produce.producing import Checked, Producing, RecordOutcome, Times
from service.wire.asgi import Receive
from service.wire.errors import Problem, problem_of_bug
from service.wire.waiting import wait_for_result

_log: Final = logging.getLogger(__name__)


class _Outcome(NamedTuple):
    """A request's answer; whether any record may be written, and whether that is unknown of any."""

    answer: Answer
    written: bool
    is_unknown: bool


class Once:
    """Answers requests that have an Idempotency-Key."""

    def __init__(
        self,
        producing: Producing,
        keys: IdempotencyKeys,
        clock: Clock,
        acknowledged: int,
        replays: Counter,
        body_threads: BodyThreads,
    ) -> None:
        """`acknowledged` is the status if all records were acknowledged."""
        self._producing = producing
        self._keys = keys
        self._clock = clock
        self._acknowledged = acknowledged
        self._replays = replays
        self._body_threads = body_threads

    async def answer(
        self, name: Name, form: Form, body: bytes, *, since_ms: int, permit: Permit, receive: Receive
    ) -> Answer:
        """Returns the answer of the first request under the key: this one or an earlier one.

        Raises ProblemError, BodyError, or CallerGoneError if the caller leaves.
        """
        digest = await self._body_threads.read(partial(digest_of, form.meaning), body)
        attempt = self._keys.find(name, digest)
        if attempt is None:
            records = await self._body_threads.read(form.parse, body)
            del body
            permit.grow_for(len(records))
            checked = await self._producing.check_many(name.topic, records)
            attempt = self._keys.find(name, digest)  # another request may have begun meanwhile
            if attempt is None:
                return await self._first(
                    name, digest, form.times, records, since_ms, permit, receive, checked=checked
                )
        elapsed_ms = self._clock.now_ms() - since_ms
        return await repeated(attempt, elapsed_ms, form.times.timeout_ms, self._replays, receive)

    async def _first(
        self,
        name: Name,
        digest: bytes,
        times: Times,
        records: Sequence[ProducerRecord],
        since_ms: int,
        permit: Permit,
        receive: Receive,
        *,
        checked: Checked | None,
    ) -> Answer:
        attempt = self._keys.begin(name, digest, len(records), _topics_bytes(checked))

        def settled(result: Result) -> None:
            if attempt.answer is None:
                self._spell(attempt, records, result, lambda outcome: self._end(attempt, outcome))

        def launch(done: Callable[[Answer], None]) -> Ticket:
            def spelled(outcome: _Outcome) -> None:
                if not outcome.is_unknown:  # else `settled` ends the attempt
                    self._end(attempt, outcome)
                done(outcome.answer)

            def ended(result: Result) -> None:
                self._spell(attempt, records, result, spelled)

            try:
                self._producing.launch(
                    name.topic,
                    records,
                    times,
                    since_ms=since_ms,
                    permit=permit,
                    done=ended,
                    settled=settled,
                    checked=checked,
                )
            except BaseException:
                attempt.forget()
                raise
            return STAYS

        return await wait_for_result(launch, receive)

    def _spell(
        self,
        attempt: Attempt,
        records: Sequence[ProducerRecord],
        result: Result,
        then: Callable[[_Outcome], None],
    ) -> None:
        """Calls `then` with the outcome: at once for few records, else after a thread has encoded it."""
        work = partial(self._outcome, attempt.name.topic, records, result)
        if len(records) <= FEW_RECORDS:
            then(_or_unknown(work))
            return
        spelling = asyncio.ensure_future(self._body_threads.report(work))
        # If the thread fails (no memory, shutdown), it is done here: a caller waits for the outcome.
        spelling.add_done_callback(
            lambda spelt: then(
                _or_unknown(work) if spelt.cancelled() or spelt.exception() else spelt.result()
            )
        )

    def _outcome(self, topic: str, records: Sequence[ProducerRecord], result: Result) -> _Outcome:
        outcomes = self._producing.outcomes(records, result)
        return _Outcome(
            answer_of_topics(records, outcomes, self._acknowledged)
            if topic == OWN_TOPICS
            else answer_of(topic, outcomes, self._acknowledged),
            written=any(not isinstance(one, Problem) or _is_unknown(one) for one in outcomes),
            is_unknown=any(_is_unknown(one) for one in outcomes),
        )

    def _end(self, attempt: Attempt, outcome: _Outcome) -> None:
        """Ends the attempt: the outcome is final, even if it is unknown."""
        attempt.end(outcome.answer, keep=outcome.written)


def _topics_bytes(checked: Checked | None) -> int:
    """Returns the bytes of the topics in the answer; 0 if the records do not name them."""
    parts = () if checked is None else checked.parts
    return sum(len(group.records) * (TOPIC_BYTES + len(group.topic)) for group, _ in parts)


def _or_unknown(work: Callable[[], _Outcome]) -> _Outcome:
    """Returns the outcome, or an unknown one if it can't be encoded: a caller waits for it."""
    try:
        return work()
    except Exception:  # noqa: BLE001 -- a bug, or a lack of memory
        _log.exception("the outcome of records is unknown")
        answer = answer_of_problem(problem_of_bug(written="unknown"))
        return _Outcome(answer, written=True, is_unknown=True)


def _is_unknown(outcome: RecordOutcome) -> bool:
    return isinstance(outcome, Problem) and outcome.written != "no"


async def repeated(
    attempt: Attempt, elapsed_ms: int, timeout_ms: int, replays: Counter, receive: Receive
) -> Answer:
    """Returns the answer to a repeated request: the first one's, marked as such, or its own 504."""
    answer = attempt.answer or await _final_answer(attempt, timeout_ms - elapsed_ms, receive)
    if answer is not None:
        replays.add()
        return answer._replace(headers=[*answer.headers, REPLAYED])
    return answer_of_problem(
        Problem(
            504,
            "the first request under this key has no outcome yet; retry with the same key",
            retriable=True,
            written="unknown",
            phase=Phase.DELIVERY.value,
            waited_ms=timeout_ms,
        )
    )


async def _final_answer(attempt: Attempt, left_ms: int, receive: Receive) -> Answer | None:
    """Returns None if there is none in time."""
    try:
        async with asyncio.timeout(max(left_ms, 0) / 1000):
            return await wait_for_result(attempt.join, receive)
    except TimeoutError:
        return attempt.answer  # it may have come in the turn in which the time was over


class _Stays:
    """A ticket that can't be cancelled: the records are delivered even if the caller leaves."""

    def cancel(self) -> None:
        """Does nothing."""


STAYS: Final = _Stays()
