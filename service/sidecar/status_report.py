"""Builds the answer of GET /v1/status: client status, recent observations, and causes of slowness.

Topics that the caller may not read are not named. An answer costs a walk over the unacknowledged batches and
the known topics: one per second is negligible. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final

import msgspec

from client_core import Backlog, BatchCount, Cause, NodeStatus, Phase, TopicWait
from service.admission.caller import Caller
from service.observe.http_metrics import PRODUCE_OUTCOMES
from service.observe.slowness.collector import Failure, LeaderMove, NodeSlowness, Observed
from service.observe.slowness.judging import Picture, judge, total_of
from service.observe.slowness.recent_times import NOTHING_RECENT, Second
from service.sidecar.sidecar import Sidecar
from service.wire.errors import cause_item
from service.wire.freshness import rfc3339, version_text

_encode: Final = msgspec.json.Encoder().encode

#: At most this many of the topics that requests wait for are listed, the most requested first.
_WAITS_LISTED: Final = 50

#: Maximum age of a status that watchers share; each watcher needs at most four per second.
SHARED_MS: Final = 100

_QUIET: Final = NodeSlowness(NOTHING_RECENT, None)

_OF_CONNECTION: Final = tuple(f.name for f in fields(NodeStatus) if f.name != "cause")


class StatusReport:
    """The status of one sidecar."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._slow_after_ms = sidecar.settings.internal.slow_after_ms
        #: The last shared body of each caller, and when it was built.
        self._shared: dict[Caller, tuple[int, bytes]] = {}

    def body(self, caller: Caller, *, history: bool = True) -> bytes:
        """Returns the current status as JSON; with `history`, includes each second of the last minute."""
        document = self.document(caller)
        if not history:
            document["produce"]["per_second"] = None
        return _encode(document)

    def shared_body(self, caller: Caller) -> bytes:
        """Returns the same, at most SHARED_MS old, for watchers that need it at the same time."""
        now_ms = self._sidecar.producer.clock.now_ms()
        kept = self._shared.get(caller)
        if kept is not None and now_ms - kept[0] < SHARED_MS:
            return kept[1]
        for other, (made_ms, _) in list(self._shared.items()):
            if now_ms - made_ms >= SHARED_MS:
                del self._shared[other]
        body = self.body(caller)
        self._shared[caller] = now_ms, body
        return body

    def document(self, caller: Caller) -> dict[str, Any]:
        """Returns the status before it is encoded."""
        sidecar, producer, config = self._sidecar, self._sidecar.producer, self._sidecar.config
        may_read = caller.read.allow
        observed, backlog, status = sidecar.slowness.observed(), producer.backlog(), producer.status()
        now_ms = producer.clock.now_ms()
        picture = Picture(
            now_ms=now_ms,
            status=status,
            backlog=backlog,
            nodes=observed.nodes,
            slow_after_ms=self._slow_after_ms,
            linger_ms=config.linger_ms,
            needs_producer_id=config.enable_idempotence,
            waits_for_replicas=config.acks == "all",
            may_read=may_read,
        )
        client = asdict(replace(status, nodes=()))
        del client["cause_of_silence"]  # `slow` has it
        nodes = [self._node(node, backlog, observed, now_ms, caller) for node in status.nodes]
        return {
            "state": client.pop("state"),
            "draining": sidecar.drain.begun,
            "version": version_text(sidecar.boot, producer.cache.update_version),
            "at": rfc3339(producer.clock.wall_ms()),
            "slow": [finding._asdict() for finding in judge(picture)],
            "waiting_requests": sidecar.admission.requests,
            "waiting_bytes": sidecar.admission.bytes,
            "watchers": sidecar.feed.watchers,
            **client,
            "nodes": nodes,
            "leaderless": self._batches(backlog.queued.get(None), now_ms, caller),
            "phases": _phases(picture, observed),
            "waits": _waits(backlog.topic_waits, may_read, now_ms),
            "produce": self._produce(observed, now_ms),
            "spool": None if sidecar.spool is None else sidecar.spool.status(may_read),
            "failed_requests": list(sidecar.failed.seen_by(caller)),
            "leader_changes": _leader_changes(observed.leader_moves, may_read),
        }

    def _node(
        self, node: NodeStatus, backlog: Backlog, observed: Observed, now_ms: int, caller: Caller
    ) -> dict[str, Any]:
        known = observed.nodes.get(node.id, _QUIET)
        return {
            **{name: getattr(node, name) for name in _OF_CONNECTION},
            "cause": None if node.cause is None else cause_item(node.cause),
            "produce": asdict(known.produce),
            "other_requests": asdict(known.others),
            "waiting": self._batches(backlog.queued.get(node.id), now_ms, caller),
            "on_the_wire": self._batches(backlog.in_flight.get(node.id), now_ms, caller),
            "last_failure": _failure(known.last_failure, now_ms),
        }

    def _batches(self, count: BatchCount | None, now_ms: int, caller: Caller) -> dict[str, Any]:
        count = count or BatchCount()
        oldest_ms = _age_ms(count.oldest_created_ms, now_ms)
        # A batch that has just been sent is not late, and has no cause yet.
        is_late = oldest_ms is not None and oldest_ms >= self._slow_after_ms
        return {
            "batches": count.batches,
            "records": count.records,
            "partitions": count.partitions,
            "oldest_ms": oldest_ms,
            "cause": _cause(count.cause, caller) if is_late and count.cause is not None else None,
        }

    def _produce(self, observed: Observed, now_ms: int) -> dict[str, Any]:
        counts = {outcome: self._sidecar.http.produced(outcome).count for outcome in PRODUCE_OUTCOMES}
        return {
            "requests": sum(counts.values()),
            "failed_requests": counts["error"],
            "records": observed.records,
            "failed_records": observed.failed_records,
            "bytes": observed.delivered_bytes,
            "latency": asdict(observed.produce),
            "per_second": _columns(observed.seconds),
        }


