"""Decides what is one incident: from who was missing, which leaders moved and which records failed.

    broker_down        a broker failed or was restarted: partitions lack it, leaders move, produces fail
    replicas_behind    a partition lacks replicas whose brokers are up, for SHORT_FOR_US or more in all
    leader_flapping    a partition's leader moves again and again, and no broker was down
    produces_failing   records of a topic fail, and none of the above explains it

Of one subject, what is less than APART_US apart is one incident, whose parts `times` counts.

**Outages.** No event says that a broker is down. Counted is from how many partitions it is missing, at each
moment: its outage lasts while that is a third of its replicas, and two or more. A broker that lost the
leadership and its place in the ISR of a partition at once was down, even if it is only one partition. A
follower that falls behind is missing from few partitions, and loses no leadership.

**Explanations.** A shortage or a move is explained by an outage of its broker around that time. Failed
records are explained by an incident of their partition, or an outage of their broker, if the error is one
that a lost broker causes (OF_BROKERS). TOPIC_AUTHORIZATION_FAILED is never explained by a broker.

Pure Python without Spark: incidents.py passes in one cluster's facts at a time. Times are microseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BROKER_DOWN: Final = "broker_down"
REPLICAS_BEHIND: Final = "replicas_behind"
LEADER_FLAPPING: Final = "leader_flapping"
PRODUCES_FAILING: Final = "produces_failing"

_SECOND_US: Final = 1_000_000
#: Twice the 300 s after which preferred leaders are elected.
APART_US: Final = 600 * _SECOND_US
#: A shorter shortage is a restart, or ended by itself.
SHORT_FOR_US: Final = 300 * _SECOND_US
#: A broker's restart changes a leader only twice: away and back.
FLAPPING_FROM_MOVES: Final = 3
#: The part of a broker's partitions that lack it while it is down. Slow sidecars see some too late.
_DOWN_FROM_SHARE: Final = 1 / 3
_DOWN_FROM_PARTITIONS: Final = 2
#: How much earlier or later than the outage itself its consequences are seen.
_AROUND_US: Final = 60 * _SECOND_US
#: A new leader and the ISR without the old one are one change, so sidecars see both at once.
_AT_ONCE_US: Final = 2 * _SECOND_US
#: A minute in which a smaller share of a topic's records fails is no incident, nor is a single minute.
_FAILING_SHARE: Final = 0.01
_FAILING_FROM_MINUTES: Final = 2
#: Failures are over if none came for this long before the last event.
_QUIET_US: Final = 180 * _SECOND_US

#: The errors that a lost broker, leader or replica causes.
OF_BROKERS: Final = frozenset(
    [
        *("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"),
        *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REPLICA_NOT_AVAILABLE"),
        *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"),
    ]
)


class Absence(NamedTuple):
    """A partition lacked this broker, from its first sight to that of another state; None: still."""

    topic: str
    topic_key: str
    partition: int
    broker: int
    since_us: int
    until_us: int | None

    @property
    def span(self) -> _Span:
        """Returns the time for which it lasted."""
        return _Span(self.since_us, self.until_us)


class Move(NamedTuple):
    """A partition's leader changed; None as leader is no leader. The next epoch began at `until_us`."""

    topic: str
    topic_key: str
    partition: int
    leader: int | None
    leader_before: int | None
    at_us: int
    until_us: int | None


class Failure(NamedTuple):
    """Records that failed with one error, of a partition, a broker and a service, in a minute.

    `acknowledged` are the topic's records that did not fail in that minute, of all partitions and services.
    """

    topic: str
    minute: int
    acknowledged: float
    partition: int
    broker: int
    service: str
    error: str
    records: int
    from_us: int
    to_us: int


class Incident(NamedTuple):
    """An incident. It is not over if `over_us` is None. Subjects that it does not have are -1 and ""."""

    kind: str
    broker: int
    topic: str
    partition: int
    began_us: int
    over_us: int | None
    times: int

    def is_around(self, from_us: int, to_us: int, before_us: int, after_us: int) -> bool:
        """Returns whether the time from `from_us` to `to_us` touches the incident's, or that around it."""
        return self.began_us - before_us <= to_us and (
            self.over_us is None or from_us <= self.over_us + after_us
        )


