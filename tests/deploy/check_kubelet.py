"""Pods of helm/examples on a real kubelet and containerd, with controllers, beside real brokers.

Their sidecar is the image of the Dockerfile. Their app is play_app.py, which ends with 1 where a record is
not acknowledged. Each play ends with all that was acknowledged read back from the brokers: no more, no less.

kubelet and kube-controller-manager: from PATH, from the folder in KUBEBUILDER_ASSETS, or built from the Go
module proxy (minutes, once). containerd and the network's plugins: Debian's packages. Only root can do it.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

from client_core.testing.free_ports import free_ports
from tests.deploy.api_server import ApiServer, find_etcd
from tests.deploy.check_image import BASE, IMAGE, build_image, java_and_jars
from tests.deploy.debian_base import CACHE, base_archive
from tests.deploy.debian_programs import ProgramFailedError, require_programs
from tests.deploy.go_programs import kubernetes
from tests.deploy.image_builder import ImageBuilder
from tests.deploy.node import GATEWAY, NAME, PAUSE, Node, Programs
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.deploy.play import EXAMPLES, LAST_RECORDS, SERVERS, pod_spec
from tests.support.debian_packages import PackagesMissingError, unpack
from tests.support.faulty_proxy import FaultyProxy
from tests.support.kraft import KraftCluster
from tests.support.kraft_server import ProxiedListener
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Say = Callable[[str], None]

_HERE: Final = Path(__file__).parent
_ORDERS: Final = "registry.example.com/shop/orders:1.0.0"
_SIDECAR: Final = "docker.io/library/pilotfish:0.1.0"
_LISTENER: Final = "NODE"
_DIARY: Final = "/diary"
_PODS: Final = "/api/v1/namespaces/default/pods"
_PLAY_TIMEOUT_S: Final = 180.0


def check(say: Say) -> None:
    """Plays all. Raises BrokenPromiseError and UnavailableError."""
    if os.geteuid() != 0:
        raise UnavailableError("a node is run by root only", "run the check as root, in a container say")
    archive = base_archive(say)
    require_programs("buildah", "crun")
    java, jars = java_and_jars()
    try:
        containerd, network = unpack("containerd"), unpack("containernetworking-plugins")
    except PackagesMissingError as error:
        raise UnavailableError(str(error), "Debian's archive must be reachable") from error
    apiserver, etcd = kubernetes("kube-apiserver", say), find_etcd()
    programs = Programs(
        kubernetes("kubelet", say), kubernetes("kube-controller-manager", say), containerd, network
    )
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
            folder = Path(name)
            guard.remove_at_end(folder)
            images = _build(say, folder / "built", archive)
            for made in ("server", "node", "diaries"):
                (folder / made).mkdir()
            with (
                ApiServer(folder / "server", apiserver=apiserver, etcd=etcd) as server,
                Node(folder / "node", server, programs, images) as node,
            ):
                say("a node is ready")
                _play_all(say, folder, node, java, jars)
    except (AssertionError, ProgramFailedError) as error:
        raise BrokenPromiseError(str(error)) from error
    finally:
        guard.close()


def _build(say: Say, folder: Path, archive: Path) -> list[Path]:
    """Archives of the sidecar's image, of the app's and of that which holds a pod's network."""
    folder.mkdir()
    builder = ImageBuilder(folder)
    builder.import_root(archive, BASE)
    build_image(say, builder, folder)
    context = folder / "app"
    context.mkdir()
    shutil.copy(_HERE / "play_app.py", context)
    (context / "orders").write_text("#!/bin/sh\nexec /opt/pilotfish/bin/python3 /play_app.py\n")
    (context / "orders").chmod(0o755)
    (context / "Dockerfile").write_text(
        f'FROM {IMAGE}\nCOPY play_app.py /\nCOPY orders /usr/local/bin/\nENTRYPOINT ["orders"]\nCMD []\n'
    )
    builder.build(context, "localhost/orders")
    holds = folder / "pause"
    holds.mkdir()
    (holds / "Dockerfile").write_text(f'FROM {BASE}\nENTRYPOINT ["sleep", "infinity"]\n')
    builder.build(holds, "localhost/pause")
    return [
        builder.archive(IMAGE, folder / "pilotfish.tar", _SIDECAR),
        builder.archive("localhost/orders", folder / "orders.tar", _ORDERS),
        builder.archive("localhost/pause", folder / "pause.tar", PAUSE),
    ]


