"""Every values example is installed, upgraded and removed by Helm on a real Kubernetes API server.

Their pods are sent to it as well, into namespaces that enforce Pod Security `restricted`: there are no
controllers to do it. So are the pods of the plain examples, of kustomize's, and of a team's own chart. Some
objects that the schemas allow and a server must refuse are sent too, to prove that this server validates.

kube-apiserver: from PATH, from the folder in KUBEBUILDER_ASSETS, or built from the Go module proxy (minutes,
once). etcd: from the same places, or Debian's package etcd-server.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml  # type: ignore[import-untyped]

from tests.deploy.api_server import ApiServer, RefusedError, find_etcd
from tests.deploy.chart_tools import (
    EXAMPLES,
    HELM_FOLDER,
    ChartRefusedError,
    Manifest,
    chart,
    example,
    kustomize,
    parsed,
    pod_template,
    run_helm,
    sidecar_of,
)
from tests.deploy.go_programs import kubernetes, prometheus_operator_crds
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The names of the operator's kinds in its folder of CRDs.
_CUSTOM: Final = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
_GROUP: Final = "monitoring.coreos.com"
#: Workloads whose pods need none.
_WITHOUT_SIDECAR: Final = ("without-kafka", "pilotfish-pipeline")


def check(say: Callable[[str], None]) -> None:
    apiserver, etcd = kubernetes("kube-apiserver", say), find_etcd()
    with (
        tempfile.TemporaryDirectory(prefix="pilotfish-api-server-") as folder,
        ApiServer(Path(folder), apiserver=apiserver, etcd=etcd) as server,
    ):
        _bad_pods_are_refused(server)
        say("the server refuses bad pods")
        without = _with_custom_kinds(server, say)
        for name in EXAMPLES:
            _installed(server, name, "pilotfish", ["--values", str(example(name)), *without])
            say(f"installed, upgraded, tested by its pods and removed: {name}")
        for native in ("true", "false"):
            _installed(server, f"own-{native}", "own-chart", ["--set", f"pilotfish.nativeSidecar={native}"])
        say("installed: a team's own chart, native and legacy")
        for path in sorted((HELM_FOLDER / "examples").glob("*.yaml")):
            _accepted(server, f"plain-{path.stem}", parsed(path.read_text()))
            say(f"accepted: helm/examples/{path.name}")
        for name in ("claim", "cronjob"):
            path = HELM_FOLDER / "pilotfish-pipeline" / f"{name}.yaml"
            _accepted(server, f"pipeline-{name}", parsed(path.read_text()))
            say(f"accepted: helm/pilotfish-pipeline/{name}.yaml")
        try:
            _accepted(server, "kustomized", kustomize(HELM_FOLDER / "kustomize" / "example"))
            say("accepted: helm/kustomize/example")
        except UnavailableError as error:
            say(f"SKIPPED helm/kustomize/example: {error}")


def _with_custom_kinds(server: ApiServer, say: Callable[[str], None]) -> Sequence[str]:
    """Adds the Prometheus operator's kinds to the server; or returns flags that leave them out."""
    try:
        folder = prometheus_operator_crds()
    except UnavailableError as error:
        say(f"SKIPPED PodMonitor and PrometheusRule: {error}")
        return ("--set", "podMonitor.enabled=false,prometheusRule.enabled=false")
    for kind, plural in _CUSTOM.items():
        definition = yaml.safe_load((folder / f"{_GROUP}_{plural}.yaml").read_text())
        server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        wait_until(
            lambda kind=kind: server.has_kind(f"{_GROUP}/v1", kind),  # type: ignore[misc]
            what=f"a server that knows {kind}",
            every_s=0.1,
        )
    return ()


