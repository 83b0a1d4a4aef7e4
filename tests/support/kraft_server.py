"""One Kafka process of a test's cluster, or the place of one: its folder, its ports, its properties.

A server keeps its folder and ports while it is down. What a cluster's servers have in common is in
`ClusterSettings`, which says what each one's server.properties hold. Used by `kraft.py`, whose thread owns
the servers; starts nothing.
"""

from __future__ import annotations

import base64
import os
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.paused_process import pause_process

if TYPE_CHECKING:
    import signal
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

HOST: Final = "127.0.0.1"
CONTROLLER_ID: Final = 1000
_LOG_TAIL_BYTES: Final = 8_000
_STARTED: Final = b"Kafka Server started"


def random_uuid() -> str:
    """A Uuid as Kafka prints it, never with a leading dash, which Kafka's tools take for an option."""
    first, *rest = os.urandom(16)
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).rstrip(b"=").decode()


class KraftError(RuntimeError):
    """A broker did not start, or ended by itself; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ProxiedListener:
    """A further listener of every broker, which advertises a port that is not the broker's own.

    `protocol` is what it speaks, SASL_SSL for one; `advertised_ports` are by broker id, at `advertised_host`.
    """

    name: str
    advertised_ports: Mapping[int, int]
    protocol: str = "PLAINTEXT"
    advertised_host: str = HOST


@dataclass(slots=True)
class KafkaServer:
    """A broker, a controller, or both. One owner."""

    node_id: int
    roles: str
    folder: Path
    broker_port: int | None
    controller_port: int | None
    #: Where further listeners listen, by their names.
    proxied_ports: Mapping[str, int] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    #: Its process may end by itself, as Kafka does without a disk.
    has_failed_disk: bool = False
    #: Where in its log the present process began to write.
    log_begins_at: int = 0

    @property
    def name(self) -> str:
        return "controller" if self.broker_port is None else f"broker {self.node_id}"

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process of a running server; KraftError when it is down."""
        if self.process is None:
            raise KraftError(f"{self.name} is down")
        return self.process.pid

    @property
    def has_started(self) -> bool:
        """Whether the present process said so: a broker does once the controller counts on it.

        Metadata can't show it: for seconds it names a broker that is down, at the address of the next one.
        """
        with self.log_path.open("rb") as log:
            log.seek(self.log_begins_at)
            return _STARTED in log.read()

    def log_tail(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return "(it never started)"

    def send_signal(self, which: signal.Signals) -> None:
        os.kill(self.pid, which)

    def pause(self) -> None:
        """SIGSTOP; nothing of it runs any more when this returns."""
        pause_process(self.pid)

    def fail_disk(self, above_bytes: int = 0) -> None:
        """Every write to a file beyond this size fails from now on: EFBIG, to Java an IOException.

        The limit is the process's own (RLIMIT_FSIZE), so no privilege is needed; HotSpot ignores the signal
        that comes with it. A new process has none of it.
        """
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (above_bytes, hard))
        self.has_failed_disk = True


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What is the same for all servers of a cluster, and what their properties are by that.

    `listeners` are those that a single broker has besides PLAINTEXT, `advertised_ports` those of them that
    clients reach elsewhere, `proxied` those that every broker has. `own` wins over all others.
    """

    broker_ids: tuple[int, ...]
    controller_port: int
    auto_create: bool
    listeners: Mapping[str, int]
    advertised_ports: Mapping[str, int]
    proxied: tuple[ProxiedListener, ...]
    own: Mapping[str, str]

    def properties_of(self, server: KafkaServer) -> dict[str, str]:
        """A server's properties, by Kafka's names."""
        replication = str(min(3, len(self.broker_ids)))
        controller_id = CONTROLLER_ID if len(self.broker_ids) > 1 else server.node_id
        properties = {
            "process.roles": server.roles,
            "node.id": str(server.node_id),
            "controller.quorum.voters": f"{controller_id}@{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(server.folder / "data"),
            "auto.create.topics.enable": str(self.auto_create).lower(),
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
            # Nor need followers ask twice a second: new records are answered at once. Idle brokers use a
            # third less CPU by that.
            "replica.fetch.wait.max.ms": "1000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.enable": "false",
        }
        return properties | self._listening(server) | dict(self.own)

    def write_properties(self, server: KafkaServer) -> None:
        """Writes server.properties into the server's folder."""
        text = "".join(f"{name}={value}\n" for name, value in self.properties_of(server).items())
        (server.folder / "server.properties").write_text(text, encoding="utf-8")

    def _listening(self, server: KafkaServer) -> dict[str, str]:
        listeners: dict[str, int | None] = {
            "PLAINTEXT": server.broker_port,
            "CONTROLLER": server.controller_port,
            **self.listeners,
            **server.proxied_ports,
        }
        reported: dict[str, int | None] = {**listeners, **self.advertised_ports}
        if server.broker_port is not None:
            reported |= {proxied.name: proxied.advertised_ports[server.node_id] for proxied in self.proxied}
        properties = {"listeners": _addresses(listeners, {})}
        if reported != listeners:
            del reported["CONTROLLER"]
            hosts = {proxied.name: proxied.advertised_host for proxied in self.proxied}
            properties["advertised.listeners"] = _addresses(reported, hosts)
        if self.proxied:
            protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
            protocols |= {proxied.name: proxied.protocol for proxied in self.proxied}
            properties["listener.security.protocol.map"] = ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            )
        return properties


def _addresses(ports: Mapping[str, int | None], hosts: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{hosts.get(name, HOST)}:{port}" for name, port in ports.items() if port)
