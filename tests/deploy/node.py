"""A real Kubernetes node: kubelet and containerd beside an API server with its controllers.

    with Node(folder, server, programs, images) as node:
        node.server.create("/apis/apps/v1/namespaces/default/deployments", {...})

Pods name their node (`NAME`), so there is no scheduler. They have a network of their own, a bridge of this
machine, at whose address `GATEWAY` they reach what listens there. Everything runs in PID and mount namespaces
whose first process ends with this one, and whatever is left in them then, containers and mounts, ends with
it. A node adds the bridge and cgroups to this machine, and removes them at its end. If this process is killed
these two stay, empty, and the next node takes them over. Needs root. One thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import yaml  # type: ignore[import-untyped]

from client_core.testing.free_ports import free_ports
from tests.deploy.debian_programs import ProgramFailedError, output_of
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from tests.deploy.api_server import ApiServer

NAME: Final = "node"
GATEWAY: Final = "10.214.77.1"
PAUSE: Final = "localhost/pilotfish-pause:1"
_SUBNET: Final = "10.214.77.0/24"
_BRIDGE: Final = "pilotfish0"
_CGROUP: Final = "pilotfish-node"
#: What kubelet sets: it gets files in their place, and this machine's keep their values.
_SYSCTLS: Final = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_START_TIMEOUT_S: Final = 120.0
#: Folders that the programs use wherever their own are, and that must be this node's alone.
_PRIVATE: Final = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/log/pods", "/var/log/containers")


class Programs(NamedTuple):
    """What runs on a node."""

    kubelet: Path
    controller_manager: Path
    #: Roots of Debian's packages.
    containerd: Path
    network: Path


class ContainerMemory(NamedTuple):
    """A container's memory cgroup, version 1 or 2."""

    folder: Path
    is_v1: bool

    def limit_bytes(self) -> int:
        return int(self._limit.read_text())

    def set_limit(self, limit_bytes: int) -> None:
        """Until the container is started again: that has a cgroup of its own."""
        self._limit.write_text(str(limit_bytes))

    def used_bytes(self) -> int:
        return int((self.folder / ("memory.usage_in_bytes" if self.is_v1 else "memory.current")).read_text())

    def peak_bytes(self) -> int:
        """The most until now."""
        return int((self.folder / ("memory.max_usage_in_bytes" if self.is_v1 else "memory.peak")).read_text())

    @property
    def _limit(self) -> Path:
        return self.folder / ("memory.limit_in_bytes" if self.is_v1 else "memory.max")