class Harm(NamedTuple):
    """What an incident hurt: (topic_key, partition) of its shortages and moves, and the failed records."""

    short: set[tuple[str, int]]
    moved: set[tuple[str, int]]
    failures: list[Failure]


class _Span(NamedTuple):
    from_us: int
    to_us: int | None


def incidents_of(
    absences: Iterable[Absence],
    moves: Iterable[Move],
    failures: Iterable[Failure],
    replicas: Mapping[int, int],
    now_us: int,
) -> Iterator[tuple[Incident, Harm]]:
    """Yields the incidents of a cluster. `replicas` counts the partitions with a replica on each broker."""
    judged = _Judged(absences, moves, replicas, now_us)
    judged.explain(failures)
    yield from judged.harm.items()


class _Judged:
    """The incidents found so far, with their harm, and what finds them again."""

    def __init__(
        self, absences: Iterable[Absence], moves: Iterable[Move], replicas: Mapping[int, int], now_us: int
    ) -> None:
        self._now_us: Final = now_us
        self.harm: Final[dict[Incident, Harm]] = {}
        self._down: Final[dict[int, list[Incident]]] = defaultdict(list)
        #: How often an outage explained a leader's move away from its broker (False) or back (True).
        self._moved: Final[Counter[tuple[Incident, tuple[str, int], bool]]] = Counter()
        #: By topic and partition.
        self._hurt: Final[dict[tuple[str, int], list[Incident]]] = defaultdict(list)
        moves = sorted(moves, key=lambda move: (move.at_us, move.topic_key, move.partition))
        absences = [*absences, *_leaderless(moves)]
        self._find_outages(absences, moves, replicas)
        self._find_behind([absence for absence in absences if not self._explains_absence(absence)])
        self._find_flapping([move for move in moves if not self._explains_move(move)])

    def _add(self, kind: str, broker: int, topic: str, partition: int, group: _Group) -> Incident:
        incident = Incident(kind, broker, topic, partition, group.began_us, group.over_us, group.times)
        self.harm[incident] = Harm(set(), set(), [])
        return incident

    # -- outages ---------------------------------------------------------------------------------------------

    def _find_outages(self, absences: list[Absence], moves: list[Move], replicas: Mapping[int, int]) -> None:
        lost: dict[tuple[str, int, int | None], list[int]] = defaultdict(list)
        for move in moves:
            lost[move.topic_key, move.partition, move.leader_before].append(move.at_us)
        of_brokers: dict[int, list[Absence]] = defaultdict(list)
        for absence in absences:
            of_brokers[absence.broker].append(absence)
        for broker, missing in sorted(of_brokers.items()):
            enough = max(_DOWN_FROM_PARTITIONS, -int(-replicas.get(broker, 0) * _DOWN_FROM_SHARE // 1))
            of_partitions: dict[tuple[str, int], list[_Span]] = defaultdict(list)
            for absence in missing:
                of_partitions[absence.topic_key, absence.partition].append(absence.span)
            steps: list[tuple[int, int]] = []
            for place, spans in of_partitions.items():
                for span in _joined(spans):
                    times = lost.get((*place, broker), ())
                    is_lost = any(abs(at_us - span.from_us) <= _AT_ONCE_US for at_us in times)
                    weight = enough if is_lost else 1
                    steps.append((span.from_us, weight))
                    if span.to_us is not None:
                        steps.append((span.to_us, -weight))
            for group in _grouped(_while_enough(steps, enough)):
                self._down[broker].append(self._add(BROKER_DOWN, broker, "", -1, group))

    def _explains_absence(self, absence: Absence) -> bool:
        """Returns whether an outage explains that it began, and counts it to that."""
        at_us = absence.since_us
        for incident in self._down.get(absence.broker, ()):
            if incident.is_around(at_us, at_us, _AROUND_US, _AROUND_US):
                self.harm[incident].short.add((absence.topic_key, absence.partition))
                self._hurts(incident, absence.topic, absence.partition)
                return True
        return False

    def _explains_move(self, move: Move) -> bool:
        """Returns whether an outage explains it, and counts a lost leadership to that.

        A broker that is back gets a leadership again, as often as it lost it: more is flapping.
        """
        place, at_us = (move.topic_key, move.partition), move.at_us
        is_explained = False
        for incident in self._down_of(move.leader_before):
            was_missing = place in self.harm[incident].short
            if was_missing and incident.is_around(at_us, at_us, _AROUND_US, _AROUND_US):
                times = self._moved[incident, place, False] = self._moved[incident, place, False] + 1
                is_explained |= times <= incident.times
                self.harm[incident].moved.add(place)
        for incident in self._down_of(move.leader):
            was_away = self._moved[incident, place, False] - self._moved[incident, place, True]
            if was_away > 0 and incident.is_around(at_us, at_us, 0, APART_US):
                self._moved[incident, place, True] += 1
                is_explained = True
        return is_explained

    def _down_of(self, broker: int | None) -> list[Incident]:
        return self._down.get(broker, []) if broker is not None else []

    def _hurts(self, incident: Incident, topic: str, partition: int) -> None:
        if incident not in self._hurt[topic, partition]:
            self._hurt[topic, partition].append(incident)

    # -- partitions ------------------------------------------------------------------------------------------

    def _find_behind(self, absences: list[Absence]) -> None:
        of_partitions: dict[tuple[str, str, int], list[Absence]] = defaultdict(list)
        for absence in absences:
            of_partitions[absence.topic, absence.topic_key, absence.partition].append(absence)
        for (topic, topic_key, partition), missing in sorted(of_partitions.items()):
            for group in _grouped(_joined(absence.span for absence in missing)):
                if group.lasted_us(self._now_us) >= SHORT_FOR_US:
                    incident = self._add(REPLICAS_BEHIND, -1, topic, partition, group)
                    self.harm[incident].short.add((topic_key, partition))
                    self._hurts(incident, topic, partition)

    def _find_flapping(self, moves: list[Move]) -> None:
        of_partitions: dict[tuple[str, str, int], list[Move]] = defaultdict(list)
        for move in moves:
            of_partitions[move.topic, move.topic_key, move.partition].append(move)
        for (topic, topic_key, partition), moved in sorted(of_partitions.items()):
            for group in _grouped(_Span(move.at_us, move.at_us) for move in moved):
                if group.times >= FLAPPING_FROM_MOVES:
                    over = group.over_if_quiet(self._now_us, APART_US)
                    incident = self._add(LEADER_FLAPPING, -1, topic, partition, over)
                    self.harm[incident].moved.add((topic_key, partition))
                    self._hurts(incident, topic, partition)

    # -- records ---------------------------------------------------------------------------------------------

    def explain(self, failures: Iterable[Failure]) -> None:
        """Counts failures to the incidents that explain them, and finds those of topics in the rest."""
        rest: dict[str, dict[int, list[Failure]]] = defaultdict(lambda: defaultdict(list))
        for failure in failures:
            incident = self._cause_of(failure)
            if incident is None:
                rest[failure.topic][failure.minute].append(failure)
            else:
                self.harm[incident].failures.append(failure)
        for topic, minutes in sorted(rest.items()):
            bad = [of_minute for _, of_minute in sorted(minutes.items()) if _is_bad(of_minute)]
            spans = (_Span(min(f.from_us for f in m), max(f.to_us for f in m)) for m in bad)
            for group in _grouped(spans):
                if group.times < _FAILING_FROM_MINUTES:
                    continue
                over = group.over_if_quiet(self._now_us, _QUIET_US)
                incident = self._add(PRODUCES_FAILING, -1, topic, -1, over)
                self.harm[incident].failures.extend(
                    failure
                    for of_minute in bad
                    for failure in of_minute
                    if group.began_us <= failure.from_us and failure.to_us <= group.last_us
                )

    def _cause_of(self, failure: Failure) -> Incident | None:
        """Returns the first incident that explains it."""
        if failure.error not in OF_BROKERS:
            return None
        span = (failure.from_us, failure.to_us)
        of_partition = self._hurt.get((failure.topic, failure.partition), ())
        causes = [one for one in of_partition if one.is_around(*span, _AROUND_US, APART_US)]
        causes += [
            one for one in self._down.get(failure.broker, ()) if one.is_around(*span, _AROUND_US, _AROUND_US)
        ]
        return min(causes, key=lambda one: one.began_us, default=None)


def _leaderless(moves: list[Move]) -> Iterator[Absence]:
    """Yields the times without a leader: a broker that failed alone in the ISR stays in it."""
    for move in moves:
        if move.leader is None and move.leader_before is not None:
            where = (move.topic, move.topic_key, move.partition)
            yield Absence(*where, move.leader_before, move.at_us, move.until_us)


def _joined(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yields spans that touch or overlap as one: who else was missing meanwhile makes no other shortage."""
    whole: _Span | None = None
    for span in sorted(spans, key=lambda span: span.from_us):
        if whole is None:
            whole = span
        elif whole.to_us is not None and span.from_us > whole.to_us:
            yield whole
            whole = span
        elif whole.to_us is not None:
            whole = whole._replace(to_us=None if span.to_us is None else max(whole.to_us, span.to_us))
    if whole is not None:
        yield whole


def _while_enough(steps: list[tuple[int, int]], enough: int) -> Iterator[_Span]:
    """Yields the times in which the sum of the steps is `enough` or more.

    Those of one instant are one: a refresh shows that one partition is whole again and another one is short.
    """
    level, since_us = 0, None
    for at_us, of_instant in groupby(sorted(steps), itemgetter(0)):
        level += sum(step for _, step in of_instant)
        if level >= enough and since_us is None:
            since_us = at_us
        elif level < enough and since_us is not None:
            yield _Span(since_us, at_us)
            since_us = None
    if since_us is not None:
        yield _Span(since_us, None)


def _is_bad(failures: list[Failure]) -> bool:
    failed = sum(failure.records for failure in failures)
    return failed >= (failed + failures[0].acknowledged) * _FAILING_SHARE


class _Group(NamedTuple):
    """Spans that are less than APART_US from each other."""

    began_us: int
    over_us: int | None
    last_us: int
    times: int
    closed_us: int
    open_since_us: int | None

    def lasted_us(self, now_us: int) -> int:
        """Returns the length of the spans together."""
        still_us = 0 if self.open_since_us is None else max(now_us - self.open_since_us, 0)
        return self.closed_us + still_us

    def over_if_quiet(self, now_us: int, quiet_us: int) -> _Group:
        """Returns it without an end if its last span ended less than this ago: more may follow."""
        return self if now_us - self.last_us >= quiet_us else self._replace(over_us=None)


def _grouped(spans: Iterable[_Span]) -> Iterator[_Group]:
    """Yields groups of spans in order of time; nothing is apart from a span that has not ended."""
    group: _Group | None = None
    for from_us, to_us in sorted(spans, key=lambda span: span.from_us):
        last_us = from_us if to_us is None else to_us
        one = _Group(from_us, to_us, last_us, 1, last_us - from_us, from_us if to_us is None else None)
        if group is None:
            group = one
        elif group.over_us is not None and from_us - group.last_us >= APART_US:
            yield group
            group = one
        else:
            is_over = group.over_us is not None and to_us is not None
            last_us = max(group.last_us, last_us)
            opened = [at for at in (group.open_since_us, one.open_since_us) if at is not None]
            group = _Group(
                group.began_us,
                last_us if is_over else None,
                last_us,
                group.times + 1,
                group.closed_us + one.closed_us,
                min(opened, default=None),
            )
    if group is not None:
        yield group
