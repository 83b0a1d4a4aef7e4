"""Finds a Java that can run Kafka 4.3 (17 or newer), or says what to install.

`python -m tests.support.java` prints the path of the `java` to use. With `--require` it also makes one be
there: as root on Debian or Ubuntu it installs the headless runtime by apt, elsewhere it prints what to
install and exits with 1.

Looked at in this order: JAVA_HOME, `java` on PATH, and the folders where systems put their runtimes; the
first that is new enough wins. Called by the Makefile, `kraft.py` and `benchmarks/`; blocks, on the caller's
thread.
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

from tests.support.debian_packages import PackagesMissingError, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Kafka 4.x brokers are compiled for Java 17 (KIP-1013).
OLDEST_JAVA: Final = 17

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
_DEBIAN_PACKAGES: Final = ("openjdk-17-jre-headless", "default-jre-headless")


class JavaMissingError(RuntimeError):
    """There is no Java here that can run Kafka; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program and its major version."""

    path: Path
    version: int


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
        ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found.group(1)) if found else None


def find_java(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Java:
    """The first Java of version 17 or newer; JavaMissingError says what was seen and what to install."""
    seen: list[str] = []
    for path in candidates(os.environ if environ is None else environ, root):
        version = version_of(path)
        if version is not None and version >= OLDEST_JAVA:
            return Java(path, version)
        seen.append(f"{path} (version {version})" if version else f"{path} (does not run)")
    found = f" Found only {', '.join(seen)}." if seen else ""
    raise JavaMissingError(
        f"Kafka's brokers need Java {OLDEST_JAVA} or newer.{found} {what_to_install(root)}"
        " A Java elsewhere is found by JAVA_HOME."
    )


def what_to_install(root: Path = Path("/")) -> str:
    """One sentence with the command that installs a Java on this kind of system."""
    systems = _os_family(root)
    if systems & {"debian", "ubuntu"}:
        return f"Install one with: sudo apt-get install {_DEBIAN_PACKAGES[0]} (or {_DEBIAN_PACKAGES[1]})."
    if systems & {"fedora", "rhel", "centos"}:
        return "Install one with: sudo dnf install java-17-openjdk-headless (or java-21-openjdk-headless)."
    if "alpine" in systems:
        return "Install one with: sudo apk add openjdk17-jre-headless."
    if "arch" in systems:
        return "Install one with: sudo pacman -S jre17-openjdk-headless."
    if sys.platform == "darwin":
        return "Install one with: brew install openjdk@17."
    return "Install an OpenJDK runtime (JRE) of version 17 or newer."


def _os_family(root: Path) -> frozenset[str]:
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


def _install_by_apt() -> None:
    """Installs the headless runtime by apt; JavaMissingError when no package could be had."""
    refused: list[str] = []
    for package in _DEBIAN_PACKAGES:
        try:
            install(package)
            return
        except PackagesMissingError as error:
            refused.append(str(error))
    raise JavaMissingError(f"{'; '.join(refused)}. {what_to_install()}")


def require_java() -> Java:
    """A fitting Java, installed first where that needs no asking: as root, on Debian, by apt-get."""
    try:
        return find_java()
    except JavaMissingError:
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        if not (is_root and _os_family(Path("/")) & {"debian", "ubuntu"} and shutil.which("apt-get")):
            raise
    sys.stderr.write(f"no Java {OLDEST_JAVA} or newer here: installing one by apt\n")
    _install_by_apt()
    return find_java()


def main(arguments: Sequence[str]) -> int:
    """Prints the path of the Java to use; 1 when there is none, 2 for an unknown argument."""
    if any(argument != "--require" for argument in arguments):
        sys.stderr.write("usage: python -m tests.support.java [--require]\n")
        return 2
    try:
        java = require_java() if "--require" in arguments else find_java()
    except JavaMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{java.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
