"""Producing under an Idempotency-Key: once, however often the request comes.

The first request under a key is launched for good. Its caller may leave, its deadline may pass: the records
stay with the client, which tells in the end what became of them, and a request that comes again is answered
with that. Which outcomes are kept:

    some or all acknowledged (200, 202, 207)   kept: the same answer again, failed records with it
    unknown (504, or a 207 with some of it)    kept, and replaced once the client knows; it may never
    nothing was written (4xx, 500, 503)        forgotten: the request that comes again is tried again

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from client_core import Clock, Phase, ProducerRecord, Result, Ticket
from service.asgi import Receive
from service.errors import Problem
from service.produce.idempotency import REPLAYED, Attempt, IdempotencyKeys, Name, digest_of
from service.produce.portions import gathered
from service.produce.produce_answers import Answer, answer_of, answer_of_problem
from service.produce.produce_forms import Form
from service.produce.producing import Producing, Times, Told
from service.tally import Counter
from service.waiting import wait_for_result
from service.waiting_room import Place


class Once:
    """Answers requests that bring a key."""

    def __init__(
        self, producing: Producing, keys: IdempotencyKeys, clock: Clock, acknowledged: int, replays: Counter
    ) -> None:
        """`acknowledged` is the status where all is well."""
        self._producing = producing
        self._keys = keys
        self._clock = clock
        self._acknowledged = acknowledged
        self._replays = replays

    async def answer(
        self, name: Name, form: Form, body: bytes, *, since_ms: int, place: Place, receive: Receive
    ) -> Answer:
        """The answer of the first request under the key, be it this one or another.

        Raises ProblemError, BodyError, and CallerGoneError where nobody is left to answer.
        """
        digest = digest_of(form.meaning, body)
        attempt = self._keys.find(name, digest)
        if attempt is None:
            records = await gathered(form.parse(body))
            attempt = self._keys.find(name, digest)  # others had their turn between the portions
            if attempt is None:
                return await self._first(name, digest, form.times, records, since_ms, place, receive)
        left_ms = form.times.timeout_ms - (self._clock.now_ms() - since_ms)
        answer = await outcome_of(attempt, left_ms, form.times.timeout_ms, receive)
        self._replays.add()
        return answer._replace(headers=[*answer.headers, REPLAYED])

    async def _first(
        self,
        name: Name,
        digest: bytes,
        times: Times,
        records: Sequence[ProducerRecord],
        since_ms: int,
        place: Place,
        receive: Receive,
    ) -> Answer:
        attempt = self._keys.begin(name, digest, len(records))

        def told(result: Result) -> Sequence[Told]:
            return self._producing.outcomes(records, result)

        def settled(result: Result) -> None:
            if attempt.answer is None:
                self._end(attempt, told(result))

        def launch(done: Callable[[Answer], None]) -> Ticket:
            def ended(result: Result) -> None:
                outcomes = told(result)
                if any(_is_unknown(one) for one in outcomes):
                    done(self._answer(attempt, outcomes))  # and `settled` will tell
                else:
                    done(self._end(attempt, outcomes))

            try:
                self._producing.launch(
                    name.topic,
                    records,
                    times,
                    since_ms=since_ms,
                    place=place,
                    done=ended,
                    settled=settled,
                )
            except BaseException:
                attempt.forget()
                raise
            return STAYS

        return await wait_for_result(launch, receive)

    def _answer(self, attempt: Attempt, told: Sequence[Told]) -> Answer:
        return answer_of(attempt.name.topic, told, self._acknowledged)

    def _end(self, attempt: Attempt, told: Sequence[Told]) -> Answer:
        """What the records became is known, or never will be."""
        answer = self._answer(attempt, told)
        written = any(not isinstance(one, Problem) or _is_unknown(one) for one in told)
        attempt.end(answer, keep=written)
        return answer


def _is_unknown(told: Told) -> bool:
    return isinstance(told, Problem) and told.written != "no"


async def outcome_of(attempt: Attempt, left_ms: int, timeout_ms: int, receive: Receive) -> Answer:
    """The answer that holds for good, waited for within the request's own time; a 504 at its end."""
    if attempt.answer is not None:
        return attempt.answer
    try:
        async with asyncio.timeout(max(left_ms, 0) / 1000):
            return await wait_for_result(attempt.join, receive)
    except TimeoutError:
        return answer_of_problem(
            Problem(
                504,
                "the first request under this key has no outcome yet; ask again, under the same key",
                retriable=True,
                written="unknown",
                phase=Phase.DELIVERY.value,
                waited_ms=timeout_ms,
            )
        )


class _Stays:
    """A ticket that nobody may give back: whoever leaves, the records are delivered."""

    def cancel(self) -> None:
        """Does nothing."""


STAYS: Final = _Stays()
