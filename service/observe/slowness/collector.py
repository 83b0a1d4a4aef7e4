"""Records recent times and failures of nodes and phases, from the client's events.

`Slowness` is an EventSink. It costs a short lock and a few additions per batch or request, nothing per
record. Its memory is bounded: a minute of times and the last failure of each broker, fifty leader changes.
`judging.py` derives findings from it. Any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from client_core import Clock, Errors
from client_core import events as e
from service.observe.slowness.recent_times import (
    LATEST_SLOTS,
    NOTHING_RECENT,
    PerSecond,
    Recent,
    RecentTimes,
    Second,
)

#: The number of leader changes that are kept.
LEADER_CHANGES: Final = 50

#: Failures of a node within this time of each other are one run. Retries come at least once a second
#: (retry.backoff.max.ms), and a request may take some time to fail.
RUN_GAP_MS: Final = 10_000

#: The API of produce requests, as events name it.
PRODUCE: Final = "Produce"

#: How long a broker's times and last failure are kept after it left the cluster, as a dead one does.
KEPT_AFTER_LEAVING_MS: Final = 3_600_000

#: More brokers than a cluster has. A late event may add a broker that left; this limit drops it later.
MAX_NODES: Final = 1_000

#: Reasons of `NodeDisconnected` that are no failures.
_NO_FAILURES: Final = frozenset({"idle", "local"})


@dataclass(frozen=True, slots=True)
class Failure:
    """A node's last failure: the name of Kafka's error, or the reason in NodeDisconnected.

    `api` is that of the request, or None for the connection. `since_ms` and `last_ms` are the times of the
    first and the last failure of its run; `times` is the number of failures in the run.
    """

    api: str | None
    error: str
    detail: str
    since_ms: int
    last_ms: int
    times: int


@dataclass(frozen=True, slots=True)
class NodeSlowness:
    """One broker: Produce requests of the last minute, last failure, latest requests by API.

    `others` are its requests of the last minute that are not Produce.
    """

    produce: Recent
    last_failure: Failure | None
    latest: Mapping[str, Recent] = field(default_factory=dict)
    others: Recent = NOTHING_RECENT


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """A leader change, and when it was reported."""

    at_wall_ms: int
    topic: str
    change: e.LeaderChange


@dataclass(frozen=True, slots=True)
class Observed:
    """All observations at one moment. Phases by name: metadata, buffer, queue, delivery."""

    nodes: Mapping[int, NodeSlowness]
    phases: Mapping[str, Recent]
    produce: Recent
    seconds: list[Second]
    records: int
    failed_records: int
    delivered_bytes: int
    leader_moves: list[LeaderMove]


class _Node:
    __slots__ = ("failure", "others", "requests")

    def __init__(self) -> None:
        #: By API. A producer uses about six.
        self.requests: dict[str, RecentTimes] = {PRODUCE: RecentTimes()}
        self.others = RecentTimes()
        self.failure: Failure | None = None

    def summary(self, now_ms: int) -> NodeSlowness:
        return NodeSlowness(
            self.requests[PRODUCE].summary(now_ms),
            self.failure,
            {api: times.latest(now_ms) for api, times in self.requests.items()},
            self.others.summary(now_ms),
        )


class Slowness:
    """Collects events, and summarises them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[int, _Node] = {}
        #: Brokers that left, and when. The latest is the last.
        self._left_ms: dict[int, int] = {}
        self._phases = {phase: RecentTimes() for phase in ("metadata", "buffer", "queue", "delivery")}
        self._produce = RecentTimes()
        self._seconds = PerSecond()
        self._records = 0
        self._failed_records = 0
        self._delivered_bytes = 0
        self._leader_moves: deque[LeaderMove] = deque(maxlen=LEADER_CHANGES)
        self._takers: dict[type, Callable[[Any], None]] = {
            e.RequestCompleted: self._on_request,
            e.BatchSent: self._on_batch_sent,
            e.BatchRetried: self._on_batch_retried,
            e.ProduceFinished: self._on_produce_finished,
            e.RecordsCancelled: self._on_records_cancelled,
            e.WaitFinished: self._on_wait,
            e.LeadersChanged: self._on_leaders,
            e.NodeDisconnected: self._on_disconnected,
            e.BrokersChanged: self._on_brokers,
        }

    def wants(self, kind: type) -> bool:
        """See `service.process.app.Subscriber`."""
        return kind in self._takers

    def emit(self, event: e.Event, /) -> None:
        """Records one event."""
        take = self._takers.get(type(event))
        if take is not None:
            with self._lock:
                take(event)

    def latencies(self) -> Mapping[int, tuple[Recent, Recent]]:
        """Returns the Produce and the other requests of the last minute, by broker. Any thread.

        The lock is held for one broker at a time: the I/O thread may wait for it.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            nodes = dict(self._nodes)
        found: dict[int, tuple[Recent, Recent]] = {}
        for node_id, node in nodes.items():
            with self._lock:
                found[node_id] = node.requests[PRODUCE].summary(now_ms), node.others.summary(now_ms)
        return found

    def observed(self) -> Observed:
        """Returns what is known at this moment."""
        now_ms = self._clock.now_ms()
        with self._lock:
            return Observed(
                nodes={node_id: node.summary(now_ms) for node_id, node in self._nodes.items()},
                phases={phase: times.summary(now_ms) for phase, times in self._phases.items()},
                produce=self._produce.summary(now_ms),
                seconds=self._seconds.whole_seconds(now_ms),
                records=self._records,
                failed_records=self._failed_records,
                delivered_bytes=self._delivered_bytes,
                leader_moves=list(self._leader_moves),
            )

    # -- events, under the lock ------------------------------------------------------------------------------

    def _on_request(self, event: e.RequestCompleted) -> None:
        now_ms = self._clock.now_ms()
        if event.error is not Errors.NONE:
            self._fail(event.node_id, event.api, event.error.name, event.error.message, now_ms)
            return
        requests = self._node(event.node_id).requests
        times = requests.get(event.api)
        if times is None:
            times = requests[event.api] = RecentTimes(LATEST_SLOTS)
        times.add(event.latency_ms, now_ms)
        if event.api == PRODUCE:
            self._phases["delivery"].add(event.latency_ms, now_ms)
        else:
            self._node(event.node_id).others.add(event.latency_ms, now_ms)

    def _on_batch_sent(self, event: e.BatchSent) -> None:
        self._phases["queue"].add(event.queue_ms, self._clock.now_ms())

    def _on_batch_retried(self, event: e.BatchRetried) -> None:
        self._fail(event.node_id, PRODUCE, event.error.name, event.error.message, self._clock.now_ms())

    def _on_produce_finished(self, event: e.ProduceFinished) -> None:
        now_ms = self._clock.now_ms()
        second = self._seconds.at(now_ms)
        if event.error is not Errors.NONE:
            self._failed_records += event.records
            second.failed_records += event.records
            if event.node_id is not None:
                self._fail(event.node_id, PRODUCE, event.error.name, event.error.message, now_ms)
            return
        self._records += event.records
        self._delivered_bytes += event.batch_bytes
        self._produce.add(event.produce_ms, now_ms)
        second.records += event.records
        second.delivered_bytes += event.batch_bytes
        second.batches += 1
        second.total_ms += event.produce_ms
        second.max_ms = max(second.max_ms, event.produce_ms)

    def _on_records_cancelled(self, event: e.RecordsCancelled) -> None:
        self._failed_records += event.records
        self._seconds.at(self._clock.now_ms()).failed_records += event.records

    def _on_wait(self, event: e.WaitFinished) -> None:
        times = self._phases.get(event.phase)
        if times is not None:  # a flush is not a phase of a produce
            times.add(event.waited_ms, self._clock.now_ms())

    def _on_leaders(self, event: e.LeadersChanged) -> None:
        at_wall_ms = self._clock.wall_ms()
        for change in event.changes(last=LEADER_CHANGES):
            self._leader_moves.append(LeaderMove(at_wall_ms, event.topic, change))

    def _on_disconnected(self, event: e.NodeDisconnected) -> None:
        if event.reason not in _NO_FAILURES:
            self._fail(event.node_id, None, event.reason, event.detail, self._clock.now_ms())

    def _on_brokers(self, event: e.BrokersChanged) -> None:
        now_ms = self._clock.now_ms()
        for node_id in event.joined:
            self._left_ms.pop(node_id, None)
        for node_id in event.left:
            self._left_ms[node_id] = now_ms
        for node_id, left_ms in tuple(self._left_ms.items()):
            if now_ms - left_ms < KEPT_AFTER_LEAVING_MS and len(self._left_ms) <= MAX_NODES:
                break
            del self._left_ms[node_id]
            self._nodes.pop(node_id, None)

    # -- nodes -----------------------------------------------------------------------------------------------

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            if len(self._nodes) >= MAX_NODES:
                del self._nodes[next(iter(self._nodes))]
            node = self._nodes[node_id] = _Node()
        return node

    def _fail(self, node_id: int, api: str | None, error: str, detail: str, now_ms: int) -> None:
        node = self._node(node_id)
        before = node.failure
        if before is None or now_ms - before.last_ms > RUN_GAP_MS:
            node.failure = Failure(api, error, detail, now_ms, now_ms, 1)
        else:
            node.failure = Failure(api, error, detail, before.since_ms, now_ms, before.times + 1)
