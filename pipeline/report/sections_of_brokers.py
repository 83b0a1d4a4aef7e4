"""The report's sections about the cluster: leaders, churn, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.figures.amounts import heat_map
from pipeline.report.figures.timelines import Interval, Reign, interval_chart, leader_timeline
from pipeline.report.markup import (
    LONGEST_LABEL,
    MOST_ROWS,
    Section,
    folded,
    hour_columns,
    nothing,
    plot,
    rest,
    table,
    together,
    value_at,
)

if TYPE_CHECKING:
    from pipeline.report.view import ClusterView

_MOST_TOPICS: Final = 6
_MOST_PARTITIONS: Final = 6
_MOST_IN_TABLES: Final = 40


def leaders(view: ClusterView, prefix: str) -> Section:
    """Returns the section with the leaders of the partitions that moved most."""
    title = "Leaders over time"
    how = (
        "The topics whose leaders moved most, and of each the partitions that did. A bar is a leader,"
        " with the broker's number. It begins when the first sidecar saw it, so the election itself was a"
        " little earlier."
    )
    moves = view.history[view.history["is_leader_change"]].groupby("topic").size()
    moves = moves.sort_values(ascending=False, kind="stable")
    if moves.empty:
        quiet = nothing("No leader moved while the fleet was watching.")
        return Section("leaders", title, how, quiet)
    of_topics = view.history[view.history["topic"].isin(moves.index[:_MOST_TOPICS])]
    rows: list[str] = []
    reigns: list[Reign] = []
    numbers: list[tuple[str, str, str, str, str]] = []
    for topic in moves.index[:_MOST_TOPICS]:
        of_topic = of_topics[of_topics["topic"] == topic]
        by_partition = of_topic.groupby("partition")["is_leader_change"].sum()
        by_partition = by_partition[by_partition > 0]
        chosen = by_partition.sort_values(ascending=False, kind="stable").index[:_MOST_PARTITIONS]
        for partition in sorted(chosen):
            label = words.partition(words.name(topic, LONGEST_LABEL), partition)
            for reign in of_topic[of_topic["partition"] == partition].itertuples():
                ends = reign.valid_to if not pd.isna(reign.valid_to) else _end_of(reign, view)
                if ends > reign.valid_from:
                    reigns.append(Reign(len(rows), int(reign.leader), reign.valid_from, ends))
                numbers.append(
                    (
                        label,
                        words.broker(int(reign.leader)),
                        str(reign.leader_epoch),
                        words.moment(reign.valid_from),
                        "" if pd.isna(reign.valid_to) else words.moment(reign.valid_to),
                    )
                )
            rows.append(label)
    most = ", ".join(
        f"{words.name(topic)} {words.count(moves[topic])}" for topic in moves.index[:_MOST_TOPICS]
    )
    drawn = leader_timeline(
        f"{prefix}-leaders-plot",
        "Leaders of the partitions that moved most, over time",
        f"Leader changes by topic: {most}.",
        rows,
        reigns,
        (view.since.to_pydatetime(), view.until.to_pydatetime()),
    )
    heads = ("Partition", "Leader", "Epoch", "From", "Until")
    content = [
        plot(drawn, "Leaders over time"),
        *rest(min(len(moves), _MOST_TOPICS), len(moves), "topic"),
        folded(
            "The same as a table",
            together(
                [
                    table("Leaders and their epochs", heads, numbers[:_MOST_IN_TABLES]),
                    *rest(_MOST_IN_TABLES, len(numbers), "epoch"),
                ]
            ),
        ),
    ]
    return Section("leaders", title, how, together(content))


def _end_of(reign: object, view: ClusterView) -> pd.Timestamp:
    """Returns now for a current leader, else when it was last seen, as its end is not known."""
    end: pd.Timestamp = view.until if reign.is_current else reign.last_seen  # type: ignore[attr-defined]
    return end


def churn(view: ClusterView, prefix: str) -> Section:
    """Returns the section with the leaderships that each broker lost, by hour."""
    title = "Churn by broker"
    how = (
        "How many leaderships each broker lost in an hour, whether it failed, was restarted, or gave them"
        " back to the preferred leader. A single high number is a broker in trouble; a column of high"
        " numbers is an operation."
    )
    lost = view.churn_brokers[view.churn_brokers["lost"] > 0]
    if lost.empty:
        return Section("churn", title, how, nothing("No broker lost leadership."))
    brokers = lost.groupby("broker")["lost"].sum().sort_values(ascending=False, kind="stable")
    chosen = sorted(brokers.index[:MOST_ROWS])
    labels, columns = hour_columns(view, view.churn_brokers["hour"])
    by_hour = lost.groupby(["broker", columns[lost.index].rename("column")])["lost"].sum()
    worst = ", ".join(f"broker {broker} {words.count(brokers[broker])}" for broker in brokers.index[:5])
    drawn = heat_map(
        f"{prefix}-churn-plot",
        "Leaderships lost, by broker and hour",
        f"In all: {worst}.",
        [f"broker {broker}" for broker in chosen],
        labels,
        [[value_at(by_hour, (broker, n)) or 0.0 for n in range(len(labels))] for broker in chosen],
        said=words.compact,
        of_rows="",
        of_columns="UTC",
    )
    sums = view.churn_brokers.groupby("broker")[["gained", "lost"]].sum()
    rows = [(f"broker {b}", int(sums["gained"][b]), int(sums["lost"][b])) for b in brokers.index[:MOST_ROWS]]
    content = [
        plot(drawn, title),
        *rest(len(chosen), len(brokers), "broker"),
        folded("The same as a table", table("Leaderships by broker", ("Broker", "Gained", "Lost"), rows)),
    ]
    return Section("churn", title, how, together(content))


def replicas(view: ClusterView, prefix: str) -> Section:
    """Returns the section with the times in which partitions were short of replicas, with both bounds."""
    title = "Short of replicas"
    how = (
        "The times in which partitions had fewer replicas in sync than they should, the longest first."
        " Sidecars see the state of a moment: solid is what is certain, faint is as long as it may have"
        " been. An arrow: not over when last heard of."
    )
    if view.urp.empty:
        return Section(
            "replicas", title, how, nothing("Every partition had all of its replicas whenever it was seen.")
        )
    longest = view.urp.assign(is_open=view.urp["end_by"].isna()).sort_values(
        ["is_leaderless", "is_open", "min_duration_ms", "topic", "partition"],
        ascending=[False, False, False, True, True],
    )
    # One row per partition, or a busy one would fill them all.
    shown = longest.drop_duplicates(["topic_key", "partition"]).head(MOST_ROWS)
    labels = [
        words.partition(words.name(row.topic, LONGEST_LABEL), row.partition) for row in shown.itertuples()
    ]
    certain = view.urp["min_duration_ms"].sum()
    drawn = interval_chart(
        f"{prefix}-replicas-plot",
        "Times in which partitions were short of replicas",
        f"{words.counted(len(view.urp), 'such time')} of"
        f" {words.counted(view.urp.groupby(['topic_key', 'partition']).ngroups, 'partition')}, together at"
        f" least {words.duration(certain)}.",
        labels,
        [
            Interval(
                _or_none(row.start_after),
                row.start_by,
                row.end_after,
                _or_none(row.end_by),
                bool(row.is_leaderless) or row.min_isr <= 1,
            )
            for row in shown.itertuples()
        ],
        (view.since.to_pydatetime(), view.until.to_pydatetime()),
        ("short of replicas", "one copy in sync or no leader", "perhaps"),
    )
    rows = [
        (
            label,
            words.moment(row.start_by),
            "not over" if pd.isna(row.end_by) else words.moment(row.end_by),
            words.duration(row.min_duration_ms),
            "not known" if pd.isna(row.max_duration_ms) else words.duration(row.max_duration_ms),
            f"{row.min_isr} of {row.replicas}",
        )
        for label, row in zip(labels, shown.itertuples(), strict=True)
    ]
    heads = ("Partition", "Began by", "Over by", "At least", "At most", "In sync, fewest")
    content = [
        plot(drawn, title),
        *rest(len(shown), len(view.urp), "such time"),
        folded("The same as a table", table("Longest time short of replicas", heads, rows)),
    ]
    return Section("replicas", title, how, together(content))


def _or_none(at: pd.Timestamp) -> pd.Timestamp | None:
    return None if pd.isna(at) else at
