"""Waits for metadata that a look-up lacks: an unknown topic, or a fresher answer.

    unknown topic   without max_block_ms: until the brokers reported twice that it does not exist (404)
                    with max_block_ms: until it appears or the time is over
    max_age_ms      waits for a refresh if the topic's last response is older
    without         a topic that is too old is refreshed first, for a short time: see `ages.py`
    min_version     waits for that update; a version of another process's boot is 412 at once

`know` decides what is missing, waits for it with a ticket, and returns problems by topic. It never creates a
topic, and never asks the brokers for a topic that the caller may not read. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from client_core import (
    Errors,
    InvalidTopicError,
    KafkaError,
    MetadataCache,
    MetadataResult,
    Phase,
    ProducerConfig,
    RefreshTime,
    Result,
    TimeoutError,
    TopicTable,
    UnknownTopicOrPartitionError,
)
from service.admission.admission_control import AdmissionControl
from service.admission.caller import ANYONE, Caller, not_authorized
from service.base.producer_protocol import Producer
from service.base.topic_names import fault_of_topic_name
from service.lookup.ages import Ages, refreshed_ms_of
from service.lookup.unknown_topics import UnknownTopics
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError, UnknownPartitionError, explained, problem_of, refused
from service.wire.freshness import awaited_number
from service.wire.reasons import MANY_UNKNOWN, UNKNOWN_BROKER
from service.wire.waiting import MAX_WAIT_MS, wait_for_result


@dataclass(frozen=True, slots=True)
class Demands:
    """The optional demands of a look-up; None means no demand."""

    max_block_ms: int | None = None
    max_age_ms: int | None = None
    min_version: str | None = None
    #: Whether a look-up with max_block_ms waits for an unknown topic until it appears. Otherwise it ends as
    #: without max_block_ms, but no later.
    until_known: bool = True

    @property
    def may_settle(self) -> bool:
        """Whether a topic that the brokers report missing ends the wait."""
        return self.max_block_ms is None or not self.until_known


NO_DEMANDS: Final = Demands()


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that may wait: its demands, its arrival, and its caller, who may leave meanwhile."""

    demands: Demands
    since_ms: int
    receive: Receive
    caller: Caller


