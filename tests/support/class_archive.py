"""The classes that a Kafka broker loads, read and checked once: a start with them takes half of the CPU.

    archive = ensure_archive(java, jars)
    KraftCluster(java, jars, folder, java_options=[sharing(archive)])

Java writes the file itself, at the orderly end of a broker that is started for it. It ignores the file if its
version, the class path or a jar differs; so these are in the file's name. The file is beside the jars'
folder. If a Java makes none, brokers start without it. Two processes wait for one another. Blocks, on the
caller's thread. Source: JEP 350.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.kraft import KraftCluster
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Some 5 s of CPU, on a laden machine.
_TIMEOUT_S: Final = patient(120.0)


def sharing(archive: Path) -> str:
    """The option that has a server map an archive."""
    return f"-XX:SharedArchiveFile={archive}"


def ensure_archive(java: Path, jars: Sequence[Path]) -> Path:
    """The archive for this Java and these jars, made if it is not there yet."""
    folder = jars[0].parent
    known_by = [(str(path), path.stat().st_mtime_ns) for path in (java.resolve(), *jars)]
    archive = folder.with_name(f"{folder.name}-{zlib.crc32(repr(known_by).encode()):08x}.jsa")
    with folder.with_name(f"{folder.name}.jsa.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(java, jars, archive)
    return archive


def _make(java: Path, jars: Sequence[Path], archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        draft = Path(folder) / archive.name
        option = f"-XX:ArchiveClassesAtExit={draft}"
        with KraftCluster(java, jars, Path(folder) / "kafka", brokers=1, java_options=[option]) as kafka:
            # Never killed, however long it takes: half an archive looks like a whole one.
            os.kill(kafka.pid(1), signal.SIGTERM)
            wait_until(lambda: not kafka.is_running(1), what="the end of a broker", timeout_s=_TIMEOUT_S)
        if draft.exists():
            draft.replace(archive)
        else:
            print(f"{java} made no archive of classes: brokers take twice the CPU to start", file=sys.stderr)
