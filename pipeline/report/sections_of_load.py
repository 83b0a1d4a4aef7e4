"""The report's sections about produced records: latency, failures, and load per broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.figures.amounts import heat_map, share_bars
from pipeline.report.findings_of_load import typical_hour
from pipeline.report.markup import (
    LONGEST_LABEL,
    MOST_ROWS,
    Markup,
    Section,
    element,
    folded,
    hour_columns,
    nothing,
    plot,
    rest,
    table,
    text,
    together,
    value_at,
)

if TYPE_CHECKING:
    from pipeline.report.view import ClusterView

_MOST_FAILING: Final = 10


def latency(view: ClusterView, prefix: str) -> Section:
    """Returns the section with latencies by topic and broker, and over time."""
    title = "Produce latency"
    how = (
        "The p99 of the time from a batch's first record to the batch's acknowledgement, as the sidecars"
        " measured it. The value is that of a typical hour, weighted by records."
        " Percentiles of different hours can't be added up, so none of these is “the p99 of all”."
    )
    by_topic = typical_hour(view.produce, ["topic", "broker"], "p99_us")
    if by_topic.empty:
        return Section(
            "latency", title, how, nothing("Too few records to judge: a thousand per broker are needed.")
        )
    records = view.produce.groupby("topic")["records"].sum().sort_values(ascending=False, kind="stable")
    worst = by_topic.groupby("topic").max()
    # Half of the rows for the topics with most records, the others for the slowest.
    topics = list(dict.fromkeys([*[t for t in records.index if t in worst.index][: MOST_ROWS // 2]]))
    topics += [t for t in worst.sort_values(ascending=False, kind="stable").index if t not in topics]
    topics = topics[:MOST_ROWS]
    in_all = typical_hour(view.produce, ["broker"], "p99_us")
    brokers = sorted(in_all.sort_values(ascending=False, kind="stable").index[:MOST_ROWS])
    cells = [[value_at(by_topic, (topic, broker)) for broker in brokers] for topic in topics]
    maps = [
        heat_map(
            f"{prefix}-latency-topics",
            "p99 of produces, by topic and broker",
            "By broker: " + ", ".join(f"{b} {words.latency(in_all[b])}" for b in brokers) + ".",
            [words.name(topic, LONGEST_LABEL) for topic in topics],
            [f"broker {broker}" if len(brokers) <= 10 else str(broker) for broker in brokers],
            cells,
            said=words.latency,
            of_rows="",
            of_columns="" if len(brokers) <= 10 else "broker",
            logarithmic=True,
        )
    ]
    labels, columns = hour_columns(view, view.produce["hour"])
    if len(labels) > 1:
        by_hour = typical_hour(view.produce.assign(column=columns), ["broker", "column"], "p99_us")
        maps.append(
            heat_map(
                f"{prefix}-latency-hours",
                "p99 of produces, by broker and hour",
                "The p99 of a typical topic in each hour.",
                [f"broker {broker}" for broker in brokers],
                labels,
                [
                    [value_at(by_hour, (broker, column)) for column in range(len(labels))]
                    for broker in brokers
                ],
                said=words.latency,
                of_rows="",
                of_columns="UTC",
                logarithmic=True,
            )
        )
    heads = ("Topic", *(f"Broker {broker}" for broker in brokers))
    numbers = [
        (words.name(topic), *("" if cell is None else words.latency(cell) for cell in row))
        for topic, row in zip(topics, cells, strict=True)
    ]
    content = [
        element("h4", text("By topic and broker")),
        plot(maps[0], "Latency by topic and broker"),
        *rest(len(topics), len(worst), "topic"),
        *(element("h4", text("By broker and hour")) for _ in maps[1:]),
        *(plot(drawn, "Latency by broker and hour") for drawn in maps[1:]),
        *rest(len(brokers), len(in_all), "broker"),
        folded("The same as a table", table("p99 in a typical hour", heads, numbers)),
        _errors(view),
    ]
    return Section("latency", title, how, together(content))


def _errors(view: ClusterView) -> Markup:
    """Returns the topics with failed records."""
    sums = view.produce.groupby("topic")[["records", "failed", "retries"]].sum()
    failed = sums[sums["failed"] > 0].sort_values(["failed"], ascending=False, kind="stable")
    if failed.empty:
        return nothing("No record failed.")
    rows = [
        (
            words.name(row.Index),
            int(row.records),
            int(row.failed),
            words.share(row.failed / (row.failed + row.records)),
            int(row.retries),
        )
        for row in failed.head(_MOST_FAILING).itertuples()
    ]
    heads = ("Topic", "Records", "Failed", "Share", "Retries of batches")
    return together(
        [
            table("Records that failed", heads, rows),
            *rest(min(len(failed), _MOST_FAILING), len(failed), "topic"),
        ]
    )


def skew(view: ClusterView, prefix: str) -> Section:
    """Returns the section with each broker's leaders and load."""
    title = "Balance"
    how = (
        "Each broker's share of the leaders now, and its share of the bytes of the last seven days, compared"
        " to an equal share. Leaders can be balanced by an election of preferred leaders; bytes only by"
        " where partitions lie and how keys are spread."
    )
    if view.skew.empty or view.skew["leaders"].sum() == 0:
        return Section("skew", title, how, nothing("No broker leads a partition."))
    away = (view.skew["excess"].abs()).sort_values(ascending=False, kind="stable")
    chosen = view.skew.loc[sorted(away.index[:MOST_ROWS])]
    rows = [
        (
            f"broker {row.broker}",
            int(row.leaders),
            words.share(row.share),
            words.share(row.fair_share),
            int(row.records),
            words.share(0 if pd.isna(row.load_share) else row.load_share),
        )
        for row in chosen.itertuples()
    ]
    reported = "; ".join(f"{row[0]} leads {row[2]} and takes {row[5]} of the bytes" for row in rows[:10])
    drawn = share_bars(
        f"{prefix}-skew-plot",
        "Share of leaders and of bytes, by broker",
        f"{reported}.",
        [row[0] for row in rows],
        list(chosen["share"]),
        list(chosen["load_share"].fillna(0.0)),
        float(chosen["fair_share"].iloc[0]),
    )
    heads = ("Broker", "Leads", "Share", "Fair", "Records", "Share of bytes")
    content = [
        plot(drawn, title),
        *rest(len(chosen), len(view.skew), "broker"),
        folded("The same as a table", table("Leaders and load by broker", heads, rows)),
    ]
    return Section("skew", title, how, together(content))
