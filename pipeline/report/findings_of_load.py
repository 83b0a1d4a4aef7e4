"""Findings about produced records: slow brokers, uneven load. `incidents.py` reports failed records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pipeline.report import words
from pipeline.report.words import Finding, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from pipeline.report.view import ClusterView

#: The p99 as a multiple of the other brokers' median, and the records needed to exclude chance.
_SLOW: Final = 4
_SLOW_RECORDS: Final = 1_000
#: The same for the p50: below this only some batches are slow.
_SLOW_AT_ALL: Final = 2
#: A p99 below this is not noticeable.
_SLOW_LEAST_US: Final = 10_000
#: If at least this share of its topics is slow, it is the broker and not the topic.
_SLOW_AS_A_WHOLE: Final = 0.5
_EXCESS: Final = 0.3
_TOPIC_LOAD: Final = 0.5
_REMEDY_SLOW: Final = (
    "So the broker itself is slow: compare its disks, its CPU and its request queue with those of the others,"
    " and check the network to it. With acks=all a slow follower of its partitions has the same effect."
)
_REMEDY_PAUSES: Final = (
    "Something stops it for moments: long garbage collections, flushes of its disks, or its own restarts and"
    " the elections after them. Compare the hours in which it is slow with those in which leaders moved."
)
_MOST: Final = 3


def slow_brokers(view: ClusterView) -> Iterator[Finding]:
    """Finds brokers that acknowledge far later than the others, in general or for one topic."""
    typical = typical_hour(view.produce, ["topic", "broker"], "p99_us")
    if typical.empty:
        return
    per_topic = typical.unstack("broker")
    against = _against_others(per_topic)
    medians_against = _against_others(
        typical_hour(view.produce, ["topic", "broker"], "p50_us").unstack("broker")
    )
    reported: set[int] = set()
    for broker, ratio in against.items():
        ratio = ratio[per_topic[broker] >= _SLOW_LEAST_US].dropna()
        slow = ratio[ratio >= _SLOW].sort_values(ascending=False, kind="stable")
        known = int(per_topic[broker].notna().sum())
        if len(slow) >= 2 and len(slow) >= _SLOW_AS_A_WHOLE * known:
            reported.add(broker)
            topic = slow.index[0]
            is_always = medians_against[broker].reindex(slow.index).median() >= _SLOW_AT_ALL
            yield Finding(
                Grade.SOON,
                f"Broker {broker} {'acknowledges slowly' if is_always else 'pauses now and then'}: for"
                f" {words.count(len(slow))} of {words.counted(known, 'topic')} its p99 is {_SLOW} times that"
                f" of the other brokers or more, typically {words.count(float(np.median(slow)))} times.",
                f"Worst for {words.name(topic)}: {words.latency(per_topic[broker][topic])} against"
                f" {words.latency(per_topic[broker][topic] / slow.iloc[0])}."
                + ("" if is_always else " Its median is about that of the others."),
                _REMEDY_SLOW if is_always else _REMEDY_PAUSES,
                "latency",
            )
    single = sorted(
        (
            (float(ratio[topic]), str(topic), int(broker))
            for broker, ratio in against.items()
            if broker not in reported
            for topic in ratio.index
            if ratio[topic] >= _SLOW
            and per_topic[broker][topic] >= _SLOW_LEAST_US
            # If the p50 is normal, only the hours in which a leader moved were slow.
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
    """Returns by broker its latency for each topic, as a multiple of the other brokers' median."""
    return {
        broker: per_topic[broker] / per_topic.drop(columns=[broker]).median(axis=1)
        for broker in per_topic.columns
    }


def typical_hour(produce: pd.DataFrame, by: list[str], percentile: str) -> pd.Series:
    """Returns a latency percentile in a typical hour: the median of hours (and topics), weighted by records.

    Percentiles of different hours can't be added up, so this is not the whole period's percentile. Groups
    with fewer than a thousand records are left out.
    """
    known = produce[(produce["records"] > 0) & (produce["broker"] >= 0) & produce[percentile].notna()]
    known = known[known.groupby(by)["records"].transform("sum") >= _SLOW_RECORDS]
    known = known.sort_values([*by, percentile], kind="stable")
    groups = known.groupby(by)["records"]
    passed = groups.cumsum() >= groups.transform("sum") / 2
    return known[passed].groupby(by)[percentile].first()


def skewed(view: ClusterView) -> Iterator[Finding]:
    """Finds brokers that lead or take far more than their share, and topics with most of the load."""
    heavy = view.skew[view.skew["excess"] >= _EXCESS].sort_values("excess", ascending=False)
    # A difference below two partitions comes from rounding to whole partitions.
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
            f"Broker {row.broker} takes {words.share(row.load_share)} of the bytes and leads"
            f" {words.share(row.share)} of the partitions.",
            f"{words.counted(row.records, 'record')}; with an even load it would be"
            f" {words.share(row.fair_share)} of the bytes.",
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
            "Nothing to repair, but the load of this topic decides the load of the cluster.",
            "skew",
        )
