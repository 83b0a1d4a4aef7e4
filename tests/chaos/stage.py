"""The parts that all faults of a run share: three brokers behind proxies, sidecars, Kafka's Java client.

    with Stage(cluster, home, folder, Random(7)) as stage:
        scene = stage.scene(fault.client, topic)        # what a fault may do: scene.py

Sidecars of the same settings are one process over all faults, so that a leak in one fault is visible in the
next. A fault that harms the sidecar itself gets one of its own. One thread steers.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.chaos.trace import WireTrace
from tests.support import power_cut
from tests.support.chaos_kraft import PROXIED_HOST
from tests.support.java_peer import JavaPeer
from tests.support.sidecar import Sidecar
from tests.support.steered_clock import SteeredClock
from tests.support.steered_dns import SteeredDns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from types import TracebackType

    from tests.support.chaos_kraft import ChaosCluster
    from tests.support.kafka_home import KafkaHome

PARTITIONS: Final = 6
MIN_IN_SYNC: Final = 2
#: Of both clients: so small that several batches of a partition are in flight under a small load.
BATCHES: Final = {"batch.size": "1024"}
#: As many as all callers together send: load.py.
JAVA_RECORDS_PER_SECOND: Final = 300
_RSS: Final = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class Client:
    """How a sidecar reaches the brokers, and Java's client beside it.

    `kafka` are settings of both; `sidecar_kafka` of the sidecar alone. Without `has_java` nothing of the same
    kind can be done to Java's client.
    """

    bootstrap_servers: str
    kafka: Mapping[str, str] = field(default_factory=dict)
    sidecar_kafka: Mapping[str, str] = field(default_factory=dict)
    java_kafka: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    has_java: bool = True
    #: The sidecar's power can be cut.
    has_power: bool = False

    def sidecar_settings(self) -> Client:
        """Without what is Java's: sidecars to which this is the same are one."""
        return replace(self, java_kafka={}, has_java=True)


class Stage:
    """From `with` to its end."""

    def __init__(
        self, cluster: ChaosCluster, home: KafkaHome, folder: Path, random: Random, *, has_java: bool = True
    ) -> None:
        """Without `has_java` nothing is compared, and a play is shorter by the start of a JVM."""
        self.cluster = cluster
        self.has_java = has_java
        self.random = random
        self._home = home
        self._folder = folder
        self._ends = contextlib.ExitStack()
        #: What the sidecars of secured brokers read their password from.
        self.password_path = folder / "password"
        self._shared: list[tuple[Client, Sidecar]] = []
        self.trace = WireTrace()
        cluster.listen_in(lambda broker_id: self.trace.conversation(broker_id))
        self._topics = 0
        self._folders = 0
        self.clock = SteeredClock(folder)
        self.dns = SteeredDns(folder)
        self.write_password()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def heal(self) -> None:
        """Nothing is wrong with brokers, network and rights, and the sidecars' password is the right one."""
        self.cluster.heal()
        self.write_password()
        self.clock.set(0)
        self.dns.forget(PROXIED_HOST)

    def write_password(self) -> None:
        """The password of now, into the file that sidecars read it from: at once and whole."""
        written = self.password_path.with_suffix(".new")
        written.write_text(self.cluster.password)
        written.replace(self.password_path)

    def new_topic(self) -> str:
        """A topic of three replicas, two of which must be in sync, led by all brokers in turn."""
        self._topics += 1
        topic = f"chaos-{self._topics}"
        brokers = self.cluster.kafka.broker_ids
        places = [[brokers[(n + k) % len(brokers)] for k in range(len(brokers))] for n in range(PARTITIONS)]
        self.cluster.kafka.admin.create_topic(
            topic, assignment=places, config={"min.insync.replicas": str(MIN_IN_SYNC)}
        )
        return topic

    def new_folder(self) -> Path:
        self._folders += 1
        folder = self._folder / f"{self._folders}"
        folder.mkdir(parents=True)
        return folder

    def shared_sidecar(self, client: Client) -> Sidecar:
        """The one sidecar of these settings, started for its first fault, or again where it has ended."""
        for settings, sidecar in self._shared:
            if settings.sidecar_settings() == client.sidecar_settings():
                if not sidecar.is_running:
                    sidecar.start()
                return sidecar
        sidecar = self._ends.enter_context(self.own_sidecar(client))
        self._shared.append((client, sidecar))
        return sidecar

    def own_sidecar(self, client: Client) -> Sidecar:
        """One more, not started yet; it has a spool in a folder of its own."""
        folder = self.new_folder()
        powered = (power_cut.__file__, str(folder / "fsynced"))
        return Sidecar(
            folder,
            bootstrap_servers=client.bootstrap_servers,
            kafka={**BATCHES, **client.kafka, **client.sidecar_kafka},
            flags=(*client.flags, "--spool-folder", str(folder / "spool")),
            environment=client.environment,
            program=powered if client.has_power else ("-m", "service"),
        )

    def java_peer(self, client: Client, topic: str) -> JavaPeer:
        """Kafka's own client, not started yet, with the same load on the same partitions."""
        return JavaPeer(
            self._home,
            self.new_folder(),
            client.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            records_per_second=JAVA_RECORDS_PER_SECOND,
            properties={**BATCHES, **client.kafka, **client.java_kafka},
        )


def resident_mb(pid: int) -> float:
    """Resident memory of a running process."""
    found = _RSS.search(Path(f"/proc/{pid}/status").read_text())
    assert found is not None, f"process {pid} has no memory any more"
    return int(found[1]) / 1024
