"""`python requirements/distributions.py FOLDER`: what users install, built from this checkout.

| file | holds |
|---|---|
| pilotfish-*.whl, .tar.gz | the sidecar: `service` and `client_core` |
| pilotfish_client-*.whl, .tar.gz | the producer client alone: `client_core` |
| pilotfish_pipeline-*.whl, .tar.gz | the data pipeline: `pipeline` |
| pilotfish*.tgz | the Helm charts |
| SHA256SUMS | their checksums |

Names, versions and dependencies come from pyproject.toml. Each distribution is staged in a folder of its own,
with the files that git knows and a pyproject.toml of its own, and built there by hatchling. The same commit
gives the same bytes. Needs the environment of `make setup`; no network. Raises CalledProcessError.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[1]
CHARTS: Final = ("pilotfish", "pilotfish-lib")
SUMS: Final = "SHA256SUMS"

_NOT_BOTH: Final = "Do not install {} beside it: both hold the package client_core."


class Distribution(NamedTuple):
    """What one wheel and one source archive hold. `readme` is the page that becomes their README."""

    name: str
    packages: tuple[str, ...]
    description: str
    readme: str
    dependencies: list[str]
    extras: dict[str, list[str]]
    scripts: dict[str, str]

    @property
    def file_stem(self) -> str:
        return self.name.replace("-", "_")


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def distributions() -> list[Distribution]:
    """The three, with dependencies out of pyproject.toml."""
    table = project()
    extras, scripts = table["optional-dependencies"], table["scripts"]

    def of_project(*names: str) -> list[str]:
        return [line for line in table["dependencies"] if _name_of(line) in names]

    return [
        Distribution(
            "pilotfish",
            ("client_core", "service"),
            f"{table['description']}. {_NOT_BOTH.format('pilotfish-client')}",
            "README.md",
            table["dependencies"],
            {name: extras[name] for name in ("msk-iam", "oauth", "otel")},
            {"pilotfish": scripts["pilotfish"]},
        ),
        Distribution(
            "pilotfish-client",
            ("client_core",),
            f"Kafka's Java producer client in Python. {_NOT_BOTH.format('pilotfish')}",
            "docs/library.md",
            of_project("crc32c"),
            {"codecs": of_project("cramjam"), **{name: extras[name] for name in ("msk-iam", "oauth")}},
            {},
        ),
        Distribution(
            "pilotfish-pipeline",
            ("pipeline",),
            "Tables, a report and advice from the events of a fleet of Pilotfish sidecars, on Spark",
            "docs/pipeline.md",
            [*of_project("click"), *extras["pipeline"]],
            {},
            {"pilotfish-pipeline": scripts["pilotfish-pipeline"]},
        ),
    ]


def _name_of(requirement: str) -> str:
    return requirement.split(";")[0].split(">")[0].split("=")[0].split("[")[0].strip()


def pyproject_of(distribution: Distribution) -> str:
    """A distribution's own pyproject.toml. TOML's texts and lists of texts are written as JSON's are."""
    table = project()
    lines = [
        "[build-system]",
        'requires = ["hatchling>=1.27"]',
        'build-backend = "hatchling.build"',
        "",
        "[project]",
        f"name = {json.dumps(distribution.name)}",
        f"version = {json.dumps(table['version'])}",
        f"description = {json.dumps(distribution.description)}",
        'readme = "README.md"',
        f"requires-python = {json.dumps(table['requires-python'])}",
        f"dependencies = {json.dumps(distribution.dependencies)}",
        "",
        "[project.optional-dependencies]",
        *(f"{name} = {json.dumps(lines)}" for name, lines in distribution.extras.items()),
        "",
        "[project.scripts]",
        *(f"{name} = {json.dumps(place)}" for name, place in distribution.scripts.items()),
        "",
        "[tool.hatch.build.targets.wheel]",
        f"packages = {json.dumps(distribution.packages)}",
        "",
    ]
    return "\n".join(lines)


def build(folder: Path) -> None:
    """Build everything into a folder. Other files in it stay, and have no checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = int(_git("log", "-1", "--format=%ct"))
    for distribution in distributions():
        _build_one(distribution, folder, epoch)
    for chart in CHARTS:
        _package_chart(chart, folder, epoch)
    write_sums(folder, built())


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write SHA256SUMS of these files. A signature of an earlier one is removed."""
    (folder / f"{SUMS}.sig").unlink(missing_ok=True)
    lines = []
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    (folder / SUMS).write_text("".join(lines))


def built() -> list[str]:
    """The names of the files that build() makes, but for SHA256SUMS."""
    version = project()["version"]
    stems = [f"{each.file_stem}-{version}" for each in distributions()]
    ends = ("-py3-none-any.whl", ".tar.gz")
    return sorted(
        [f"{stem}{end}" for stem in stems for end in ends] + [f"{name}-{version}.tgz" for name in CHARTS]
    )


def _build_one(distribution: Distribution, folder: Path, epoch: int) -> None:
    with tempfile.TemporaryDirectory() as stage:
        for name in _git("ls-files", "-z", *distribution.packages).split("\0"):
            if name:
                (Path(stage) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, Path(stage) / name)
        (Path(stage) / "pyproject.toml").write_text(pyproject_of(distribution), encoding="utf-8")
        shutil.copyfile(ROOT / distribution.readme, Path(stage) / "README.md")
        words = ("build", "-t", "sdist", "-t", "wheel", "-d", str(folder.resolve()))
        _run(sys.executable, "-m", "hatchling", *words, folder=Path(stage), epoch=epoch)


def _package_chart(chart: str, folder: Path, epoch: int) -> None:
    """Helm's package, and once more with the commit's time for that of the build."""
    with tempfile.TemporaryDirectory() as stage:
        shutil.copytree(ROOT / "helm", Path(stage) / "helm")
        place = Path(stage) / "helm" / chart
        helm = str(Path(sys.executable).with_name("helm"))
        _run(helm, "dependency", "build", str(place), folder=Path(stage), epoch=epoch)
        _run(helm, "package", str(place), "-d", stage, folder=Path(stage), epoch=epoch)
        (packed,) = Path(stage).glob("*.tgz")
        (folder / packed.name).write_bytes(_with_times(packed.read_bytes(), epoch))


def _with_times(archive: bytes, epoch: int) -> bytes:
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as read,
        gzip.GzipFile(fileobj=out, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as written,
    ):
        for member in sorted(read.getmembers(), key=lambda each: each.name):
            member.mtime = epoch
            if not member.name.endswith("/Chart.lock"):  # it has the time of the build
                written.addfile(member, read.extractfile(member))
    return out.getvalue()


def _run(*command: str, folder: Path, epoch: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)  # noqa: S603 - our own words


def _git(*words: str) -> str:
    command = (shutil.which("git") or "git", *words)
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    return ran.stdout


if __name__ == "__main__":
    build(Path(sys.argv[1]))
