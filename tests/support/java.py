"""Finds a Java that can run Kafka 4.3 (17 or newer), or says what to install.

`python -m tests.support.java` prints the path of the `java` to use. With `--require` it also makes one be
there: as root on Debian or Ubuntu it installs the headless runtime by apt, elsewhere it prints what to
install and exits with 1.

Where it looks, and in which order, is `pipeline/java.py`. Called by the Makefile, `kraft.py` and
`benchmarks/`; blocks, on the caller's thread.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.java import DEBIAN_PACKAGES, Java, JavaMissingError, first_fitting, os_family, what_to_install
from tests.support.debian_packages import PackagesMissingError, install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Kafka 4.x brokers are compiled for Java 17 (KIP-1013); no upper end is known.
OLDEST_JAVA: Final = 17
_VERSIONS: Final = range(OLDEST_JAVA, sys.maxsize)


def find_java(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Java:
    """The first Java of version 17 or newer; JavaMissingError says what was seen and what to install."""
    return first_fitting(_VERSIONS, f"Kafka's brokers need Java {OLDEST_JAVA} or newer.", environ, root)


def require_compiler(java: Path) -> None:
    """JavaMissingError where this Java is a runtime only, and can't run a program from its source."""
    modules = subprocess.run([java, "--list-modules"], check=True, capture_output=True, text=True).stdout
    if "jdk.compiler@" not in modules:
        raise JavaMissingError(
            f"the Java programs of benchmarks/java need a JDK, and {java} is a runtime without a compiler: "
            "install one (Debian and Ubuntu: sudo apt-get install default-jdk-headless), or set JAVA_HOME"
        )


def _install_by_apt() -> None:
    """Installs the headless runtime by apt; JavaMissingError when no package could be had."""
    refused: list[str] = []
    for package in DEBIAN_PACKAGES:
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
        if not (is_root and os_family() & {"debian", "ubuntu"} and shutil.which("apt-get")):
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
