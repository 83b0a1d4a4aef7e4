"""The report's incidents: a headline, a list with each one's harm and remedy, and a chart.

They answer what happened, why, what it hurt, and whether it is over. gold_incidents has the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pipeline.report import words
from pipeline.report.figures.timelines import Interval, interval_chart
from pipeline.report.markup import (
    LONGEST_LABEL,
    MOST_ROWS,
    Markup,
    Section,
    element,
    folded,
    nothing,
    plot,
    rest,
    table,
    text,
    together,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.report.view import ClusterView

_DOWN: Final = "broker_down"
_BEHIND: Final = "replicas_behind"
_FLAPPING: Final = "leader_flapping"
_FAILING: Final = "produces_failing"

#: By kind: its name in the singular, in the plural, and what to do.
_KINDS: Final = {
    _DOWN: (
        "outage of a broker",
        "outages of brokers",
        "Look into its log around then for “fenced” and session timeouts: long garbage collections, a full or"
        " slow disk, a lost network. If it was restarted on purpose, roll with a controlled shutdown, one"
        " broker after the other, each when no partition is short of replicas.",
    ),
    _BEHIND: (
        "partition short of replicas",
        "partitions short of replicas",
        "Its brokers are up, so a follower can't keep up: look at its replication quota, num.replica.fetchers"
        " and disks. While it lasts, one more failure loses records or stops producers with acks=all.",
    ),
    _FLAPPING: (
        "flapping leader",
        "flapping leaders",
        "See whether two tools reassign it against each other (Cruise Control and a script, say). Its"
        " producers retry at each change.",
    ),
    _FAILING: (
        "topic with failing records",
        "topics with failing records",
        "No broker explains it: TOPIC_AUTHORIZATION_FAILED is an ACL, MESSAGE_TOO_LARGE and INVALID_RECORD"
        " are what the services send; see what was deployed then.",
    ),
}
_MOST_LISTED: Final = 6
_MOST_NAMES: Final = 3


def headline(view: ClusterView) -> str:
    """Returns how many incidents there were, of which kinds, what they hurt, and whether all are over."""
    found = view.incidents
    span = words.duration(view.hours * 3.6e6)
    if found.empty:
        return f"No incident in {span}."
    counts = [(int((found["kind"] == kind).sum()), one, more) for kind, (one, more, _) in _KINDS.items()]
    kinds = [words.counted(count, one, more) for count, one, more in counts if count]
    failed = found["failed"].sum()
    still = int(found["over_by"].isna().sum())
    return (
        f"{words.counted(len(found), 'incident')} in {span}: {words.listed(kinds, len(_KINDS))}."
        f" {words.counted(failed, 'record') if failed else 'No record'} failed in"
        f" {'it' if len(found) == 1 else 'them'}."
        + (
            f" {words.count(still)} {'is' if still == 1 else 'are'} not over."
            if still
            else f" {'It is' if len(found) == 1 else 'All are'} over."
        )
    )


def _worst_first(view: ClusterView) -> list[Any]:
    found = view.incidents.assign(is_over=view.incidents["over_by"].notna())
    order = ["is_over", "failed", "leaders_moved", "partitions_short", "began_by", "kind"]
    return [*found.sort_values(order, ascending=[True, False, False, False, True, True]).itertuples()]


def listed(view: ClusterView, prefix: str) -> Markup:
    """Returns the list of the worst incidents: those that are not over first, then those with most harm."""
    found = _worst_first(view)
    items = []
    unsaid = {kind: remedy for kind, (_, _, remedy) in _KINDS.items()}
    for row in found[:_MOST_LISTED]:
        lines = [
            element("p", _badge(row), text(" "), element("strong", text(_sentence(row, view)))),
            element("p", text(" ".join([_harm(row), *_others(row, found)])), class_="evidence"),
        ]
        # A kind's remedy is shown once, so that more incidents are on the first screen.
        if remedy := unsaid.pop(row.kind, None):
            lines.append(element("p", element("b", text("What to do: ")), text(remedy)))
        items.append(element("li", *lines))
    more = len(found) - _MOST_LISTED
    link = element("a", text(f"And {words.counted(more, 'more incident')}."), href=f"#{prefix}-incidents")
    after = [element("p", link, class_="rest")] if more > 0 else []
    return together([element("ol", *items, id=f"{prefix}-worst", class_="findings"), *after])


def _badge(row: Any) -> Markup:
    is_over = not pd.isna(row.over_by)
    tone = "know" if is_over else "now"
    return element("span", text("Over" if is_over else "Not over"), class_=f"grade grade-{tone}")


def _subject(row: Any, longest: int = 64) -> str:
    if row.kind == _DOWN:
        return f"Broker {row.broker}"
    name = words.name(row.topic, longest)
    return name if row.kind == _FAILING else words.partition(name, row.partition)


def _sentence(row: Any, view: ClusterView) -> str:
    """Returns what happened, and when."""
    is_over = not pd.isna(row.over_by)
    lasted = words.duration(((row.over_by if is_over else view.until) - row.began_by).total_seconds() * 1e3)
    subject = _subject(row)
    if row.kind == _DOWN:
        often = f"went down {words.times(row.times)} within {lasted}"
        what = f"{subject} {often if row.times > 1 else f'was down for {lasted}' if is_over else 'is down'}"
    elif row.kind == _BEHIND:
        often = f" ({words.times(row.times)})" if row.times > 1 else ""
        what = f"{subject} {'was' if is_over else 'has been'} short of replicas for {lasted}{often}"
    elif row.kind == _FLAPPING:
        what = f"The leader of {subject} changed {words.times(row.times)} within {lasted}"
    else:
        names = [words.name(error["error"]) for error in row.errors]
        what = f"Records for {subject} {'failed' if is_over else 'have failed'} for {lasted}"
        what = f"{what} ({words.listed(names)})"
    since = words.moment(row.began_by)
    if not is_over:
        return f"{what}, since {since}."
    is_same_day = row.over_by.date() == row.began_by.date()
    until = words.clock(row.over_by) if is_same_day else words.moment(row.over_by)
    return f"{what}, from {since} to {until}."


def _harm(row: Any) -> str:
    """Returns what the incident hurt."""
    parts = [
        (row.leaders_moved if row.kind != _FLAPPING else 0, "leader moved", "leaders moved"),
        (
            row.partitions_short if row.kind == _DOWN else 0,
            "partition was short of replicas",
            "partitions were short of replicas",
        ),
        (row.failed, "record failed", "records failed"),
    ]
    said = [words.counted(count, one, more) for count, one, more in parts if count]
    if not row.failed:
        return f"{words.listed([*said, 'no record failed'])}.".capitalize()
    errors = sorted(row.errors, key=lambda error: (-error["records"], error["error"]))
    named = [f"{words.name(error['error'])} ({words.count(error['records'])})" for error in errors]
    services = [words.name(service) or "a service without a name" for service in row.services]
    topics = (
        "" if row.kind != _DOWN else f" for {words.listed([words.name(t) for t in row.topics], _MOST_NAMES)}"
    )
    return (
        f"Hurt: {words.listed(said)}{topics}, of {words.listed(services, _MOST_NAMES)}:"
        f" {words.listed(named, _MOST_NAMES)}."
    )


def _others(row: Any, found: Sequence[Any]) -> list[str]:
    """Returns which other brokers were down while this one was: together they do more harm."""
    names = sorted(
        {
            f"broker {other.broker}"
            for other in found
            if row.kind == other.kind == _DOWN
            and other.Index != row.Index
            and (pd.isna(row.over_by) or other.began_by <= row.over_by)
            and (pd.isna(other.over_by) or row.began_by <= other.over_by)
        }
    )
    return [f"Down at the same time: {words.listed(names)}."] if names else []


def section(view: ClusterView, prefix: str) -> Section:
    """Returns the section with all incidents over time."""
    title = "Incidents"
    how = (
        "In order of time, as sidecars saw them. Times of one broker, partition or topic that are less than"
        " ten minutes apart are one incident. An arrow: not over at the last event."
    )
    if view.incidents.empty:
        return Section("incidents", title, how, nothing("There was none."))
    shown = sorted(_worst_first(view)[:MOST_ROWS], key=lambda row: (row.began_by, row.Index))
    labels = [_subject(row, LONGEST_LABEL) for row in shown]
    drawn = interval_chart(
        f"{prefix}-incidents-plot",
        "Incidents over time",
        headline(view),
        labels,
        [
            Interval(
                row.began_by,
                view.until if pd.isna(row.over_by) else row.over_by,
                bool(pd.isna(row.over_by)),
                row.failed > 0,
            )
            for row in shown
        ],
        (view.since.to_pydatetime(), view.until.to_pydatetime()),
        ("no record failed", "records failed"),
    )
    heads = ("Subject", "What", "From", "Until", "Times", "Leaders moved", "Short", "Records failed")
    rows = [
        (
            label,
            _KINDS[row.kind][0],
            words.moment(row.began_by),
            "not over" if pd.isna(row.over_by) else words.moment(row.over_by),
            int(row.times),
            int(row.leaders_moved),
            int(row.partitions_short),
            int(row.failed),
        )
        for label, row in zip(labels, shown, strict=True)
    ]
    content = [
        plot(drawn, title),
        *rest(len(shown), len(view.incidents), "incident"),
        folded("The same as a table", table("Incidents in order of time", heads, rows)),
    ]
    return Section("incidents", title, how, together(content))
