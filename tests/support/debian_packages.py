"""Debian's packages for programs that tests use: installed by apt, if we are root.

A package that works from any folder is not installed. apt downloads and verifies it, and it is unpacked into
.cache/tools.

Tests run in several processes, but apt runs in one at a time, because it would refuse the second for its
lock. Blocks, on the caller's thread.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support.waiting import patient

#: Where packages are unpacked.
TOOLS: Final = Path(__file__).resolve().parents[2] / ".cache" / "tools"
_TIMEOUT_S: Final = patient(300)
_LOCK: Final = Path(tempfile.gettempdir()) / "pilotfish-tests-apt.lock"


class PackagesMissingError(RuntimeError):
    """Nothing could be installed; the message says why."""


def install(*packages: str) -> None:
    """Has apt install them. Raises PackagesMissingError: not root, no apt, no network."""
    try:
        if os.geteuid() != 0:
            raise PermissionError("only root may install packages")
        apt_get("update")
        apt_get("install", "--yes", "--no-install-recommends", *packages)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise PackagesMissingError(f"apt could not install {' '.join(packages)}: {said}") from error


def unpack(package: str, folder: Path = TOOLS) -> Path:
    """The root of a package's files, `folder/package`, downloaded once.

    It appears whole: another process never runs a program that is still being written. Raises
    PackagesMissingError without apt or network.
    """
    root = folder / package
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (folder / f"{package}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not root.exists():
                _unpack_into_place(package, root)
    except (OSError, StopIteration, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise PackagesMissingError(f"apt could not download {package}: {said}") from error
    return root


def _unpack_into_place(package: str, root: Path) -> None:
    if os.geteuid() == 0:  # a new machine has no package lists, and only root may fetch them
        apt_get("update")
    with tempfile.TemporaryDirectory(prefix=f"{package}.", dir=root.parent) as scratch:
        apt_get("download", package, folder=Path(scratch))
        archive = next(Path(scratch).glob(f"{package}_*.deb"))
        unpacked = Path(scratch) / "root"
        subprocess.run(
            ("dpkg", "-x", archive, unpacked), check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        unpacked.rename(root)


def apt_get(*arguments: str, folder: Path | None = None) -> None:
    """Runs apt-get, in a folder of choice, when no other process of these tests does.

    Raises OSError and subprocess.SubprocessError.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ("apt-get", *arguments),
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=environment,
        )
