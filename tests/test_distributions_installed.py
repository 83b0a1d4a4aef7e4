"""The distributions of `make dist`, each in an environment with nothing else, do what they are for.

From wheels and from source archives. The install lines of README and docs are run literally.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from client_core.testing.free_ports import free_ports
from requirements.distributions import build, project
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
_VERSION: Final = project()["version"]
#: The pins of what each needs at run time.
_PINS: Final = {"pilotfish": "run.txt", "pilotfish-client": "run.txt", "pilotfish-pipeline": "pipeline.txt"}

#: A program that produces with nothing but the client.
_PRODUCES: Final = """
import sys
from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.testing import FakeCluster
assert not {"fastapi", "pydantic", "cramjam"} & set(sys.modules)
with FakeCluster(1) as kafka:
    kafka.create_topic("orders")
    config = ProducerConfig.from_mapping({"bootstrap.servers": kafka.bootstrap_servers})
    with KafkaProducer(config) as producer:
        print(producer.send(ProducerRecord("orders", b"v")).result(30).offset)
try:
    settings = {"bootstrap.servers": "127.0.0.1:1", "compression.type": "lz4"}
    KafkaProducer(ProducerConfig.from_mapping(settings))
except Exception as error:
    print(error)
"""


#: Programs that print yes if the client does with an extra what the extra is for.
_WITH_EXTRA: Final = {
    "msk-iam": """
import os, time
os.environ.update(AWS_REGION="eu-north-1", AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")
from client_core.msk_iam import token
signed, expires_ms = token()
assert 800_000 < expires_ms - time.time() * 1000 < 1_000_000
from client_core.network.sasl.client_jwt_validator import is_sendable
assert is_sendable(signed)
print("yes")
""",
    "oauth": """
import pathlib
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives import serialization as s
key = rsa.generate_private_key(65537, 2048)
key_pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
pathlib.Path("key.pem").write_bytes(key_pem)
from client_core import KafkaProducer, ProducerConfig
prefix = "sasl.oauthbearer."
KafkaProducer(ProducerConfig.from_mapping({
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    prefix + "token.endpoint.url": "https://127.0.0.1:1/",
    prefix + "assertion.claim.iss": "me",
    prefix + "assertion.private.key.file": "key.pem",
}))
print("yes")
""",
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


def _wheel(dist: Path, name: str) -> Path:
    return dist / f"{name.replace('-', '_')}-{_VERSION}-py3-none-any.whl"


def _archive(dist: Path, name: str) -> Path:
    return dist / f"{name.replace('-', '_')}-{_VERSION}.tar.gz"


class Installed:
    """An environment with one distribution and what it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder)

    def install(self, *words: str | Path) -> None:
        python = self.folder / "bin" / "python"
        _run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *words)

    def run(self, program: str, *words: str) -> str:
        return _run(self.folder / "bin" / program, *words, cwd=self.folder)


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(600),
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def _lines() -> set[str]:
    """What the pages have people install of `dist`."""
    pages = [_ROOT / "README.md", *(_ROOT / "docs").glob("**/*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"pip install ('dist/[^']+'|dist/[^\s`]+)", text))


@pytest.fixture(params=["wheel", "source archive"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _installed(dist: Path, name: str, kind: str, folder: Path) -> Installed:
    made = Installed(folder / "environment")
    made.install("--require-hashes", "-r", _ROOT / "requirements" / _PINS[name])
    made.install("--require-hashes", "-r", _ROOT / "requirements" / "build.txt")
    file = _wheel(dist, name) if kind == "wheel" else _archive(dist, name)
    made.install("--no-deps", "--no-build-isolation", file)
    return made


def test_the_sidecar_answers_a_look_up(dist: Path, kind: str, tmp_path: Path) -> None:
    installed = _installed(dist, "pilotfish", kind, tmp_path)
    with _serving(installed) as url:
        answer = httpx.get(f"{url}/v1/topics/demo/leader?partition=0", trust_env=False, timeout=patient(30))
    assert answer.json()["leader"]["host"] == "127.0.0.1"
    assert not (installed.folder / "bin" / "pilotfish-pipeline").exists()


def test_the_client_produces(dist: Path, kind: str, tmp_path: Path) -> None:
    installed = Installed(tmp_path / "environment")
    installed.install("crc32c", "hatchling")
    file = _wheel(dist, "pilotfish-client") if kind == "wheel" else _archive(dist, "pilotfish-client")
    installed.install("--no-deps", "--no-build-isolation", file)
    said = installed.run("python", "-c", _PRODUCES).splitlines()
    assert said == [
        "0",
        "lz4 needs the package cramjam: install pilotfish-client with its extra codecs",
    ]


@pytest.mark.parametrize("extra", _WITH_EXTRA)
def test_the_client_has_its_extras(dist: Path, extra: str, tmp_path: Path) -> None:
    installed = Installed(tmp_path / "environment")
    pins = _ROOT / "requirements" / f"{extra}.txt"
    installed.install("--constraints", pins, f"{_wheel(dist, 'pilotfish-client')}[{extra}]")
    assert installed.run("python", "-c", _WITH_EXTRA[extra]) == "yes\n"


def test_the_pipeline_lists_its_commands(dist: Path, kind: str, tmp_path: Path) -> None:
    installed = _installed(dist, "pilotfish-pipeline", kind, tmp_path)
    assert "report" in installed.run("pilotfish-pipeline", "--help")
    assert _VERSION in installed.run(
        "python", "-c", "from pipeline.refresh import pilotfish_version; print(pilotfish_version())"
    )


@pytest.mark.parametrize("words", sorted(_lines()))
def test_each_install_line_of_the_docs_installs_what_works(words: str, dist: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").symlink_to(dist)
    file, _, extra = words.strip("'").removesuffix("]").partition("[")
    name = Path(file).name.partition("-")[0].replace("_", "-")
    installed = Installed(tmp_path / "environment")
    pins = f"{extra}.txt" if extra in ("msk-iam", "oauth", "otel") else _PINS[name]
    installed.install("--constraints", _ROOT / "requirements" / pins, tmp_path / words.strip("'"))
    if name == "pilotfish-client":
        assert installed.run("python", "-c", _PRODUCES).startswith("0\n")
    elif name == "pilotfish-pipeline":
        assert "report" in installed.run("pilotfish-pipeline", "--help")
    else:
        more = ("--tracing", "otlp") if extra == "otel" else ()
        with _serving(installed, *more) as url:
            answer = httpx.get(f"{url}/v1/cluster", trust_env=False, timeout=patient(30))
            assert answer.status_code == 200


@contextmanager
def _serving(installed: Installed, *words: str) -> Iterator[str]:
    """`pilotfish serve --embedded` of an environment."""
    api_port, admin_port = free_ports(2)
    url, log = f"http://127.0.0.1:{api_port}", installed.folder / "log"
    ports = ("--api-port", str(api_port), "--admin-port", str(admin_port))
    command = (str(installed.folder / "bin" / "pilotfish"), "serve", "--embedded", *ports, *words)
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=installed.folder, stdout=out, stderr=out)
        try:
            wait_until(partial(_answers, url), what="a sidecar that answers", last_seen=log.read_text)
            yield url
        finally:
            process.terminate()
            process.wait(patient(30))


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/status", trust_env=False).is_success
    except httpx.TransportError:
        return False
