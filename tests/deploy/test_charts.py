"""Every values example goes through Helm and through Kubernetes' own schemas, the oldest and the newest."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.chart_tools import (
    CHARTS,
    EXAMPLES,
    HELM_FOLDER,
    NEWEST,
    OLDEST,
    ROOT,
    ChartRefusedError,
    chart,
    charts,
    example,
    parsed,
    render,
    run_helm,
    template,
)
from tests.support.injecting import assert_known

if TYPE_CHECKING:
    from pathlib import Path

#: Of the Prometheus operator: check_charts.py has their schemas.
CUSTOM = ("PodMonitor", "PrometheusRule")


@pytest.mark.parametrize("name", EXAMPLES)
def test_helm_lint_is_content_with_every_example(name: str) -> None:
    run_helm("lint", "--strict", chart("pilotfish"), "--values", example(name))


@pytest.mark.parametrize("place", ["pilotfish-lib", *CHARTS.values()])
def test_helm_lint_is_content_with_the_defaults(place: str) -> None:
    run_helm("lint", "--strict", charts() / place)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_manifest_of_every_example_is_one_that_kubernetes_knows(name: str, version: str) -> None:
    manifests = render("pilotfish", name, kube_version=version)
    assert manifests
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            assert_known(manifest, version)


@pytest.mark.parametrize(
    "path", sorted((HELM_FOLDER / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_plain_examples_are_manifests_that_kubernetes_knows(path: Path) -> None:
    for manifest in parsed(path.read_text()):
        assert_known(manifest, OLDEST, NEWEST)


def test_every_object_bears_the_release_and_its_namespace() -> None:
    for manifest in render("pilotfish", "everything"):
        assert manifest["metadata"]["namespace"] == "billing"
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "shop"
        assert len(manifest["metadata"]["name"]) <= 63


def test_by_default_nothing_is_made() -> None:
    assert render("pilotfish") == []


def test_two_releases_in_a_namespace_share_no_name() -> None:
    names = [
        (manifest["kind"], manifest["metadata"]["name"])
        for release in ("shop", "pilotfish-of-billing")
        for manifest in parsed(template(chart("pilotfish"), "everything", release=release))
    ]
    assert len(set(names)) == len(names)


def test_a_cluster_without_native_sidecars_is_refused() -> None:
    with pytest.raises(ChartRefusedError, match=r"chart requires kubeVersion: >=1\.29\.0-0"):
        render("pilotfish", "minimal", kube_version="1.28.0")


def test_the_chart_may_be_a_dependency_of_another(tmp_path: Path) -> None:
    """Helm hands every dependency the parent's globals; a strict schema has to take them."""
    (tmp_path / "templates").mkdir()
    dependency = {
        "name": "pilotfish",
        "version": "0.1.0",
        "repository": f"file://{chart('pilotfish')}",
    }
    metadata = {"apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    values = {"global": {"team": "billing"}, "pilotfish": yaml.safe_load(example("native").read_text())}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    run_helm("dependency", "update", "--skip-refresh", tmp_path)
    kinds = sorted(manifest["kind"] for manifest in parsed(template(tmp_path)))
    assert kinds == ["ConfigMap", "Deployment", "Pod"]


def test_the_package_has_the_library_and_no_tests_of_rules(tmp_path: Path) -> None:
    run_helm("package", chart("pilotfish"), "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    listed = subprocess.run(["tar", "-tzf", package], capture_output=True, text=True, check=True).stdout
    assert "pilotfish/charts/pilotfish-lib/templates/_container.tpl" in listed
    assert "pilotfish/values.schema.json" in listed
    assert "rules_test" not in listed
    assert "/ci/" not in listed


def test_schema_and_names_are_those_of_the_settings() -> None:
    command = [sys.executable, str(HELM_FOLDER / "values_schema.py"), "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_charts_and_defaults_have_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for place in ("pilotfish", "pilotfish-lib"):
        metadata = yaml.safe_load((HELM_FOLDER / place / "Chart.yaml").read_text())
        assert (metadata["version"], metadata["appVersion"]) == (version, version)
        for dependency in metadata.get("dependencies", ()):
            assert dependency["version"] == version
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    assert values["pilotfish"]["image"]["tag"] == version


def test_every_value_is_explained_by_the_schema_and_the_other_way_round() -> None:
    """A value that the schema does not know is refused; one without a default would be unknown to readers."""
    schema = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.schema.json").read_text())
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    helms_own = {"global", "pilotfish-lib"}
    assert set(schema["properties"]) - helms_own == set(values)
    for name, known in schema["properties"].items():
        if name not in helms_own and "properties" in known and name != "imagePullSecrets":
            assert set(known["properties"]) == set(values[name]), name


def blocks(page: str, language: str) -> list[str]:
    """The pieces of code in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_values_in_the_documentation_are_taken() -> None:
    shown = [yaml.safe_load(block) for block in blocks("docs/kubernetes.md", "yaml")]
    assert len(shown) >= 4
    for values in shown:
        values["pilotfish"] = {"bootstrapServers": "kafka:9092", **values.get("pilotfish", {})}
        assert render("pilotfish", values=values)


def test_the_quick_start_of_the_documentation_makes_what_it_says() -> None:
    start = blocks("docs/kubernetes.md", "sh")[0]
    assert len(start.splitlines()) <= 10
    manifests = render("pilotfish", flags=flags_of(start))
    assert sorted(manifest["kind"] for manifest in manifests) == ["Deployment", "Pod"]


def flags_of(command: str) -> list[str]:
    return [word for flag in re.findall(r"--set (\S+)", command) for word in ("--set", flag)]


@pytest.mark.parametrize("chart_name", ["pilotfish", "pilotfish-lib"])
def test_the_readme_of_a_chart_tells_of_all_that_it_has(chart_name: str) -> None:
    readme = (HELM_FOLDER / chart_name / "README.md").read_text()
    if chart_name == "pilotfish":
        names = list(yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text()))
    else:
        names = re.findall(r'include "(pilotfish\.\w+)"', readme)
    for name in names:
        assert f"`{name}`" in readme, name
