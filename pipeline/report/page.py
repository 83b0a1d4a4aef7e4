"""Builds the HTML file: the incidents, other findings, then the data behind them.

The page has no script and loads nothing; its content security policy forbids both. Its first screen answers
what happened, why, what it hurt, and whether it is over.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from pipeline.report import (
    findings_of_brokers,
    findings_of_load,
    findings_of_sidecars,
    incidents,
    sections_of_brokers,
    sections_of_load,
    sections_of_sidecars,
    words,
)
from pipeline.report.findings_of_sidecars import left_out as of_clocks
from pipeline.report.markup import Markup, element, paragraph, text, together
from pipeline.report.view import lost_boots, rejects_of, views_of
from pipeline.stores.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from pipeline.report.markup import Section
    from pipeline.report.view import ClusterView, Gold
    from pipeline.report.words import Finding


#: Allows only the page's own styles.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
#: The maximum number of clusters in a report.
_MOST_CLUSTERS: Final = 5


_LOOKS: Final[tuple[Callable[[ClusterView], Iterator[Finding]], ...]] = (
    findings_of_brokers.leaderless,
    findings_of_brokers.conflicts,
    findings_of_load.slow_brokers,
    findings_of_sidecars.late,
    findings_of_sidecars.silent,
    findings_of_sidecars.wrong_clocks,
    findings_of_sidecars.lossy,
    findings_of_load.skewed,
)


def findings_of(view: ClusterView) -> list[Finding]:
    """Returns the findings about a cluster and its sidecars that are no incidents; empty if all is well."""
    found = [finding for look in _LOOKS for finding in look(view)]
    return sorted(found, key=lambda finding: finding.grade)


def findings_of_tables(failed: Mapping[str, str]) -> list[Finding]:
    """Returns the findings about tables that could not be made."""
    return list(findings_of_sidecars.failed_tables(failed))


def findings_of_rejects(rejects: pd.DataFrame) -> list[Finding]:
    """Returns the findings about rejected lines, which belong to no cluster."""
    return list(findings_of_sidecars.unreadable(rejects))


def report_html(gold: Gold, cluster: str | None = None) -> str:
    """Returns the report on all clusters, or on one. Raises StoreError if there is nothing to report."""
    views = views_of(gold, cluster)
    if not views:
        raise StoreError(_why_nothing(gold, cluster))
    rejects = rejects_of(gold)
    parts = [
        _cluster(view, f"c{number}", len(views)) for number, view in enumerate(views[:_MOST_CLUSTERS], 1)
    ]
    failed = findings_of_tables(gold.failed())
    if failed:
        heading = element("h2", text("Tables that could not be made"), id="tables")
        parts.insert(
            0, element("section", heading, _list(failed, "tables-advice", ""), aria_labelledby="tables")
        )
    if len(views) > _MOST_CLUSTERS:
        more = words.listed([words.name(view.cluster_id) for view in views[_MOST_CLUSTERS:]], 20)
        parts.append(paragraph(f"More clusters, not shown here; --cluster selects one: {more}."))
    if lost := _lost(gold):
        parts.append(paragraph(lost))
    reported = findings_of_rejects(rejects)
    lines = [
        element("h2", text("Lines that could not be read"), id="rejects"),
        *([_list(reported, "rejects-advice", "")] if reported else []),
        sections_of_sidecars.rejects(rejects),
    ]
    parts.append(element("section", *lines, aria_labelledby="rejects"))
    return _document(views, together(parts))


def _lost(gold: Gold) -> str:
    """Returns which sidecars have no cluster now; empty if none."""
    names = [words.name(sidecar_id) for sidecar_id in lost_boots(gold)["sidecar_id"]]
    if not names:
        return ""
    has, its = ("has", "its") if len(names) == 1 else ("have", "their")
    return (
        f"{words.counted(len(names), 'sidecar')} {has} not reached a cluster since {its} last start:"
        f" {words.listed(names)}."
    )


def _why_nothing(gold: Gold, cluster: str | None) -> str:
    known = [words.name(view.cluster_id) for view in views_of(gold)]
    if cluster is not None and known:
        return f"No sidecar reported the cluster {words.name(cluster)}. Known: {words.listed(known, 5)}."
    if failed := findings_of_tables(gold.failed()):
        return f"There is no report. {failed[0].sentence} {failed[0].evidence}"
    rejected = [finding.evidence for finding in findings_of_rejects(rejects_of(gold))]
    if lost := _lost(gold):
        return " ".join(["There is no report, as no sidecar has reported a cluster yet.", lost, *rejected])
    if rejected:
        return f"There is no report, as no line is an event. {rejected[0]}"
    return "No sidecar has reported a cluster yet: let `pilotfish-pipeline run` read some events first."


def _document(views: list[ClusterView], inside: Markup) -> str:
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    since, until = min(view.since for view in views), max(view.until for view in views)
    span = f"{words.moment(since)} to {words.moment(until)} UTC"
    head = together(
        [
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            element("title", text(f"Pilotfish fleet report, {span}")),
            element("style", Markup(style)),
        ]
    )
    top = element(
        "header",
        element("h1", text("Pilotfish fleet report")),
        paragraph(f"What the sidecars saw from {span}. All times are UTC."),
        class_="top",
    )
    body = together([top, element("main", inside), _footer()])
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _footer() -> Markup:
    said = "Computed by pilotfish-pipeline from its gold tables; docs/pipeline.md says what they mean."
    return element("footer", paragraph(said))


def _cluster(view: ClusterView, prefix: str, clusters: int) -> Markup:
    findings = findings_of(view)
    sections = [
        incidents.section(view, prefix),
        sections_of_brokers.leaders(view, prefix),
        sections_of_sidecars.staleness(view, prefix),
        sections_of_load.latency(view, prefix),
        sections_of_load.skew(view, prefix),
        sections_of_sidecars.quality(view),
    ]
    left_out = of_clocks(view)
    parts = [
        element("h2", text(f"Cluster {words.name(view.cluster_id)}"), id=prefix),
        paragraph(sections_of_sidecars.scope(view), class_="how"),
        *([paragraph(left_out, class_="how")] if left_out else []),
        element("section", *_what_happened(view, prefix, is_well=not findings), class_="advice"),
        *([_beyond_incidents(findings, prefix)] if findings else []),
        _contents(sections, prefix, clusters),
        *(_section(section, prefix) for section in sections),
    ]
    return element("article", *parts, aria_labelledby=prefix)


def _what_happened(view: ClusterView, prefix: str, *, is_well: bool) -> list[Markup]:
    heading = element("h3", text("What happened"))
    if view.incidents.empty:
        return [heading, _all_well(view) if is_well else paragraph(incidents.headline(view))]
    summary = element("p", element("strong", text(incidents.headline(view))), class_="headline")
    return [heading, summary, incidents.listed(view, prefix)]


def _beyond_incidents(findings: list[Finding], prefix: str) -> Markup:
    heading = element("h3", text("What else to do"))
    return element("section", heading, _list(findings, f"{prefix}-advice", prefix), class_="advice")


def _all_well(view: ClusterView) -> Markup:
    return element(
        "p",
        element("strong", text("Nothing to do.")),
        text(f" In {words.duration(view.hours * 3.6e6)} no broker, partition or sidecar needs attention."),
        class_="well",
    )


def _contents(sections: list[Section], prefix: str, clusters: int) -> Markup:
    links = [
        element("li", element("a", text(section.title), href=f"#{prefix}-{section.key}"))
        for section in sections
    ]
    label = "Sections" if clusters == 1 else f"Sections of cluster {prefix.removeprefix('c')}"
    return element("nav", element("ul", *links), aria_label=label)


def _section(section: Section, prefix: str) -> Markup:
    name = f"{prefix}-{section.key}"
    return element(
        "section",
        element("h3", text(section.title), id=name),
        paragraph(section.how_to_read, class_="how"),
        section.content,
        aria_labelledby=f"{name} {prefix}",  # each cluster has one of this title
    )


def _link(prefix: str, section: str) -> Markup:
    return element("a", text("See the numbers"), href=f"#{prefix}-{section}", class_="see")


def _list(findings: list[Finding], name: str, prefix: str) -> Markup:
    """Returns the list of findings; each links to the section with its numbers, if it has one."""
    items = []
    for finding in findings:
        grade = element("span", text(finding.grade.words), class_=f"grade grade-{finding.grade.name.lower()}")
        evidence = [text(finding.evidence)]
        if prefix:
            evidence += [text(" "), _link(prefix, finding.section)]
        items.append(
            element(
                "li",
                element("p", grade, text(" "), element("strong", text(finding.sentence))),
                element("p", *evidence, class_="evidence"),
                element("p", element("b", text("What to do: ")), text(finding.remedy)),
            )
        )
    return element("ol", *items, id=name, class_="findings")
