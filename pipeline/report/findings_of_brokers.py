"""Findings about leaders: partitions without one now, epochs with two. For incidents see incidents.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.report import words
from pipeline.report.words import Finding, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.report.view import ClusterView


def leaderless(view: ClusterView) -> Iterator[Finding]:
    """Finds partitions without a leader now."""
    without = view.current[view.current["leader"] < 0].sort_values(["since", "topic", "partition"])
    if without.empty:
        return
    first = without.iloc[0]
    names = [words.partition(row.topic, row.partition) for row in without.itertuples()]
    yield Finding(
        Grade.NOW,
        f"{words.counted(len(without), 'partition has', 'partitions have')} no leader:"
        f" {words.listed(names)}.",
        f"Since {words.moment(first['since'])}. Whatever is produced there waits, and then fails.",
        "Bring back the brokers with the replicas that were in sync. Only if these are lost for good: elect"
        " an unclean leader (kafka-leader-election --election-type unclean), which loses records.",
        "leaders",
    )


def conflicts(view: ClusterView) -> Iterator[Finding]:
    """Finds epochs with two reported leaders, which Kafka rules out."""
    wrong = view.history[view.history["is_conflict"]]
    if wrong.empty:
        return
    names = [f"{words.partition(r.topic, r.partition)} epoch {r.leader_epoch}" for r in wrong.itertuples()]
    yield Finding(
        Grade.NOW,
        f"Sidecars name different leaders for the same epoch of"
        f" {words.counted(wrong.groupby(['topic_key', 'partition']).ngroups, 'partition')}.",
        f"{words.listed(names)}. Kafka elects one leader an epoch, so one of them has wrong data.",
        "See whether two clusters share a cluster id (a restored copy, say), or a broker runs alone with an"
        " old metadata log. Until it is clear don't trust the leaders of these partitions below.",
        "leaders",
    )
