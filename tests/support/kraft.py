"""A real Kafka 4.3 cluster for tests: brokers as operating system processes that a test may kill.

    with KraftCluster(find_java().path, ensure_jars(), folder, brokers=3) as kafka:
        kafka.admin.create_topic("orders", partitions=3, replication_factor=3)
        kafka.kill(2)                     # SIGKILL: its partitions wait for the session timeout, 9 s
        kafka.restart(2, new_port=True)   # back under another address

Several brokers get a controller in a process of its own, as production has it: whichever broker dies, and
however many, the quorum stands, and what a test sees is a broker's failure and not an election of
controllers. A single broker is its own controller (one process instead of two). Topic creation by producers
is a setting of the broker, so `auto_create` belongs to the cluster.

Processes are known by pid, end with the test process even if that is killed (process_guard.py), and keep
their data and logs in one folder. Ports stay a broker's own over restarts. Blocking; one thread steers.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.free_ports import free_ports
from tests.support.kafka_admin import KafkaAdmin, read_back
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.support.kafka_admin import ReadRecord

_HOST: Final = "127.0.0.1"
_CONTROLLER_ID: Final = 1000
_CHATTY_LOGGERS: Final = (
    "state.change.logger",
    "kafka.cluster.Partition",
    "kafka.log.LogManager",
    "kafka.server.ReplicaFetcherManager",
    "org.apache.kafka.storage.internals.log",
    "org.apache.kafka.controller.ReplicationControlManager",
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
_START_TIMEOUT_S: Final = 90.0
#: Controlled shutdown moves leaders first and takes a second or two; then we stop asking nicely.
_STOP_TIMEOUT_S: Final = 30.0
_LOG_TAIL_BYTES: Final = 8_000


class KraftError(RuntimeError):
    """A broker did not start, or ended by itself; the message holds the end of its log."""


@dataclass(slots=True)
class _Server:
    """One Kafka process, or the place of one: it keeps its folder and ports while it is down."""

    node_id: int
    roles: str
    folder: Path
    broker_port: int | None
    controller_port: int | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return "controller" if self.broker_port is None else f"broker {self.node_id}"

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_tail(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return "(it never started)"


def _random_cluster_id() -> str:
    """A Uuid as Kafka prints it, never with a leading dash, which Kafka's tools take for an option."""
    first, *rest = os.urandom(16)
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).rstrip(b"=").decode()


