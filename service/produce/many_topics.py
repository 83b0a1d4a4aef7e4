"""Produces one request's records to several topics: a submission per topic, which end together.

    join    the records by topic, in the order of their first record; checked before any is submitted
    ends    one result when the last topic's part has ended; each part has the request's one deadline
    bytes   each part holds a share of the request's bytes, so that a permit ends with its last part

A part that the client refuses after others were accepted (it is closing) fails alone. Event loop only, except
`grouped`, which is pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from client_core import (
    Done,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    Phase,
    ProducerClosedError,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    Result,
    Ticket,
    UnknownServerError,
    Written,
)
from service.admission.admission_control import Permit
from service.admission.caller import Caller, not_authorized
from service.base.producer_protocol import Producer
from service.base.topic_names import fault_of_topic_name
from service.wire.errors import ProblemError, problem_of, problem_of_bug
from service.wire.strict_json import BodyError

_log: Final = logging.getLogger(__name__)

_T = TypeVar("_T")

#: In place of a topic's name: each record of the request names its own.
OWN_TOPICS: Final = ""

#: Topics of one request. Each is a submission of its own, some 50 us of the event loop.
MAX_TOPICS: Final = 100


class Group(NamedTuple):
    """The records of one topic, and their indices in the request."""

    topic: str
    indices: list[int]
    records: list[ProducerRecord]


def grouped(records: Iterable[ProducerRecord]) -> list[Group]:
    groups: dict[str, Group] = {}
    for index, record in enumerate(records):
        group = groups.get(record.topic)
        if group is None:
            group = groups[record.topic] = Group(record.topic, [], [])
        group.indices.append(index)
        group.records.append(record)
    return list(groups.values())


def check_group(producer: Producer, group: Group, records: Sequence[ProducerRecord]) -> None:
    """Raises KafkaError for a record that can't be sent; it has the record's index in the request."""
    try:
        producer.check(group.topic, records)
    except RecordTooLargeError as e:
        if e.record_index is not None:
            e.record_index = group.indices[e.record_index]
        raise


def check_topics(records: Sequence[ProducerRecord], caller: Caller) -> None:
    """Checks the name of each record's topic, and the caller's right to produce to it.

    Raises ProblemError (400, 403) with the place of the first fault, BodyError (413) for too many topics.
    """
    seen: set[str] = set()
    for index, record in enumerate(records):
        topic = record.topic
        if topic in seen:
            continue
        place = f"records[{index}].topic"
        fault = fault_of_topic_name(topic)
        if fault is not None:
            problem = problem_of(InvalidTopicError(f"{place}: {fault}"))
            raise ProblemError(replace(problem, place=place))
        if not caller.produce.allow(topic):
            problem = not_authorized(topic)
            raise ProblemError(replace(problem, detail=f"{place}: {problem.detail}", place=place))
        seen.add(topic)
        if len(seen) > MAX_TOPICS:
            raise BodyError(413, place, f"more than {MAX_TOPICS} topics in one request")


class JoinedResult:
    """The results of all parts, in the order of the request's records."""

    #: Each outcome has its own.
    error: KafkaError | None = None

    def __init__(self, parts: Sequence[tuple[Group, Result]]) -> None:
        self.parts = parts

    @property
    def any_acknowledged(self) -> bool:
        return any(result.any_acknowledged for _, result in self.parts)

    @property
    def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]:
        return in_order((group, result.outcomes) for group, result in self.parts)


def in_order(parts: Iterable[tuple[Group, Sequence[_T]]]) -> list[_T]:
    """Returns what the parts have of each record, in the order of the request."""
    by_index = {
        index: one for group, of_group in parts for index, one in zip(group.indices, of_group, strict=True)
    }
    return [by_index[index] for index in range(len(by_index))]


class _Join:
    """Calls `done` once with all results when each part has ended. The first end of a part counts."""

    def __init__(self, groups: Sequence[Group], done: Callable[[JoinedResult], None]) -> None:
        self._groups = groups
        self._results: dict[str, Result] = {}
        self._done = done

    def of(self, group: Group) -> Done:
        """Returns the `done` of one part."""
        return lambda result: self._ended(group, result)

    def _ended(self, group: Group, result: Result) -> None:
        if group.topic in self._results:
            return
        self._results[group.topic] = result
        if len(self._results) == len(self._groups):
            self._done(JoinedResult([(each, self._results[each.topic]) for each in self._groups]))


class _Refused:
    """The result of a part that the client did not accept."""

    error: KafkaError | None = None
    any_acknowledged = False

    def __init__(self, group: Group, error: KafkaError, written: Written) -> None:
        self.outcomes = [RecordFailure(error, Phase.METADATA, written, 0)] * len(group.records)


def _refused(group: Group, error: Exception) -> _Refused:
    """Returns the result of a part for which the client raised `error`."""
    if isinstance(error, KafkaError):
        return _Refused(group, error, Written.NO)
    if isinstance(error, IllegalStateError):
        return _Refused(group, ProducerClosedError("the sidecar is shutting down"), Written.NO)
    _log.error("records of topic %s could not be submitted", group.topic, exc_info=error)
    return _Refused(group, UnknownServerError(problem_of_bug().detail), Written.UNKNOWN)


class _Tickets:
    """The tickets of all parts."""

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self._tickets = tickets

    def cancel(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()


class PermitShare(Permit):
    """One part's share of a request's permit, which the last of them releases.

    As any permit, it may be released again: a part that raised while it was submitted may still end later.
    """

    __slots__ = ("_at", "_left", "_whole")

    def __init__(self, whole: Permit, share_bytes: int, at: int, left: set[int]) -> None:
        """`left` has the numbers of the parts that hold a share; `at` is its own."""
        self._whole = whole
        self._at = at
        self._left = left
        self.share = whole.share
        self.bytes = share_bytes

    def hand_on(self) -> None:
        self._whole.hand_on()

    def release_bytes(self) -> None:
        self._left.discard(self._at)
        if not self._left:
            self._whole.release_bytes()


def submit_groups(
    groups: Sequence[Group],
    submit_one: Callable[[Group, Permit, Done, Done], Ticket],
    permit: Permit,
    done: Done,
    settled: Callable[[Result], None] | None,
) -> Ticket:
    """Submits each part with `submit_one(group, permit, done, settled)`; returns a ticket for all.

    Raises what it raises for the first part: nothing was accepted.
    """
    ended = _Join(groups, done)
    all_settled = _Join(groups, _nothing if settled is None else settled)
    left = set(range(len(groups)))
    tickets: list[Ticket] = []
    for at, group in enumerate(groups):
        # The first one holds what can't be shared out.
        share_bytes = permit.bytes // len(groups) + (permit.bytes % len(groups) if at == 0 else 0)
        share = PermitShare(permit, share_bytes, at, left)
        try:
            tickets.append(submit_one(group, share, ended.of(group), all_settled.of(group)))
        except Exception as e:
            if not tickets:
                raise
            refused = _refused(group, e)
            share.release_bytes()
            all_settled.of(group)(refused)
            ended.of(group)(refused)
    return _Tickets(tickets)


def _nothing(_: Result) -> None:
    """Does nothing."""
