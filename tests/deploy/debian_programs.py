"""Debian's programs that a check runs: found, or installed by apt; and the output of failed ones.

Blocks, on the caller's thread.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from tests.deploy.outcome import UnavailableError
from tests.support.debian_packages import PackagesMissingError, install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_S: Final = 900
_SHOWN_LINES: Final = 30


class ProgramFailedError(Exception):
    """A program ended with another code than 0. The text is its call, its code and its last output."""

    def __init__(self, command: Sequence[str], code: int, said: str) -> None:
        reported = "\n".join(said.strip().splitlines()[-_SHOWN_LINES:])
        super().__init__(f"`{' '.join(command)}` ended with {code}:\n{reported}")
        self.said = said


def require_programs(*names: str) -> None:
    """Has programs on PATH, each from Debian's package of its name. Raises UnavailableError."""
    missing = [name for name in names if shutil.which(name) is None]
    if not missing:
        return
    try:
        install(*missing)
    except PackagesMissingError as error:
        raise UnavailableError(
            f"there is no {' and no '.join(missing)} here, and {error}",
            f"install them: apt-get install {' '.join(missing)}",
        ) from error


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program wrote, both ways. Raises ProgramFailedError."""
    ran = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if ran.returncode:
        raise ProgramFailedError(command, ran.returncode, ran.stdout)
    return ran.stdout