class _Stage:
    """Real brokers whom pods reach at the bridge's address, and what apps wrote down."""

    def __init__(self, folder: Path, node: Node, java: Path, jars: Sequence[Path]) -> None:
        self._diaries = folder / "diaries"
        ports = free_ports(3)
        self._ports = dict(enumerate(ports, 1))
        listener = ProxiedListener(_LISTENER, self._ports, advertised_host=GATEWAY)
        self.kafka = KraftCluster(java, jars, folder / "kafka", proxied_listeners=[listener])
        self.node = node
        self.server = node.server

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{GATEWAY}:{port}" for port in self._ports.values())

    def proxies(self) -> list[FaultyProxy]:
        return [
            FaultyProxy(self.kafka.proxied_target(broker, _LISTENER), port=port, host=GATEWAY)
            for broker, port in self._ports.items()
        ]

    def example(self, name: str, topic: str, **app: str) -> dict[str, Any]:
        """The manifest, with this machine's brokers, and the topic and more variables for its app."""
        text = (EXAMPLES / name).read_text().replace(SERVERS, self.bootstrap_servers)
        manifest: dict[str, Any] = yaml.safe_load(text)
        spec = pod_spec(manifest)
        spec["nodeName"] = NAME
        diary = self._diaries / topic
        diary.mkdir()
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
        return manifest

    @contextlib.contextmanager
    def workload(self, topic: str, kind: str = "Deployment", **more: Any) -> Iterator[str]:
        """examples/deployment.yaml as a workload of this kind, from its first records to the end of its pods.

        Yields its path at the API server; `more` is added to its spec.
        """
        manifest = self.example("deployment.yaml", topic, APP_LAST_RECORDS=str(LAST_RECORDS))
        manifest["kind"] = kind
        manifest["spec"] |= more
        path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s"
        self.server.create(path, manifest)
        self.wait_for_records(topic, more.get("replicas", 1), 50)
        yield f"{path}/orders"
        self.server.delete(f"{path}/orders")
        self.wait_until_gone()

    def acknowledged(self, topic: str) -> dict[str, list[str]]:
        """By pod."""
        return {path.name: path.read_text().split() for path in (self._diaries / topic).iterdir()}

    def wait_for_records(self, topic: str, pods: int, count: int) -> None:
        """Until so many pods have so many acknowledged each."""

        def has_them() -> bool:
            return sum(len(values) >= count for values in self.acknowledged(topic).values()) >= pods

        self.wait(has_them, f"{count} records of each of {pods} pods of {topic}")

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(is_so, what=what, timeout_s=_PLAY_TIMEOUT_S, every_s=0.2, last_seen=self.report)

    def report(self) -> str:
        """The pods' states, and what the node's programs said."""
        states = [
            f"{pod['metadata']['name']}: {pod['status'].get('phase')} "
            f"{[(it['name'], it['state']) for it in _statuses(pod)]}"
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


def _play_all(say: Say, folder: Path, node: Node, java: Path, jars: Sequence[Path]) -> None:
    stage = _Stage(folder, node, java, jars)
    with stage.kafka:
        proxies = stage.proxies()
        try:
            for play in (
                _deployment,
                _rolling_restart,
                _stateful_set,
                _daemon_set,
                _evicted,
                _native_job,
                _legacy_job,
                _killed_sidecar,
            ):
                topic = play.__name__.strip("_").replace("_", "-")
                stage.kafka.admin.create_topic(topic, partitions=1, replication_factor=3)
                say(play(stage, topic))
        finally:
            for proxy in proxies:
                proxy.close()


def _deployment(stage: _Stage, topic: str) -> str:
    return _lives(stage, topic, "Deployment")


def _stateful_set(stage: _Stage, topic: str) -> str:
    return _lives(stage, topic, "StatefulSet", serviceName="orders", replicas=1)


def _daemon_set(stage: _Stage, topic: str) -> str:
    return _lives(stage, topic, "DaemonSet")


def _lives(stage: _Stage, topic: str, kind: str, **more: Any) -> str:
    with stage.workload(topic, kind, **more):
        (pod,) = stage.pods()
        _started_in_order(pod)
        assert _restarts(pod) == 0, stage.report()
        (before,) = map(len, stage.acknowledged(topic).values())
    (after,) = map(len, stage.acknowledged(topic).values())
    assert after >= before + LAST_RECORDS, f"{before}, then {after}"
    return f"a {kind}'s pod starts in order, and drains when deleted: {stage.stored_count(topic)} records"


def _rolling_restart(stage: _Stage, topic: str) -> str:
    with stage.workload(topic, replicas=2) as path:
        before = set(stage.acknowledged(topic))
        restart = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}
        stage.server.patch(path, {"spec": {"template": restart}})
        stage.wait(lambda: before.isdisjoint(pod["metadata"]["name"] for pod in stage.pods()), "new pods")
        stage.wait_for_records(topic, 4, 50)
    return f"a rolling restart of two replicas: {stage.stored_count(topic)} records of four pods"