def _namespace(server: ApiServer, name: str) -> str:
    """A namespace of its own that takes nothing but what `restricted` allows."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    server.create("/api/v1/namespaces", namespace)
    return name


def _installed(server: ApiServer, name: str, which: str, values: Sequence[str]) -> None:
    namespace = _namespace(server, name)
    place: list[str | Path] = ["shop", chart(which), "--namespace", namespace, *values]
    try:
        run_helm("install", *place, kubeconfig=server.kubeconfig)
        run_helm("upgrade", *place, kubeconfig=server.kubeconfig)
        for what in ("manifest", "hooks"):
            said = run_helm("get", what, "shop", "--namespace", namespace, kubeconfig=server.kubeconfig)
            _pods_accepted(server, namespace, parsed(said))
        run_helm("uninstall", "shop", "--namespace", namespace, kubeconfig=server.kubeconfig)
    except ChartRefusedError as error:
        raise BrokenPromiseError(f"helm with {name}: {error}") from error


def _accepted(server: ApiServer, name: str, manifests: Sequence[Manifest]) -> None:
    """Sends manifests as they are, and then their pods."""
    namespace = _namespace(server, name)
    for manifest in manifests:
        body = copy.deepcopy(manifest)
        body["metadata"]["namespace"] = namespace
        group = "/api/v1" if body["apiVersion"] == "v1" else f"/apis/{body['apiVersion']}"
        try:
            server.create(f"{group}/namespaces/{namespace}/{body['kind'].lower()}s", body, dry_run=True)
        except RefusedError as error:
            raise BrokenPromiseError(f"{body['kind']} of {name}: {error}") from error
    _pods_accepted(server, namespace, manifests)


def _pods_accepted(server: ApiServer, namespace: str, manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        template = pod_template(manifest)
        if template is not None:
            name = f"{manifest['kind']} {manifest['metadata']['name']} in {namespace}"
            sidecar_or_none = [it for it in _containers(template) if it["name"] == "pilotfish"]
            if not sidecar_or_none and manifest["metadata"]["name"] not in _WITHOUT_SIDECAR:
                raise BrokenPromiseError(f"{name}: its pods have no sidecar")
            try:
                server.create(f"/api/v1/namespaces/{namespace}/pods", _pod(template), dry_run=True)
            except RefusedError as error:
                raise BrokenPromiseError(f"the pod of {name}: {error}") from error


def _containers(template: Manifest) -> list[Manifest]:
    return [*(template["spec"].get("initContainers") or ()), *template["spec"]["containers"]]


def _pod(template: Manifest) -> Manifest:
    metadata = template.get("metadata", {})
    known = {name: metadata[name] for name in ("labels", "annotations") if name in metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "judged", **known},
        "spec": template["spec"],
    }


def _bad_pods_are_refused(server: ApiServer) -> None:
    """Each object has one fault; if the server accepts one, its other answers prove nothing."""
    namespace = _namespace(server, "bad")
    said = run_helm("template", "shop", chart("pilotfish"), "--values", example("native"))
    template = next(pod for it in parsed(said) if (pod := pod_template(it)) is not None)
    for what, spoil in _SPOILED.items():
        pod = _pod(copy.deepcopy(template))
        spoil(sidecar_of(pod))
        try:
            server.create(f"/api/v1/namespaces/{namespace}/pods", pod, dry_run=True)
        except RefusedError:
            continue
        raise BrokenPromiseError(f"the API server takes a pod with {what}: it does not judge as it should")


def _long_port_name(sidecar: Manifest) -> None:
    sidecar["ports"][0]["name"] = "pilotfish-admin-port"


def _no_restart_policy(sidecar: Manifest) -> None:
    del sidecar["restartPolicy"]


def _negative_period(sidecar: Manifest) -> None:
    sidecar["livenessProbe"]["periodSeconds"] = -1


def _root(sidecar: Manifest) -> None:
    sidecar["securityContext"]["runAsUser"] = 0
    sidecar["securityContext"]["runAsNonRoot"] = False


def _unknown_field(sidecar: Manifest) -> None:
    sidecar["livenessprobe"] = sidecar["livenessProbe"]


_SPOILED: Final[dict[str, Callable[[Manifest], None]]] = {
    "a port name of over 15 characters": _long_port_name,
    "probes on an init container that is not restarted": _no_restart_policy,
    "a negative period": _negative_period,
    "a container that runs as root": _root,
    "a field that there is not": _unknown_field,
}
