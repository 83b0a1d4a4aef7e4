"""What is to be said of the cluster: who loses leadership, flaps, is short of replicas, slow, overloaded.

Each function looks at one kind of trouble and returns a few findings at most: beyond the worst ones it says
how many more there are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pipeline.report import words
from pipeline.report.finding import Finding, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.report.view import ClusterView

#: Leaderships lost, from which on it is worth a sentence; and against the median of the other brokers.
_LOST: Final = 5
_LOST_AGAINST_OTHERS: Final = 3
#: A p99 against the median of the other brokers, and how many records make it more than chance.
_SLOW: Final = 4
_SLOW_RECORDS: Final = 1_000
#: And for a single topic, the median against that of the others.
_SLOW_AT_ALL: Final = 2
#: Nobody feels a p99 below this.
_SLOW_LEAST_US: Final = 10_000
#: Of all topics that it takes records for: beyond this it is the broker, not the topic.
_SLOW_AS_A_WHOLE: Final = 0.5
_ERROR_RATE: Final = 0.001
_EXCESS: Final = 0.3
_TOPIC_LOAD: Final = 0.5
#: A partition short of replicas for less than this was restarted, or caught up by itself.
_SHORT_MS: Final = 300_000
_MOST: Final = 3


def leaderless(view: ClusterView) -> Iterator[Finding]:
    """Partitions that nobody leads now."""
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
    """Brokers that lose what is theirs to lead far more than the others.

    What a broker led in another's stead, and gave back, is not lost.
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
    """The broker and the hour of each time that a partition left the broker that leads it longest.

    But for those that flap, which are told of by themselves.
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
    """Partitions whose leader goes to and fro."""
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
    """Partitions without all of their replicas in sync: still, or for long."""
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


def slow_brokers(view: ClusterView) -> Iterator[Finding]:
    """Brokers that acknowledge far later than the others, as a whole or for one topic."""
    typical = typical_hour(view.produce, ["topic", "broker"], "p99_us")
    if typical.empty:
        return
    per_topic = typical.unstack("broker")
    against = _against_others(per_topic)
    medians_against = _against_others(
        typical_hour(view.produce, ["topic", "broker"], "p50_us").unstack("broker")
    )
    told: set[int] = set()
    for broker, ratio in against.items():
        ratio = ratio[per_topic[broker] >= _SLOW_LEAST_US].dropna()
        slow = ratio[ratio >= _SLOW].sort_values(ascending=False, kind="stable")
        known = int(per_topic[broker].notna().sum())
        if len(slow) >= 2 and len(slow) >= _SLOW_AS_A_WHOLE * known:
            told.add(broker)
            topic = slow.index[0]
            yield Finding(
                Grade.SOON,
                f"Broker {broker} acknowledges slowly: for {words.count(len(slow))} of"
                f" {words.counted(known, 'topic')} its p99 is {_SLOW} times that of the other brokers or"
                f" more, typically {words.count(float(np.median(slow)))} times.",
                f"Worst for {words.name(topic)}: {words.latency(per_topic[broker][topic])} against"
                f" {words.latency(per_topic[broker][topic] / slow.iloc[0])}.",
                "The broker itself, then: compare its disks, its CPU and its request queue with the others',"
                " and the way to it. With acks=all a slow follower of its partitions would do the same.",
                "latency",
            )
    single = sorted(
        (
            (float(ratio[topic]), str(topic), int(broker))
            for broker, ratio in against.items()
            if broker not in told
            for topic in ratio.index
            if ratio[topic] >= _SLOW
            and per_topic[broker][topic] >= _SLOW_LEAST_US
            # Or it is but the hour in which a leader moved.
            and medians_against[broker][topic] >= _SLOW_AT_ALL
        ),
        key=lambda one: (-one[0], one[1], one[2]),
    )
    for times, topic, broker in single[:_MOST]:
        p99_us = per_topic[broker][topic]
        yield Finding(
            Grade.SOON,
            f"Topic {words.name(topic)}: its p99 on broker {broker} is {words.count(times)} times that of its"
            " other brokers.",
            f"{words.latency(p99_us)} against {words.latency(p99_us / times)} in a typical hour."
            + (f" {words.counted(len(single) - _MOST, 'more pair')} like it." if len(single) > _MOST else ""),
            "See whether the partitions that it leads there take most of the topic's records (keys that are"
            " not spread), or have a follower that is slow.",
            "latency",
        )


def _against_others(per_topic: pd.DataFrame) -> dict[int, pd.Series]:
    """By broker: its latency for each topic, as a multiple of the median of the other brokers'."""
    return {
        broker: per_topic[broker] / per_topic.drop(columns=[broker]).median(axis=1)
        for broker in per_topic.columns
    }


def typical_hour(produce: pd.DataFrame, by: list[str], percentile: str) -> pd.Series:
    """A percentile of latency in a typical hour: the median of the hours' (and topics') weighted by records.

    Percentiles of different hours can't be added up, so this is none of the whole time; those with fewer
    than a thousand records are left out.
    """
    known = produce[(produce["records"] > 0) & (produce["broker"] >= 0) & produce[percentile].notna()]
    known = known[known.groupby(by)["records"].transform("sum") >= _SLOW_RECORDS]
    known = known.sort_values([*by, percentile], kind="stable")
    groups = known.groupby(by)["records"]
    passed = groups.cumsum() >= groups.transform("sum") / 2
    return known[passed].groupby(by)[percentile].first()


