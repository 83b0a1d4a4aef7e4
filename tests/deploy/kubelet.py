"""A kubelet, as far as a pod's life with a sidecar depends on it: order, probes, signals, the grace period.

    machine = Machine(programs={"pilotfish": [...]}, ports={"pf-admin": 9464}, ...)
    with Kubelet(read_pod(manifest, machine), folder) as kubelet:
        kubelet.start()
        kubelet.delete()                       # or, of a Job: kubelet.wait_until_completed()
    kubelet.reported                           # what happened, in order: "started pilotfish", ...

    start        init containers one after another, each to its end; a sidecar (restartPolicy: Always) only
                 until its startup probe says yes; then the containers, each after the postStart hook of the
                 one before
    probes       httpGet with their own timeout; liveness from the startup probe's yes until the pod ends
    completion   when all containers have ended, SIGTERM to the sidecars, the last one first
    deletion     SIGTERM to the containers; when they have ended, to the sidecars; SIGKILL where the grace
                 period, which they share, is over, but nobody gets less than MIN_GRACE_S

Containers are processes on this machine, in one network. `Machine` maps each image to a program, and the
pod's ports and paths to those of this machine. Nothing is restarted: what a kubelet would restart is a
failure here, and `failures` names it. One thread steers; each liveness probe has its own. Source: Kubernetes'
documentation of the pod lifecycle, of probes and of sidecar containers (1.29 and later).
"""

from __future__ import annotations

import http.client
import math
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.process_guard import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The least time of a sidecar after its pod's grace period. Source: kubelet's minimumGracePeriodInSeconds.
MIN_GRACE_S: Final = 2.0

#: Kubernetes' defaults of a probe.
_PERIOD_S: Final = 10.0
_PROBE_TIMEOUT_S: Final = 1.0
_THRESHOLD: Final = 3

#: The default of terminationGracePeriodSeconds.
_GRACE_S: Final = 30.0

#: How long anything may take that a kubelet would wait for without an end.
_PATIENCE_S: Final = 120.0


class PodFailedError(Exception):
    """The pod does not come up, or a container of it would have been restarted. Says which, and its log."""


class Probe(NamedTuple):
    """An httpGet probe."""

    path: str
    port: int
    period_s: float
    timeout_s: float
    failure_threshold: int

    def fault(self) -> str | None:
        """Asks once; what is wrong, None for yes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            return f"{self.path}: {error!r}"
        finally:
            connection.close()
        return None if 200 <= answer.status < 400 else f"{self.path}: {answer.status} {said}"


@dataclass(frozen=True, slots=True)
class Container:
    """What is to be run, and how it is looked after."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    startup: Probe | None = None
    liveness: Probe | None = None
    post_start: tuple[str, ...] = ()
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """The containers of a pod, and the time that they have together to end."""

    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    grace_s: float = _GRACE_S


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine replaces in a manifest.

    `programs` by the image's name, registry and tag left out. `ports` by their names. `texts` replace parts
    of the manifest's commands and variables: paths of volumes, addresses. `environment` is added,
    by container. `probe_period_s`: how often to ask whether something lives, so that a short life is asked;
    it may be refused for as long in all as the manifest says.
    """

    programs: Mapping[str, Sequence[str]]
    ports: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    probe_period_s: float | None = None

    def text(self, written: str) -> str:
        """What the manifest writes, as it is here."""
        for theirs, ours in self.texts.items():
            written = written.replace(theirs, ours)
        return written


def read_pod(spec: Mapping[str, Any], machine: Machine) -> Pod:
    """A pod from its spec, as a manifest has it under `template`."""
    return Pod(
        tuple(_container(each, machine) for each in spec.get("initContainers", ())),
        tuple(_container(each, machine) for each in spec["containers"]),
        float(spec.get("terminationGracePeriodSeconds", _GRACE_S)),
    )


def _container(written: Mapping[str, Any], machine: Machine) -> Container:
    name = written["name"]
    image = written["image"].rpartition("/")[2].partition(":")[0]
    command = written.get("command") or machine.programs[image]
    words = [*command, *written.get("args", ())]
    variables = {each["name"]: machine.text(each["value"]) for each in written.get("env", ())}
    post_start = written.get("lifecycle", {}).get("postStart", {}).get("exec", {}).get("command", ())
    return Container(
        name,
        tuple(map(machine.text, words)),
        {**variables, **machine.environment.get(name, {})},
        _probe(written.get("startupProbe"), machine),
        _probe(written.get("livenessProbe"), machine, machine.probe_period_s),
        tuple(map(machine.text, post_start)),
        written.get("restartPolicy") == "Always",
    )


def _probe(
    written: Mapping[str, Any] | None, machine: Machine, period_s: float | None = None
) -> Probe | None:
    if written is None:
        return None
    get = written["httpGet"]
    own_period_s = written.get("periodSeconds", _PERIOD_S)
    threshold = written.get("failureThreshold", _THRESHOLD)
    if period_s is not None:  # who asks more often must be refused as much longer
        threshold = math.ceil(threshold * own_period_s / period_s)
    return Probe(
        get["path"],
        machine.ports[get["port"]],
        own_period_s if period_s is None else period_s,
        written.get("timeoutSeconds", _PROBE_TIMEOUT_S),
        threshold,
    )


class _Running:
    """A container's process and the probe of its life."""

    def __init__(self, container: Container, process: subprocess.Popen[bytes]) -> None:
        self.container = container
        self.process = process
        self.prober: threading.Thread | None = None
        self.probes_end = threading.Event()


