"""Finds what makes a produce slow now, and explains it in sentences for an operator. Pure.

A wait is slow from `slow_after_ms` on; a node is also slow if it is much slower than the others. The most
important finding comes first: causes that stop everything, then a node or partition that is stopped, then
what is merely slow. Findings of one kind are sorted by the number of waiting records. Past slowness of nodes
is reported only if no node is slow now, and older slowness only if no node was slow later. Otherwise a node
that has recovered would be named beside the slow one. Topics that the caller may not read are counted, but
not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import itemgetter
from statistics import median
from typing import Final, NamedTuple

from client_core import Backlog, BatchCount, Cause, ClientStatus, Errors, NodeStatus, Phase, TopicWait
from service.observe.slowness.collector import PRODUCE, RUN_GAP_MS, NodeSlowness
from service.observe.slowness.recent_times import LATEST_S, NOTHING_RECENT

#: The most topics or partitions named in one sentence.
_NAMED: Final = 3

#: The most sentences about topics that requests wait for.
_TOPICS_REPORTED: Final = 10

#: A node is slower than the others if half of its responses took this long, and so many times as long as the
#: median of the others. Racks and zones make smaller differences.
_SLOWER_FROM_MS: Final = 100
_TIMES_SLOWER: Final = 5
_ENOUGH_TO_COMPARE: Final = 3


class Finding(NamedTuple):
    """One cause. `node` is None if it is not about a node. `phase` says where the records wait.

    Phases: client, metadata, buffer, queue (waiting in a batch), delivery (on the wire). `kafka_error` is
    Kafka's name of the cause, None if nothing has failed.
    """

    node: int | None
    phase: str
    detail: str
    kafka_error: str | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of the client that findings are derived from. Ages are computed at `now_ms`."""

    now_ms: int
    status: ClientStatus
    backlog: Backlog
    nodes: Mapping[int, NodeSlowness]
    slow_after_ms: int
    linger_ms: int
    needs_producer_id: bool
    waits_for_replicas: bool  # acks=all
    may_read: Callable[[str], bool]


class _Rank(IntEnum):
    """The kinds of findings, the most serious first."""

    CLIENT = 0
    NO_METADATA = 1
    UNREACHABLE = 2
    PRODUCER_ID = 3
    LEADERLESS = 4
    NODE = 5
    BUFFER = 6
    TOPIC = 7
    STALE = 8
    SLOWER = 9
    LATELY = 10
    BEFORE = 11


#: The findings about single nodes.
_OF_NODES: Final = frozenset({_Rank.UNREACHABLE, _Rank.NODE, _Rank.SLOWER, _Rank.LATELY, _Rank.BEFORE})


class _Ranked(NamedTuple):
    rank: _Rank
    weight: int
    finding: Finding


def judge(picture: Picture) -> list[Finding]:
    """Returns what is slow and why, the most important first; empty if nothing is slow."""
    slower = _slower_than_the_others(picture)
    unreachable = list(_unreachable(picture))
    found = [
        *_client(picture),
        *_metadata(picture),
        *unreachable,
        *_producer_id(picture),
        *(ranked for node in picture.status.nodes for ranked in _node(picture, node, slower)),
        *_leaderless(picture),
        *_buffer(picture),
        *(() if unreachable else _topics(picture)),
    ]
    gravest = min((ranked.rank for ranked in found if ranked.rank in _OF_NODES), default=_Rank.BEFORE)
    is_over = [rank for rank in (_Rank.LATELY, _Rank.BEFORE) if rank > gravest]
    found = [ranked for ranked in found if ranked.rank not in is_over]
    found.sort(key=lambda ranked: (ranked.rank, -ranked.weight))
    return [ranked.finding for ranked in found]


# -- the whole -----------------------------------------------------------------------------------------------


def _client(picture: Picture) -> Iterator[_Ranked]:
    if picture.status.state == "failed":
        detail = "the client's I/O thread has died: restart the sidecar; its log says why"
        yield _Ranked(_Rank.CLIENT, 0, Finding(None, "client", detail))