class Node:
    """One node, from its first process to its last."""

    def __init__(self, folder: Path, server: ApiServer, programs: Programs, images: Sequence[Path]) -> None:
        """`folder` must have a short name, for sockets. `images` are archives in Docker's format."""
        self._folder = folder
        self._programs = programs
        self._images = tuple(images)
        self._socket = folder / "containerd.sock"
        self.server = server

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            self._make_bridge()
            starting.callback(self._remove_bridge)
            cgroups = [root / _CGROUP for root in _cgroup_roots()]
            for cgroup in cgroups:
                cgroup.mkdir(exist_ok=True)
            for cgroup in cgroups:
                starting.callback(_remove_cgroup, cgroup)
            guard = starting.enter_context(contextlib.closing(ProcessGuard()))
            self._start(guard)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- what was said ---------------------------------------------------------------------------------------

    def log(self) -> str:
        """The last lines of all programs."""
        return "\n".join(f"-- {path.stem}\n{_end_of(path)}" for path in sorted(self._folder.glob("*.log")))

    def ctr(self, *arguments: str) -> str:
        """What containerd's own command says."""
        program = self._programs.containerd / "usr" / "bin" / "ctr"
        where = ("--address", str(self._socket), "--namespace", "k8s.io")
        return output_of((*self._inside(), str(program), *where, *arguments))

    def in_container(self, container: str, *command: str) -> str:
        """What a command says that a container has inside."""
        return self.ctr("tasks", "exec", "--exec-id", f"asked-{secrets.token_hex(4)}", container, *command)

    def in_network(self, container: str) -> Sequence[str]:
        """The words before a command of this machine that is to see the network of a container's pod."""
        return (*self._inside(), "nsenter", "--target", self._pid(container), "--net")

    def memory_of(self, container: str) -> ContainerMemory:
        """What the kernel counts and limits of a container."""
        groups = output_of((*self._inside(), "cat", f"/proc/{self._pid(container)}/cgroup"))
        paths = {controllers: path for _, controllers, path in (it.split(":", 2) for it in groups.split())}
        top = Path("/sys/fs/cgroup")
        is_v1 = "memory" in paths
        return ContainerMemory(top / "memory" / paths["memory"][1:] if is_v1 else top / paths[""][1:], is_v1)

    def _inside(self) -> Sequence[str]:
        return ("nsenter", "--target", str(self._first), "--mount", "--pid")

    def _pid(self, container: str) -> str:
        """In the node's PID namespace."""
        rows = (line.split() for line in self.ctr("tasks", "ls").splitlines()[1:])
        return next(pid for name, pid, *_ in rows if name == container)

    # -- starting --------------------------------------------------------------------------------------------

    def _start(self, guard: ProcessGuard) -> None:
        containerd = self._programs.containerd / "usr" / "bin"
        environment = f"PATH={containerd}:{os.environ['PATH']}"
        (kubelet_port,) = free_ports(1)
        (self._folder / "containerd.toml").write_text(self._containerd_config())
        self._write_network()
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config(kubelet_port)))
        (self._folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        private = "\n".join(f"mkdir -p {path} && mount -t tmpfs tmpfs {path}" for path in _PRIVATE)
        for name in _SYSCTLS:
            own = self._folder / name.replace("/", ".")
            own.write_text(Path("/proc/sys", name).read_text())
            private += f"\nmount --bind {own} /proc/sys/{name}"
        script = self._folder / "first"
        script.write_text(
            f"set -e\nmount --make-rshared /\n{private}\n"
            # crun refuses version 2 beside version 1. Where there is no such mount all is well.
            "umount /sys/fs/cgroup/unified 2> /dev/null || true\n"
            f"{environment} {containerd / 'containerd'} --config {self._folder / 'containerd.toml'} "
            f"> {self._folder / 'containerd.log'} 2>&1 &\n"
            f"read -r word < {self._folder / 'word'}\n"
            f"{environment} {self._programs.kubelet} {' '.join(self._kubelet_flags())} "
            f"> {self._folder / 'kubelet.log'} 2>&1 &\nwait\n"
        )
        os.mkfifo(self._folder / "word")
        unshared = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount")
        outer = guard.start(
            (*unshared, "/bin/sh", str(script)), log=self._folder / "first.log", cwd=self._folder
        )
        self._first = self._wait_for_child(outer)
        guard.adopt(self._first)
        wait_until(
            self._has_containerd,
            what="containerd",
            timeout_s=_START_TIMEOUT_S,
            every_s=0.2,
            last_seen=self.log,
        )
        for image in self._images:
            self.ctr("images", "import", "--no-unpack", str(image))
        (self._folder / "word").write_text("go\n")
        guard.start(
            (str(self._programs.controller_manager), *self._controller_flags()),
            log=self._folder / "controllers.log",
            cwd=self._folder,
        )
        wait_until(
            self._is_ready, what="a ready node", timeout_s=_START_TIMEOUT_S, every_s=0.2, last_seen=self.log
        )

    @staticmethod
    def _wait_for_child(outer: subprocess.Popen[bytes]) -> int:
        """The first process of the namespaces, once its script runs."""
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")

        def child() -> int:
            if outer.poll() is not None:
                raise AssertionError(f"unshare ended with {outer.returncode}")
            found = children.read_text().split()
            return int(found[0]) if found else 0

        wait_until(lambda: child() > 0, what="the first process of the node", every_s=0.05)
        return child()

    def _has_containerd(self) -> bool:
        with contextlib.suppress(ProgramFailedError):
            self.ctr("version")
            return True
        return False

    def _is_ready(self) -> bool:
        found = self.server.find(f"/api/v1/nodes/{NAME}")
        conditions = (found or {}).get("status", {}).get("conditions", ())
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def _make_bridge(self) -> None:
        self._remove_bridge()
        output_of(("ip", "link", "add", _BRIDGE, "type", "bridge"))
        output_of(("ip", "address", "add", f"{GATEWAY}/24", "dev", _BRIDGE))
        output_of(("ip", "link", "set", _BRIDGE, "up"))

    @staticmethod
    def _remove_bridge() -> None:
        with contextlib.suppress(ProgramFailedError):
            output_of(("ip", "link", "delete", _BRIDGE))

    # -- settings --------------------------------------------------------------------------------------------

    def _containerd_config(self) -> str:
        folder, network = self._folder, self._programs.network / "usr" / "lib" / "cni"
        return f"""
version = 2
root = "{folder}/images"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{shutil.which("crun")}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{network}"
    conf_dir = "{folder}/network"
"""

    def _write_network(self) -> None:
        folder = self._folder / "network"
        folder.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": _BRIDGE,
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": _SUBNET, "gateway": GATEWAY}]]},
        }
        written = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (folder / "10-pods.conflist").write_text(json.dumps(written))

    def _kubelet_config(self, port: int) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{_CGROUP}",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": "1s",
            "resolvConf": str(self._folder / "resolv.conf"),
            "syncFrequency": "2s",
            "volumePluginDir": str(self._folder / "plugins"),
        }

    def _kubelet_flags(self) -> Sequence[str]:
        return (
            f"--config={self._folder / 'kubelet.yaml'}",
            f"--kubeconfig={self.server.kubeconfig}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--cert-dir={self._folder / 'kubelet-certificates'}",
            f"--hostname-override={NAME}",
            f"--node-ip={GATEWAY}",
        )

    def _controller_flags(self) -> Sequence[str]:
        (port,) = free_ports(1)
        return (
            f"--kubeconfig={self.server.kubeconfig}",
            "--leader-elect=false",
            *("--bind-address=127.0.0.1", f"--secure-port={port}"),
            f"--cert-dir={self._folder / 'controller-certificates'}",
            # What workloads need, what ends their pods, and what lets a ready node have a DaemonSet's;
            # accounts are not asked for here.
            "--controllers=node-lifecycle-controller,deployment,replicaset,statefulset,daemonset,job,cronjob,"
            "disruption,garbage-collector-controller,pod-garbage-collector-controller",
        )


def _cgroup_roots() -> list[Path]:
    """Version 2 has one hierarchy, version 1 one for each controller."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.procs").exists():
        return [root]
    return [path for path in root.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _remove_cgroup(cgroup: Path) -> None:
    """With all below it, and what runs in it: nothing does, after its node has ended."""
    for found, _, _ in os.walk(cgroup, topdown=False):
        processes = Path(found, "cgroup.procs")
        for pid in processes.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        wait_until(partial(_is_empty, processes), what=f"an empty cgroup {found}", every_s=0.05)
        Path(found).rmdir()


def _is_empty(processes: Path) -> bool:
    return not processes.read_text()


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
