"""Finds a Java of a wanted version on this machine, or says what to install.

Looked at in this order: JAVA_HOME, `java` on PATH, and the folders where systems put their runtimes; the
first that fits wins. Called by `session.py` for Spark and by `tests/support/java.py` for Kafka's brokers;
blocks, on the caller's thread. Needs nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

#: Where Debian, Fedora, macOS and Homebrew put runtimes, as globs below a root.
_RUNTIME_FOLDERS: Final = (
    "usr/lib/jvm/*",
    "opt/java/*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
    "opt/homebrew/opt/openjdk*",
    "usr/local/opt/openjdk*",
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
#: Debian 12 and Ubuntu have the first; releases that dropped it have a newer one as the second.
DEBIAN_PACKAGES: Final = ("openjdk-17-jre-headless", "default-jre-headless")
_TIMEOUT_S: Final = 60


class JavaMissingError(PipelineError):
    """There is no Java here that fits; the message says which were seen and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program and its major version."""

    path: Path
    version: int

    @property
    def home(self) -> Path:
        """What JAVA_HOME has to be for programs that ask for it, as Spark's launcher does."""
        return self.path.parent.parent


def candidates(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """Every `java` worth asking for its version, the preferred first; a program is named once."""
    named: list[Path] = []
    if environ.get("JAVA_HOME"):
        named.append(Path(environ["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        named.append(Path(on_path))
    for pattern in _RUNTIME_FOLDERS:
        named.extend(home / "bin" / "java" for home in sorted(root.glob(pattern)))
    seen: set[Path] = set()
    for path in named:
        if path.is_file() and os.access(path, os.X_OK) and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


def version_of(path: Path) -> int | None:
    """The major version that a `java` says it has; None when it can't be run or says nothing of the kind."""
    try:
        ran = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found.group(1)) if found else None


def first_fitting(
    versions: Collection[int],
    wanted: str,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Java:
    """The first Java of one of these versions.

    `wanted` is the sentence that opens the JavaMissingError ("Spark 4 needs Java 17 or 21."); what was seen
    and what to install follow.
    """
    seen: list[str] = []
    for path in candidates(os.environ if environ is None else environ, root):
        version = version_of(path)
        if version is not None and version in versions:
            return Java(path, version)
        seen.append(f"{path} (version {version})" if version else f"{path} (does not run)")
    found = f" Found only {', '.join(seen)}." if seen else ""
    raise JavaMissingError(f"{wanted}{found} {what_to_install(root)} A Java elsewhere is found by JAVA_HOME.")


def what_to_install(root: Path = Path("/")) -> str:
    """One sentence with the command that installs a Java on this kind of system."""
    systems = os_family(root)
    if systems & {"debian", "ubuntu"}:
        return f"Install one with: sudo apt-get install {DEBIAN_PACKAGES[0]} (or {DEBIAN_PACKAGES[1]})."
    if systems & {"fedora", "rhel", "centos"}:
        return "Install one with: sudo dnf install java-17-openjdk-headless (or java-21-openjdk-headless)."
    if "alpine" in systems:
        return "Install one with: sudo apk add openjdk17-jre-headless."
    if "arch" in systems:
        return "Install one with: sudo pacman -S jre17-openjdk-headless."
    if sys.platform == "darwin":
        return "Install one with: brew install openjdk@17."
    return "Install an OpenJDK runtime (JRE) of version 17 or newer."


def os_family(root: Path = Path("/")) -> frozenset[str]:
    """The ids of /etc/os-release: this system's own and those that it is like."""
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    words: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key in {"ID", "ID_LIKE"}:
            words.update(value.strip("\"'").split())
    return frozenset(words)
