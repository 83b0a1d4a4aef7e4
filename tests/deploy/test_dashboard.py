"""The dashboard: the file is what the code builds, and it uses only metrics that a sidecar has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.promql_terms import Term, in_place, names_in_legend, terms_of
from tests.support.scraped_sidecar import Scrape, busy_scrape

ROOT: Final = Path(__file__).parents[2]
BOARD: Final[dict[str, Any]] = json.loads((ROOT / "helm/pilotfish/files/dashboard.json").read_text())

#: Labels that the scraper adds to a target: a PodMonitor adds all of these.
OF_TARGETS: Final = {"namespace", "pod", "instance"}
#: Prometheus's own, which no target exposes; with the labels that rules.yaml gives each alert.
OF_PROMETHEUS: Final = {"ALERTS": {"alertstate", "component"}}
#: Families that have no series while nothing of that kind has happened, and their labels by docs/metrics.md.
SELDOM: Final = {
    "pilotfish_request_timeouts_total": {"api"},
}


#: The panels' queries, by their titles.
QUERIES: Final[dict[str, dict[str, Any]]] = {
    f"{panel['title']} ({panel['id']}) {target['refId']}": target
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
}


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    return busy_scrape(tmp_path_factory.mktemp("sidecar"))


def known_labels(scrape: Scrape, metric: str) -> set[str]:
    if metric in OF_PROMETHEUS:
        return OF_PROMETHEUS[metric]
    return scrape.labels(metric) or SELDOM.get(metric, set())


def missing(scrape: Scrape, term: Term) -> set[str]:
    """Labels of a term that its metric does not have."""
    return term.labels - OF_TARGETS - known_labels(scrape, term.metric)


def test_the_file_is_what_the_code_builds() -> None:
    command = [sys.executable, "-m", "helm.dashboard", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_metric_and_label_of_a_query_is_in_a_scrape(scrape: Scrape) -> None:
    for title, target in QUERIES.items():
        terms = terms_of(target["expr"])
        assert terms, title
        for term in terms:
            assert term.metric in scrape.samples or term.metric in OF_PROMETHEUS, (title, term.metric)
            assert missing(scrape, term) == set(), (title, term)


def test_a_legend_names_labels_that_its_query_leaves() -> None:
    for title, target in QUERIES.items():
        named = names_in_legend(target.get("legendFormat", ""))
        expression = in_place(target["expr"])
        aggregated = "sum" in expression or "max" in expression or "histogram_quantile" in expression
        grouped = set.union(*(term.grouped_by for term in terms_of(expression)))
        assert named <= (grouped if aggregated else OF_TARGETS), title


def test_every_query_asks_the_chosen_sidecars_of_the_chosen_data_source() -> None:
    assert len(QUERIES) == sum(len(panel.get("targets", ())) for panel in BOARD["panels"])
    for title, target in QUERIES.items():
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        chosen = [term for term in terms_of(target["expr"]) if {"namespace", "pod"} <= set(term.matchers)]
        others = [term.metric for term in terms_of(target["expr"]) if term not in chosen]
        assert chosen, title
        # A process is recognised as a sidecar by a metric that only sidecars have.
        assert set(others) <= {"pilotfish_build_info"}, title


def test_what_has_no_series_seldom_has_none_here_either(scrape: Scrape) -> None:
    assert [metric for metric in SELDOM if scrape.labels(metric)] == []


def test_rows_come_in_the_order_in_which_one_looks_for_a_fault() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Is it healthy?",
        "Metadata",
        "Brokers",
        "Records",
        "Buffer and queues",
        "HTTP",
        "Process",
    ]


def test_one_chooses_data_source_namespace_and_pod() -> None:
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "pod"]
    for name in ("namespace", "pod"):
        assert variables[name]["includeAll"]
        assert variables[name]["query"].startswith("label_values(pilotfish_build_info")


def test_every_panel_says_what_to_make_of_it() -> None:
    panels = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels if not panel["description"].endswith(".")] == []
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_no_two_panels_lie_on_each_other_and_none_is_wider_than_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_a_made_up_metric_or_label_would_be_found(scrape: Scrape) -> None:
    assert "pilotfish_made_up" not in scrape.samples
    (term,) = terms_of("sum by (made_up) (rate(pilotfish_http_requests_total[5m]))")
    assert missing(scrape, term) == {"made_up"}
    with pytest.raises(ValueError, match="made_up"):
        terms_of("rate(x_total[$made_up])")
    with pytest.raises(ValueError, match=r"."):
        terms_of("sum(")