class Lookups:
    """Waits for metadata on behalf of requests."""

    def __init__(
        self,
        producer: Producer,
        config: ProducerConfig,
        *,
        boot: str,
        lookup_wait_ms: int,
        admission: AdmissionControl,
        unknown: UnknownTopics,
        ages: Ages,
    ) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._max_block_ms = config.max_block_ms
        self._boot = boot
        self._lookup_wait_ms = lookup_wait_ms
        self._admission = admission
        self._unknown = unknown
        self._ages = ages

    async def know(
        self, topics: Iterable[str], demands: Demands, receive: Receive, caller: Caller = ANYONE
    ) -> dict[str, Problem]:
        """Waits until the topics are known and as fresh as demanded; returns the others' problems.

        Raises ProblemError if the demand itself can't be met, CallerGoneError if the caller leaves.
        """
        request = _Request(demands, self._clock.now_ms(), receive, caller)
        min_version = self._number_of(demands.min_version)
        names, forbidden = caller.split(dict.fromkeys(topics))
        problems = {name: not_authorized(name) for name in forbidden}
        if forbidden and not names:
            return problems
        faults, to_ask = self._judge(names, demands)
        problems.update(faults)
        if to_ask:
            problems.update(await self._ask(to_ask, request))
        known = [name for name in names if name not in problems]
        await self._freshen(known, request, min_version)
        await self._ages.freshen(known, self._left_ms(request))
        topics = self._producer.cache.topics
        ended = [name for name in known if name not in topics]
        if ended:
            # The refresh has shown that they no longer exist.
            problems.update(await self._ask(ended, request))
        return problems

    async def known(
        self, topic: str, demands: Demands, receive: Receive, caller: Caller
    ) -> tuple[MetadataCache, TopicTable]:
        """Returns a snapshot, and the topic in it, once it is known and as fresh as demanded. Marks it used.

        Raises ProblemError, or CallerGoneError.
        """
        problem = (await self.know([topic], demands, receive, caller)).get(topic)
        if problem is not None:
            raise ProblemError(problem)
        cache = self._producer.cache
        table = cache.topics.get(topic)
        if table is None:
            raise ProblemError(problem_of(self.missing(topic, None)))
        table.use.touched = True
        return cache, table

    def is_ready(self, topic: str) -> bool:
        """Returns whether a look-up of the topic, without demands, has nothing to wait for."""
        return topic in self._producer.cache.topics and not self._ages.waits_for(topic)

    async def know_cluster(
        self,
        demands: Demands,
        receive: Receive,
        caller: Caller = ANYONE,
        topics: Iterable[str] = (),
        oldest: RefreshTime | None = None,
    ) -> None:
        """Waits until a broker has answered, and until its answer is as fresh as demanded.

        `topics`: known ones that the answer is about, too. `oldest`: the time of the oldest one, if there are
        more.
        """
        request = _Request(demands, self._clock.now_ms(), receive, caller)
        min_version = self._number_of(demands.min_version)
        if self._producer.cache.is_bootstrap:
            wait_ms = self._lookup_wait_ms if demands.max_block_ms is None else demands.max_block_ms
            await self.refresh(wait_ms, receive, caller, max_age_ms=MAX_WAIT_MS)
        names = list(topics)
        await self._freshen(names, request, min_version, oldest)
        await self._ages.freshen([None, *names], self._left_ms(request))

    def missing(self, topic: str, partition: int | None) -> KafkaError:
        """Returns the error for a topic without the requested partition, or for a topic that is gone.

        A TimeoutError (503) if that is known from metadata above the bound on age: brokers do not answer, or
        refreshes for age have used up their tokens.
        """
        count = self._producer.cache.partition_count(topic)
        if count is None or partition is None:  # the topic may be back by now
            return UnknownTopicOrPartitionError(f"topic {topic} no longer exists")
        age_ms = self._ages.unconfirmed_ms(topic)
        if age_ms is None:
            return UnknownPartitionError(
                f"topic {topic} has no partition {partition}; it has {count} partitions"
            )
        return self._unanswered(
            f"{age_ms} ms ago topic {topic} had {count} partitions, and no partition {partition}"
        )

    def missing_broker(self, broker_id: int | str) -> ProblemError:
        """Returns the refusal for an unknown broker: 404, or 503 as in `missing`."""
        age_ms = self._ages.unconfirmed_ms(None)
        if age_ms is None:
            return refused(404, f"there is no broker {broker_id}", reason=UNKNOWN_BROKER)
        return ProblemError(problem_of(self._unanswered(f"{age_ms} ms ago there was no broker {broker_id}")))

    def _unanswered(self, known: str) -> TimeoutError:
        error = TimeoutError(f"{known}; no broker has confirmed this since")
        return error.because_of(self._producer.status().cause_of_silence)

    async def refresh(
        self,
        wait_ms: int,
        receive: Receive,
        caller: Caller = ANYONE,
        *,
        min_version: int | None = None,
        max_age_ms: int | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Waits for the next update, or for one that satisfies a demand. Raises ProblemError.

        `wait_ms` counts from `since_ms`, the arrival of the request, or from now.
        """
        now_ms = self._clock.now_ms()
        if since_ms is None:
            since_ms = now_ms
        with self._admission.acquire(0, caller):
            result: Result = await wait_for_result(
                lambda done: self._producer.request_update(
                    min_version=min_version, max_age_ms=max_age_ms, deadline_ms=since_ms + wait_ms, done=done
                ),
                receive,
            )
        if result.error is not None:
            # The result's wait begins a moment later: with it alone a caller would read 299 of 300 ms.
            waited_ms = now_ms - since_ms + cast("MetadataResult", result).waited_ms
            raise self._late(result.error, since_ms, waited_ms)

    def _late(self, error: KafkaError, since_ms: int, waited_ms: int = 0) -> ProblemError:
        waited_ms = max(waited_ms, self._clock.now_ms() - since_ms)
        return ProblemError(problem_of(error, phase=Phase.METADATA, waited_ms=waited_ms))

    # -- unknown topics --------------------------------------------------------------------------------------

    def _judge(self, names: list[str], demands: Demands) -> tuple[dict[str, Problem], list[str]]:
        """Returns the problems known so far, and the topics to ask for. Reads the snapshot once."""
        known = self._producer.cache.topics
        now_ms = self._clock.now_ms()
        problems: dict[str, Problem] = {}
        to_ask: list[str] = []
        for name in names:
            if name in known:
                continue
            fault = fault_of_topic_name(name)
            remembered = self._unknown.remembered(name, now_ms) if demands.may_settle else None
            if fault is not None:
                problems[name] = problem_of(InvalidTopicError(fault))
            elif remembered is not None:
                problems[name] = problem_of(remembered, phase=Phase.METADATA, waited_ms=0)
            else:
                to_ask.append(name)
        return problems, to_ask

    async def _ask(self, names: list[str], request: _Request) -> dict[str, Problem]:
        """Asks the brokers for topics and waits; returns the remaining problems.

        As long as some are found, names beyond the limit of unknown ones are asked for in the next round.
        """
        problems: dict[str, Problem] = {}
        with self._admission.acquire(0, request.caller):
            while names:
                left = await self._ask_once(names, request)
                has_found = len(left) < len(names)
                names = [name for name in left if has_found and left[name].reason is MANY_UNKNOWN]
                again = set(names)
                problems |= {name: problem for name, problem in left.items() if name not in again}
        return problems

    async def _ask_once(self, names: list[str], request: _Request) -> Mapping[str, Problem]:
        problems: dict[str, Problem] = {}
        begun: list[str] = []
        try:
            for name in names:
                try:
                    self._unknown.begin(name, self._clock.now_ms(), request.caller)
                    begun.append(name)
                except ProblemError as e:
                    problems[name] = e.problem
            if begun:
                result = await self._answer(begun, request)
                problems.update(self._left_over(begun, result))
        finally:
            known = self._producer.cache.topics
            for name in begun:
                self._unknown.end(name, exists=name in known)
        return problems

    async def _answer(self, names: list[str], request: _Request) -> MetadataResult:
        demands = request.demands
        wait_ms = self._lookup_wait_ms if demands.max_block_ms is None else demands.max_block_ms
        if demands.may_settle:
            wait_ms = min(wait_ms, self._lookup_wait_ms)
        result: Result = await wait_for_result(
            lambda done: self._producer.request_topics(
                names,
                deadline_ms=request.since_ms + wait_ms,
                create=False,
                settle=demands.may_settle,
                done=done,
            ),
            request.receive,
        )
        return cast("MetadataResult", result)

    def _left_over(self, names: list[str], result: MetadataResult) -> Mapping[str, Problem]:
        problems: dict[str, Problem] = {}
        now_ms = self._clock.now_ms()
        for name in names:
            if name in result.cache.topics:
                continue
            error = result.topic_errors.get(name) or result.error or _not_present(name, result.waited_ms)
            if explained(error).error is Errors.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown.remember(name, error, now_ms)
            problems[name] = problem_of(error, phase=Phase.METADATA, waited_ms=result.waited_ms)
        return problems

    # -- freshness -------------------------------------------------------------------------------------------

    def _number_of(self, min_version: str | None) -> int | None:
        return None if min_version is None else awaited_number(min_version, self._boot)

    async def _freshen(
        self,
        names: list[str],
        request: _Request,
        min_version: int | None,
        oldest: RefreshTime | None = None,
    ) -> None:
        cache, max_age_ms = self._producer.cache, request.demands.max_age_ms
        age_ms = self._age_ms(names) if oldest is None else self._clock.now_ms() - oldest.now_ms
        too_old = max_age_ms is not None and age_ms > max_age_ms
        too_early = min_version is not None and cache.update_version < min_version
        if too_old or too_early:
            await self.refresh(
                self._wait_ms(request),
                request.receive,
                request.caller,
                min_version=min_version if too_early else None,
                max_age_ms=max_age_ms if too_old else None,
                since_ms=request.since_ms,
            )
        if max_age_ms is not None:
            await self._end_doubt(names, request, request.since_ms - max_age_ms)

    async def _end_doubt(self, names: list[str], request: _Request, not_before_ms: int) -> None:
        """Waits until no topic is older, as one is that only one broker reports missing."""
        doubtful = self._older(names, not_before_ms)
        if not doubtful:
            return
        wait_ms = self._wait_ms(request)
        with self._admission.acquire(0, request.caller):
            result: Result = await wait_for_result(
                lambda done: self._producer.refresh_topics(
                    doubtful, deadline_ms=request.since_ms + wait_ms, done=done
                ),
                request.receive,
            )
        if result.error is not None:
            raise self._late(result.error, request.since_ms)
        doubtful = self._older(names, not_before_ms)
        if doubtful:
            name = doubtful[0]
            error = TimeoutError(
                f"A broker reports topic {name} missing, and no other has confirmed it within {wait_ms} ms."
            )
            raise self._late(error, request.since_ms)

    def _wait_ms(self, request: _Request) -> int:
        """Returns how long the request waits for a fresher answer, from its arrival on."""
        asked_ms = request.demands.max_block_ms
        return self._max_block_ms if asked_ms is None else asked_ms

    def _older(self, names: list[str], not_before_ms: int) -> list[str]:
        """Returns the known topics that no response has contained since then."""
        cache = self._producer.cache
        times = ((name, refreshed_ms_of(cache, name)) for name in names)
        return [name for name, time_ms in times if time_ms is not None and time_ms < not_before_ms]

    def _left_ms(self, request: _Request) -> int | None:
        """Returns what is left of max_block_ms."""
        if request.demands.max_block_ms is None:
            return None
        return max(request.since_ms + request.demands.max_block_ms - self._clock.now_ms(), 0)

    def _age_ms(self, names: list[str]) -> int:
        """Returns the age of the oldest topic, or of the cluster if there are no topics."""
        cache = self._producer.cache
        times = [refreshed_ms_of(cache, name) for name in names] or [refreshed_ms_of(cache, None)]
        known = [time for time in times if time is not None]
        return self._clock.now_ms() - min(known) if known else MAX_WAIT_MS + 1


def _not_present(topic: str, waited_ms: int) -> KafkaError:
    return TimeoutError(f"Topic {topic} not present in metadata after {waited_ms} ms.")
