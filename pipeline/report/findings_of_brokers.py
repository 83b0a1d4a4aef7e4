"""Findings about brokers: lost leaderships, flapping, partitions without leader or short of replicas.

Each function looks for one kind of problem and returns a few findings at most: the worst ones, and how many
more there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.words import Finding, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.report.view import ClusterView

#: The least number of lost leaderships to report, absolute and as a multiple of the other brokers' median.
_LOST: Final = 5
_LOST_AGAINST_OTHERS: Final = 3
#: A shorter shortage of replicas is a restart, or ended by itself.
_SHORT_MS: Final = 300_000
_MOST: Final = 3


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


def lost_leadership(view: ClusterView) -> Iterator[Finding]:
    """Finds brokers that lose far more leaderships than the others, of partitions that they usually lead.

    A leadership that a broker only took over for another one, and gave back, is not counted.
    """
    losses = _losses_at_home(view)
    lost = losses.groupby("broker").size()
    lost = lost.reindex(sorted({*lost.index, *view.skew["broker"]}), fill_value=0)
    for broker in lost.sort_values(ascending=False, kind="stable").index[:_MOST]:
        others = float(lost.drop(broker).median()) if len(lost) > 1 else 0.0
        if lost[broker] < _LOST or lost[broker] < _LOST_AGAINST_OTHERS * max(others, 1):
            continue
        by_hour = losses[losses["broker"] == broker].groupby("hour").size()
        yield Finding(
            Grade.SOON,
            f"Broker {broker} lost leadership {words.times(lost[broker])} in"
            f" {words.duration(view.hours * 3.6e6)}, the others"
            f" {f'{words.times(others)} each' if others else 'hardly ever'}.",
            f"Most of it in the hour from {words.moment(by_hour.idxmax())}: {words.count(by_hour.max())}."
            " Counted are partitions that it leads most of the time; it lost some in"
            f" {words.counted(len(by_hour), 'hour')} of those watched.",
            "Look into its log around then for “fenced” and for session timeouts: long garbage collections, a"
            " full or slow disk, a lost network. If it was restarted on purpose, roll with a controlled"
            " shutdown, and let the next one wait until no partition is short of replicas.",
            "churn",
        )


def _losses_at_home(view: ClusterView) -> pd.DataFrame:
    """Returns broker and hour of each time that a partition left the broker that leads it longest.

    Leaves out partitions that flap, which have their own finding.
    """
    partition = ["topic_key", "partition"]
    reigns = view.history.sort_values([*partition, "leader_epoch"], kind="stable")
    ends = reigns["valid_to"].fillna(view.until).clip(lower=reigns["valid_from"])
    reigns = reigns.assign(
        lasted=ends - reigns["valid_from"], before=reigns.groupby(partition)["leader"].shift()
    )
    led = reigns[reigns["leader"] >= 0].groupby([*partition, "leader"])["lasted"].sum().reset_index()
    longest = (
        led.sort_values([*partition, "lasted", "leader"], kind="stable").groupby(partition)["leader"].last()
    )
    moved = reigns[reigns["is_leader_change"]].join(longest.rename("home"), on=partition)
    flaps = pd.MultiIndex.from_frame(view.flapping[partition])
    is_calm = ~pd.MultiIndex.from_frame(moved[partition]).isin(flaps)
    left = moved[(moved["before"] == moved["home"]) & is_calm]
    return left.assign(broker=left["home"].astype("int64"), hour=left["valid_from"].dt.floor("h"))


def flapping(view: ClusterView) -> Iterator[Finding]:
    """Finds partitions whose leader keeps changing."""
    worst = view.flapping.sort_values(["leader_changes", "topic", "partition"], ascending=[False, True, True])
    for row in worst.head(_MOST).itertuples():
        more = len(worst) - _MOST
        yield Finding(
            Grade.SOON,
            f"The leader of {words.partition(row.topic, row.partition)} changed"
            f" {words.times(row.leader_changes)} within"
            f" {words.duration((row.flapping_to - row.flapping_from).total_seconds() * 1e3)}.",
            f"From {words.moment(row.flapping_from)} to {words.clock(row.flapping_to)}, never ten minutes at"
            " rest." + (f" There are {words.counted(more, 'more such time')}." if more > 0 else ""),
            "See whether two tools reassign it against each other (Cruise Control and a script, say), or"
            " whether one of its brokers comes and goes. Until then its producers retry at each change.",
            "leaders",
        )


def short_of_replicas(view: ClusterView) -> Iterator[Finding]:
    """Finds partitions without all replicas in sync: now, or for long."""
    still = view.urp[view.urp["end_by"].isna()]
    if not still.empty:
        first = still.sort_values(["start_by", "topic", "partition"]).iloc[0]
        names = [words.partition(row.topic, row.partition) for row in still.itertuples()]
        alone = int((still["min_isr"] <= 1).sum())
        yield Finding(
            Grade.NOW if alone else Grade.SOON,
            f"{words.counted(len(still), 'partition is', 'partitions are')} short of replicas, and still were"
            f" when last heard of: {words.listed(names)}.",
            f"The first since {words.moment(first['start_by'])} at the latest."
            + (f" Of {words.count(alone)} there is one copy in sync, or none." if alone else ""),
            "See which brokers are missing from their ISR, and whether these are up and catch up. With one"
            " copy left don't restart its broker.",
            "replicas",
        )
    long = view.urp[view.urp["end_by"].notna() & (view.urp["min_duration_ms"] >= _SHORT_MS)]
    if not long.empty:
        worst = long.sort_values(["min_duration_ms", "topic"], ascending=[False, True]).iloc[0]
        at_most = worst["max_duration_ms"]
        partitions = long.groupby(["topic_key", "partition"]).ngroups
        yield Finding(
            Grade.KNOW,
            f"{words.counted(partitions, 'partition was', 'partitions were')} short of replicas for more than"
            f" {words.duration(_SHORT_MS)}.",
            f"Longest {words.partition(worst['topic'], worst['partition'])}, from"
            f" {words.moment(worst['start_by'])}, for {words.duration(worst['min_duration_ms'])} at least"
            + (
                f" and {words.duration(at_most)} at most."
                if at_most == at_most
                else "; its bounds are not known."
            ),
            "While it lasts, one more failure loses records or stops producers with acks=all. If no broker"
            " was away: look at its replication quota, num.replica.fetchers and its disks.",
            "replicas",
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
