"""The processes of a test's Kafka: Java processes for servers, which end with the test process.

Used by `kraft.py`, whose thread steers; `kraft_server.py` describes a server.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from tests.support.kraft_server import KraftError, random_uuid
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.kraft_server import KafkaServer

_CHATTY_LOGGERS: Final = (
    *("state.change.logger", "kafka.cluster.Partition", "kafka.log.LogManager"),
    "kafka.server.ReplicaFetcherManager",
    *("org.apache.kafka.storage.internals.log", "org.apache.kafka.controller.ReplicationControlManager"),
)
#: Small and quick to start: no second compiler, one collector thread, no files in the system's temporary
#: folder.
_JAVA_OPTIONS: Final = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    # Several lines for each new partition would push what matters out of a failed test's report.
    *(f"-Dorg.slf4j.simpleLogger.log.{name}=warn" for name in _CHATTY_LOGGERS),
)
#: A start takes about 5 s on an idle machine with two cores; the deadline is for a laden one.
START_TIMEOUT_S: Final = patient(90.0)
#: Controlled shutdown moves leaders first and takes a second or two; then we stop asking nicely.
_STOP_TIMEOUT_S: Final = patient(30.0)


class KafkaProcesses:
    """Starts and ends the processes of one cluster's servers."""

    def __init__(self, java: Path, jars: Sequence[Path], folder: Path, java_options: Sequence[str]) -> None:
        """The folder is removed at the end; the options are on top of the tests' own."""
        self._java = java
        self._class_path = os.pathsep.join(str(jar) for jar in jars)
        self._folder = folder
        self._java_options = tuple(java_options)
        self._guard: ProcessGuard | None = None
        #: How often a process was ended or paused.
        self.disturbances = 0

    def open(self) -> None:
        """From now on processes can be started."""
        self._guard = ProcessGuard()
        self._guard.remove_at_end(self._folder)

    def close(self, servers: Sequence[KafkaServer]) -> None:
        """Kills every process, waits for their ends, and removes the folder. Idempotent."""
        if self._guard is None:
            return
        for server in servers:
            if server.process is not None:
                server.process.kill()
        for server in servers:
            self.end(server, signal.SIGKILL)
        self._guard.close()
        self._guard = None

    def format(self, servers: Sequence[KafkaServer], cluster_id: str, arguments: Sequence[str]) -> None:
        """Writes the cluster's id and first metadata into the data folders.

        Kafka's tool does the first server's. What it writes differs between servers by the ids of node and
        folder alone, so the others get copies: each process of Java that is spared is a second of CPU.
        """
        first, *others = servers
        guard = self._running_guard()
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties")
        process = guard.start(self._command(first, *tool, *arguments), log=first.log_path, cwd=first.folder)
        code = process.wait(timeout=START_TIMEOUT_S)
        guard.forget(process)
        if code != 0:
            raise KraftError(f"{first.name} could not be formatted:\n{first.log_tail()}")
        for server in others:
            server.log_path.touch()
            _copy_format(first, server)

    def launch(self, server: KafkaServer) -> None:
        """Starts a server that is down, and does not wait until it serves."""
        server.has_failed_disk = False
        server.log_begins_at = server.log_path.stat().st_size
        server.process = self._running_guard().start(
            self._command(server, "kafka.Kafka", "server.properties"), log=server.log_path, cwd=server.folder
        )

    def end(self, server: KafkaServer, how: signal.Signals) -> None:
        """Sends a signal and waits for the end; SIGKILL if that takes over 30 s."""
        process = server.process
        if process is None:
            return
        self.disturbances += 1
        process.send_signal(how)
        try:
            process.wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=_STOP_TIMEOUT_S)
        self._running_guard().forget(process)
        server.process = None

    def _command(self, server: KafkaServer, *main: str) -> list[str]:
        temporary = f"-Djava.io.tmpdir={server.folder}"
        options = (*_JAVA_OPTIONS, *self._java_options, temporary)
        return [str(self._java), *options, "-cp", self._class_path, *main]

    def _running_guard(self) -> ProcessGuard:
        if self._guard is None:
            raise KraftError("the cluster is not started")
        return self._guard


def _copy_format(formatted: KafkaServer, server: KafkaServer) -> None:
    """Gives a server each formatted data folder of another one."""
    for properties in formatted.folder.rglob("meta.properties"):
        folder = server.folder / properties.parent.relative_to(formatted.folder)
        shutil.copytree(properties.parent, folder)
        text = re.sub("^node.id=.*", f"node.id={server.node_id}", properties.read_text(), flags=re.MULTILINE)
        text = re.sub("^directory.id=.*", f"directory.id={random_uuid()}", text, flags=re.MULTILINE)
        (folder / properties.name).write_text(text, encoding="utf-8")
