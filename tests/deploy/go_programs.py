"""Programs in Go that the checks ask: found, or built once from the Go module proxy into .cache/tools/bin.

Building needs `go` and a network, and takes minutes for a big program. If either is missing, UnavailableError
says what to install. Versions are pinned here. Blocks, on the caller's thread.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.deploy.outcome import UnavailableError
from tests.support.debian_packages import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BIN: Final = TOOLS / "bin"
KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
KUBECONFORM: Final = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
PROMETHEUS_OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
KUBERNETES: Final = "v1.34.4"
#: A build of kube-apiserver took seven and a half minutes on two cores.
_TIMEOUT_S: Final = 2400

#: How each program of Kubernetes makes its command.
_COMMANDS: Final = {
    "kube-apiserver": "NewAPIServerCommand()",
    "kube-controller-manager": "NewControllerManagerCommand()",
    "kubelet": "NewKubeletCommand(context.Background())",
}
_MAIN: Final = """\
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/{name}/app"
)

// Only kubelet's command takes a context, and Go refuses an import that nothing uses.
var _ = context.Background

func main() {{ os.Exit(cli.Run(app.{command})) }}
"""
#: Modules that live in Kubernetes' own repository: its go.mod asks for all of them in version v0.0.0.
_STAGED: Final = re.compile(r"^\s*(k8s\.io/[\w.-]+) v0\.0\.0$", re.MULTILINE)


def kubeconform() -> Path:
    """The program; raises UnavailableError."""
    return _found("kubeconform") or _installed("kubeconform", KUBECONFORM)


def kustomize_command() -> list[str]:
    """The words before the folder: kubectl's, which has it inside, or its own. Raises UnavailableError."""
    kubectl = shutil.which("kubectl")
    if kubectl is not None:
        return [kubectl, "kustomize"]
    return [str(_found("kustomize") or _installed("kustomize", KUSTOMIZE)), "build"]


def kubernetes(name: str, say: Callable[[str], None]) -> Path:
    """kube-apiserver, kube-controller-manager or kubelet: from PATH, KUBEBUILDER_ASSETS or .cache/tools, else
    built. Raises UnavailableError.
    """
    program = BIN / f"{name}-{KUBERNETES}"
    found = _found(name) or _asset(name)
    if found is not None:
        return found
    if not program.is_file():
        say(f"builds {name} {KUBERNETES} from the Go module proxy: some ten minutes, once")
        try:
            _build_kubernetes(name, program)
        except UnavailableError as error:
            raise UnavailableError(
                f"there is no {name}, and {error.what}",
                f"{error.remedy}, or name the folder of Kubernetes' programs in KUBEBUILDER_ASSETS, as "
                "`setup-envtest use -p path` prints it",
            ) from error
    return program


def prometheus_operator_crds() -> Path:
    """The folder of the Prometheus operator's CRDs, out of its Go module; raises UnavailableError."""
    said = _go("mod", "download", "-json", PROMETHEUS_OPERATOR, cwd=Path(tempfile.gettempdir()))
    return Path(json.loads(said)["Dir"]) / "example" / "prometheus-operator-crd"


def _asset(name: str) -> Path | None:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    program = Path(folder, name) if folder else None
    return program if program is not None and program.is_file() else None


def _found(name: str) -> Path | None:
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    return BIN / name if (BIN / name).is_file() else None


def _installed(name: str, package: str) -> Path:
    BIN.mkdir(parents=True, exist_ok=True)
    _go("install", package, cwd=BIN, environment={"GOBIN": str(BIN)})
    return BIN / name


def _build_kubernetes(name: str, program: Path) -> None:
    """A program of one file that is Kubernetes' own main: `go install` refuses modules with replacements."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        said = _go("mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}", cwd=folder)
        (folder / "main.go").write_text(_MAIN.format(name=name, command=_COMMANDS[name]))
        (folder / "go.mod").write_text(_module(Path(json.loads(said)["GoMod"]).read_text()))
        _go("mod", "tidy", cwd=folder)
        stamp = "k8s.io/component-base/version"
        major, minor, _ = KUBERNETES.lstrip("v").split(".")
        version = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(["-s -w", *(f"-X {stamp}.{key}={value}" for key, value in version.items())])
        built = folder / name
        _go("build", "-ldflags", flags, "-o", str(built), ".", cwd=folder, environment={"CGO_ENABLED": "0"})
        # Whole or not at all: another process may look for it.
        half = program.with_suffix(".new")
        shutil.copy(built, half)
        half.replace(program)


def _module(kubernetes: str) -> str:
    """A go.mod with Kubernetes' staged modules in the versions that they are published in."""
    staged = sorted(set(_STAGED.findall(kubernetes)))
    published = KUBERNETES.replace("v1.", "v0.", 1)
    replaced = "".join(f"\t{name} => {name} {published}\n" for name in staged)
    return f"module built\n\ngo 1.24\n\nrequire k8s.io/kubernetes {KUBERNETES}\n\nreplace (\n{replaced})\n"


def _go(*arguments: str, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs go, and gives what it printed."""
    command: Sequence[str] = ("go", *arguments)
    try:
        ran = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise UnavailableError(
            "there is no go to build it with", "install Go 1.24 or newer (https://go.dev/dl)"
        ) from error
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise UnavailableError(
            f"`{' '.join(command[:3])}` failed: {' '.join(said)}",
            "a Go module proxy must be reachable (GOPROXY)",
        ) from error
    return ran.stdout
