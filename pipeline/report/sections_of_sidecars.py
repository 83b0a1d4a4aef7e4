"""The report's sections about sidecars and events: scope, staleness, data quality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.figures.amounts import spread
from pipeline.report.findings_of_sidecars import REASONS
from pipeline.report.markup import Markup, Section, code, folded, paragraph, plot, table, together
from pipeline.report.view import BINS_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.report.view import ClusterView

_MOST: Final = 20
_LONGEST_EXAMPLE: Final = 160


def scope(view: ClusterView) -> str:
    """Returns what the sidecars watched, as a sentence."""
    quality, current = view.quality, view.current
    failed = view.produce["failed"].sum()
    sent = view.produce["records"].sum() + failed
    services, topics = quality["service"].nunique(), current["topic"].nunique()
    return (
        f"{words.counted(quality['sidecar_id'].nunique(), 'sidecar')} of"
        f" {words.counted(services, 'service')} watched {words.counted(len(current), 'partition')} of"
        f" {words.counted(topics, 'topic')} on {words.counted(view.skew['broker'].nunique(), 'broker')}, and"
        f" sent {words.compact(sent)} records, of which {words.share(failed / max(sent, 1))}"
        " failed."
    )


def staleness(view: ClusterView, prefix: str) -> Section:
    """Returns the section with the time that new leaders took to reach the sidecars."""
    title = "How fast changes reach the sidecars"
    how = (
        "The delay of a sidecar is the time from when the first sidecar of the fleet saw a new leader epoch"
        " until this one did. Only sidecars that knew the partition count. Hatched: sidecars"
        " that had not seen it by their last event. They count as still waiting; otherwise the slowest would"
        " make the numbers look better."
    )
    if view.staleness.observations == 0:
        return Section("staleness", title, how, _nothing_to_wait_for())
    fleet = view.staleness_summary[view.staleness_summary["service"].isna()]
    quantiles = [
        (name, float(fleet[column].iloc[0]))
        for name, column in (("p50", "p50_ms"), ("p95", "p95_ms"), ("p99", "p99_ms"))
        if len(fleet) and not pd.isna(fleet[column].iloc[0]) and fleet[column].iloc[0] > 0
    ]
    said = ", ".join(f"{name} {words.duration(at)}" for name, at in quantiles)
    drawn = spread(
        f"{prefix}-staleness-plot",
        "How much later than the first sidecar each sidecar saw a new leader",
        f"{words.counted(view.staleness.observations, 'sight')}, {words.count(view.staleness.censored.sum())}"
        f" of them still waiting. {said}.",
        BINS_MS,
        view.staleness.reached,
        view.staleness.censored,
        quantiles,
    )
    services = view.staleness_summary[
        view.staleness_summary["sidecar_id"].isna() & view.staleness_summary["service"].notna()
    ].sort_values(["p95_ms", "service"], ascending=[False, True], na_position="first")
    sidecars = view.staleness_summary[view.staleness_summary["sidecar_id"].notna()].sort_values(
        ["beyond_twice_the_interval", "p95_ms", "sidecar_id"], ascending=[False, False, True]
    )
    content = [
        plot(drawn, title),
        _summary("By service", "Service", "service", services),
        folded("The slowest sidecars", _summary("By sidecar", "Sidecar", "sidecar_id", sidecars)),
    ]
    return Section("staleness", title, how, together(content))


def _nothing_to_wait_for() -> Markup:
    return paragraph("No leader changed while two sidecars watched it.", class_="nothing")


def _summary(caption: str, head: str, name: str, frame: pd.DataFrame) -> Markup:
    heads = (
        head,
        "New leaders",
        "Still waiting",
        "Beyond twice the interval",
        "p50",
        "p95",
        "p99",
        "Longest",
    )
    rows: list[Sequence[str | float]] = [
        (
            words.name(getattr(row, name)) or "without a name",
            int(row.observations),
            int(row.censored),
            int(row.beyond_twice_the_interval),
            *(
                "unknown" if pd.isna(at) else words.duration(at)
                for at in (row.p50_ms, row.p95_ms, row.p99_ms)
            ),
            "" if pd.isna(row.max_ms) else words.duration(row.max_ms),
        )
        for row in frame.head(_MOST).itertuples()
    ]
    more = len(frame) - _MOST
    rest = [paragraph(f"And {words.counted(more, 'more')}.", class_="rest")] if more > 0 else []
    return together([table(caption, heads, rows), *rest])


def quality(view: ClusterView) -> Section:
    """Returns the section with the sidecars whose events are missing or whose clocks are wrong."""
    title = "Data quality"
    how = (
        "Each sidecar numbers its events, so what is missing is known. What follows is as good as these"
        " numbers."
    )
    boots = view.quality
    bad = boots[
        (boots["missing"] > 0)
        | boots["is_silent"]
        | boots["is_clock_suspect"]
        | (boots["epoch_conflicts"] > 0)
    ].sort_values(
        ["is_silent", "is_clock_suspect", "missing", "sidecar_id"], ascending=[False, False, False, True]
    )
    suspects = view.history["is_clock_suspect"].sum()
    missed = view.history["missed_epochs"].sum()
    reported = [
        paragraph(
            f"{words.counted(len(boots), 'boot')} of"
            f" {words.counted(boots['sidecar_id'].nunique(), 'sidecar')}; {words.counted(len(bad), 'boot')}"
            f" with problems. No sidecar saw {words.counted(missed, 'epoch')};"
            f" {words.counted(suspects, 'epoch has', 'epochs have')} a doubtful time."
        )
    ]
    if len(bad):
        heads = (
            "Sidecar",
            "Service",
            "Last event",
            "Events",
            "Missing",
            "Dropped by itself",
            "Clock",
            "Silent",
            "Epochs with two leaders",
        )
        rows = [
            (
                words.name(row.sidecar_id),
                words.name(row.service),
                words.moment(row.last_event),
                int(row.received),
                int(row.missing),
                int(row.dropped_reported),
                _offset(row.clock_offset_ms),
                "silent" if row.is_silent else "",
                int(row.epoch_conflicts),
            )
            for row in bad.head(_MOST).itertuples()
        ]
        reported.append(table("Boots with problems", heads, rows))
        if len(bad) > _MOST:
            reported.append(paragraph(f"And {words.counted(len(bad) - _MOST, 'more boot')}.", class_="rest"))
    return Section("quality", title, how, together(reported))


def _offset(milliseconds: float) -> str:
    if pd.isna(milliseconds):
        return "not known"
    if abs(milliseconds) < 1_000:
        return "right"
    return f"{words.duration(abs(milliseconds))} {'ahead' if milliseconds > 0 else 'behind'}"


def rejects(frame: pd.DataFrame) -> Markup:
    """Returns the reasons why lines could not be read, with the original of one example each."""
    if frame.empty:
        return paragraph("Every line could be read.", class_="nothing")
    heads = ("Reason", "What it is", "Lines", "Last", "Example")
    rows = [
        (
            words.name(row.reason),
            REASONS.get(str(row.reason), ""),
            int(row.lines),
            words.moment(row.last_received),
            code(words.name(row.example, _LONGEST_EXAMPLE)),
        )
        for row in frame.head(_MOST).itertuples()
    ]
    return table("Lines that could not be read, of all clusters", heads, rows)
