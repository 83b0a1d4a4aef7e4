"""The plays of check_kubelet.py: what can happen to a pod with a sidecar on a node.

Each gets a stage and a topic of its own, ends with the count of what is stored, and returns what it has seen.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tests.deploy.chart_tools import HELM_FOLDER, Manifest, kustomize, of_kind, render
from tests.deploy.debian_programs import output_of
from tests.deploy.outcome import UnavailableError
from tests.deploy.play import LAST_RECORDS, pod_spec
from tests.deploy.stage import SCRAM, SECURED, restarts, sidecar_of, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.deploy.stage import Stage

    Play = Callable[[Stage, str], str]

_RESTART: Final = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}
_QUIT_TOKEN: Final = "looking-glass-2Jm"
_USER: Final = "grete"
_FIRST: Final = "caterpillar-3Hn"
_SECOND: Final = "butterfly-8Lc"
_SECRETS: Final = "/etc/pilotfish/secrets/kafka"
_MIB: Final = 1 << 20
#: Seventy callers of a megabyte; the sidecar of the examples has 256 MiB.
_FLOOD_CALLERS: Final = 70
_FLOOD_S: Final = 15


def deployment(stage: Stage, topic: str) -> str:
    return _lives(stage, topic, "Deployment")


def stateful_set(stage: Stage, topic: str) -> str:
    return _lives(stage, topic, "StatefulSet", serviceName="orders", replicas=1)


def daemon_set(stage: Stage, topic: str) -> str:
    return _lives(stage, topic, "DaemonSet")


def _lives(stage: Stage, topic: str, kind: str, **more: Any) -> str:
    with stage.workload(topic, kind, **more), _whole_life(stage, topic):
        pass
    return f"a {kind}'s pod starts in order, and drains when deleted: {stage.stored_count(topic)} records"


@contextlib.contextmanager
def _whole_life(stage: Stage, topic: str) -> Iterator[None]:
    """What a pod of one is held to, from when it runs to its end."""
    (pod,) = stage.pods()
    at = {it["name"]: datetime.fromisoformat(it["state"]["running"]["startedAt"]) for it in statuses(pod)}
    assert at["pilotfish"] <= at["orders"], at
    assert sidecar_of(pod)["started"], pod["status"]
    yield
    (pod,) = stage.pods()
    assert restarts(pod) == 0, stage.report()


def rolling_restart(stage: Stage, topic: str) -> str:
    with stage.workload(topic, replicas=2) as path:
        _replace_pods(stage, topic, path, {"spec": {"template": _RESTART}})
    return f"a rolling restart of two replicas: {stage.stored_count(topic)} records of four pods"


def _replace_pods(stage: Stage, topic: str, path: str, changes: dict[str, Any]) -> None:
    """Changes a Deployment of two pods, until two others run in their place."""
    before = set(stage.acknowledged(topic))
    stage.server.patch(path, changes)
    stage.wait(lambda: before.isdisjoint(pod["metadata"]["name"] for pod in stage.pods()), "new pods")
    stage.wait_for_records(topic, 4, 50)


def evicted(stage: Stage, topic: str) -> str:
    """The Eviction API, as `kubectl drain` calls it: another pod comes meanwhile."""
    with stage.workload(topic):
        (pod,) = stage.pods()
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        stage.server.create(f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)
        stage.wait(lambda: name not in {it["metadata"]["name"] for it in stage.pods()}, f"the end of {name}")
        stage.wait_for_records(topic, 2, 50)
    return f"a pod that is evicted drains: {stage.stored_count(topic)} records of it and the next"


def native_job(stage: Stage, topic: str) -> str:
    """The CronJob's Job, made now as `kubectl create job --from` does."""
    _complete_now(stage, stage.example("cronjob.yaml", topic, APP_RECORDS="100"), topic)
    return f"a CronJob's Job completes, and its sidecar ends with it: {stage.stored_count(topic)} records"


def _complete_now(stage: Stage, cron: Manifest, topic: str) -> None:
    path = stage.create(cron)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly-now"},
        "spec": cron["spec"]["jobTemplate"]["spec"],
    }
    stage.complete(job, topic, 100)
    stage.server.delete(path)


