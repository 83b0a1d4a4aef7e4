"""The brokers, proxies and sidecar that a fault may act on: one Scene per fault. One thread, the player's.

A fault is a function of a Scene that begins its harm, holds it, and ends it. `hold` is for the duration of a
harm, never for waiting until something has happened.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.chaos.history import Outcome
from tests.support.java_peer import now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.chaos.load import Load
    from tests.chaos.stage import Client, Stage
    from tests.support.faulty_proxy import FaultyProxy
    from tests.support.kafka_admin import KafkaAdmin
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar


class Scene:
    """The players of one fault. `kept_since_ms` is set by a fault that deletes the topic."""

    def __init__(self, stage: Stage, client: Client, topic: str, sidecar: Sidecar, load: Load) -> None:
        self.cluster = stage.cluster
        self.clock = stage.clock
        self.dns = stage.dns
        self.random = stage.random
        self.write_password = stage.write_password
        self.client = client
        self.topic = topic
        self.sidecar = sidecar
        self.load = load
        self.kept_since_ms: int | None = None

    @property
    def kafka(self) -> KraftCluster:
        return self.cluster.kafka

    @property
    def admin(self) -> KafkaAdmin:
        return self.cluster.kafka.admin

    @property
    def proxies(self) -> list[FaultyProxy]:
        """All of them, in a broker's order."""
        return [self.cluster.proxies[broker_id] for broker_id in self.kafka.broker_ids]

    @property
    def proxy(self) -> FaultyProxy:
        """The one in front of the leader of partition 0."""
        return self.cluster.proxies[self.leader]

    @property
    def leader(self) -> int:
        """The leader of partition 0, which has one while nothing is broken."""
        leader = wait_until(lambda: self.admin.leader(self.topic, 0), what="a leader of partition 0")
        assert leader is not None
        return leader

    def hold(self, seconds: float) -> None:
        """Lets the harm last."""
        threading.Event().wait(seconds)

    def wait_for_successes(self, *, each: int = 1, timeout_s: float = 60.0) -> None:
        """Until every caller has had a success that it asked for from now on."""
        self.load.wait_for_successes(now_ms(), each=each, timeout_s=timeout_s)

    def wait_for_spooled(self, count: int) -> None:
        """Until the spool has taken so many records that are sent from now on."""
        since_ms = now_ms()

        def taken() -> bool:
            reported = self.load.history.attempts()
            return sum(a.sent_ms >= since_ms and a.reported is Outcome.TAKEN for a in reported) >= count

        wait_until(taken, what=f"{count} records in the spool")

    def wait_for_failures(self, status: int, *, count: int = 1, timeout_s: float = 60.0) -> None:
        """Until so many records that are sent from now on have been answered with this status."""
        since_ms = now_ms()

        def seen() -> bool:
            self.load.raise_failures()
            reported = [
                a for a in self.load.history.attempts() if a.sent_ms >= since_ms and a.status == status
            ]
            return len(reported) >= count

        wait_until(seen, what=f"answers of {status}", timeout_s=timeout_s, last_seen=self.load.failed)
