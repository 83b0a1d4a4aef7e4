"""Every manifest of the charts through kubeconform, custom resources too, and the charts as packages.

Kubernetes' schemas are those inside kubernetes-validate; the Prometheus operator's are made from the CRDs in
its Go module. kubeconform comes from PATH, or is built from the Go module proxy. A chart's package must
install the same objects as its folder.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

from tests.deploy.chart_tools import (
    CHARTS,
    EXAMPLES,
    HELM_FOLDER,
    NEWEST,
    OLDEST,
    ChartRefusedError,
    chart,
    charts,
    kustomize,
    parsed,
    run_helm,
    template,
)
from tests.deploy.go_programs import kubeconform, prometheus_operator_crds
from tests.deploy.outcome import BrokenPromiseError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: How kubernetes-validate, and this module, name the schema of a kind: podmonitor-monitoring-v1.json. The
#: version of Kubernetes is that of kubeconform's flag, with a v before it.
_NAMED: Final = "{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json"
_ELSEWHERE: Final = "/api/_definitions.json#"
_CUSTOM: Final = ("podmonitors", "prometheusrules")
_OWN: Final = (
    "configmap-v1",
    "cronjob-batch-v1",
    "deployment-apps-v1",
    "job-batch-v1",
    "networkpolicy-networking-v1",
    "pod-v1",
)
_TIMEOUT_S: Final = 120


def check(say: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="pilotfish-check-charts-") as name:
        folder = Path(name)
        _packaged(folder, say)
        program = kubeconform()
        for version in (OLDEST, NEWEST):
            _write_own_schemas(version, folder / f"v{version}")
            _write_custom_schemas(prometheus_operator_crds(), folder / f"v{version}")
            for example in EXAMPLES:
                text = template(chart("pilotfish"), example, kube_version=version)
                _conform(program, folder, version, example, text)
            _conform(
                program, folder, version, "own-chart", template(chart("own-chart"), kube_version=version)
            )
            for path in sorted((HELM_FOLDER / "examples").glob("*.yaml")):
                _conform(program, folder, version, path.name, path.read_text())
            try:
                kustomized = yaml.safe_dump_all(kustomize(HELM_FOLDER / "kustomize" / "example"))
                _conform(program, folder, version, "kustomize", kustomized)
            except UnavailableError as error:
                say(f"SKIPPED helm/kustomize/example: {error}")
            say(f"kubeconform is content with every manifest, Kubernetes {version}")
        _notices(program, folder)
        say("kubeconform complains of a PodMonitor and of a Pod with a mistake")


def _packaged(folder: Path, say: Callable[[str], None]) -> None:
    """Packages all charts; the application chart's makes what its folder makes."""
    try:
        for place in ("pilotfish-lib", *CHARTS.values()):
            run_helm("lint", "--strict", charts() / place)
            run_helm("package", charts() / place, "--destination", folder)
        package = next(folder.glob("pilotfish-[0-9]*.tgz"))
        for example in EXAMPLES:
            if parsed(template(package, example)) != parsed(template(chart("pilotfish"), example)):
                raise BrokenPromiseError(f"the package of chart pilotfish makes something else of {example}")
    except ChartRefusedError as error:
        raise BrokenPromiseError(str(error)) from error
    say(f"packaged: {', '.join(sorted(path.name for path in folder.glob('*.tgz')))}")


def _conform(program: Path, folder: Path, version: str, what: str, text: str) -> None:
    said = _said(program, folder, version, text)
    if said:
        raise BrokenPromiseError(f"kubeconform, Kubernetes {version}, {what}: {said}")


def _said(program: Path, folder: Path, version: str, text: str) -> str:
    """The complaints of kubeconform; empty if it has none and knew every kind."""
    ran = subprocess.run(
        [
            *(program, "-strict", "-summary", "-output", "json", "-kubernetes-version", version),
            *("-schema-location", f"{folder}/{_NAMED}", "-"),
        ],
        input=text,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    reported = json.loads(ran.stdout) if ran.stdout else {}
    if ran.returncode == 0 and reported["summary"]["valid"] and not reported["summary"]["skipped"]:
        return ""
    return (
        "; ".join(f"{it['kind']} {it['name']}: {it['msg']}" for it in reported.get("resources", ()))
        or ran.stderr
    )


def _notices(program: Path, folder: Path) -> None:
    """A checker that accepts everything would prove nothing."""
    container = {"name": "a", "image": "a", "livenessprobe": {}}
    monitor = {"selector": {}, "podMetricsEndpoints": [{"prot": "pf-admin"}]}
    for api_version, kind, spec in (
        ("v1", "Pod", {"containers": [container]}),
        ("monitoring.coreos.com/v1", "PodMonitor", monitor),
    ):
        wrong = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "wrong"}, "spec": spec}
        if not _said(program, folder, NEWEST, yaml.safe_dump(wrong)):
            raise BrokenPromiseError(f"kubeconform takes a {kind} with a misspelled field: it checks nothing")


def _write_own_schemas(version: str, folder: Path) -> None:
    """Kubernetes' schemas, each with all it refers to inside: kubeconform would ask the web for that."""
    folder.mkdir()
    place = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema" / f"v{version}-local-strict"
    definitions = json.loads((place / "_definitions.json").read_text().replace(_ELSEWHERE, "#"))["$defs"]
    for kind in _OWN:
        schema = json.loads((place / f"{kind}.json").read_text().replace(_ELSEWHERE, "#"))
        del schema["$id"]
        (folder / f"{kind}.json").write_text(json.dumps({**schema, "$defs": definitions}))


def _write_custom_schemas(definitions: Path, folder: Path) -> None:
    """The JSON schemas inside CRDs."""
    for plural in _CUSTOM:
        definition = yaml.safe_load((definitions / f"monitoring.coreos.com_{plural}.yaml").read_text())
        kind = definition["spec"]["names"]["kind"].lower()
        for version in definition["spec"]["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            (folder / f"{kind}-monitoring-{version['name']}.json").write_text(json.dumps(schema))


def _strict(schema: Any) -> Any:
    """A schema that takes no fields but those it names, as an API server with strict validation does."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(value) for name, value in schema.items()}
    if made.get("type") == "object" and "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = bool(made.get("x-kubernetes-preserve-unknown-fields"))
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made = {**made, "type": ["integer", "string"]}
    return made