def legacy_job(stage: Stage, topic: str) -> str:
    secret = stage.create(_secret("pilotfish-quit", token=_QUIT_TOKEN))
    job = stage.example("job-legacy.yaml", topic, APP_RECORDS="100")
    (app,) = [it for it in pod_spec(job)["containers"] if it["name"] == "once"]
    # There is no curl in this app's image.
    quits = "pilotfish quit --token-file /etc/pilotfish/secrets/quit/token"
    app["args"] = [f"orders once; code=$?; {quits}; exit $code"]
    stage.complete(job, topic, 100)
    stage.server.delete(secret)
    return f"a Job of the older form completes by its quit request: {stage.stored_count(topic)} records"


def _secret(name: str, **values: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}


def own_chart(stage: Stage, topic: str) -> str:
    """examples/own-chart: its Deployment, then its CronJob's Job, with the ConfigMap that both mount."""
    return f"a chart with pilotfish-lib: {_installed(stage, topic, render('own-chart'))}"


def kustomized(stage: Stage, topic: str) -> str:
    """kustomize/example: what the component does to a Deployment and a CronJob."""
    manifests = kustomize(HELM_FOLDER / "kustomize" / "example")
    return f"kustomize's component: {_installed(stage, topic, manifests)}"


def _installed(stage: Stage, topic: str, manifests: Sequence[Manifest]) -> str:
    config = stage.create(stage.with_brokers(of_kind(manifests, "ConfigMap")))
    last = {"APP_LAST_RECORDS": str(LAST_RECORDS)}
    (service,) = [it for it in manifests if it["kind"] == "Deployment" and _has_sidecar(it)]
    manifest = stage.adapted(service, f"{topic}-service", **last)
    with stage.running(manifest, f"{topic}-service"), _whole_life(stage, topic):
        (pod,) = stage.pods()
        mounted = stage.node.in_container(_container(sidecar_of(pod)), "cat", "/etc/pilotfish/pilotfish.toml")
        assert stage.bootstrap_servers() in mounted, mounted
    cron = stage.adapted(of_kind(manifests, "CronJob"), f"{topic}-nightly", APP_RECORDS="100")
    _complete_now(stage, cron, f"{topic}-nightly")
    stage.server.delete(config)
    counts = [stage.stored_count(f"{topic}-{part}") for part in ("service", "nightly")]
    return f"{counts[0]} records of its Deployment, {counts[1]} of its CronJob's Job"


def _has_sidecar(manifest: Manifest) -> bool:
    return any(it["name"] == "pilotfish" for it in pod_spec(manifest).get("initContainers", ()))


