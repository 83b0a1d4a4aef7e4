"""The sidecar's container is the same in chart, library chart, inject, kustomize's component and examples.

Each is compared with the chart's output for the corresponding values.
"""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from service.base.version import pilotfish_version
from service.cli.inject.container import CHECKSUM, LABEL, Sidecar, container, volumes
from tests.deploy.chart_tools import (
    HELM_FOLDER,
    Manifest,
    kustomize,
    of_kind,
    parsed,
    pod_of,
    pod_template,
    render,
    sidecar_of,
)
from tests.deploy.outcome import UnavailableError
from tests.support.missing_programs import leave_out

if TYPE_CHECKING:
    from pathlib import Path

_BROKERS = "kafka-bootstrap.kafka:9092"


def charts_pod(**pilotfish: Any) -> Manifest:
    """The pod of the chart's demo with these values."""
    values = {"pilotfish": pilotfish, "demo": {"deployment": {"enabled": True}}}
    return pod_of(render("pilotfish", values=values))


def sidecars_volumes(pod: Manifest) -> list[Manifest]:
    """The volumes of the sidecar, whatever the ConfigMap is called."""
    volumes = [volume for volume in pod["spec"]["volumes"] if volume["name"].startswith("pilotfish-")]
    return [{**volume, "configMap": ...} if "configMap" in volume else volume for volume in volumes]


def assert_same_sidecar(pod: Manifest, other: Manifest) -> None:
    assert sidecar_of(pod) == sidecar_of(other)
    assert sidecars_volumes(pod) == sidecars_volumes(other)
    assert pod["spec"]["terminationGracePeriodSeconds"] == other["spec"]["terminationGracePeriodSeconds"]
    assert pod["metadata"]["labels"]["pilotfish-sidecar"] == other["metadata"]["labels"]["pilotfish-sidecar"]


def test_a_teams_own_chart_has_the_sidecar_of_the_chart() -> None:
    given = yaml.safe_load((HELM_FOLDER / "examples" / "own-chart" / "values.yaml").read_text())
    for native in (True, False):
        manifests = render("own-chart", values={"pilotfish": {"nativeSidecar": native}})
        charts = charts_pod(**given["pilotfish"], nativeSidecar=native)
        for kind in ("Deployment", "CronJob"):
            assert_same_sidecar(pod_of(manifests, kind), charts)


def test_a_teams_own_chart_has_the_config_that_its_pods_mount() -> None:
    manifests = render("own-chart")
    mounted = [
        volume["configMap"]["name"]
        for volume in pod_of(manifests)["spec"]["volumes"]
        if volume["name"] == "pilotfish-config"
    ]
    assert mounted == [of_kind(manifests, "ConfigMap")["metadata"]["name"]]


def test_deployment_and_cron_job_of_the_examples_have_the_sidecar_of_the_chart() -> None:
    for kind in ("Deployment", "CronJob"):
        (manifest,) = parsed((HELM_FOLDER / "examples" / f"{kind.lower()}.yaml").read_text())
        assert_same_sidecar(pod_of([manifest], kind), charts_pod(bootstrapServers=_BROKERS))


def test_the_older_job_of_the_examples_has_the_sidecar_of_the_chart() -> None:
    (manifest,) = parsed((HELM_FOLDER / "examples" / "job-legacy.yaml").read_text())
    values = {
        "bootstrapServers": _BROKERS,
        "nativeSidecar": False,
        "extraEnv": [{"name": "PILOTFISH_QUIT_TOKEN_FILE", "value": "/etc/pilotfish/secrets/quit/token"}],
        "secrets": [{"name": "quit", "secretName": "pilotfish-quit"}],
        "settings": {"drain_delay_ms": 0},
    }
    ours, charts = pod_of([manifest], "Job"), charts_pod(**values)
    # The chart has settings in a file; a single manifest gets along with variables.
    sidecar, volumes = sidecar_of(charts), charts["spec"]["volumes"]
    sidecar["env"] = [entry for entry in sidecar["env"] if entry["name"] != "PILOTFISH_CONFIG"]
    sidecar["volumeMounts"] = [it for it in sidecar["volumeMounts"] if it["name"] != "pilotfish-config"]
    charts["spec"]["volumes"] = [it for it in volumes if it["name"] != "pilotfish-config"]
    assert sorted(sidecar_of(ours).pop("env"), key=str) == sorted(sidecar.pop("env"), key=str)
    assert_same_sidecar(ours, charts)


