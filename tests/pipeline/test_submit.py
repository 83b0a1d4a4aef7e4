"""The manifests, the image's recipe, and the call of spark-submit: only their shape, without a cluster.

Those for the Spark operator were checked with its own CRDs when they were written (docs/pipeline-cluster.md).
tests/deploy/check_pipeline_image.py builds the image and runs the CronJob's containers.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml  # type: ignore[import-untyped]

from pipeline.cli import main
from pipeline.jars.connector_jars import default_folder, pom_properties
from tests.deploy.dockerfile_text import read

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "helm" / "pilotfish-pipeline"


def spec_of(name: str, kind: str) -> dict[str, Any]:
    manifest = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("sparkoperator.k8s.io/v1beta2", kind)
    spec: dict[str, Any] = manifest["spec"]
    return spec


APPLICATION: Final = spec_of("spark-application.yaml", "SparkApplication")
CRON_JOB: Final = yaml.safe_load((MANIFESTS / "cronjob.yaml").read_text(encoding="utf-8"))
POD: Final = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
CONTAINERS: Final = (*POD["initContainers"], *POD["containers"])
RUN: Final = CONTAINERS[0]
IMAGE: Final = read((ROOT / "pipeline" / "Dockerfile").read_text(encoding="utf-8"))
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_schedule_runs_the_same_application_and_never_two_at_once() -> None:
    schedule = spec_of("scheduled-spark-application.yaml", "ScheduledSparkApplication")
    assert schedule["template"] == APPLICATION
    assert schedule["concurrencyPolicy"] == "Forbid"
    assert len(schedule["schedule"].split()) == 5


@pytest.mark.parametrize(
    "arguments",
    [APPLICATION["arguments"], *(container["args"] for container in CONTAINERS)],
    ids=["operator", "CronJob's run", "CronJob's maintain"],
)
def test_the_arguments_are_ones_that_the_command_takes(arguments: list[str]) -> None:
    name, *options = arguments
    command = main.get_command(click.Context(main), name)
    assert command is not None
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {option.partition("=")[0] for option in options} <= names
    # What it needs is there, and fits together.
    with command.make_context(name, options, resilient_parsing=True) as context:
        assert context.params["out"] == "/data/pilotfish"


def test_the_cron_job_reads_what_the_operator_reads_and_into_the_same_folder() -> None:
    ours = {option for option in RUN["args"] if not option.startswith(("--jars=", "--memory="))}
    assert ours == set(APPLICATION["arguments"]) - {"--store=delta"}


def test_the_cron_job_never_writes_twice_at_once() -> None:
    """`maintain` is the container and `run` the one before it, so that they never overlap either."""
    assert CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"
    assert POD["restartPolicy"] == "Never"
    assert [container["args"][0] for container in CONTAINERS] == ["run", "maintain"]


def test_the_cron_job_s_pod_has_the_claim_the_secret_and_no_rights() -> None:
    claim = yaml.safe_load((MANIFESTS / "claim.yaml").read_text(encoding="utf-8"))
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes["tables"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert volumes["kafka"] == next(v for v in APPLICATION["volumes"] if v["name"] == "kafka")
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert IMAGE.one("USER").rest == "{runAsUser}:{runAsGroup}".format(**POD["securityContext"])
    for container in CONTAINERS:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        assert container["image"] == f"pilotfish-pipeline:{PROJECT['version']}"
        assert {"cpu", "memory"} == container["resources"]["requests"].keys()


# -- the image -----------------------------------------------------------------------------------------------


def test_hadolint_has_nothing_to_say_about_the_image() -> None:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    command = [hadolint, "--failure-threshold", "style", "--disable-ignore-pragma", "pipeline/Dockerfile"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout + ran.stderr, ran.returncode) == ("", 0)


def test_the_image_has_pins_with_hashes_and_the_wheel_of_make_dist() -> None:
    installs = [run.rest for run in IMAGE.all("RUN", 1) if " install " in run.rest]
    assert [("--require-hashes" in call) or ("--no-index" in call) for call in installs] == [True] * 2
    copied = [copy.rest.split()[0] for copy in IMAGE.all("COPY", 1)]
    assert copied == ["requirements/pipeline.txt", "dist/pilotfish_pipeline-*.whl", "${JARS}"]
    rules = (ROOT / "pipeline" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert rules[1:] == ["*", "!requirements/pipeline.txt", "!dist/pilotfish_pipeline-*.whl", "!.cache/spark"]


def test_the_image_s_jars_are_those_that_the_cron_job_names() -> None:
    arguments = dict(argument.rest.split("=") for argument in IMAGE.all("ARG", 1))
    assert Path(arguments["JARS"]) == default_folder()
    (jars,) = [copy.rest.split()[1] for copy in IMAGE.all("COPY", 1) if copy.rest.startswith("${JARS}")]
    assert f"--jars={jars}" in RUN["args"]
    assert dict(a.rest.split("=") for a in IMAGE.all("ARG"))["VERSION"] == PROJECT["version"]


# -- the rest ------------------------------------------------------------------------------------------------


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
    for name in ("spark-application.yaml", "scheduled-spark-application.yaml", "cronjob.yaml"):
        assert "docs/pipeline-cluster.md" in (MANIFESTS / name).read_text(encoding="utf-8"), name
