"""Debian's packages for programs that tests ask: installed by apt where that needs no asking: as root.

Blocks, on the caller's thread.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

_TIMEOUT_S: Final = 300


class PackagesMissingError(RuntimeError):
    """Nothing could be installed; the message says why."""


def install(*packages: str) -> None:
    """Has apt install them. Raises PackagesMissingError: not root, no apt, no network."""
    try:
        if os.geteuid() != 0:
            raise PermissionError("only root may install packages")
        _run("apt-get", "update")
        _run("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise PackagesMissingError(f"apt could not install {' '.join(packages)}: {said}") from error


def _run(*command: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment)