def _metadata(picture: Picture) -> Iterator[_Ranked]:
    status, metadata = picture.status, picture.status.metadata
    if metadata.age_ms is None:
        errors = [
            (node.last_error_age_ms or 0, _aged(node.last_error, node.last_error_age_ms))
            for node in status.nodes
            if node.last_error
        ]
        error = min(errors)[1] if errors else _aged(metadata.last_error, metadata.last_error_age_ms)
        cause = status.cause_of_silence
        if error is None and cause is not None and _is_slow(picture, cause.since_ms):
            error = cause.detail
        if error is None and not _is_slow(picture, _oldest_ms(picture, picture.backlog.topic_waits)):
            return  # the client has just started
        said = f": {error}" if error else ""
        waiting = f"; {_number(status.waiting_for_metadata)} requests and look-ups wait"
        detail = f"no broker of bootstrap.servers has answered yet{said}{waiting}"
        name = Errors.BROKER_NOT_AVAILABLE.name if cause is None else cause.error.name
        yield _Ranked(_Rank.NO_METADATA, 0, Finding(None, "metadata", detail, name))
    elif metadata.last_error_age_ms is not None and (
        metadata.last_error_age_ms < metadata.age_ms and metadata.age_ms >= picture.slow_after_ms
    ):
        error = _aged(metadata.last_error, metadata.last_error_age_ms)
        age = _seconds(metadata.age_ms)
        detail = f"metadata can't be refreshed ({error}): it is {age} old, and leaders may have moved"
        is_cut_off = all(node.state != "ready" for node in status.nodes)
        known = _name_of(status.cause_of_silence if is_cut_off else None)
        yield _Ranked(_Rank.STALE, 0, Finding(None, "metadata", detail, known))


def _unreachable(picture: Picture) -> Iterator[_Ranked]:
    """Yields a finding if requests wait for metadata because the client has asked all brokers in vain.

    It begins again with bootstrap.servers then, and knows no topics.
    """
    waits = [wait for wait in picture.backlog.topic_waits if wait.phase is Phase.METADATA]
    oldest_ms, nodes = _oldest_ms(picture, waits), picture.status.nodes
    if picture.status.metadata.age_ms is None or oldest_ms is None or oldest_ms < picture.slow_after_ms:
        return
    failed = [(node.last_error_age_ms, node) for node in nodes if node.last_error_age_ms is not None]
    if not failed or len(failed) < len(nodes) or any(node.state == "ready" for node in nodes):
        return
    _, last = min(failed, key=itemgetter(0))
    requests = sum(wait.requests for wait in waits)
    detail = (
        f"no broker can be reached: {_aged(last.last_error, last.last_error_age_ms)}; "
        f"{_requests(requests)} for metadata, the oldest for {_seconds(oldest_ms)}"
    )
    yield _Ranked(_Rank.UNREACHABLE, requests, Finding(None, "metadata", detail, _name_of(last.cause)))


def _producer_id(picture: Picture) -> Iterator[_Ranked]:
    status, queued = picture.status, total_of(picture.backlog.queued.values())
    if not picture.needs_producer_id or status.producer_id is not None or status.metadata.age_ms is None:
        return
    if _is_slow(picture, _age_ms(picture, queued)):
        detail = (
            "no broker has assigned a producer id yet (InitProducerId), and an idempotent producer sends"
            f" nothing without one; {_records_wait(queued)} for it{_because(queued)}"
        )
        finding = Finding(None, "queue", detail, _name_of(queued.cause))
        yield _Ranked(_Rank.PRODUCER_ID, queued.records, finding)


# -- nodes ---------------------------------------------------------------------------------------------------


def _node(picture: Picture, node: NodeStatus, slower: Mapping[int, str]) -> Iterator[_Ranked]:
    """Yields at most one finding about a node: the first cause that applies."""
    waiting = picture.backlog.by_node.get(node.id, BatchCount())
    for rank, cause in _causes(picture, node, waiting, slower.get(node.id)):
        if cause is not None:
            yield _Ranked(rank, waiting.records, Finding(node.id, *cause))
            return


#: The phase, the sentence, and Kafka's name of the cause if something has failed.
_Cause = tuple[str, str, str | None]


