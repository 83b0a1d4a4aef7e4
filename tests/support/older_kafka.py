"""One broker of an older Kafka, with the ZooKeeper that it needs before KRaft. For tests of versions.

    with OlderKafka("2.8.2", folder) as kafka:
        kafka.bootstrap_servers

It makes topics by itself, with one partition. Start and end block. One thread.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from client_core.testing.free_ports import free_ports
from pipeline.jars.connector_jars import WantedJars, ensure_jars
from tests.support.java import find_java
from tests.support.kafka_admin import KafkaAdmin
from tests.support.kafka_jars import DEFAULT_FOLDER
from tests.support.kraft_server import HOST, random_uuid
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from typing import Self

_START_TIMEOUT_S: Final = 120.0
_TOOL_TIMEOUT_S: Final = patient(120.0)
_LOG_TAIL_BYTES: Final = 8_000
#: By version: the broker's artifact, and what replaces its dependencies. The client of ZooKeeper 3.4 can't
#: connect on Java 14 or newer.
VERSIONS: Final = {
    "2.1.1": ("org.apache.kafka:kafka_2.12:2.1.1", "org.apache.zookeeper:zookeeper:3.5.9"),
    "2.8.2": ("org.apache.kafka:kafka_2.13:2.8.2",),
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1",),
}
_OF_KRAFT: Final = frozenset({"3.9.1"})
_JAVA_OPTIONS: Final = (
    *("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    # ZooKeeper 3.4 registers log4j's beans, for which there is no log4j.
    "-Dzookeeper.jmx.log4j.disable=true",
)


def jars(version: str) -> tuple[Path, ...]:
    """Returns the jars of a version, fetched from Maven's central repository on first use."""
    wanted = WantedJars(
        f"the jars of Kafka {version}",
        (*VERSIONS[version], "org.slf4j:slf4j-simple:1.7.36"),
        left_out=frozenset({"slf4j-log4j12", "slf4j-reload4j"}),
    )
    return ensure_jars(wanted, DEFAULT_FOLDER.with_name(version))


class OlderKafka:
    """The processes of one version, which end with this one."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version: Final = version
        self._folder = folder
        self._java = find_java().path
        self._class_path = os.pathsep.join(map(str, jars(version)))
        self._guard = ProcessGuard()
        self._processes: list[subprocess.Popen[bytes]] = []
        port, self._other_port = free_ports(2)
        self.bootstrap_servers: Final = f"{HOST}:{port}"

    def __repr__(self) -> str:
        return f"<OlderKafka {self.version} {self.bootstrap_servers}>"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait(_TOOL_TIMEOUT_S)
        self._guard.close()

    def log_tail(self) -> str:
        """Returns the end of the broker's log."""
        path = self._folder / "broker.log"
        return path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if path.exists() else ""

    def _start(self) -> None:
        if self.version in _OF_KRAFT:
            properties = self._write("server.properties", self._kraft_properties())
            tool = ("kafka.tools.StorageTool", "format", "-t", random_uuid(), "-c", str(properties))
            assert self._run(*tool, log="format.log").wait(_TOOL_TIMEOUT_S) == 0, "could not be formatted"
        else:
            properties = self._write("server.properties", self._zookeeper_properties())
            zoo = (f"dataDir={self._folder}/zookeeper", f"clientPort={self._other_port}")
            # The admin server of ZooKeeper 3.5 would take port 8080.
            lines = (*zoo, f"clientPortAddress={HOST}", "admin.enableServer=false", "maxClientCnxns=0")
            file = self._write("zoo.cfg", lines)
            self._run("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file), log="zookeeper.log")
        broker = self._run("kafka.Kafka", str(properties), log="broker.log")
        admin = KafkaAdmin(self.bootstrap_servers)
        wait_until(
            lambda: self._is_up(broker, admin),
            what=f"Kafka {self.version} answers",
            timeout_s=_START_TIMEOUT_S,
        )

    def _is_up(self, broker: subprocess.Popen[bytes], admin: KafkaAdmin) -> bool:
        assert broker.poll() is None, f"Kafka {self.version} has ended:\n{self.log_tail()}"
        return bool(admin.brokers())

    def _run(self, *main: str, log: str) -> subprocess.Popen[bytes]:
        command = [str(self._java), *_JAVA_OPTIONS, "-cp", self._class_path, *main]
        process = self._guard.start(command, log=self._folder / log, cwd=self._folder)
        self._processes.append(process)
        return process

    def _write(self, name: str, lines: tuple[str, ...]) -> Path:
        path = self._folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def _of_each_version(self) -> tuple[str, ...]:
        single = ("offsets.topic", "transaction.state.log")
        return (
            f"log.dirs={self._folder}/data",
            "num.partitions=1",
            "auto.create.topics.enable=true",
            "transaction.state.log.min.isr=1",
            *(f"{name}.replication.factor=1" for name in single),
        )

    def _zookeeper_properties(self) -> tuple[str, ...]:
        return (
            "broker.id=1",
            f"listeners=PLAINTEXT://{self.bootstrap_servers}",
            f"zookeeper.connect={HOST}:{self._other_port}",
            *self._of_each_version(),
        )

    def _kraft_properties(self) -> tuple[str, ...]:
        controller = f"{HOST}:{self._other_port}"
        return (
            "node.id=1",
            "process.roles=broker,controller",
            f"controller.quorum.voters=1@{controller}",
            f"listeners=PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            *self._of_each_version(),
        )


if __name__ == "__main__":
    for each in VERSIONS:
        sys.stdout.write(f"Kafka {each}: {len(jars(each))} jars\n")