def test_inject_has_the_sidecar_of_the_chart() -> None:
    for native, readiness in itertools.product((True, False), repeat=2):
        case = f"native: {native}, readiness: {readiness}"
        asked = Sidecar(
            image=f"pilotfish:{pilotfish_version()}",
            environment={"PILOTFISH_KAFKA_BOOTSTRAP_SERVERS": _BROKERS},
            secrets={"sasl": "kafka-sasl"},
            config_map="ours",
            native=native,
            readiness=readiness,
        )
        charts = charts_pod(
            bootstrapServers=_BROKERS,
            configMapName="ours",
            secrets=[{"name": "sasl", "secretName": "kafka-sasl"}],
            nativeSidecar=native,
            readiness={"enabled": readiness},
            appGraceSeconds=20,
        )
        assert container(asked, 20) == sidecar_of(charts), case
        assert volumes(asked) == charts["spec"]["volumes"], case
        assert asked.grace_seconds(20) == charts["spec"]["terminationGracePeriodSeconds"], case
        assert charts["metadata"]["labels"][LABEL] == "true", case
        assert CHECKSUM in charts["metadata"]["annotations"], case


def kustomized(place: Path) -> list[Manifest]:
    """The output of kustomize for an overlay; without kustomize the test is skipped with the reason."""
    try:
        return kustomize(place)
    except UnavailableError as error:
        leave_out(f"kustomize: {error}")


@pytest.mark.tools
def test_the_component_of_kustomize_has_the_sidecar_of_the_chart() -> None:
    manifests = kustomized(HELM_FOLDER / "kustomize" / "example")
    config = of_kind(manifests, "ConfigMap")
    (orders,) = [manifest for manifest in manifests if manifest["metadata"]["name"] == "orders"]
    charts = charts_pod(kafka={"bootstrap.servers": _BROKERS})
    for pod in (pod_of([orders]), pod_of(manifests, "CronJob")):
        assert_same_sidecar(pod, charts)
        (mounted,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "pilotfish-config"]
        assert mounted["configMap"]["name"] == config["metadata"]["name"]


@pytest.mark.tools
def test_the_component_leaves_alone_what_does_not_ask_for_a_sidecar() -> None:
    (web,) = [
        manifest
        for manifest in kustomized(HELM_FOLDER / "kustomize" / "example")
        if manifest["metadata"]["name"] == "without-kafka"
    ]
    pod = pod_template(web)
    assert pod is not None
    assert "initContainers" not in pod["spec"]
    assert "volumes" not in pod["spec"]


@pytest.mark.tools
def test_the_component_puts_the_sidecar_before_other_init_containers(tmp_path: Path) -> None:
    """One that needs Kafka, a migration say, must find it running."""
    folder = tmp_path / "kustomize"
    shutil.copytree(HELM_FOLDER / "kustomize", folder)
    orders, web = yaml.safe_load_all((folder / "example" / "orders.yaml").read_text())
    orders["spec"]["template"]["spec"]["initContainers"] = [{"name": "migration", "image": "migration:1"}]
    (folder / "example" / "orders.yaml").write_text(yaml.safe_dump_all([orders, web]))
    (patched,) = [it for it in kustomized(folder / "example") if it["metadata"]["name"] == "orders"]
    names = [container["name"] for container in pod_of([patched])["spec"]["initContainers"]]
    assert names == ["pilotfish", "migration"]