def _causes(
    picture: Picture, node: NodeStatus, waiting: BatchCount, slower: str | None
) -> Iterator[tuple[_Rank, _Cause | None]]:
    """Yields the rank of each possible cause, the most serious first; None if it does not apply."""
    who = f"node {node.id}" if node.id >= 0 else f"{node.host}:{node.port} of bootstrap.servers"
    they_wait = f"; {_records_wait(waiting)} for it" if waiting.records else ""
    if _is_slow(picture, _age_ms(picture, waiting)):
        yield _Rank.UNREACHABLE, _not_connected(node, who, they_wait)
        yield _Rank.NODE, _throttled(node, who, they_wait)
        yield _Rank.NODE, _refusing(picture, node, who, they_wait)
    yield _Rank.NODE, _busy(picture, node, who, they_wait)
    queued = picture.backlog.queued.get(node.id, BatchCount())
    age_ms = _age_ms(picture, queued)
    if age_ms is not None and age_ms >= picture.linger_ms + picture.slow_after_ms:
        detail = f"{_records_wait(queued)} in batches for {who}, the oldest for {_seconds(age_ms)}"
        yield _Rank.NODE, ("queue", f"{detail}{_because(queued)}", _name_of(queued.cause))
    if slower is not None:
        yield _Rank.SLOWER, ("delivery", f"{who} {slower}{_where(picture, node)}", None)
    yield _Rank.LATELY, _slow_lately(picture, node, who)
    yield _Rank.BEFORE, _slow_before(picture, node, who)


def _not_connected(node: NodeStatus, who: str, they_wait: str) -> _Cause | None:
    name = _name_of(node.cause)
    address = f"{who} ({node.host}:{node.port})"
    said = f": {_aged(node.last_error, node.last_error_age_ms)}" if node.last_error else ""
    if node.state == "authentication_failed":
        return "queue", f"{address} rejects our credentials{said}{they_wait}", name
    if node.state == "disconnected":
        again = f"; next attempt in {_seconds(node.backoff_left_ms)}" if node.backoff_left_ms else ""
        return "queue", f"{address} is not connected{said}{again}{they_wait}", name
    if node.state != "ready":
        return "queue", f"a connection to {address} is being set up ({node.state}){said}{they_wait}", name
    return None


def _throttled(node: NodeStatus, who: str, they_wait: str) -> _Cause | None:
    if not node.throttle_left_ms:
        return None
    left = _seconds(node.throttle_left_ms)
    detail = f"{who} asked for a pause (a quota), of which {left} are left{they_wait}"
    return "queue", detail, Errors.THROTTLING_QUOTA_EXCEEDED.name


def _refusing(picture: Picture, node: NodeStatus, who: str, they_wait: str) -> _Cause | None:
    """Returns a cause if the node answers, but has failed Produce requests lately."""
    known = picture.nodes.get(node.id)
    failure = None if known is None else known.last_failure
    if failure is None or failure.api != PRODUCE or picture.now_ms - failure.last_ms > RUN_GAP_MS:
        return None
    since = _seconds(picture.now_ms - failure.since_ms)
    detail = f"{who} fails with {failure.error} ({failure.detail}) for {since}{they_wait}"
    return "delivery", detail, failure.error


def _busy(picture: Picture, node: NodeStatus, who: str, they_wait: str) -> _Cause | None:
    age_ms = node.oldest_in_flight_age_ms
    if age_ms is None or not _is_slow(picture, age_ms):
        return None
    requests = _counted(node.in_flight_requests, "request")
    detail = f"{who} has {requests} in flight, the oldest for {_seconds(age_ms)}{they_wait}"
    return "delivery", f"{detail}{_where(picture, node)}", Errors.REQUEST_TIMED_OUT.name


def _where(picture: Picture, node: NodeStatus) -> str:
    """Returns whether the broker itself or what it waits for is slow, as far as its other requests show.

    With acks=all a leader answers a produce when all replicas in sync have the records. Its other requests
    wait for no replica and for no disk.
    """
    known = picture.nodes.get(node.id)
    others = NOTHING_RECENT if known is None else known.others
    if others.max_ms is None:
        return ""
    requests = _counted(others.count, "other request")
    if others.max_ms >= min(_SLOWER_FROM_MS, picture.slow_after_ms):
        return f"; {requests} of the last minute were slow too: the broker is slow, or the way to it"
    if not picture.waits_for_replicas:
        return f"; {requests} of the last minute were quick: its disk may be slow"
    return f"; {requests} of the last minute were quick: a follower may be slow, or its disk"


