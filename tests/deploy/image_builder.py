"""Images by buildah in their own storage: imported from an archive, built from a Dockerfile, inspected.

There is no daemon, and nothing is pulled. `vfs` needs no overlay file system and `chroot` no namespaces, so
it runs in a container too. It runs as root. The caller provides the folder of the storage and removes it.
Every call blocks, on the caller's thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.deploy.debian_programs import output_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVIRONMENT: Final = {"BUILDAH_ISOLATION": "chroot"}


class ImageConfig(NamedTuple):
    """An image's configuration. `everything` is all of it as JSON, with its history."""

    user: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: dict[str, str]
    exposed_ports: tuple[str, ...]
    stop_signal: str
    labels: dict[str, str]
    healthcheck: tuple[str, ...]
    everything: str
    work_folder: str = "/"


class ImageBuilder:
    """buildah on one storage. Raises ProgramFailedError where buildah does not do it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def import_root(self, archive: Path, name: str) -> None:
        """Makes an image of one layer, a root in a tar archive."""
        container = self._buildah("from", "--pull-never", "scratch").strip()
        self._buildah("add", "--quiet", container, str(archive), "/")
        self._buildah("commit", "--quiet", "--rm", container, name)

    def build(self, context: Path, name: str, flags: Sequence[str] = ()) -> str:
        """Builds a folder's Dockerfile; what was said meanwhile. HEALTHCHECK needs Docker's format."""
        how = ("--pull-never", "--format", "docker", "--layers=false", "--tag", name)
        return self._buildah("build", *how, *flags, str(context))

    def config(self, name: str) -> ImageConfig:
        """The image's configuration."""
        everything = self._buildah("inspect", "--type", "image", name)
        reported: dict[str, Any] = json.loads(everything)["Docker"]["config"]
        return ImageConfig(
            user=reported["User"],
            entrypoint=tuple(reported["Entrypoint"] or ()),
            command=tuple(reported["Cmd"] or ()),
            environment=dict(pair.split("=", 1) for pair in reported["Env"]),
            exposed_ports=tuple(reported.get("ExposedPorts") or ()),
            stop_signal=reported.get("StopSignal", ""),
            labels=dict(reported["Labels"] or {}),
            healthcheck=tuple(reported.get("Healthcheck", {}).get("Test", ())),
            everything=everything,
            work_folder=reported.get("WorkingDir") or "/",
        )

    def mount(self, name: str) -> Path:
        """A container's root, unpacked from the image: it can be looked into, and run."""
        container = self._buildah("from", "--pull-never", name).strip()
        return Path(self._buildah("mount", container).strip())

    def archive(self, name: str, path: Path, tag: str) -> Path:
        """The image under another name, as a file in Docker's format; its path."""
        self._buildah("push", "--quiet", name, f"docker-archive:{path}:{tag}")
        return path

    def layer_bytes(self, name: str) -> list[int]:
        """How many bytes a registry would keep of each layer, from the base's up: compressed by gzip."""
        folder = self._folder / "pushed"
        self._buildah("push", "--quiet", name, f"oci:{folder}:pushed")
        index = json.loads((folder / "index.json").read_text())
        manifest = json.loads(_blob(folder, index["manifests"][-1]["digest"]).read_text())
        return [layer["size"] for layer in manifest["layers"]]

    def _buildah(self, *arguments: str) -> str:
        storage = ("--root", str(self._folder / "storage"), "--runroot", str(self._folder / "run"))
        return output_of(("buildah", *storage, "--storage-driver", "vfs", *arguments), _ENVIRONMENT)


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")
