"""The dashboard: its variables, and the order of the rows."""

from __future__ import annotations

import json
from typing import Final

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from helm.dashboard import health, rows
from helm.dashboard.vocabulary import DATASOURCE

#: Never changes, so that a newer dashboard replaces an older one.
UID: Final = "pilotfish"

_EVERYTHING: Final = VariableOption(selected=True, text="All", value="$__all")


def build() -> Dashboard:
    """Returns the dashboard, its panels numbered from 1."""
    board = (
        builders.Dashboard("Pilotfish")
        .uid(UID)
        .description("Sidecars that cache Kafka's metadata and produce over HTTP. Built by helm/dashboard.")
        .tags(["pilotfish", "kafka"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("namespace", "Namespace", "label_values(pilotfish_build_info, namespace)"))
        .with_variable(
            _choice("pod", "Pod", 'label_values(pilotfish_build_info{namespace=~"$namespace"}, pod)')
        )
    )
    for title, panels in (
        ("Is it healthy?", health.panels()),
        ("Metadata", rows.metadata()),
        ("Brokers", rows.brokers()),
        ("Records", rows.records()),
        ("Buffer and queues", rows.buffer()),
        ("HTTP", rows.http()),
        ("Process", rows.process()),
    ):
        board.with_row(builders.Row(title))
        for panel in panels:
            board.with_panel(panel)
    built = board.build()
    for number, panel_or_row in enumerate(built.panels or [], start=1):
        panel_or_row.id_val = number
    return built


def _choice(name: str, label: str, query: str) -> builders.QueryVariable:
    """Returns a variable: values of a label, at first all. Matches targets without the label too."""
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(_EVERYTHING)
    )


def text() -> str:
    """Returns the text of the dashboard's file: the same at each build."""
    return json.dumps(build(), cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
