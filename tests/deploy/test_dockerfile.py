"""The promises of the Dockerfile, checked in its text; check_image.py checks them in the built image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from requirements.sbom import licences_of
from tests.deploy import dockerfile_text
from tests.deploy.image_contents import normalised

ROOT: Final = Path(__file__).resolve().parents[2]

_HADOLINT: Final = Path(sys.executable).with_name("hadolint")
_LABEL: Final = re.compile(r'(\S+)="([^"]*)"')
_PIN: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+)(.*?)(?=^[A-Za-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
_TEXT: Final = (ROOT / "Dockerfile").read_text()
_FILE: Final = dockerfile_text.read(_TEXT)
#: The pins with an extra, and how the names of its packages begin.
_EXTRAS: Final = {
    "otel.txt": "opentelemetry-exporter",
    "oauth.txt": "pyjwt",
    "msk-iam.txt": "aws-msk-iam-sasl-signer",
}
_PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _runs(stage: int) -> str:
    return "\n".join(run.rest for run in _FILE.all("RUN", stage))


def _pins(name: str) -> dict[str, tuple[str, str]]:
    """Version, and the rest of the line after it, by the distribution's name."""
    text = (ROOT / "requirements" / name).read_text()
    return {normalised(pin[1]): (pin[2], pin[3]) for pin in _PIN.finditer(text)}


def _argument(name: str) -> str:
    found = [arg.rest for arg in (*_FILE.before, *_FILE.stages[-1]) if arg.name == "ARG"]
    return dict(arg.partition("=")[::2] for arg in found)[name]


