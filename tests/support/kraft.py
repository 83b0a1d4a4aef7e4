"""A real Kafka 4.3 cluster for tests: brokers as operating system processes that a test may kill.

    with KraftCluster(find_java().path, ensure_jars(), folder, brokers=3) as kafka:
        kafka.admin.create_topic("orders", partitions=3, replication_factor=3)
        kafka.kill(2)                     # SIGKILL: its partitions wait for the session timeout, 9 s
        kafka.restart(2, new_port=True)   # back under another address

Several brokers get a controller in a process of its own, as in production. The quorum survives the death of
any number of brokers, so a test sees a broker's failure and not an election of controllers. A single broker
is its own controller (one process instead of two). Topic creation by producers
is a setting of the broker, so `auto_create` belongs to the cluster.

`proxied_ports` give every broker a further listener, PROXIED, that advertises another port: that of a proxy,
which passes on to `proxied_target(id)`. Brokers and `admin` keep to the plain listener, so nothing
that a proxy does to clients is done to them.

Processes are known by pid, end with the test process even if that is killed (kraft_processes.py), and keep
their data and logs in one folder. Ports stay a broker's own over restarts. Blocking; one thread steers.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from client_core.testing.free_ports import free_ports
from tests.support.kafka_admin import LOOK_TIMEOUT_S, KafkaAdmin, read_back
from tests.support.kafka_tools import KafkaTools
from tests.support.kraft_processes import START_TIMEOUT_S, KafkaProcesses
from tests.support.kraft_server import (
    CONTROLLER_ID,
    HOST,
    ClusterSettings,
    KafkaServer,
    KraftError,
    ProxiedListener,
    random_uuid,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.kafka_admin import ReadRecord

#: The listener of `proxied_ports`.
PROXIED: Final = "PROXIED"


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
        proxied_ports: Mapping[int, int] | None = None,
        proxied_listeners: Sequence[ProxiedListener] = (),
        java_options: Sequence[str] = (),
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`settings` are broker properties on top of the tests' own; the folder is removed at the end.

        `listeners` are those that a single broker has besides PLAINTEXT, by name and port, and
        `advertised_ports` those of them that clients reach elsewhere. `proxied_ports` are by broker id, and
        `proxied_listeners` further ones of that kind. `format_arguments` are for kafka-storage.
        """
        self._java = java
        self._jars = tuple(jars)
        self._folder = folder.resolve()
        self._format_arguments = tuple(format_arguments)
        self._processes = KafkaProcesses(java, jars, self._folder, java_options)
        self._admin: KafkaAdmin | None = None
        self.cluster_id = random_uuid()
        self.broker_ids = tuple(range(1, brokers + 1))
        plain = (ProxiedListener(PROXIED, proxied_ports),) if proxied_ports else ()
        (controller_port,) = free_ports(1)
        self._settings = ClusterSettings(
            self.broker_ids,
            controller_port,
            auto_create,
            dict(listeners or {}),
            dict(advertised_ports or {}),
            (*plain, *proxied_listeners),
            dict(settings or {}),
        )
        self._servers = {broker_id: self._new_broker(broker_id) for broker_id in self.broker_ids}
        if brokers > 1:
            self._servers[CONTROLLER_ID] = KafkaServer(
                CONTROLLER_ID, "controller", self._folder / "controller", None, controller_port
            )

    def _new_broker(self, broker_id: int) -> KafkaServer:
        names = [listener.name for listener in self._settings.proxied]
        port, *proxied = free_ports(1 + len(names))
        is_alone = len(self.broker_ids) == 1
        return KafkaServer(
            broker_id,
            "broker,controller" if is_alone else "broker",
            self._folder / f"broker-{broker_id}",
            port,
            self._settings.controller_port if is_alone else None,
            dict(zip(names, proxied, strict=True)),
        )

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Formats the data folders, starts every process, and waits until all brokers serve."""
        self._processes.open()
        try:
            for server in self._servers.values():
                server.folder.mkdir(parents=True)
                self._settings.write_properties(server)
            servers = tuple(self._servers.values())
            self._processes.format(servers, self.cluster_id, self._format_arguments)
            for server in servers:
                self._processes.launch(server)
            self._wait_until_serving(self.broker_ids)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kills every process, waits for their ends, and removes the folder. Idempotent."""
        self._admin = None
        self._processes.close(tuple(self._servers.values()))

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
        return HOST, port

    def proxied_target(self, broker_id: int, listener: str = PROXIED) -> tuple[str, int]:
        """Where a broker's proxied listener really listens: that port stays, even with `new_port`."""
        return HOST, self._broker(broker_id).proxied_ports[listener]

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, alive or not, as Kafka's setting of that name has it."""
        return ",".join(f"{host}:{port}" for host, port in map(self.address, self.broker_ids))

    # -- a second opinion ------------------------------------------------------------------------------------

    @property
    def admin(self) -> KafkaAdmin:
        """Topics and leaders, by librdkafka; made anew when brokers have moved."""
        if self._admin is None or self._admin.bootstrap_servers != self.bootstrap_servers:
            tools = KafkaTools(self._java, self._jars, self._folder, self.bootstrap_servers)
            self._admin = KafkaAdmin(self.bootstrap_servers, tools)
        return self._admin

    def read_back(self, topic: str, *, timeout_s: float = 60.0) -> list[ReadRecord]:
        """Every record of a topic up to the high watermarks, by librdkafka."""
        return read_back(self.bootstrap_servers, topic, timeout_s=timeout_s)

    # -- controls of brokers ---------------------------------------------------------------------------------

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process is there (it may still be starting, or be paused)."""
        return self._broker(broker_id).is_running

    def pid(self, broker_id: int) -> int:
        """The process of a running broker."""
        return self._broker(broker_id).pid

    @property
    def disturbances(self) -> int:
        """How often a process was ended or paused: connected clients may have noticed."""
        return self._processes.disturbances

    def kill(self, broker_id: int) -> None:
        """SIGKILL, and waits for the end; the cluster notices by broker.session.timeout.ms (9 s)."""
        self._processes.end(self._broker(broker_id), signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """SIGTERM: the broker hands its partitions over first. SIGKILL if that takes over 30 s."""
        self._processes.end(self._broker(broker_id), signal.SIGTERM)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._processes.disturbances += 1
        self._broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self._broker(broker_id).send_signal(signal.SIGCONT)

    def restart(self, broker_id: int, *, new_port: bool = False) -> None:
        """Starts a broker again (killing it first where it runs) and waits until the cluster counts on it.

        The controller lets nobody in whose former session still runs: up to 9 s after it ended.
        """
        self._take_down_and_launch(broker_id, new_port=new_port)
        self._wait_until_serving((broker_id,))

    def fail_disk(self, broker_id: int, *, above_bytes: int = 0) -> None:
        """Every write to a file beyond this size fails from now on, with 0 every write.

        Kafka takes a log folder offline at the first failed write, and ends when there is no other; so do
        clients see KAFKA_STORAGE_ERROR, or the connection's end. `restart` or `heal` brings it back.
        """
        self._broker(broker_id).fail_disk(above_bytes)

    def kill_controller(self) -> None:
        """SIGKILL; brokers go on with what they know: no election, no topic made, no ISR changed."""
        self._processes.end(self._controller(), signal.SIGKILL)

    def restart_controller(self) -> None:
        """Starts the controller again (killing it first where it runs) and waits until it answers."""
        self._processes.end(self._controller(), signal.SIGKILL)
        self._processes.launch(self._controller())
        self._wait_for_controller()

    def pause_controller(self) -> None:
        """SIGSTOP."""
        self._controller().pause()

    def resume_controller(self) -> None:
        """SIGCONT. After a pause of over 9 s it takes the brokers for dead, and fences them for a moment."""
        self._controller().send_signal(signal.SIGCONT)

    def advertise(self, listener: str, ports: Mapping[int, int]) -> None:
        """Brokers advertise these ports of a proxied listener, from their next `new_port` on."""
        proxied = [
            replace(each, advertised_ports=dict(ports)) if each.name == listener else each
            for each in self._settings.proxied
        ]
        self._settings = replace(self._settings, proxied=tuple(proxied))

    def move_all_brokers(self) -> None:
        """Every broker comes back at another address: no address that was advertised before still answers."""
        for broker_id in self.broker_ids:
            self.kill(broker_id)
        for broker_id in self.broker_ids:
            self._take_down_and_launch(broker_id, new_port=True)
        self._wait_until_serving(self.broker_ids)

    def wait_until_fenced(self, broker_id: int, *, timeout_s: float = 60.0) -> None:
        """Waits until the cluster has noticed that a broker is gone."""
        wait_until(
            lambda: bool(seen := self.admin.brokers(timeout_s=LOOK_TIMEOUT_S)) and broker_id not in seen,
            what=f"broker {broker_id} is fenced",
            timeout_s=timeout_s,
        )

    def heal(self) -> None:
        """Makes every server run and serve again, whatever a test did to them. At once when all do."""
        if len(self.broker_ids) > 1:
            self._heal_controller()
        down = [broker_id for broker_id in self.broker_ids if not self.is_running(broker_id)]
        for broker_id in self.broker_ids:
            if broker_id in down or self._broker(broker_id).has_failed_disk:
                self._take_down_and_launch(broker_id, new_port=False)
            else:
                self.resume(broker_id)
        self._wait_until_serving(self.broker_ids)

    def logs(self) -> dict[str, str]:
        """The end of each process's log, by its name."""
        return {server.name: server.log_tail() for server in self._servers.values()}

    def server_folder(self, broker_id: int) -> Path:
        """Where all that is a broker's lies."""
        return self._broker(broker_id).folder

    def has_log_folder(self, broker_id: int, topic: str, partition: int) -> bool:
        """Whether a broker has a folder for a partition."""
        return any(self._broker(broker_id).folder.glob(f"*/{topic}-{partition}"))

    def log_folder(self, broker_id: int, topic: str, partition: int) -> Path:
        """Where a broker keeps a partition, in whichever of its log.dirs; KraftError where it has none."""
        for folder in self._broker(broker_id).folder.glob(f"*/{topic}-{partition}"):
            return folder
        raise KraftError(f"broker {broker_id} has no partition {topic}-{partition}")

    def log_segment(self, broker_id: int, topic: str, partition: int) -> bytes:
        """The first segment of a partition as it lies in a broker's folder: record batches, as they came."""
        return min(self.log_folder(broker_id, topic, partition).glob("*.log")).read_bytes()

    # -- inside ----------------------------------------------------------------------------------------------

    def _heal_controller(self) -> None:
        controller = self._controller()
        if controller.is_running:
            self.resume_controller()
        else:
            self.restart_controller()

    def _controller(self) -> KafkaServer:
        if len(self.broker_ids) == 1:
            raise KraftError("a single broker is its own controller")
        return self._servers[CONTROLLER_ID]

    def _broker(self, broker_id: int) -> KafkaServer:
        if broker_id not in self.broker_ids:
            raise KeyError(f"no broker {broker_id} among {self.broker_ids}")
        return self._servers[broker_id]

    def _take_down_and_launch(self, broker_id: int, *, new_port: bool) -> None:
        server = self._broker(broker_id)
        self._processes.end(server, signal.SIGKILL)
        if new_port:
            (server.broker_port,) = free_ports(1)
            self._settings.write_properties(server)
        self._processes.launch(server)

    def _wait_until_serving(self, broker_ids: Sequence[int]) -> None:
        """Until the cluster lists these brokers where they are now; KraftError when a process ended."""

        def serving() -> bool:
            self._raise_for_ended_servers()
            if not all(self._broker(broker_id).has_started for broker_id in broker_ids):
                return False
            alive = self.admin.brokers(timeout_s=LOOK_TIMEOUT_S)
            return all(alive.get(broker_id) == self.address(broker_id) for broker_id in broker_ids)

        try:
            wait_until(serving, what=f"brokers {list(broker_ids)} serve", timeout_s=START_TIMEOUT_S)
        except AssertionError as error:
            tails = "\n".join(f"--- {name}\n{tail}" for name, tail in self.logs().items())
            raise KraftError(f"{error}\n{tails}") from error

    def _wait_for_controller(self) -> None:
        """Until the controller answers what only it can."""

        def answers() -> bool:
            self._raise_for_ended_servers()
            return self.admin.has_controller()

        wait_until(answers, what="the controller answers", timeout_s=START_TIMEOUT_S)

    def _raise_for_ended_servers(self) -> None:
        for server in self._servers.values():
            if server.process is not None and not server.is_running and not server.has_failed_disk:
                code = server.process.returncode
                raise KraftError(f"{server.name} ended by itself with {code}:\n{server.log_tail()}")
