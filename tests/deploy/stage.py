"""What a play on a node is made of: real brokers, workloads with this machine's addresses, apps' diaries.

    with stage.workload("orders-1") as path: ...   # the Deployment of helm/examples, until its pods are gone
    stage.stored_count("orders-1")                 # what was acknowledged is stored, and nothing else

Pods reach brokers through proxies at the bridge's address. The app of all workloads is play_app.py, which
ends with 1 where a record is not acknowledged. Blocks; one thread.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import yaml  # type: ignore[import-untyped]

from client_core.testing.free_ports import free_ports
from tests.deploy.node import GATEWAY, NAME
from tests.deploy.play import EXAMPLES, LAST_RECORDS, SERVERS, pod_spec
from tests.support.faulty_proxy import FaultyProxy
from tests.support.kraft import KraftCluster
from tests.support.kraft_server import ProxiedListener
from tests.support.security_admin import SecurityAdmin
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.deploy.node import Node

#: Listeners of every broker: anybody's, and one for those that SCRAM knows.
PLAIN: Final = "NODE"
SECURED: Final = "SECURED"
SCRAM: Final = "SCRAM-SHA-512"
_PROTOCOLS: Final = {PLAIN: "PLAINTEXT", SECURED: "SASL_PLAINTEXT"}
_DIARY: Final = "/diary"
_PODS: Final = "/api/v1/namespaces/default/pods"
_GROUPS: Final = {
    "ConfigMap": "api/v1",
    "CronJob": "apis/batch/v1",
    "DaemonSet": "apis/apps/v1",
    "Deployment": "apis/apps/v1",
    "Job": "apis/batch/v1",
    "Secret": "api/v1",
    "StatefulSet": "apis/apps/v1",
}
_TIMEOUT_S: Final = 180.0


class Stage:
    """One cluster of three brokers beside a node."""

    def __init__(
        self, folder: Path, node: Node, java: Path, jars: Sequence[Path], older: dict[str, Any] | None
    ) -> None:
        """`folder` gets diaries and the brokers' data. `older` is the Deployment that users upgrade from."""
        self.older = older
        self._diaries = folder / "diaries"
        self._diaries.mkdir()
        self._ports = {name: dict(enumerate(free_ports(3), 1)) for name in _PROTOCOLS}
        self.kafka = KraftCluster(
            java,
            jars,
            folder / "kafka",
            proxied_listeners=[
                ProxiedListener(name, self._ports[name], protocol, advertised_host=GATEWAY)
                for name, protocol in _PROTOCOLS.items()
            ],
            settings={
                "sasl.enabled.mechanisms": SCRAM,
                f"listener.name.{SECURED.lower()}.{SCRAM.lower()}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            },
        )
        self.node = node
        self.server = node.server

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            starting.enter_context(self.kafka)
            self.proxies = [
                starting.enter_context(
                    FaultyProxy(self.kafka.proxied_target(broker, name), port=port, host=GATEWAY)
                )
                for name, ports in self._ports.items()
                for broker, port in ports.items()
            ]
            self.security = SecurityAdmin(self.kafka.bootstrap_servers)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def bootstrap_servers(self, listener: str = PLAIN) -> str:
        return ",".join(f"{GATEWAY}:{port}" for port in self._ports[listener].values())

    # -- workloads -------------------------------------------------------------------------------------------

    def example(self, name: str, topic: str, **app: str) -> dict[str, Any]:
        """A manifest of helm/examples, adapted."""
        manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
        return self.adapted(manifest, topic, **app)

    def adapted(self, manifest: dict[str, Any], topic: str, **app: str) -> dict[str, Any]:
        """The workload with this node, its brokers, and the topic and more variables for its app."""
        made = self.with_brokers(manifest)
        spec = pod_spec(made)
        spec["nodeName"] = NAME
        diary = self._diaries / topic
        diary.mkdir(exist_ok=True)
        diary.chmod(0o777)
        spec["volumes"].append({"name": "diary", "hostPath": {"path": str(diary)}})
        (container,) = [it for it in spec["containers"] if it["name"] != "pilotfish"]
        variables = {"APP_API_PORT": "8085", "APP_TOPIC": topic, **app}
        container["env"] = [
            *({"name": key, "value": value} for key, value in variables.items()),
            # Each pod keeps a diary of its own.
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "APP_DIARY", "value": f"{_DIARY}/$(POD)"},
        ]
        container.setdefault("volumeMounts", []).append({"name": "diary", "mountPath": _DIARY})
        return made

    def with_brokers(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest for this node's brokers and namespace."""
        text = yaml.safe_dump(manifest).replace(SERVERS, self.bootstrap_servers())
        made: dict[str, Any] = yaml.safe_load(text)
        made["metadata"]["namespace"] = "default"
        return made

    def create(self, manifest: dict[str, Any]) -> str:
        """Creates an object; its path at the API server."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        path = f"/{_GROUPS[kind]}/namespaces/default/{kind.lower()}s"
        self.server.create(path, copy.deepcopy(manifest))
        return f"{path}/{name}"

    @contextlib.contextmanager
    def running(self, manifest: dict[str, Any], topic: str) -> Iterator[str]:
        """A workload, from the first records of its pods to their end. Yields its path at the API server."""
        path = self.create(manifest)
        self.wait_for_records(topic, manifest["spec"].get("replicas", 1), 50)
        # The API server is behind kubelet.
        self.wait(self._all_run, "containers that run")
        yield path
        self.server.delete(path)
        self.wait_until_gone()

    @contextlib.contextmanager
    def workload(self, topic: str, kind: str = "Deployment", **more: Any) -> Iterator[str]:
        """examples/deployment.yaml as a workload of this kind, running; `more` is added to its spec."""
        manifest = self.example("deployment.yaml", topic, APP_LAST_RECORDS=str(LAST_RECORDS))
        manifest["kind"] = kind
        manifest["spec"] |= more
        with self.running(manifest, topic) as path:
            yield path

    def complete(self, job: dict[str, Any], topic: str, records: int) -> None:
        """Runs a Job until all its containers have ended with 0; none may be started twice."""
        path = self.create(job)

        def is_complete() -> bool:
            found = self.server.find(path) or {}
            return bool(found.get("status", {}).get("succeeded") == 1)

        self.wait(is_complete, f"the completion of {path}")
        (pod,) = self.pods()
        ended = {it["name"]: it["state"]["terminated"]["exitCode"] for it in statuses(pod)}
        assert set(ended.values()) == {0}, f"{ended}\n{self.report()}"
        assert restarts(pod) == 0, self.report()
        assert [len(values) for values in self.acknowledged(topic).values()] == [records]
        self.server.delete(path)
        self.wait_until_gone()

    # -- what happened ---------------------------------------------------------------------------------------

    def acknowledged(self, topic: str) -> dict[str, list[str]]:
        """By pod."""
        return {path.name: path.read_text().split() for path in (self._diaries / topic).iterdir()}

    def wait_for_records(self, topic: str, pods: int, count: int) -> None:
        """Until so many pods have so many acknowledged each."""

        def has_them() -> bool:
            return sum(len(values) >= count for values in self.acknowledged(topic).values()) >= pods

        self.wait(has_them, f"{count} records of each of {pods} pods of {topic}")

    def wait_for_more(self, topic: str, more: int = 50) -> None:
        """Until the one pod has so many more acknowledged."""
        (before,) = map(len, self.acknowledged(topic).values())
        self.wait_for_records(topic, 1, before + more)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(is_so, what=what, timeout_s=_TIMEOUT_S, every_s=0.2, last_seen=self.report)

    def report(self) -> str:
        """The pods' states, and what the node's programs said."""
        states = [
            f"{pod['metadata']['name']}: {pod['status'].get('phase')} "
            f"{[(it['name'], it['state']) for it in statuses(pod)]}"
            for pod in self.pods()
        ]
        return "\n".join([*states, self.node.log()])

    def pods(self) -> list[dict[str, Any]]:
        found = self.server.find(_PODS) or {}
        pods: list[dict[str, Any]] = found.get("items", [])
        return pods

    def wait_until_gone(self) -> None:
        """Waits until no pod is left."""
        self.wait(lambda: not self.pods(), "the end of all pods")

    def sidecar(self) -> dict[str, Any]:
        """The state of the one pod's sidecar."""
        (pod,) = self.pods()
        return sidecar_of(pod)

    def wait_until_restarted(self) -> dict[str, Any]:
        """Waits until the one pod's sidecar was started again and is up; its state."""

        def is_back() -> bool:
            sidecar = self.sidecar()
            return bool(sidecar["restartCount"] == 1 and sidecar.get("started", False))

        self.wait(is_back, "a sidecar that is started again")
        return self.sidecar()

    def _all_run(self) -> bool:
        return all("running" in it["state"] for pod in self.pods() for it in statuses(pod))

    def stored_count(self, topic: str, *, repeated: int = 0) -> int:
        """How many records are stored: those that were acknowledged, and no others.

        `repeated`: how many may be there twice, as their answer never came and they were sent again.
        """
        stored = [(record.value or b"").decode() for record in self.kafka.read_back(topic)]
        acknowledged = self.acknowledged(topic)
        for pod, values in acknowledged.items():
            assert values == [str(number) for number in range(len(values))], f"{pod}: {values[-3:]}"
        missing = Counter(stored)
        missing.subtract(value for values in acknowledged.values() for value in values)
        wrong = {value: count for value, count in missing.items() if count}
        assert len(wrong) <= repeated, f"{topic}: stored too often, or (below 0) not: {wrong}"
        assert set(wrong.values()) <= {1}, f"{topic}: stored too often, or (below 0) not: {wrong}"
        return len(stored)


def statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all containers of a pod."""
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def sidecar_of(pod: dict[str, Any]) -> dict[str, Any]:
    (sidecar,) = [it for it in statuses(pod) if it["name"] == "pilotfish"]
    return sidecar


def restarts(pod: dict[str, Any]) -> int:
    return sum(it["restartCount"] for it in statuses(pod))