def rotated_secret(stage: Stage, topic: str) -> str:
    """The brokers take a new password and no other; then the Secret changes, then all connections break."""
    stage.security.set_password(_USER, SCRAM, _FIRST)
    secret = stage.create(_secret("kafka", username=_USER, password=_FIRST))
    manifest = stage.example("deployment.yaml", topic, APP_LAST_RECORDS=str(LAST_RECORDS))
    spec = pod_spec(manifest)
    spec["volumes"].append({"name": "kafka", "secret": {"secretName": "kafka"}})
    (sidecar,) = spec["initContainers"]
    sidecar["volumeMounts"].append({"name": "kafka", "mountPath": _SECRETS, "readOnly": True})
    settings = {
        "BOOTSTRAP_SERVERS": stage.bootstrap_servers(SECURED),
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_MECHANISM": SCRAM,
        "SASL_USERNAME_FILE": f"{_SECRETS}/username",
        "SASL_PASSWORD_FILE": f"{_SECRETS}/password",
    }
    variables = {it["name"]: it["value"] for it in sidecar["env"]}
    variables |= {f"PILOTFISH_KAFKA_{name}": value for name, value in settings.items()}
    sidecar["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    with stage.running(manifest, topic), _whole_life(stage, topic):
        container = _container(stage.sidecar())
        stage.security.set_password(_USER, SCRAM, _SECOND)
        stage.server.patch(secret, {"stringData": {"password": _SECOND}})
        began_s = time.monotonic()
        password = ("cat", f"{_SECRETS}/password")
        stage.wait(lambda: stage.node.in_container(container, *password) == _SECOND, "the new password")
        took_s = time.monotonic() - began_s
        for proxy in stage.proxies:
            proxy.reset()
        stage.wait_for_more(topic)
    stage.server.delete(secret)
    count = stage.stored_count(topic)
    return f"a Secret that is rotated, in the pod after {took_s:.0f} s, then all connections: {count} records"


def upgraded(stage: Stage, topic: str) -> str:
    """From the manifest and the image of the tree before to the present ones, pod by pod."""
    before = stage.older
    if before is None:
        raise UnavailableError("the tree before is not in this history", "git fetch --unshallow")
    manifest = stage.adapted(before, topic, APP_LAST_RECORDS=str(LAST_RECORDS))
    manifest["spec"]["replicas"] = 2
    present = stage.example("deployment.yaml", topic, APP_LAST_RECORDS=str(LAST_RECORDS))
    images = {pod_spec(it)["initContainers"][0]["image"] for it in (manifest, present)}
    assert len(images) == 2, images
    with stage.running(manifest, topic) as path:
        _replace_pods(stage, topic, path, {"spec": {"template": present["spec"]["template"]}})
        images = {pod["spec"]["initContainers"][0]["image"] for pod in stage.pods()}
        assert images == {pod_spec(present)["initContainers"][0]["image"]}, images
    return f"a rolling upgrade from the tree before: {stage.stored_count(topic)} records of four pods"


def killed_sidecar(stage: Stage, topic: str) -> str:
    """A sidecar that ends alone is started again. Its app ends where a request fails, and is started too."""
    with stage.workload(topic):
        stage.node.ctr("tasks", "kill", "--signal", "SIGKILL", _container(stage.sidecar()))
        stage.wait_until_restarted()
        stage.wait_for_more(topic)
    # The one record that was under way when the sidecar was killed.
    count = stage.stored_count(topic, repeated=1)
    return f"a sidecar that is killed is started again, and its app goes on: {count} records"


def full_memory(stage: Stage, topic: str) -> str:
    """Brokers take in nothing while many callers send megabytes: they are refused, and nothing is killed.

    With less memory than that the kernel kills the sidecar. It is started again, and its app goes on.
    """
    stage.kafka.admin.create_topic("flood", partitions=3, replication_factor=3)
    manifest = stage.example("deployment.yaml", topic, APP_LAST_RECORDS=str(LAST_RECORDS), APP_PATIENT="1")
    with stage.running(manifest, topic):
        container = _container(stage.sidecar())
        memory = stage.node.memory_of(container)
        limit_bytes = memory.limit_bytes()
        for proxy in stage.proxies:
            proxy.stall()
        try:
            answers = _flood(stage, container)
        finally:
            for proxy in stage.proxies:
                proxy.heal()
        peak_bytes = memory.peak_bytes()
        stage.wait_for_more(topic)
        (pod,) = stage.pods()
        assert restarts(pod) == 0, stage.report()
        assert set(answers) <= {"200", "429", "503", "504"}, answers
        assert answers["429"], answers
        assert peak_bytes < limit_bytes, (peak_bytes, limit_bytes)

        memory.set_limit(memory.used_bytes() + 2 * _MIB)
        _flood(stage, container)
        ended = stage.wait_until_restarted()["lastState"]["terminated"]
        assert ended["reason"] == "OOMKilled", ended
        stage.wait_for_more(topic)
    count = stage.stored_count(topic, repeated=1)
    said = ", ".join(f"{number} x {code}" for code, number in sorted(answers.items()))
    return (
        f"brokers that stall, {_FLOOD_CALLERS} callers of 1 MB: {said}, at most {peak_bytes // _MIB} of "
        f"{limit_bytes // _MIB} MiB; with less it is OOMKilled and started again: {count} records"
    )


def _flood(stage: Stage, container: str) -> Counter[str]:
    """Has many callers send megabytes inside the pod's network; how often each status was answered."""
    said = output_of(
        (
            *stage.node.in_network(container),
            *(sys.executable, "-m", "tests.deploy.flood", "8085", "flood"),
            *(str(_FLOOD_CALLERS), str(_FLOOD_S)),
        )
    )
    return Counter(json.loads(said))


def _container(status: dict[str, Any]) -> str:
    identity: str = status["containerID"]
    return identity.removeprefix("containerd://")


PLAYS: Final[Sequence[Play]] = (
    deployment,
    rolling_restart,
    stateful_set,
    daemon_set,
    evicted,
    native_job,
    legacy_job,
    own_chart,
    kustomized,
    rotated_secret,
    upgraded,
    killed_sidecar,
    full_memory,
)