def _slow_lately(picture: Picture, node: NodeStatus, who: str) -> _Cause | None:
    known = picture.nodes.get(node.id)
    for api, times in () if known is None else known.latest.items():
        if times.p99_ms is not None and times.max_ms is not None and _is_slow(picture, times.p99_ms):
            phase = "delivery" if api == PRODUCE else "metadata"
            requests = _counted(times.count, f"{api} request")
            said = f"answers late: of {requests} in the last {LATEST_S} s the longest took"
            where = _where(picture, node) if api == PRODUCE else ""
            return phase, f"{who} {said} {_seconds(times.max_ms)}{where}", None
    return None


def _slower_than_the_others(picture: Picture) -> Mapping[int, str]:
    """Returns a text for each node that was far slower than the others lately, by enough requests."""
    p50_ms = {
        node.id: times.p50_ms
        for node in picture.status.nodes
        if (known := picture.nodes.get(node.id)) is not None
        and (times := known.latest.get(PRODUCE, NOTHING_RECENT)).p50_ms is not None
        and times.count >= _ENOUGH_TO_COMPARE
    }
    slower: dict[int, str] = {}
    for node_id, own_ms in p50_ms.items():
        others_ms = [other_ms for other, other_ms in p50_ms.items() if other != node_id]
        if not others_ms or own_ms < _SLOWER_FROM_MS:
            continue
        usual_ms = median(others_ms)
        if own_ms >= _TIMES_SLOWER * usual_ms:
            slower[node_id] = (
                "answers far later than the others: half of its Produce requests of the last "
                f"{LATEST_S} s took {_number(own_ms)} ms or more, those of the others "
                f"{_number(round(usual_ms))} ms"
            )
    return slower


def _slow_before(picture: Picture, node: NodeStatus, who: str) -> _Cause | None:
    known = picture.nodes.get(node.id)
    recent = NOTHING_RECENT if known is None else known.produce
    if recent.p99_ms is None or recent.max_ms is None or recent.p99_ms < picture.slow_after_ms:
        return None
    detail = (
        f"{who} was slow in the last minute: {_number(recent.count)} Produce requests, one in a hundred took "
        f"{_seconds(recent.p99_ms)} or more, the longest {_seconds(recent.max_ms)}"
    )
    return "delivery", detail, None


# -- partitions and topics -----------------------------------------------------------------------------------


def _leaderless(picture: Picture) -> Iterator[_Ranked]:
    waiting = picture.backlog.queued.get(None, BatchCount())
    if picture.status.metadata.age_ms is None or not _is_slow(picture, _age_ms(picture, waiting)):
        return
    visible = [
        str(partition) for partition in picture.backlog.leaderless if picture.may_read(partition.topic)
    ]
    detail = f"{_records_wait(waiting)} for a leader: {_named(visible, len(picture.backlog.leaderless))}"
    finding = Finding(None, "queue", detail, Errors.LEADER_NOT_AVAILABLE.name)
    yield _Ranked(_Rank.LEADERLESS, waiting.records, finding)


def _buffer(picture: Picture) -> Iterator[_Ranked]:
    waits = [wait for wait in picture.backlog.topic_waits if wait.phase is Phase.BUFFER]
    oldest_ms = _oldest_ms(picture, waits)
    if oldest_ms is None or oldest_ms < picture.slow_after_ms:
        return
    requests = sum(wait.requests for wait in waits)
    by_node = picture.backlog.by_node.items()
    late = [item for item in by_node if _is_slow(picture, _age_ms(picture, item[1]))]
    fullest = max(late or by_node, key=lambda item: item[1].records, default=None)
    because = ""
    if fullest is not None:
        whom = "a leader" if fullest[0] is None else f"node {fullest[0]}"
        because = f"; most of its records wait for {whom} ({_records(fullest[1])})"
    detail = (
        f"buffer.memory ({_number(picture.status.buffer.total_bytes)} bytes) is full: {_requests(requests)} "
        f"for it, the oldest for {_seconds(oldest_ms)}{because}"
    )
    node_id, name = None, None
    if fullest is not None:
        node_id, name = fullest[0], _name_of(fullest[1].cause)
        detail += _because(fullest[1])
    yield _Ranked(_Rank.BUFFER, requests, Finding(node_id, "buffer", detail, name))


