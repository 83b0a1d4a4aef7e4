"""Finds a Java of a wanted version, or says what to install.

Searches in this order: JAVA_HOME, `java` on PATH, and the folders where systems install runtimes; returns the
first that fits. Used by `session.py` for Spark and by `tests/support/java.py` for Kafka's brokers. Blocks the
calling thread. Needs only the standard library.
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

#: Where Debian, Fedora, macOS and Homebrew install runtimes, as globs below a root.
_RUNTIME_FOLDERS: Final = (
    "usr/lib/jvm/*",
    "opt/java/*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
    "opt/homebrew/opt/openjdk*",
    "usr/local/opt/openjdk*",
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
#: Debian 12 and Ubuntu have the first; newer releases without it have a later version as the second.
DEBIAN_PACKAGES: Final = ("openjdk-17-jre-headless", "default-jre-headless")
_TIMEOUT_S: Final = 60


class JavaMissingError(PipelineError):
    """No Java here fits; the message lists those found and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program and its major version."""

    path: Path
    version: int

    @property
    def home(self) -> Path:
        """Returns the value of JAVA_HOME for programs that need it, such as Spark's launcher."""
        return self.path.parent.parent


def candidates(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """Yields each executable `java` once, in order of preference."""
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
    """Returns the major version that a `java` reports; None if it can't be run or reports none."""
    try:
        ran = subprocess.run(
            [path, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # it repeats JAVA_TOOL_OPTIONS, which may name any file
            timeout=_TIMEOUT_S,
            check=False,
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
    """Returns the first Java of one of these versions.

    `wanted` is the first sentence of the JavaMissingError ("Spark 4 needs Java 17 or 21."); the versions
    found and what to install follow.
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
    """Returns a sentence with the command that installs a Java on this kind of system."""
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
    """Returns the ids in /etc/os-release: this system's own and those of similar systems."""
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
