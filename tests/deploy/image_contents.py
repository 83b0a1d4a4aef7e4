"""Checks of an image's root, mounted as a folder: which files it must have, and which it must not.

Each function returns the faults, one line each, and nothing if all is well.
"""

from __future__ import annotations

import os
import re
import stat
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Where the Dockerfile puts the program.
PROGRAM: Final = Path("opt/pilotfish")

_COMPILERS: Final = re.compile(r"(?:.*-)?(?:gcc|g\+\+|cc|c\+\+|clang|ld|as|make|rustc|cargo)(?:-[\d.]+)?")
_PATHS: Final = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin", "opt/pilotfish/bin")
#: Packages that would be ours or our tests', or make an image large, by the folders they would have.
_UNWANTED: Final = (
    "pip",
    "setuptools",
    "hatchling",
    "pipeline",
    "tests",
    "benchmarks",
    "pyspark",
    "pandas",
    "py4j",
)


def compilers(root: Path) -> list[str]:
    """Compilers and what goes with them, on the paths where programs lie."""
    found = (path for folder in _PATHS if (root / folder).is_dir() for path in (root / folder).iterdir())
    return sorted(f"/{p.relative_to(root)} is a compiler" for p in found if _COMPILERS.fullmatch(p.name))


def unwanted_packages(root: Path) -> list[str]:
    """What the program's environment has and should not."""
    folder = site_packages(root)
    packages = [f"{name} is in the image" for name in _UNWANTED if (folder / name).exists()]
    scripts = {"pip", "pip3", "pilotfish-pipeline"} & set(os.listdir(root / PROGRAM / "bin"))
    return packages + sorted(f"the command {name} is in the image" for name in scripts)


def caches(root: Path) -> list[str]:
    """Leftovers of the build: downloads, sources, home folders' caches."""
    places = ("root/.cache", "home", "src", "tmp", "var/tmp", "opt/tools")
    left = (path for place in places if (root / place).is_dir() for path in (root / place).rglob("*"))
    return sorted(f"/{path.relative_to(root)} is left over" for path in left)


def writable(root: Path) -> list[str]:
    """What the image's user could change: everything is root's, and nobody else may write it."""
    return [
        f"/{path.relative_to(root)} belongs to {found.st_uid}:{found.st_gid}, {stat.filemode(found.st_mode)}"
        for path in sorted((root / PROGRAM).rglob("*"))
        if not path.is_symlink()
        for found in [path.stat()]
        if found.st_uid or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]


def installed(root: Path) -> dict[str, str]:
    """The distributions of the program's environment, and their versions, by pip's form of a name."""
    heads = (HeaderParser().parsestr(p.read_text()) for p in site_packages(root).glob("*.dist-info/METADATA"))
    return {normalised(head["Name"]): head["Version"] for head in heads}


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Where two lists of distributions and versions differ."""
    return [
        f"{name} is {found.get(name, 'missing')}, and should be {wanted.get(name, 'missing')}"
        for name in sorted(found.keys() | wanted.keys())
        if found.get(name) != wanted.get(name)
    ]


def traces(root: Path, needles: Sequence[bytes]) -> list[str]:
    """Files with one of these strings: secrets of the build, which must not be in the image."""
    if not needles:
        return []
    pattern = re.compile(b"|".join(re.escape(needle) for needle in needles))
    return [
        f"/{path.relative_to(root)} holds what belongs to the machine that built it: {match[0]!r}"
        for path in _files(root)
        for match in [pattern.search(path.read_bytes())]
        if match
    ]


def site_packages(root: Path) -> Path:
    """Where the program's packages lie. LookupError where there is not exactly one such folder."""
    found = list((root / PROGRAM / "lib").glob("python3*/site-packages"))
    if len(found) != 1:
        raise LookupError(f"{root / PROGRAM} holds {len(found)} folders of packages, and should hold one")
    return found[0]


def normalised(name: str) -> str:
    """A distribution's name as pip compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
