"""The alerts: promtool accepts them, and each uses metrics that a sidecar has from its first scrape on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from client_core.testing import FakeCluster
from tests.deploy.chart_tools import SHORT_LIVED
from tests.deploy.promql_terms import terms_of
from tests.support.promtool import find_promtool
from tests.support.scraped_sidecar import Scrape
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ROOT / "helm" / "pilotfish" / "files"
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((FILES / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES: Final = sorted({rule["alert"] for rule in RULES})
#: What Prometheus itself records about a target.
OF_PROMETHEUS: Final = {"up"}
#: Without certificates and a produce, these are absent, and nothing is wrong.
NOT_YET: Final = {
    "pilotfish_tls_certificate_expiry_timestamp_seconds",
    "pilotfish_broker_produce_latency_seconds",
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find_promtool(), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **SHORT_LIVED},
    )


@pytest.fixture(scope="module")
def first_scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """Of a sidecar that has its metadata, and that nobody has asked anything."""
    folder = tmp_path_factory.mktemp("sidecar")
    with (
        FakeCluster(3) as cluster,
        Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            flags=("--events-folder", str(folder / "events"), "--spool-folder", str(folder / "spool")),
        ) as sidecar,
    ):
        wait_until(lambda: sidecar.admin.get("/readyz").is_success, what="the first metadata")
        # The sidecar is ready with the snapshot; the event that metrics count is emitted a moment later.
        refreshed = "pilotfish_metadata_last_refresh_success_timestamp_seconds"
        wait_until(lambda: sidecar.metric(refreshed) is not None, what=refreshed)
        yield Scrape.of(sidecar.admin.get("/metrics").text)


# -- by promtool ---------------------------------------------------------------------------------------------


@pytest.mark.tools
def test_promtool_reads_the_rules() -> None:
    checked = promtool("check", "rules", FILES / "rules.yaml")
    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


@pytest.mark.tools
def test_each_alert_fires_when_it_should_and_not_a_minute_before_and_clears() -> None:
    tested = promtool("test", "rules", FILES / "rules_test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.tools
def test_promtool_reads_the_configuration_that_the_documentation_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "prometheus.yaml").write_text(shown)
    shutil.copy(FILES / "rules.yaml", tmp_path)
    checked = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert checked.returncode == 0, checked.stderr
    assert "1 rule files found" in checked.stdout


def test_the_line_of_the_documentation_gives_each_alert_a_url(tmp_path: Path) -> None:
    (line,) = re.findall(r"^sed .*$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    shutil.copy(FILES / "rules.yaml", tmp_path)
    subprocess.run(shlex.split(line), cwd=tmp_path, check=True)
    groups = yaml.safe_load((tmp_path / "rules.yaml").read_text())["groups"]
    changed = [rule for group in groups for rule in group["rules"]]
    assert [rule["annotations"]["runbook_url"] for rule in changed] == [
        f"https://wiki.example/pilotfish/alerts#{rule['alert'].lower()}" for rule in RULES
    ]


@pytest.mark.tools
def test_an_alert_that_never_fired_would_be_found(tmp_path: Path) -> None:
    """The tests of each alert fail if the alert is disabled. That they pass otherwise is shown above."""
    text = (FILES / "rules.yaml").read_text()
    proofs = yaml.safe_load((FILES / "rules_test.yaml").read_text())
    for name in NAMES:
        asleep, count = re.subn(rf"(- alert: {name}\n(?:.*\n)*?        for:) \w+", r"\1 100d", text)
        assert count, name
        its_own = [
            test
            for test in proofs["tests"]
            if any(proof["alertname"] == name for proof in test.get("alert_rule_test", ()))
        ]
        (tmp_path / "rules_test.yaml").write_text(yaml.safe_dump({**proofs, "tests": its_own}))
        (tmp_path / "rules.yaml").write_text(asleep)
        tested = promtool("test", "rules", tmp_path / "rules_test.yaml")
        assert tested.returncode == 1, name
        assert name in tested.stdout + tested.stderr


# -- by reading ----------------------------------------------------------------------------------------------


def test_an_alert_asks_for_series_that_are_there_before_anything_has_happened(first_scrape: Scrape) -> None:
    """Or the first failure of a kind would be a series that begins at 1, and no growth."""
    for rule in RULES:
        for term in terms_of(rule["expr"]):
            if term.metric in OF_PROMETHEUS:
                continue
            assert term.metric in first_scrape.samples, rule["alert"]
            if term.metric not in NOT_YET:
                assert first_scrape.has(term.metric, term.wanted), (rule["alert"], term)
                assert term.labels <= first_scrape.labels(term.metric), (rule["alert"], term)


def test_an_alert_says_what_is_wrong_and_where_to_read_on_and_waits_for_a_second_look() -> None:
    for rule in RULES:
        name, reported = rule["alert"], rule["annotations"]
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        assert rule["labels"]["component"] == "pilotfish", name
        assert set(reported) == {"summary", "description", "runbook_url"}, name
        assert "{{ $labels.instance }}" in reported["summary"], name
        assert reported["description"].endswith("."), name
        assert reported["runbook_url"] == f"docs/alerts.md#{name.lower()}"
        assert rule["for"] in {"1m", "2m", "5m"}, name


def test_every_alert_is_explained_and_every_explained_one_is_there() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text()
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted([*NAMES, "Causes"])
    for severity in ("critical", "warning"):
        for rule in RULES:
            if rule["labels"]["severity"] == severity:
                row = re.search(
                    rf"^\| \[{rule['alert']}\]\(#{rule['alert'].lower()}\) \|(.*)$", text, re.MULTILINE
                )
                assert row is not None
                assert severity in row[1]


def test_each_explanation_says_what_to_look_at_and_what_to_do() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for name in NAMES:
        for part in ("**Means.**", "**Look at.**", "**Do.**"):
            assert part in sections[name], (name, part)


def test_metrics_that_the_explanations_name_are_documented() -> None:
    explained = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"pilotfish_\w+", (ROOT / "docs" / "alerts.md").read_text()))
    assert named
    assert [name for name in sorted(named) if f"`{name}`" not in explained] == []
