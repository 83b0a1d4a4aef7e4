"""Containers run by crun as Kubernetes' `restricted` would have them, from an image's root: no daemon.

    with ContainerRuntime(folder) as runtime:
        with runtime.start(image, root, environment={...}, files={"/etc/pilotfish": folder}) as container:
            container.execute("pilotfish", "healthcheck")
            container.terminate()

The root is read-only, /tmp is memory, the user is the image's, there are no capabilities and no new ones, and
system calls are those of RuntimeDefault where its profile is at hand. The network is this machine's own, so
that brokers on its loopback can be reached. cgroups are left alone. As root; blocks, on the caller's thread.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from typing import TYPE_CHECKING, Any, Final, Self

from tests.deploy.outcome import UnavailableError
from tests.deploy.seccomp_profile import runtime_default
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.deploy.image_builder import ImageConfig

_START_TIMEOUT_S: Final = 120
_EXECUTE_TIMEOUT_S: Final = 120
_TMP_BYTES: Final = 16 * 1024 * 1024
_NO_CAPABILITIES: Final = {
    kind: list[str]() for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
}
_MASKED: Final = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/acpi")
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
#: crun refuses to run where both generations of cgroups are mounted, even if it is to leave them alone: it
#: gets to see the newer one only, in a mount name space of its own.
_CRUN: Final = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t cgroup2 none /sys/fs/cgroup && exec crun --cgroup-manager=disabled "$@"',
    "crun",
)


def bundle_config(
    image: ImageConfig,
    root: Path,
    *,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, Path] | None = None,
    writable: Mapping[str, Path] | None = None,
    seccomp: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """An OCI bundle's config.json. `command` replaces the image's own; `files` are mounted, read-only.

    `writable` are volumes, which the image's user must own; one at /tmp replaces the memory there.
    """
    uid, _, gid = image.user.partition(":")
    memory = {"type": "tmpfs", "source": "tmpfs"}
    return {
        "ociVersion": "1.0.2",
        "hostname": "pilotfish",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": int(uid), "gid": int(gid or uid)},
            "args": list(command or (*image.entrypoint, *image.command)),
            "env": [
                f"{name}={value}" for name, value in {**image.environment, **(environment or {})}.items()
            ],
            "cwd": image.work_folder,
            "noNewPrivileges": True,
            "capabilities": _NO_CAPABILITIES,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", **memory, "options": ["nosuid", "mode=755", "size=65536k"]},
            {
                "destination": "/tmp",
                **memory,
                "options": ["nosuid", "nodev", f"size={_TMP_BYTES}", "mode=1777"],
            },
            *(
                {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", "ro"]}
                for inside, outside in (files or {}).items()
            ),
            *(
                {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", "rw"]}
                for inside, outside in (writable or {}).items()
            ),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            **({} if seccomp is None else {"seccomp": seccomp}),
        },
    }


class ContainerRuntime:
    """Starts containers, which end with it at the latest, and with this process however that ends."""

    def __init__(self, folder: Path) -> None:
        """`folder` is there and takes what the containers write, a file of each."""
        self._folder = folder
        self._numbers = itertools.count(1)
        self._crun = (*_CRUN, "--root", str(folder / "crun"))
        self.seccomp = runtime_default()

    def __enter__(self) -> Self:
        self._guard = ProcessGuard()
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.close()

    def require(self, image: ImageConfig, root: Path) -> None:
        """Raises UnavailableError where no container can be run, as inside one that may not have its own."""
        with self.start(image, root, command=("true",)) as container:
            code = container.process.wait(_START_TIMEOUT_S)
            if code:
                raise UnavailableError(
                    f"crun can run nothing here: {container.log()}",
                    "run the check as root of a machine, or in a container with --privileged",
                )

    def start(
        self,
        image: ImageConfig,
        root: Path,
        *,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, Path] | None = None,
        writable: Mapping[str, Path] | None = None,
    ) -> Container:
        """Starts the image's own command, or another."""
        bundle = self._folder / f"container-{next(self._numbers)}"
        bundle.mkdir()
        config = bundle_config(
            *(image, root),
            command=command,
            environment=environment,
            files=files,
            writable=writable,
            seccomp=self.seccomp,
        )
        (bundle / "config.json").write_text(json.dumps(config))
        return Container(self._crun, self._guard, bundle, config["process"])


class Container:
    """One container; its first process is the image's. One thread steers."""

    def __init__(
        self, crun: Sequence[str], guard: ProcessGuard, bundle: Path, process: Mapping[str, Any]
    ) -> None:
        self._crun = crun
        self._guard = guard
        self._bundle = bundle
        self._log = bundle / "log"
        self._process = process
        self._pid_file = bundle / "pid"
        how = ("--bundle", str(bundle), "--pid-file", str(self._pid_file))
        self.process = guard.start([*crun, "run", *how, bundle.name], log=self._log, cwd=bundle)

    def __enter__(self) -> Self:
        wait_until(
            lambda: self.process.poll() is not None or self._has_pid(),
            what="a container's first process",
            timeout_s=_START_TIMEOUT_S,
            every_s=0.005,
            last_seen=self.log,
        )
        if self.process.poll() is None:
            self._guard.adopt(self.pid)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self._signal("KILL")
            self.process.wait(_START_TIMEOUT_S)
        self._guard.forget(self.process)

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        return int(self._pid_file.read_text())

    def log(self) -> str:
        """All that it has written, both ways."""
        return self._log.read_text(errors="replace")

    def execute(self, *command: str) -> tuple[int, str]:
        """Runs a command inside as the image's user with its environment; the exit code, and what it said.

        As engines run a HEALTHCHECK and Kubernetes an exec probe.
        """
        specification = self._bundle / "execute.json"
        specification.write_text(json.dumps({**self._process, "args": list(command)}))
        ran = subprocess.run(
            [*self._crun, "exec", "--process", str(specification), self._bundle.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_EXECUTE_TIMEOUT_S,
            check=False,
        )
        return ran.returncode, ran.stdout

    def terminate(self, stop_signal: str = "SIGTERM", timeout_s: float = 60) -> int:
        """Sends the image's STOPSIGNAL, as engines stop a container; its exit code."""
        self._signal(stop_signal.removeprefix("SIG"))
        return self.process.wait(timeout_s)

    def status(self, field: str) -> str:
        """A line of the first process's /proc/PID/status, such as Uid or VmHWM."""
        with open(f"/proc/{self.pid}/status") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))

    def _has_pid(self) -> bool:
        return self._pid_file.is_file() and bool(self._pid_file.read_text())

    def _signal(self, name: str) -> None:
        """Does not fail if the container has ended by itself: the wait for its end will notice."""
        subprocess.run([*self._crun, "kill", self._bundle.name, name], check=False, timeout=_START_TIMEOUT_S)