class Kubelet:
    """Runs one pod. `folder` gets a log of each container, NAME.log."""

    def __init__(self, pod: Pod, folder: Path) -> None:
        self._pod = pod
        self._folder = folder
        self._running: dict[str, _Running] = {}
        #: What happened, in order: "started NAME", "startup NAME" (its probe said yes), "hooked NAME" (its
        #: postStart hook is over), "terminated NAME", "killed NAME", "ended NAME CODE".
        self.reported: list[str] = []
        #: Probes that said no, and what was ended for it.
        self.failures: list[str] = []
        self.probes_answered = 0

    def __enter__(self) -> Kubelet:
        self._guard = ProcessGuard()
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            self._end_probes(running)
            if running.process.poll() is None:
                running.process.kill()
            running.process.wait(timeout=10)
        self._guard.close()

    def log(self, name: str) -> str:
        """All that a container has written."""
        path = self._folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def is_running(self, name: str) -> bool:
        """Whether the container was started and has not ended."""
        return name in self._running and self._running[name].process.poll() is None

    # -- the pod's life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts everything, in order. Raises PodFailedError where a container does not come up."""
        for container in self._pod.init_containers:
            running = self._start(container)
            if container.is_sidecar:
                self._await_startup(running)
            elif self._end_of(running, _PATIENCE_S) != 0:
                raise self._failed(container, "did not complete")
        for container in self._pod.containers:
            running = self._start(container)
            if container.post_start:
                self._run_hook(container)
            if container.startup is not None:
                self._await_startup(running)

    def wait_until_completed(self) -> None:
        """A Job's way: when all containers have ended by themselves, the sidecars are ended."""
        for container in self._pod.containers:
            self._end_of(self._running[container.name], _PATIENCE_S)
        self._end_sidecars(time.monotonic() + self._pod.grace_s)

    def delete(self) -> None:
        """Ends the pod, as when it is deleted."""
        deadline_s = time.monotonic() + self._pod.grace_s
        for running in self._running.values():
            self._end_probes(running)  # a kubelet sends no probes to a pod that is to end
        there = [self._running[container.name] for container in self._pod.containers]
        for running in there:
            self._terminate(running)
        for running in there:
            self._end_by(running, deadline_s)
        self._end_sidecars(deadline_s)

    def _end_sidecars(self, deadline_s: float) -> None:
        for container in reversed(self._pod.init_containers):
            if container.is_sidecar:
                running = self._running[container.name]
                self._terminate(running)
                self._end_by(running, max(deadline_s, time.monotonic() + MIN_GRACE_S))

    # -- one container ---------------------------------------------------------------------------------------

    def _start(self, container: Container) -> _Running:
        command = [
            *("env", *(f"{name}={value}" for name, value in container.environment.items())),
            *container.command,
        ]
        log = self._folder / f"{container.name}.log"
        running = _Running(container, self._guard.start(command, log=log, cwd=self._folder))
        self._running[container.name] = running
        self.reported.append(f"started {container.name}")
        return running

    def _await_startup(self, running: _Running) -> None:
        """Asks the startup probe as often as it says; then the liveness probe begins."""
        container, probe = running.container, running.container.startup
        if probe is not None:
            for _ in range(probe.failure_threshold):
                fault = probe.fault()
                if fault is None:
                    break
                if running.process.poll() is not None:
                    raise self._failed(container, f"ended with {running.process.returncode}")
                running.probes_end.wait(probe.period_s)
            else:
                raise self._failed(container, f"has not started: {fault}")
            self.reported.append(f"startup {container.name}")
        if container.liveness is not None:
            running.prober = threading.Thread(target=self._probe_life, args=(running, container.liveness))
            running.prober.start()

    def _probe_life(self, running: _Running, probe: Probe) -> None:
        in_a_row = 0
        while not running.probes_end.wait(probe.period_s):
            fault = probe.fault()
            if running.probes_end.is_set():
                return  # asked while it was being ended
            in_a_row = 0 if fault is None else in_a_row + 1
            if fault is None:
                self.probes_answered += 1
                continue
            self.failures.append(f"{running.container.name} {fault}")
            if in_a_row == probe.failure_threshold:
                self.failures.append(f"{running.container.name} is restarted")
                running.process.kill()
                return

    def _run_hook(self, container: Container) -> None:
        environment = {**os.environ, **container.environment}
        hook = subprocess.run(
            container.post_start,
            env=environment,
            cwd=self._folder,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if hook.returncode:
            raise self._failed(
                container, f"its postStart hook failed: {hook.stderr.decode(errors='replace')}"
            )
        self.reported.append(f"hooked {container.name}")

    def _terminate(self, running: _Running) -> None:
        self._end_probes(running)
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            self.reported.append(f"terminated {running.container.name}")

    def _end_by(self, running: _Running, deadline_s: float) -> None:
        try:
            self._end_of(running, max(deadline_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            running.process.kill()
            self.reported.append(f"killed {running.container.name}")
            self._end_of(running, _PATIENCE_S)

    def _end_of(self, running: _Running, timeout_s: float) -> int:
        code = running.process.wait(timeout=timeout_s)
        self._end_probes(running)
        reported = f"ended {running.container.name} {code}"
        if reported not in self.reported:
            self.reported.append(reported)
        return code

    def _end_probes(self, running: _Running) -> None:
        running.probes_end.set()
        if running.prober is not None:
            running.prober.join(_PATIENCE_S)

    def _failed(self, container: Container, what: str) -> PodFailedError:
        return PodFailedError(f"{container.name} {what}\n{self.log(container.name)}")