def failing_topics(view: ClusterView) -> Iterator[Finding]:
    """Topics of which records fail."""
    sums = view.produce.groupby("topic")[["records", "failed"]].sum()
    rates = (sums["failed"] / (sums["records"] + sums["failed"]).clip(lower=1)).sort_values(
        ascending=False, kind="stable"
    )
    failing = rates[rates >= _ERROR_RATE]
    for topic in failing.index[:_MOST]:
        errors: Counter[str] = Counter()
        for row in view.produce[view.produce["topic"] == topic]["errors"]:
            for error in row if row is not None else ():
                errors[error["error"]] += error["records"]
        named = [
            f"{words.name(error)} ({words.count(number)})" for error, number in errors.most_common(_MOST)
        ]
        more = len(failing) - _MOST
        yield Finding(
            Grade.SOON,
            f"{words.share(rates[topic])} of the records for {words.name(topic)} failed.",
            f"{words.counted(sums['failed'][topic], 'record')} of"
            f" {words.count(sums['failed'][topic] + sums['records'][topic])}:"
            f" {words.listed(named) or 'no reason given'}."
            + (f" {words.counted(more, 'more topic')} above {words.share(_ERROR_RATE)}." if more > 0 else ""),
            "Each error has its cause: NOT_ENOUGH_REPLICAS is a short ISR (see below), REQUEST_TIMED_OUT a"
            " leader or follower that is slow or gone, TOPIC_AUTHORIZATION_FAILED an ACL.",
            "latency",
        )


def skewed(view: ClusterView) -> Iterator[Finding]:
    """Brokers that lead, or take, far more than their share; topics that are most of the load."""
    heavy = view.skew[view.skew["excess"] >= _EXCESS].sort_values("excess", ascending=False)
    # With few partitions a whole number of them is the best there is.
    heavy = heavy[heavy["leaders"] - heavy["fair_share"] * view.skew["leaders"].sum() >= 2]
    for row in heavy.head(1).itertuples():
        more = len(heavy) - 1
        yield Finding(
            Grade.SOON,
            f"Broker {row.broker} leads {words.share(row.share)} of the partitions;"
            f" {words.share(row.fair_share)} would be fair.",
            f"{words.counted(row.leaders, 'partition')} of {words.count(view.skew['leaders'].sum())}."
            + (f" {words.counted(more, 'more broker')} lead 30 % more than fair." if more > 0 else ""),
            "Elect preferred leaders (kafka-leader-election --election-type preferred"
            " --all-topic-partitions). If that changes little, the replicas themselves lie unevenly: reassign"
            " them.",
            "skew",
        )
    loaded = view.skew[view.skew["load_share"] >= (1 + _EXCESS) * view.skew["fair_share"]]
    loaded = loaded[~loaded["broker"].isin(heavy["broker"])].sort_values("load_share", ascending=False)
    by_topic = view.produce.groupby("topic")["records"].sum().sort_values(ascending=False, kind="stable")
    biggest = by_topic.iloc[0] / max(by_topic.sum(), 1) if len(by_topic) > 1 else 0.0
    for row in loaded.head(1).itertuples():
        yield Finding(
            Grade.KNOW,
            f"Broker {row.broker} takes {words.share(row.load_share)} of the records and leads"
            f" {words.share(row.share)} of the partitions.",
            f"{words.counted(row.records, 'record')}; with an even load it were"
            f" {words.share(row.fair_share)}.",
            "It leads the partitions with most of the load. If keys are why, more partitions don't help:"
            " spread the keys, or move other leaders away from it.",
            "skew",
        )
    if biggest >= _TOPIC_LOAD and len(by_topic) > 2:
        yield Finding(
            Grade.KNOW,
            f"{words.name(by_topic.index[0])} is {words.share(biggest)} of all records.",
            f"{words.count(by_topic.iloc[0])} of {words.counted(by_topic.sum(), 'record')} of"
            f" {words.counted(len(by_topic), 'topic')}.",
            "Nothing to mend: but what this topic does is what the cluster does, and its brokers feel it"
            " first.",
            "skew",
        )


def conflicts(view: ClusterView) -> Iterator[Finding]:
    """Epochs of which two leaders were told: Kafka rules that out."""
    wrong = view.history[view.history["is_conflict"]]
    if wrong.empty:
        return
    names = [f"{words.partition(r.topic, r.partition)} epoch {r.leader_epoch}" for r in wrong.itertuples()]
    yield Finding(
        Grade.NOW,
        f"Sidecars name different leaders for the same epoch of"
        f" {words.counted(wrong.groupby(['topic_key', 'partition']).ngroups, 'partition')}.",
        f"{words.listed(names)}. Kafka elects one leader an epoch, so one of them is not told the truth.",
        "See whether two clusters share a cluster id (a restored copy, say), or a broker runs alone with an"
        " old metadata log. Until it is clear don't trust the leaders of these partitions below.",
        "leaders",
    )