def _cause(cause: Cause, caller: Caller) -> dict[str, Any]:
    """Returns the cause; a broker's text only for callers that may read all topics: it may name one."""
    is_of_broker = cause.attempts > 0 and cause.reason is None
    return cause_item(
        cause._replace(detail=cause.error.message) if is_of_broker and not caller.may_read_all else cause
    )


def _failure(failure: Failure | None, now_ms: int) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "api": failure.api,
        "error": failure.error,
        "detail": failure.detail,
        "age_ms": _age_ms(failure.last_ms, now_ms),
        "since_ms": _age_ms(failure.since_ms, now_ms),
        "times": failure.times,
    }


def _phases(picture: Picture, observed: Observed) -> dict[str, Any]:
    """Returns what waits in each phase: requests in metadata and buffer, records in queue and delivery."""
    status, backlog = picture.status, picture.backlog
    by_phase: dict[Phase, list[int]] = {Phase.METADATA: [], Phase.BUFFER: []}
    for wait in backlog.topic_waits:
        by_phase[wait.phase].append(wait.oldest_submitted_ms)
    queued, in_flight = total_of(backlog.queued.values()), total_of(backlog.in_flight.values())
    waiting = {
        "metadata": (status.waiting_for_metadata, min(by_phase[Phase.METADATA], default=None)),
        "buffer": (
            max(status.waiting_for_buffer, status.buffer.waiters),
            min(by_phase[Phase.BUFFER], default=None),
        ),
        "queue": (queued.records, queued.oldest_created_ms),
        "delivery": (in_flight.records, in_flight.oldest_created_ms),
    }
    return {
        phase: {
            "waiting": number,
            "oldest_ms": _age_ms(oldest_ms, picture.now_ms),
            "recent": asdict(observed.phases[phase]),
        }
        for phase, (number, oldest_ms) in waiting.items()
    }


def _waits(waits: Sequence[TopicWait], may_read: Callable[[str], bool], now_ms: int) -> list[dict[str, Any]]:
    visible = sorted((wait for wait in waits if may_read(wait.topic)), key=lambda wait: -wait.requests)
    return [
        {
            "topic": wait.topic,
            "phase": wait.phase.value,
            "lacks_partition": wait.lacks_partition,
            "requests": wait.requests,
            "oldest_ms": _age_ms(wait.oldest_submitted_ms, now_ms),
        }
        for wait in visible[:_WAITS_LISTED]
    ]


def _columns(seconds: Sequence[Second]) -> dict[str, list[int | None]]:
    """Returns one list per quantity, oldest second first. Times are null if no batch ended in a second."""
    return {
        "records": [s.records for s in seconds],
        "failed_records": [s.failed_records for s in seconds],
        "bytes": [s.delivered_bytes for s in seconds],
        "mean_ms": [s.total_ms // s.batches if s.batches else None for s in seconds],
        "max_ms": [s.max_ms if s.batches else None for s in seconds],
    }


def _leader_changes(moves: Sequence[LeaderMove], may_read: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Returns the changes of topics that the caller may read, latest first."""
    return [
        {
            "at": rfc3339(move.at_wall_ms),
            "topic": move.topic,
            "partition": move.change.partition,
            "old_leader": move.change.old_leader_id,
            "new_leader": move.change.new_leader_id,
            "leader_epoch": move.change.leader_epoch,
        }
        for move in reversed(moves)
        if may_read(move.topic)
    ]


def _age_ms(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else max(now_ms - then_ms, 0)
