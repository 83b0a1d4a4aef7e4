"""The clients in examples/, run as their readers would run them, each by its own language."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client_core import partition_for_key
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.debian_packages import install
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "examples" / "clients"
CLIENTS = sorted(client for client in _FOLDER.iterdir() if client.is_file())

#: What runs each, by its file's suffix, and Debian's package of it. Python is where tests run.
RUN = {
    ".sh": (("sh",), "curl"),
    ".py": ((sys.executable,), None),
    ".mjs": (("node",), "nodejs"),
    ".go": (("go", "run"), "golang-go"),
    ".php": (("php",), "php-cli"),
}
IN_A_LANGUAGE_OF_DEBIAN = [client for client in CLIENTS if client.suffix in (".mjs", ".go", ".php")]

#: Go compiles its standard library when it meets it first.
PATIENCE_S = patient(110)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=(DEMO_TOPIC,)) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("sidecar")
    with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers) as running:
        yield running


def test_every_language_that_is_promised_has_its_client() -> None:
    assert {client.suffix for client in CLIENTS} == set(RUN)


@pytest.mark.parametrize(
    "client",
    [client for client in CLIENTS if client not in IN_A_LANGUAGE_OF_DEBIAN],
    ids=lambda path: path.name,
)
def test_a_client_finds_the_leader_and_produces(
    client: Path, cluster: EmbeddedCluster, sidecar: Sidecar
) -> None:
    _finds_the_leader_and_produces(client, cluster, sidecar)


@pytest.mark.parametrize("client", IN_A_LANGUAGE_OF_DEBIAN, ids=lambda path: path.name)
def test_a_client_in_a_language_of_debian_finds_the_leader_and_produces(
    client: Path, cluster: EmbeddedCluster, sidecar: Sidecar
) -> None:
    _finds_the_leader_and_produces(client, cluster, sidecar)


def _finds_the_leader_and_produces(client: Path, cluster: EmbeddedCluster, sidecar: Sidecar) -> None:
    command, package = RUN[client.suffix]
    if package is not None and shutil.which("curl" if package == "curl" else command[0]) is None:
        install(package)  # PackagesMissingError says what to install
    ran = subprocess.run(
        [*command, str(client)],
        env={**os.environ, "SIDECAR_URL": sidecar.api_url},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    leader, produced = (json.loads(line) for line in ran.stdout.split("\n") if line)
    partition = partition_for_key(b"customer-7", cluster.kafka.partition_count(DEMO_TOPIC))
    assert leader["partition"] == partition
    assert leader["leader"]["id"] == cluster.kafka.partition(DEMO_TOPIC, partition).leader
    receipt = produced["results"][0]
    assert receipt["partition"] == partition
    written = {(r.partition, r.offset): (r.key, r.value) for r in cluster.kafka.records(DEMO_TOPIC)}
    assert written[partition, receipt["offset"]] == (b"customer-7", b'{"total":12.5}')


def test_the_example_projects_own_tests_pass_with_the_test_kit() -> None:
    """By the command of docs/testing.md, with the example's own settings and none of this project's."""
    (command,) = re.findall(
        r"^\.cache/run-venv/bin/python( -m pytest .+)$",
        (_ROOT / "docs/testing.md").read_text(encoding="utf-8"),
        re.M,
    )
    ran = subprocess.run(
        [sys.executable, *command.split(), "-p", "no:cacheprovider"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout
    assert f"rootdir: {_ROOT}/examples/orders" in ran.stdout
