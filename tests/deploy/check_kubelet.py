"""Pods of helm/ on a real kubelet and containerd, with controllers, beside real brokers.

Their sidecar is the image of the Dockerfile. Their app is play_app.py, which ends with 1 where a record is
not acknowledged. Each play of node_plays.py ends with all that was acknowledged read back from the brokers:
no more, no less.

kubelet and kube-controller-manager: from PATH, from the folder in KUBEBUILDER_ASSETS, or built from the Go
module proxy (minutes, once). containerd and the network's plugins: Debian's packages. Only root can do it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

from tests.deploy.api_server import ApiServer, find_etcd
from tests.deploy.check_image import BASE, IMAGE, ROOT, build_image, java_and_jars
from tests.deploy.debian_base import CACHE, base_archive
from tests.deploy.debian_programs import ProgramFailedError, require_programs
from tests.deploy.go_programs import kubernetes
from tests.deploy.image_builder import ImageBuilder
from tests.deploy.node import PAUSE, Node, Programs
from tests.deploy.node_plays import PLAYS
from tests.deploy.outcome import BrokenPromiseError, UnavailableError
from tests.deploy.play import pod_spec
from tests.deploy.stage import Stage
from tests.support.debian_packages import PackagesMissingError, unpack
from tests.support.process_guard import ProcessGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str], None]

_HERE: Final = Path(__file__).parent
_ORDERS: Final = "registry.example.com/shop/orders:1.0.0"
_SIDECAR: Final = "docker.io/library/pilotfish:0.1.0"
_OLDER_SIDECAR: Final = "docker.io/library/pilotfish:before"
#: The commit that tests/upgrades has its fixtures of.
_OLDER: Final = ROOT / "tests" / "upgrades" / "fixtures" / "commit"
_GIT_TIMEOUT_S: Final = 60


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
            older = _older_tree(folder / "older")
            images = _build(say, folder / "built", archive, older)
            for made in ("server", "node"):
                (folder / made).mkdir()
            with (
                ApiServer(folder / "server", apiserver=apiserver, etcd=etcd) as server,
                Node(folder / "node", server, programs, images) as node,
                Stage(folder, node, java, jars, _older_deployment(older)) as stage,
            ):
                say("a node is ready")
                _play_all(say, stage)
    except (AssertionError, ProgramFailedError) as error:
        raise BrokenPromiseError(str(error)) from error
    finally:
        guard.close()


def _older_tree(folder: Path) -> Path | None:
    """A copy of the tree that users upgrade from; None where this is no clone with its history."""
    commit = _OLDER.read_text().strip()
    archive = folder.with_suffix(".tar")
    command = ("git", "-C", ROOT, "archive", "--output", archive, commit)
    ran = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False)
    if ran.returncode:
        return None
    shutil.unpack_archive(archive, folder, filter="data")
    return folder


def _older_deployment(tree: Path | None) -> dict[str, Any] | None:
    """Its example, with the name of its image here."""
    if tree is None:
        return None
    manifest: dict[str, Any] = yaml.safe_load((tree / "helm" / "examples" / "deployment.yaml").read_text())
    (sidecar,) = pod_spec(manifest)["initContainers"]
    sidecar["image"] = _OLDER_SIDECAR
    return manifest


def _build(say: Say, folder: Path, archive: Path, older: Path | None) -> list[Path]:
    """Archives of the sidecar's images, of the app's and of that which holds a pod's network."""
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
    images = [
        builder.archive(IMAGE, folder / "pilotfish.tar", _SIDECAR),
        builder.archive("localhost/orders", folder / "orders.tar", _ORDERS),
        builder.archive("localhost/pause", folder / "pause.tar", PAUSE),
    ]
    if older is not None:
        build_image(say, builder, folder, "localhost/pilotfish-before", tree=older)
        images.append(builder.archive("localhost/pilotfish-before", folder / "older.tar", _OLDER_SIDECAR))
    return images


def _play_all(say: Say, stage: Stage) -> None:
    for play in PLAYS:
        topic = play.__name__.replace("_", "-")
        for name in (topic, *(f"{topic}-{part}" for part in ("service", "nightly"))):
            stage.kafka.admin.create_topic(name, partitions=1, replication_factor=3)
        try:
            say(play(stage, topic))
        except UnavailableError as error:
            say(f"SKIPPED {topic}: {error}")
