"""Writes the truth about a simulated run as JSON, for checks of the pipeline's results.

    cluster_id, start, end, events, lines, bytes, duplicates, late
    leader_changes     every epoch of every partition, in the order of time, with its cause
    isr_changes        every later state within an epoch
    topics             lives: name, id, created_at, deleted_at (null: still there), partitions at the end
    broker_failures    broker, down_at, back_at
    incidents          kind, broker, topic, topic_id, partition, began_at, ended_at, times, lasted_s
                       (account.py)
    slow_broker        the broker whose batches take about nine times as long
    hot_partition      topic, partition, the share of all events that are about it
    sidecars           their settings and faults, and the counts of each boot
    rejects            the number of lines by reason; rejected: each by its SHA-256

All times are the true ones, not those of the sidecars' clocks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.pipeline.simulate.account import Incident, incidents_of
from tests.pipeline.simulate.lines import Clock
from tests.pipeline.simulate.plan import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.pipeline.simulate.delivery import Rejected
    from tests.pipeline.simulate.fleet import Member
    from tests.pipeline.simulate.plan import Plan
    from tests.pipeline.simulate.sidecar import BootTruth
    from tests.pipeline.simulate.timeline import PartitionChange, Timeline


class SidecarTruth(NamedTuple):
    """The counts of one sidecar's lines."""

    number: int
    lines: int
    bytes_written: int
    boots: tuple[BootTruth, ...]
    rejected: tuple[Rejected, ...]
    duplicates: int
    late: int


def truth_of(
    plan: Plan, timeline: Timeline, members: Sequence[Member], reported: Sequence[SidecarTruth]
) -> dict[str, object]:
    """Returns the whole truth, ready for JSON."""
    leader_changes, isr_changes = _changes(timeline)
    events = sum(boot.events for one in reported for boot in one.boots)
    hot = sum(boot.on_hot_partition for one in reported for boot in one.boots)
    return {
        "plan": asdict(plan) | {"end": Clock().at(plan.end_us)},
        "cluster_id": timeline.cluster_id,
        "start": Clock().at(plan.start_us),
        "end": Clock().at(plan.end_us),
        "events": events,
        "lines": sum(one.lines for one in reported),
        "bytes": sum(one.bytes_written for one in reported),
        "duplicates": sum(one.duplicates for one in reported),
        "late": sum(one.late for one in reported),
        "slow_broker": timeline.slow_broker,
        "hot_partition": {
            "topic": timeline.lives[0].name,
            "partition": 0,
            "share": round(hot / max(events, 1), 4),
        },
        "broker_failures": [
            {"broker": f.broker, "down_at": Clock().at(f.down_us), "back_at": Clock().at(f.back_us)}
            for f in timeline.failures
        ],
        "incidents": [_incident(incident) for incident in incidents_of(timeline, plan.end_us)],
        "topics": list(_topics(timeline)),
        "leader_changes": leader_changes,
        "isr_changes": isr_changes,
        "sidecars": [_sidecar(member, one) for member, one in zip(members, reported, strict=True)],
        "rejects": dict(sorted(Counter(r.reason for one in reported for r in one.rejected).items())),
        "rejected": [r._asdict() for one in reported for r in one.rejected],
    }


def _incident(incident: Incident) -> dict[str, object]:
    return {
        "kind": incident.kind,
        "broker": incident.broker,
        "topic": incident.topic,
        "topic_id": incident.topic_id,
        "partition": incident.partition,
        "began_at": Clock().at(incident.began_us),
        "ended_at": Clock().at(incident.ended_us),
        "times": len(incident.spans),
        "lasted_s": incident.lasted_us // SECOND_US,
    }


def _topics(timeline: Timeline) -> Iterator[dict[str, object]]:
    for number, life in enumerate(timeline.lives):
        changes = [change for change in timeline.topic_changes if change.life == number]
        ended = [change.at_us for change in changes if change.partitions is None]
        counts = [change.partitions for change in changes if change.partitions is not None]
        if changes:
            yield {
                "topic": life.name,
                "topic_id": life.topic_id,
                "created_at": Clock().at(changes[0].at_us),
                "deleted_at": Clock().at(ended[0]) if ended else None,
                "partitions": counts[-1],
            }


def _changes(timeline: Timeline) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the changes with a new epoch, and the others."""
    epochs: dict[int, int] = {}
    clock = Clock()
    leader_changes: list[dict[str, Any]] = []
    isr_changes: list[dict[str, Any]] = []
    for change in timeline.partition_changes:
        is_new = epochs.get(change.slot) != change.state.epoch
        epochs[change.slot] = change.state.epoch
        (leader_changes if is_new else isr_changes).append(_change(timeline, change, clock))
    return leader_changes, isr_changes


def _change(timeline: Timeline, change: PartitionChange, clock: Clock) -> dict[str, Any]:
    slot = timeline.slots[change.slot]
    life = timeline.lives[slot.life]
    return {
        "at": clock.at(change.at_us),
        "topic": life.name,
        "topic_id": life.topic_id,
        "partition": slot.partition,
        "leader": change.state.leader,
        "leader_epoch": change.state.epoch,
        "isr": list(change.state.isr),
        "replicas": list(slot.replicas),
        "cause": change.cause,
    }


def _sidecar(member: Member, reported: SidecarTruth) -> dict[str, object]:
    clock = Clock()
    held = member.delayed
    return {
        "sidecar_id": member.sidecar_id,
        "service": member.service,
        "metadata_max_age_ms": member.interval_us // 1_000,
        "clock_offset_ms": round(member.clock_offset_us / 1_000),
        "delayed": None if held is None else [clock.at(at_us) for at_us in held],
        "boots": [
            {
                "boot_id": boot.boot_id,
                "started_at": clock.at(boot.started_us),
                "ended_at": clock.at(boot.ended_us),
                "end": boot.end,
                "events": said.events,
                "last_seq": said.last_seq,
                "dropped": said.dropped,
            }
            for boot, said in zip(member.boots, reported.boots, strict=True)
        ],
    }