class KraftCluster:
    """Kafka brokers 1..n and their controller. One thread steers; any may read addresses."""

    def __init__(
        self,
        java: Path,
        jars: Sequence[Path],
        folder: Path,
        *,
        brokers: int = 3,
        auto_create: bool = False,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
        advertised_ports: Mapping[str, int] | None = None,
        java_options: Sequence[str] = (),
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`settings` are broker properties on top of the tests' own; the folder is removed at the end.

        `listeners` are those that a single broker has besides PLAINTEXT, by name and port, and
        `advertised_ports` those of them that clients reach elsewhere. `format_arguments` are for
        kafka-storage.
        """
        self._java = java
        self._class_path = os.pathsep.join(str(jar) for jar in jars)
        self._folder = folder.resolve()
        self._auto_create = auto_create
        self._settings = dict(settings or {})
        self._listeners = dict(listeners or {})
        self._advertised_ports = dict(advertised_ports or {})
        self._java_options = tuple(java_options)
        self._format_arguments = tuple(format_arguments)
        self._guard: ProcessGuard | None = None
        self._admin: KafkaAdmin | None = None
        #: How often a process was ended or paused: whoever was connected may know of it.
        self.disturbances = 0
        self.cluster_id = _random_cluster_id()
        ports = free_ports(brokers + 1)
        self._controller_port = ports[-1]
        self._servers = {
            node_id: _Server(
                node_id,
                "broker,controller" if brokers == 1 else "broker",
                self._folder / f"broker-{node_id}",
                ports[node_id - 1],
                self._controller_port if brokers == 1 else None,
            )
            for node_id in range(1, brokers + 1)
        }
        self.broker_ids = tuple(self._servers)
        if brokers > 1:
            self._servers[_CONTROLLER_ID] = _Server(
                _CONTROLLER_ID, "controller", self._folder / "controller", None, self._controller_port
            )

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Formats the data folders, starts every process, and waits until all brokers serve."""
        self._guard = ProcessGuard()
        self._guard.remove_at_end(self._folder)
        try:
            for server in self._servers.values():
                server.folder.mkdir(parents=True)
                self._write_properties(server)
            self._format(self._servers.values())
            for server in self._servers.values():
                self._launch(server)
            self._wait_until_serving(self.broker_ids)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kills every process, waits for their ends, and removes the folder. Idempotent."""
        if self._guard is None:
            return
        self._admin = None
        for server in self._servers.values():
            if server.process is not None:
                server.process.kill()
        for server in self._servers.values():
            if server.process is not None:
                server.process.wait(timeout=_STOP_TIMEOUT_S)
                self._guard.forget(server.process)
                server.process = None
        self._guard.close()
        self._guard = None

    def __enter__(self) -> KraftCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- addresses -------------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> tuple[str, int]:
        """Where a broker listens, or will listen when it is back."""
        port = self._broker(broker_id).broker_port
        assert port is not None
        return _HOST, port

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, alive or not, as Kafka's setting of that name has it."""
        return ",".join(f"{host}:{port}" for host, port in map(self.address, self.broker_ids))

    # -- a second opinion ------------------------------------------------------------------------------------

    @property
    def admin(self) -> KafkaAdmin:
        """Topics and leaders, by librdkafka; made anew when brokers have moved."""
        if self._admin is None or self._admin.bootstrap_servers != self.bootstrap_servers:
            self._admin = KafkaAdmin(self.bootstrap_servers)
        return self._admin

    def read_back(self, topic: str, *, timeout_s: float = 60.0) -> list[ReadRecord]:
        """Every record of a topic up to the high watermarks, by librdkafka."""
        return read_back(self.bootstrap_servers, topic, timeout_s=timeout_s)

    # -- what a test does to brokers -------------------------------------------------------------------------

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process is there (it may still be starting, or be paused)."""
        return self._broker(broker_id).is_running

    def pid(self, broker_id: int) -> int:
        """The process of a running broker."""
        process = self._broker(broker_id).process
        if process is None:
            raise KraftError(f"broker {broker_id} is down")
        return process.pid

    def kill(self, broker_id: int) -> None:
        """SIGKILL, and waits for the end; the cluster notices by broker.session.timeout.ms (9 s)."""
        self._end(self._broker(broker_id), signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """SIGTERM: the broker hands its partitions over first. SIGKILL if that takes over 30 s."""
        self._end(self._broker(broker_id), signal.SIGTERM)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.disturbances += 1
        os.kill(self.pid(broker_id), signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        os.kill(self.pid(broker_id), signal.SIGCONT)

    def restart(self, broker_id: int, *, new_port: bool = False) -> None:
        """Starts a broker again (killing it first where it runs) and waits until the cluster counts on it.

        The controller lets nobody in whose former session still runs: up to 9 s after it ended.
        """
        self._take_down_and_launch(broker_id, new_port=new_port)
        self._wait_until_serving((broker_id,))

    def move_all_brokers(self) -> None:
        """Every broker comes back at another address: no address that was ever told still answers."""
        for broker_id in self.broker_ids:
            self.kill(broker_id)
        for broker_id in self.broker_ids:
            self._take_down_and_launch(broker_id, new_port=True)
        self._wait_until_serving(self.broker_ids)

    def wait_until_fenced(self, broker_id: int, *, timeout_s: float = 60.0) -> None:
        """Waits until the cluster has noticed that a broker is gone."""
        wait_until(
            lambda: bool(seen := self.admin.brokers()) and broker_id not in seen,
            what=f"broker {broker_id} is fenced",
            timeout_s=timeout_s,
        )

    def heal(self) -> None:
        """Makes every broker run and serve again, whatever a test did to them. At once when all do."""
        down = [broker_id for broker_id in self.broker_ids if not self.is_running(broker_id)]
        for broker_id in self.broker_ids:
            if broker_id in down:
                self._take_down_and_launch(broker_id, new_port=False)
            else:
                self.resume(broker_id)
        self._wait_until_serving(self.broker_ids)

    def logs(self) -> dict[str, str]:
        """The end of each process's log, by its name."""
        return {server.name: server.log_tail() for server in self._servers.values()}

    def log_segment(self, broker_id: int, topic: str, partition: int) -> bytes:
        """The first segment of a partition as it lies in a broker's folder: record batches, as they came."""
        folder = self._broker(broker_id).folder / "data" / f"{topic}-{partition}"
        return min(folder.glob("*.log")).read_bytes()

    # -- inside ----------------------------------------------------------------------------------------------

    def _broker(self, broker_id: int) -> _Server:
        if broker_id not in self.broker_ids:
            raise KeyError(f"no broker {broker_id} among {self.broker_ids}")
        return self._servers[broker_id]

    def _properties(self, server: _Server) -> dict[str, str]:
        replication = str(min(3, len(self.broker_ids)))
        listeners = {
            "PLAINTEXT": server.broker_port,
            "CONTROLLER": server.controller_port,
            **self._listeners,
        }
        properties = {
            "process.roles": server.roles,
            "node.id": str(server.node_id),
            "controller.quorum.voters": (
                f"{_CONTROLLER_ID if len(self.broker_ids) > 1 else 1}@{_HOST}:{self._controller_port}"
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{_HOST}:{port}" for name, port in listeners.items() if port),
            "log.dirs": str(server.folder / "data"),
            "auto.create.topics.enable": str(self._auto_create).lower(),
            "default.replication.factor": replication,
            # Leaders stay where a test put them, and no record is dropped for its age (tests write old ones).
            "auto.leader.rebalance.enable": "false",
            "log.retention.ms": "-1",
            # Internal topics of few partitions, and fewer threads: three brokers share a small machine.
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Nothing happens most of the time, and the controller need not write that down twice a second.
            "metadata.max.idle.interval.ms": "5000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.enable": "false",
        }
        if self._advertised_ports:
            told = listeners | self._advertised_ports
            properties["advertised.listeners"] = ",".join(
                f"{name}://{_HOST}:{port}" for name, port in told.items() if name != "CONTROLLER"
            )
        return properties | self._settings

    def _write_properties(self, server: _Server) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self._properties(server).items())
        (server.folder / "server.properties").write_text(text, encoding="utf-8")

    def _command(self, server: _Server, *main: str) -> list[str]:
        temporary = f"-Djava.io.tmpdir={server.folder}"
        options = (*_JAVA_OPTIONS, *self._java_options, temporary)
        return [str(self._java), *options, "-cp", self._class_path, *main]

    def _format(self, servers: Iterable[_Server]) -> None:
        """Writes the cluster's id and first metadata into the data folders, side by side."""
        guard = self._running_guard()
        formatting = [
            (
                server,
                guard.start(
                    self._command(
                        server,
                        "kafka.tools.StorageTool",
                        "format",
                        "-t",
                        self.cluster_id,
                        "-c",
                        "server.properties",
                        *self._format_arguments,
                    ),
                    log=server.log_path,
                    cwd=server.folder,
                ),
            )
            for server in servers
        ]
        failed = [server for server, process in formatting if process.wait(timeout=_START_TIMEOUT_S) != 0]
        for _, process in formatting:
            guard.forget(process)
        if failed:
            raise KraftError(f"{failed[0].name} could not be formatted:\n{failed[0].log_tail()}")

    def _launch(self, server: _Server) -> None:
        server.process = self._running_guard().start(
            self._command(server, "kafka.Kafka", "server.properties"), log=server.log_path, cwd=server.folder
        )

    def _take_down_and_launch(self, broker_id: int, *, new_port: bool) -> None:
        server = self._broker(broker_id)
        self._end(server, signal.SIGKILL)
        if new_port:
            (server.broker_port,) = free_ports(1)
            self._write_properties(server)
        self._launch(server)

    def _end(self, server: _Server, how: signal.Signals) -> None:
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

    def _running_guard(self) -> ProcessGuard:
        if self._guard is None:
            raise KraftError("the cluster is not started")
        return self._guard

    def _wait_until_serving(self, broker_ids: Sequence[int]) -> None:
        """Until the cluster lists these brokers where they are now; KraftError when a process ended."""

        def serving() -> bool:
            for server in self._servers.values():
                if server.process is not None and not server.is_running:
                    code = server.process.returncode
                    raise KraftError(f"{server.name} ended by itself with {code}:\n{server.log_tail()}")
            alive = self.admin.brokers()
            return all(alive.get(broker_id) == self.address(broker_id) for broker_id in broker_ids)

        try:
            wait_until(serving, what=f"brokers {list(broker_ids)} serve", timeout_s=_START_TIMEOUT_S)
        except AssertionError as error:
            tails = "\n".join(f"--- {name}\n{tail}" for name, tail in self.logs().items())
            raise KraftError(f"{error}\n{tails}") from error
