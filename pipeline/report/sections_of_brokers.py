"""The report's section about leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.figures.timelines import Reign, leader_timeline
from pipeline.report.markup import LONGEST_LABEL, Section, folded, nothing, plot, rest, table, together

if TYPE_CHECKING:
    from pipeline.report.view import ClusterView

_MOST_TOPICS: Final = 6
_MOST_PARTITIONS: Final = 6
_MOST_IN_TABLES: Final = 40


def leaders(view: ClusterView, prefix: str) -> Section:
    """Returns the section with the leaders of the partitions that moved most."""
    title = "Leaders over time"
    how = (
        "The topics whose leaders moved most, each with the partitions that moved. A bar is a leader,"
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
