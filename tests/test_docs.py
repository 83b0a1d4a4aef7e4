"""The documentation agrees with the code: tables, metrics, commands, links."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from service.__main__ import main
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.structure.recipes import Tree, of_metrics
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / name
    for name in (
        *("README.md", "SECURITY.md", "CHANGELOG.md", "DESIGN.md", "CONTRIBUTING.md"),
        "benchmarks/README.md",
    )
]
PAGES += sorted((ROOT / "docs").glob("**/*.md"))
TYPE = re.compile(r"^# TYPE (pilotfish_\w+) (\w+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
COMMAND = re.compile(r"\bpilotfish ([a-z]+)\b(?= |$|`)", re.MULTILINE)
TARGET = re.compile(r"\bmake ([a-z-]+)\b(?=`|$| +#)", re.MULTILINE)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with (
        EmbeddedCluster(topics=(DEMO_TOPIC,)) as cluster,
        Sidecar(tmp_path_factory.mktemp("sidecar"), bootstrap_servers=cluster.bootstrap_servers) as running,
    ):
        yield running


def test_every_metric_is_explained_and_every_explained_one_is_there(sidecar: Sidecar) -> None:
    assert sidecar.produce(DEMO_TOPIC, [{"value": "x"}]).status_code == 200
    scraped = TYPE.findall(sidecar.admin.get("/metrics").text)
    lines = list(of_metrics(Tree(), scraped))
    assert not lines, "\n".join(lines)


def test_every_path_of_the_api_is_explained(sidecar: Sidecar) -> None:
    paths = sidecar.api.get("/openapi.json").json()["paths"]
    text = "".join(page.read_text() for page in PAGES)
    for path, methods in paths.items():
        assert path in text
        native = path.startswith("/v1/")
        for method in methods if native else ():
            assert f"`{method.upper()} {path}`" in text


def test_the_tables_are_those_of_the_code_and_of_the_last_benchmark_run() -> None:
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    assert list(tables["out_of_date"]()) == [], "run: make docs"


def test_links_lead_somewhere_and_commands_exist() -> None:
    commands = set(main.list_commands(click.Context(main)))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == [], page
        assert set(COMMAND.findall(text)) <= commands, page
        assert set(TARGET.findall(text)) <= targets, page