def _topics(picture: Picture) -> Iterator[_Ranked]:
    """Yields findings about topics or partitions that requests wait for and the brokers do not know."""
    if picture.status.metadata.age_ms is None:
        return
    waits = [
        wait
        for wait in picture.backlog.topic_waits
        if wait.phase is Phase.METADATA and _is_slow(picture, picture.now_ms - wait.oldest_submitted_ms)
    ]
    waits.sort(key=lambda wait: -wait.requests)
    reported = [wait for wait in waits if picture.may_read(wait.topic)][:_TOPICS_REPORTED]
    for wait in reported:
        since = _seconds(picture.now_ms - wait.oldest_submitted_ms)
        what = (
            f"a partition that topic {wait.topic} does not have"
            if wait.lacks_partition
            else f"topic {wait.topic}, which the brokers do not list"
        )
        detail = f"{_requests(wait.requests)} for {what}, the oldest for {since}"
        name = Errors.UNKNOWN_TOPIC_OR_PARTITION.name
        yield _Ranked(_Rank.TOPIC, wait.requests, Finding(None, "metadata", detail, name))
    others = len(waits) - len(reported)
    if others:
        requests = sum(wait.requests for wait in waits) - sum(wait.requests for wait in reported)
        detail = f"{_requests(requests)} for {_counted(others, 'other topic')}"
        yield _Ranked(_Rank.TOPIC, 0, Finding(None, "metadata", detail))


# -- ages ----------------------------------------------------------------------------------------------------


def _is_slow(picture: Picture, age_ms: int | None) -> bool:
    return age_ms is not None and age_ms >= picture.slow_after_ms


def _age_ms(picture: Picture, batches: BatchCount) -> int | None:
    oldest_ms = batches.oldest_created_ms
    return None if oldest_ms is None else max(picture.now_ms - oldest_ms, 0)


def _oldest_ms(picture: Picture, waits: Sequence[TopicWait]) -> int | None:
    oldest_ms = min((wait.oldest_submitted_ms for wait in waits), default=None)
    return None if oldest_ms is None else max(picture.now_ms - oldest_ms, 0)


def total_of(counts: Iterable[BatchCount]) -> BatchCount:
    """Adds up counts of disjoint partitions."""
    listed = list(counts)
    oldest = [count.oldest_created_ms for count in listed if count.oldest_created_ms is not None]
    return BatchCount(
        sum(count.batches for count in listed),
        sum(count.records for count in listed),
        sum(count.partitions for count in listed),
        min(oldest, default=None),
    )


# -- words ---------------------------------------------------------------------------------------------------


def _because(waiting: BatchCount) -> str:
    """Returns why the oldest of the batches waits, without a broker's text: it may name a topic."""
    cause = waiting.cause
    return "" if cause is None else f", because of {cause.error.name} for {_seconds(cause.since_ms)}"


def _name_of(cause: Cause | None) -> str | None:
    return None if cause is None else cause.error.name


def _number(number: int) -> str:
    return f"{number:,}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _aged(error: str | None, age_ms: int | None) -> str | None:
    """Returns an error with its age, because an old error does not cause present slowness."""
    return error if error is None or age_ms is None else f"{error}, {_seconds(age_ms)} ago"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def _requests(requests: int) -> str:
    return f"{_counted(requests, 'request')} wait{'s' * (requests == 1)}"


def _records(batches: BatchCount) -> str:
    return f"{_counted(batches.records, 'record')} of {_counted(batches.partitions, 'partition')}"


def _records_wait(batches: BatchCount) -> str:
    return f"{_records(batches)} wait{'s' * (batches.records == 1)}"


def _named(visible: Sequence[str], total: int) -> str:
    """Returns some names, and the number of the others."""
    named = ", ".join(visible[:_NAMED])
    others = total - min(len(visible), _NAMED)
    if not others:
        return named
    return f"{named} and {_number(others)} more" if named else f"{_number(others)} partitions"
