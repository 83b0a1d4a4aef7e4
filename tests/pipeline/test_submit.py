"""The manifest for the Spark operator, and the call of spark-submit: only their shape, without a cluster.

The manifests were checked with the operator's own CRDs when they were written (docs/pipeline-cluster.md).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click
import yaml  # type: ignore[import-untyped]

from pipeline.cli import main
from pipeline.jars.connector_jars import pom_properties

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "helm" / "pilotfish-pipeline"


def spec_of(name: str, kind: str) -> dict[str, Any]:
    manifest = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("sparkoperator.k8s.io/v1beta2", kind)
    spec: dict[str, Any] = manifest["spec"]
    return spec


APPLICATION: Final = spec_of("spark-application.yaml", "SparkApplication")


def test_the_schedule_runs_the_same_application_and_never_two_at_once() -> None:
    schedule = spec_of("scheduled-spark-application.yaml", "ScheduledSparkApplication")
    assert schedule["template"] == APPLICATION
    assert schedule["concurrencyPolicy"] == "Forbid"
    assert len(schedule["schedule"].split()) == 5


def test_the_arguments_are_ones_that_the_command_takes() -> None:
    command, *options = APPLICATION["arguments"]
    run = main.get_command(click.Context(main), command)
    assert run is not None
    names = {name for parameter in run.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {option.partition("=")[0] for option in options} <= names
    # What it needs is there, and fits together.
    with run.make_context("run", options, resilient_parsing=True) as context:
        assert context.params["source"] == "kafka"


def test_no_secret_is_in_the_manifest() -> None:
    reported = yaml.safe_dump(APPLICATION)
    for word in ("password", "jaas", "token"):
        assert word not in reported.lower()
    (kafka,) = [volume for volume in APPLICATION["volumes"] if volume["name"] == "kafka"]
    assert kafka["secret"]["secretName"]
    files = [option for option in APPLICATION["arguments"] if option.startswith("--kafka-file=")]
    mounts = {mount["name"]: mount["mountPath"] for mount in APPLICATION["driver"]["volumeMounts"]}
    assert files[0].removeprefix("--kafka-file=").startswith(mounts["kafka"] + "/")


def test_driver_and_executors_see_the_same_tables_and_run_without_rights() -> None:
    for role in ("driver", "executor"):
        pod = APPLICATION[role]
        assert pod["volumeMounts"] == APPLICATION["driver"]["volumeMounts"]
        assert pod["podSecurityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["allowPrivilegeEscalation"] is False
        assert pod["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cores", "coreRequest", "coreLimit", "memory", "memoryOverhead"} <= pod.keys()


def test_it_asks_for_the_spark_that_the_connectors_are_made_for() -> None:
    assert APPLICATION["sparkVersion"] == pom_properties()["spark.version"]


def test_the_submitted_file_is_the_command(tmp_path: Path) -> None:
    submitted = tmp_path / "pilotfish_pipeline.py"
    submitted.write_text((ROOT / "pipeline" / "submit" / "pilotfish_pipeline.py").read_text(encoding="utf-8"))
    asked = subprocess.run(
        [sys.executable, str(submitted), "run", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Read events, and bring every table up to date." in asked.stdout


def test_a_manifest_says_where_its_surroundings_are_described() -> None:
    assert (ROOT / "docs" / "pipeline-cluster.md").exists()
    for name in ("spark-application.yaml", "scheduled-spark-application.yaml"):
        assert "docs/pipeline-cluster.md" in (MANIFESTS / name).read_text(encoding="utf-8"), name
