"""Pods of helm/examples with our own sidecar and an app that produces, for the kubelet of kubelet.py to run.

    play = Play(tmp_path, "deployment.yaml", bootstrap_servers=..., topic="orders")
    with play.kubelet() as kubelet: ...
    play.acknowledged()                  # the values whose produce was answered with 200, in order

The manifests are those that users copy: probes, order, hooks and grace period are theirs. Blocks; one thread.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

from client_core.testing.free_ports import free_ports
from tests.deploy.kubelet import Kubelet, Machine, read_pod
from tests.support.secured_settings import MountedSecret
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parent.parent.parent
EXAMPLES: Final = ROOT / "helm" / "examples"

#: What an app still produces while it drains itself, where a play asks for it.
LAST_RECORDS: Final = 50
#: The life of examples/deployment.yaml's pod, from its start to its deletion.
NATIVE_LIFE: Final = [
    "started pilotfish",
    "startup pilotfish",
    "started orders",
    "terminated orders",
    "ended orders 0",
    "terminated pilotfish",
    "ended pilotfish 0",
]

#: The brokers that the examples name.
SERVERS: Final = "kafka-bootstrap.kafka:9092"
#: How often to ask whether the sidecar lives: a play is over before the examples' ten seconds.
_PROBE_PERIOD_S: Final = 0.2
_APP: Final = (sys.executable, "-m", "tests.deploy.play_app")


class Play:
    """One pod of an example, on this machine."""

    def __init__(
        self,
        folder: Path,
        example: str,
        *,
        bootstrap_servers: str,
        topic: str,
        app: Mapping[str, str] | None = None,
        sidecar: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
        app_command: str | None = None,
    ) -> None:
        """`app` and `sidecar` are additional variables. `app_command` is the app's command for a shell, in
        which `app` is replaced by the app itself and `pilotfish` by the command.
        """
        self._folder = folder
        self._diary = folder / "acknowledged.txt"
        self.api_port, admin_port = free_ports(2)
        spec = pod_spec(yaml.safe_load((EXAMPLES / example).read_text()))
        (name,) = [each["name"] for each in spec["containers"] if each["name"] != "pilotfish"]
        self.app_name: Final = name
        if app_command is not None:
            written = next(each for each in spec["containers"] if each["name"] == name)
            written["command"], written["args"] = ["/bin/sh", "-c"], [app_command]
        bin_folder = self._programs()
        shared = {"PYTHONPATH": str(ROOT), "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin"}
        api = {"PILOTFISH_API_PORT": str(self.api_port), "PILOTFISH_ADMIN_PORT": str(admin_port)}
        diary = {"APP_API_PORT": str(self.api_port), "APP_TOPIC": topic, "APP_DIARY": str(self._diary)}
        machine = Machine(
            programs={"pilotfish": (sys.executable, "-m", "service"), "orders": _APP},
            ports={"pf-admin": admin_port},
            texts={SERVERS: bootstrap_servers, **(texts or {})},
            environment={
                "pilotfish": {**shared, **api, **(sidecar or {})},
                name: {**shared, **api, **diary, **(app or {})},
            },
            probe_period_s=_PROBE_PERIOD_S,
        )
        self.pod: Final = read_pod(spec, machine)

    def kubelet(self) -> Kubelet:
        """A kubelet that has not started the pod yet."""
        return Kubelet(self.pod, self._folder)

    def acknowledged(self) -> list[str]:
        """What the app wrote down."""
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def wait_for_records(self, more: int, what: str = "more acknowledged records") -> None:
        """Waits until the app has so many more."""
        wanted = len(self.acknowledged()) + more
        wait_until(lambda: len(self.acknowledged()) >= wanted, what=what, every_s=0.02)

    def _programs(self) -> Path:
        """A folder for PATH with what the containers call by name."""
        folder = self._folder / "bin"
        folder.mkdir()
        for name, command in (("pilotfish", (sys.executable, "-m", "service")), ("app", _APP)):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
            program.chmod(0o755)
        return folder


def deployment(
    folder: Path, *, bootstrap_servers: str, topic: str, sidecar: Mapping[str, str] | None = None
) -> Play:
    """examples/deployment.yaml, whose app produces LAST_RECORDS more while it drains."""
    return Play(
        folder,
        "deployment.yaml",
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        app={"APP_LAST_RECORDS": str(LAST_RECORDS)},
        sidecar=sidecar,
    )


def legacy_job(
    folder: Path,
    *,
    bootstrap_servers: str,
    topic: str,
    app: Mapping[str, str],
    app_command: str,
    sidecar: Mapping[str, str] | None = None,
) -> Play:
    """examples/job-legacy.yaml; its app finds the token that ends the sidecar in the file APP_TOKEN."""
    secret = MountedSecret(folder / "quit", {"token": "looking-glass-2Jm\n"})
    return Play(
        folder,
        "job-legacy.yaml",
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        app={**app, "APP_TOKEN": str(secret.path("token"))},
        texts={"/etc/pilotfish/secrets/quit": str(folder / "quit")},
        app_command=app_command,
        sidecar=sidecar,
    )


#: The last step of such a job: it calls quit on the sidecar, and ends with the exit code of its work.
QUITS: Final = 'app; code=$?; pilotfish quit --token-file "$APP_TOKEN"; exit $code'


def numbers(count: int) -> list[str]:
    """The values of an app's first records, in order."""
    return [str(number) for number in range(count)]


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """The spec of the pods that a workload makes."""
    spec = manifest["spec"]
    if "jobTemplate" in spec:
        spec = spec["jobTemplate"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found
