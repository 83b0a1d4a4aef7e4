"""A base image's root made of Debian's packages, in place of python:slim, where no image can be pulled.

It is like python:3.13-slim in what matters to the Dockerfile: the same Python, venv, certificates, no
compiler, and no bytecode of Python's own library, which the official images delete. The archive is kept below
.cache/ under a name that changes with the recipe: making it takes a minute. Blocks, on the caller's thread.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.deploy.debian_programs import ProgramFailedError, output_of, require_programs
from tests.deploy.outcome import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "image"
#: Debian 13, whose Python is the 3.13 of the Dockerfile's default.
SUITE: Final = "trixie"

_RECIPE: Final = (
    "--variant=minbase",
    "--format=tar",
    "--include=python3,python3-venv,ca-certificates",
    '--customize-hook=find "$1/usr/lib/python3" "$1"/usr/lib/python3.* -name \'*.pyc\' -delete',
    # mmdebstrap copies the machine's own into the root, for apt.
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    SUITE,
)


def base_archive(say: Callable[[str], None], cache: Path = CACHE) -> Path:
    """The root as a tar archive. Raises UnavailableError where it can't be made: not root, no network."""
    recipe = hashlib.sha256("\n".join(_RECIPE).encode()).hexdigest()[:12]
    archive = cache / f"base-{SUITE}-{recipe}.tar"
    if archive.is_file():
        return archive
    if os.geteuid() != 0:
        raise UnavailableError(
            "a base image is made by root only", "run the check as root, in a container say"
        )
    require_programs("mmdebstrap")
    say(f"making a base of Debian {SUITE} by mmdebstrap: a minute, once")
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".unfinished")
    command = ("mmdebstrap", *_RECIPE, str(unfinished))
    try:
        output_of(command)
    except ProgramFailedError as error:
        unfinished.unlink(missing_ok=True)
        raise UnavailableError(
            f"a base of Debian's packages can't be made: {error}",
            "it needs Debian's archive, and its keys: apt-get install debian-archive-keyring",
        ) from error
    unfinished.rename(archive)
    return archive