def _evicted(stage: _Stage, topic: str) -> str:
    """The Eviction API, as `kubectl drain` calls it: another pod comes meanwhile."""
    with stage.workload(topic):
        (pod,) = stage.pods()
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        stage.server.create(f"{_PODS}/{name}/eviction", eviction)
        stage.wait(lambda: name not in {it["metadata"]["name"] for it in stage.pods()}, f"the end of {name}")
        stage.wait_for_records(topic, 2, 50)
    return f"a pod that is evicted drains: {stage.stored_count(topic)} records of it and the next"


def _native_job(stage: _Stage, topic: str) -> str:
    """The CronJob's Job, made now as `kubectl create job --from` does."""
    cron = stage.example("cronjob.yaml", topic, APP_RECORDS="100")
    stage.server.create("/apis/batch/v1/namespaces/default/cronjobs", copy.deepcopy(cron))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly-now"},
        "spec": cron["spec"]["jobTemplate"]["spec"],
    }
    _completes(stage, job, topic)
    stage.server.delete("/apis/batch/v1/namespaces/default/cronjobs/nightly")
    return f"a CronJob's Job completes, and its sidecar ends with it: {stage.stored_count(topic)} records"


def _legacy_job(stage: _Stage, topic: str) -> str:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pilotfish-quit"},
        "stringData": {"token": "looking-glass-2Jm"},
    }
    stage.server.create("/api/v1/namespaces/default/secrets", secret)
    job = stage.example("job-legacy.yaml", topic, APP_RECORDS="100")
    (app,) = [it for it in pod_spec(job)["containers"] if it["name"] == "once"]
    # There is no curl in this app's image.
    quits = "pilotfish quit --token-file /etc/pilotfish/secrets/quit/token"
    app["args"] = [f"orders once; code=$?; {quits}; exit $code"]
    _completes(stage, job, topic)
    return f"a Job of the older form completes by its quit request: {stage.stored_count(topic)} records"


def _completes(stage: _Stage, job: dict[str, Any], topic: str) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"
    stage.server.create(path, job)
    name = job["metadata"]["name"]

    def is_complete() -> bool:
        found = stage.server.find(f"{path}/{name}") or {}
        return bool(found.get("status", {}).get("succeeded") == 1)

    stage.wait(is_complete, f"the completion of {name}")
    (pod,) = stage.pods()
    ended = {it["name"]: it["state"]["terminated"]["exitCode"] for it in _statuses(pod)}
    assert set(ended.values()) == {0}, f"{ended}\n{stage.report()}"
    assert _restarts(pod) == 0, stage.report()
    assert [len(values) for values in stage.acknowledged(topic).values()] == [100]
    stage.server.delete(f"{path}/{name}")
    stage.wait_until_gone()


def _killed_sidecar(stage: _Stage, topic: str) -> str:
    """A sidecar that ends alone is started again. Its app ends where a request fails, and is started too."""
    with stage.workload(topic):
        (pod,) = stage.pods()
        (sidecar,) = [it for it in _statuses(pod) if it["name"] == "pilotfish"]
        container = sidecar["containerID"].removeprefix("containerd://")
        stage.node.ctr("tasks", "kill", "--signal", "SIGKILL", container)

        def is_back() -> bool:
            return any(
                it["name"] == "pilotfish" and it["restartCount"] == 1 and it.get("started", False)
                for pod in stage.pods()
                for it in _statuses(pod)
            )

        stage.wait(is_back, "a sidecar that is started again")
        (before,) = map(len, stage.acknowledged(topic).values())
        stage.wait_for_records(topic, 1, before + 50)
    # The one record that was under way when the sidecar was killed.
    count = stage.stored_count(topic, repeated=1)
    return f"a sidecar that is killed is started again, and its app goes on: {count} records"


# -- pods ----------------------------------------------------------------------------------------------------


def _statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _restarts(pod: dict[str, Any]) -> int:
    return sum(it["restartCount"] for it in _statuses(pod))


def _started_in_order(pod: dict[str, Any]) -> None:
    """The app is started after the sidecar's startup probe has said yes."""
    at = {it["name"]: datetime.fromisoformat(it["state"]["running"]["startedAt"]) for it in _statuses(pod)}
    assert at["pilotfish"] <= at["orders"], at
    (sidecar,) = [it for it in _statuses(pod) if it["name"] == "pilotfish"]
    assert sidecar["started"], sidecar