def test_hadolint_has_nothing_to_say_at_its_strictest() -> None:
    strictest = ("--failure-threshold", "style", "--disable-ignore-pragma", "--strict-labels")
    labels = [word for name in _labels() for word in ("--require-label", f"{name}:text")]
    ran = subprocess.run(
        [_HADOLINT, *strictest, *labels, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout + ran.stderr, ran.returncode) == ("", 0)


def test_there_are_two_stages_on_a_base_that_may_be_chosen() -> None:
    assert [stage[0].rest for stage in _FILE.stages] == ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"]


def test_the_default_base_is_a_python_that_the_project_supports() -> None:
    base = re.fullmatch(r"python:(\d+)\.(\d+)-slim", _argument("BASE_IMAGE"))
    oldest = re.fullmatch(r">=(\d+)\.(\d+)", _PROJECT["requires-python"])
    assert base is not None
    assert oldest is not None
    assert tuple(map(int, base.groups())) >= tuple(map(int, oldest.groups()))


def test_everything_from_an_index_is_held_to_its_hash() -> None:
    installs = re.findall(r"pip .*?install (.*?)(?:&&|$)", _runs(0), re.MULTILINE)
    assert len(installs) == 3
    assert [("--require-hashes" in call) or ("--no-index" in call) for call in installs] == [True] * 3
    assert "--no-index" in re.findall(r"pip wheel (.*?)&&", _runs(0))[0]


def test_every_pin_has_hashes() -> None:
    for name in ("build.txt", "run.txt", *_EXTRAS):
        pins = _pins(name)
        assert pins, name
        assert [pin for pin, (_, rest) in pins.items() if "--hash=sha256:" not in rest] == [], name


def test_the_build_is_pinned_to_the_backend_that_the_project_names() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert (ROOT / "requirements" / "build.in").read_text().split() == required
    developers = _pins("dev.txt")
    assert {name: version for name, (version, _) in _pins("build.txt").items()} == {
        name: developers[name][0] for name in _pins("build.txt")
    }


def test_the_pins_of_an_extra_are_those_of_the_sidecar_and_more() -> None:
    assert [arg.rest for arg in _FILE.all("ARG", 0)] == ["PINS=run.txt"]
    plain = _pins("run.txt")
    for file, extra in _EXTRAS.items():
        more = _pins(file)
        assert {name: more[name][0] for name in plain} == {
            name: version for name, (version, _) in plain.items()
        }
        assert [name for name in more if name.startswith(extra) and name not in plain], file


def test_nothing_is_compiled_from_a_source_distribution() -> None:
    environment = " ".join(env.rest for env in _FILE.all("ENV", 0))
    assert "PIP_ONLY_BINARY=:all:" in environment
    assert not re.search(r"apt|apk|gcc|build-essential|python3-dev", _runs(0) + _runs(1))


def test_the_last_stage_gets_the_environment_and_nothing_else() -> None:
    assert _FILE.one("COPY").rest == "--from=build /opt/pilotfish /opt/pilotfish"
    assert "pip" not in _runs(1).replace("pipeline", "")
    assert not _FILE.all("ADD")


def test_what_pip_needs_of_a_machine_is_lent_to_one_instruction_as_a_secret() -> None:
    (run,) = (run.rest for run in _FILE.all("RUN", 0) if "requirements/${PINS}" in run.rest)
    assert re.findall(r"--mount=(\S+)", run) == [
        "type=secret,id=pip_conf,target=/etc/pip.conf",
        "type=secret,id=pip_ca,target=/run/pip_ca.pem",
    ]
    assert not re.search(r"https?://|trusted-host|index-url", _TEXT)


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert _FILE.one("USER").rest == "10001:10001"
    instructions = [found.name for found in _FILE.stages[-1]]
    assert instructions.index("USER") > max(
        i for i, name in enumerate(instructions) if name in {"COPY", "RUN"}
    )


def test_its_command_is_in_exec_form_and_so_is_the_first_process() -> None:
    assert (_FILE.one("ENTRYPOINT").words, _FILE.one("CMD").words) == (["pilotfish"], ["serve"])
    assert _FILE.one("STOPSIGNAL").rest == "SIGTERM"


def test_the_health_check_needs_no_shell_and_no_curl() -> None:
    check = _FILE.one("HEALTHCHECK")
    assert check.words == ["pilotfish", "healthcheck"]
    assert re.search(r" CMD \[", f" {check.rest}")


def test_probes_and_metrics_are_open_to_the_pod_and_the_api_is_not() -> None:
    environment = dict(re.findall(r"(\S+)=(\S+)", " ".join(env.rest for env in _FILE.all("ENV"))))
    assert environment["PILOTFISH_ADMIN_HOST"] == "0.0.0.0"
    assert "PILOTFISH_API_HOST" not in environment
    assert _FILE.one("EXPOSE").rest == "9464"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"


def test_labels_say_what_it_is_by_the_names_of_oci() -> None:
    labels = _labels()
    assert {name.removeprefix("org.opencontainers.image.") for name in labels} == {
        *("title", "description", "version", "revision", "source", "licenses")
    }
    assert labels["org.opencontainers.image.title"] == _PROJECT["name"]
    assert labels["org.opencontainers.image.description"] == _PROJECT["description"]
    assert labels["org.opencontainers.image.version"] == "${VERSION}"
    assert _argument("VERSION") == _PROJECT["version"]
    assert [_argument(name) for name in ("REVISION", "SOURCE", "LICENSES")] == ["", "", ""]


def test_the_builder_gets_what_is_copied_and_nothing_else() -> None:
    copied = {source for copy in _FILE.all("COPY", 0) for source in copy.rest.split()[:-1]}
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_neither_tests_nor_the_pipeline_are_copied() -> None:
    copied = " ".join(copy.rest for copy in _FILE.all("COPY", 0))
    assert not re.search(r"\b(tests|pipeline|benchmarks|examples)\b", copied)
    # Its command would come with the project's metadata and find nothing to call.
    assert "rm /opt/pilotfish/bin/pilotfish-pipeline" in _runs(0)


def test_the_bill_of_materials_lists_every_pin_with_its_hashes(tmp_path: Path) -> None:
    command = ("make", "--silent", "--old-file=setup", "sbom", f"DIST={tmp_path}")
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    bill = json.loads((tmp_path / f"pilotfish-{_PROJECT['version']}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "pilotfish")
    listed = {normalised(part["name"]): part for part in bill["components"]}
    assert {name: part["version"] for name, part in listed.items()} == {
        name: version for name, (version, _) in _pins("run.txt").items()
    }
    for name, (_, rest) in _pins("run.txt").items():
        hashes = {
            found["content"]
            for place in listed[name]["externalReferences"]
            for found in place.get("hashes", [])
        }
        assert hashes == set(re.findall(r"--hash=sha256:(\w+)", rest)), name
        for licence in listed[name]["licenses"]:
            assert licence.get("expression") or licence["license"]["name"], name


def test_what_declares_no_licence_or_is_not_installed_fails_the_bill_of_materials() -> None:
    with pytest.raises(LookupError, match="no-such-package is not installed"):
        licences_of("no-such-package", "1.0")
    with pytest.raises(LookupError, match=r"pytest is installed as \S+, and not as 0.1"):
        licences_of("pytest", "0.1")
    assert licences_of("fastapi", version("fastapi"))


def _labels() -> dict[str, str]:
    return dict(_LABEL.findall(_FILE.one("LABEL").rest))
