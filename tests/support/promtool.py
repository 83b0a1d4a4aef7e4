"""Finds promtool, Prometheus's own checker, or Prometheus, or gets them out of Debian's package.

Nothing is installed: the package is downloaded by apt, which verifies it, and unpacked into .cache/tools.
Where there is no apt, or no network, `find_promtool` says what to install. Blocks, on the caller's thread.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.debian_packages import TOOLS, PackagesMissingError, unpack
from tests.support.waiting import patient

_TIMEOUT_S: Final = patient(100)


class PromtoolMissingError(RuntimeError):
    """There is no promtool here; the message says what to install."""


def find_promtool(tools: Path = TOOLS) -> Path:
    """The program, from PATH or the cache, else from Debian's package. Raises PromtoolMissingError."""
    return _find("promtool", tools)


def find_prometheus(tools: Path = TOOLS) -> Path:
    """Prometheus itself. Raises PromtoolMissingError."""
    return _find("prometheus", tools)


def _find(program: str, tools: Path) -> Path:
    on_path = shutil.which(program)
    if on_path is not None:
        return Path(on_path)
    try:
        for package in ("prometheus", program):  # since Debian 13 promtool has a package of its own
            unpacked = unpack(package, tools) / "usr" / "bin" / program
            if unpacked.exists():
                return unpacked
        raise PackagesMissingError(f"Debian's packages have no {program}")
    except PackagesMissingError as error:
        raise PromtoolMissingError(
            "promtool is needed and not here: install Prometheus (Debian and Ubuntu: `apt-get install "
            f"prometheus`; elsewhere https://prometheus.io/download) and put it on PATH: {error}"
        ) from error


def check_metrics(exposition: str) -> str:
    """The complaints of promtool about scraped metrics; empty when it has none."""
    ran = subprocess.run(
        [find_promtool(), "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = ran.stdout + ran.stderr
    return said if ran.returncode or said else ""
