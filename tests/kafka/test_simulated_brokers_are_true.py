"""Real brokers do in each scenario of tests/simulation what the simulated ones are held to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing.partition_log import read_batch, records_of
from tests.simulation.scenarios import PATIENT_MS, SCENARIOS, VERSION, Scenario, outcome, produce_request
from tests.support.broker_views import SeenPartition, views
from tests.support.kraft import KraftCluster
from tests.support.security_admin import SecurityAdmin
from tests.support.waiting import patient, wait_until
from tests.support.wire import Wire
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka_home import KafkaHome

_USER: Final = "ANONYMOUS"
#: The position of the length in the header of a batch, and what lies before it.
_LENGTH: Final = slice(8, 12)
_FETCH_WAIT_MS: Final = 200
_SETTINGS: Final = {
    "replica.fetch.wait.max.ms": str(_FETCH_WAIT_MS),
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2500",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def quick_kafka(kafka_home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """Three brokers that notice sooner who has died, and that know rights."""
    folder = tmp_path_factory.mktemp("kafka") / "quick"
    with KraftCluster(
        kafka_home.java,
        kafka_home.jars,
        folder,
        settings=_SETTINGS,
        java_options=kafka_home.java_options,
    ) as cluster:
        yield cluster


class RealBrokers:
    """Brokers: see scenarios.py."""

    def __init__(self, kafka: KraftCluster, topic: str, scenario: Scenario) -> None:
        self._kafka = kafka
        self._topic = topic
        self._scenario = scenario
        self._config = {
            "min.insync.replicas": str(scenario.min_insync_replicas),
            "unclean.leader.election.enable": str(scenario.unclean).lower(),
        }
        self._paused: set[int] = set()
        self._create()

    def _create(self) -> None:
        self._kafka.admin.create_topic(self._topic, assignment=[[1, 2, 3]], config=self._config)
        self.await_isr(1, 2, 3)

    def produce(self, data: bytes, to: int = 1, *, acks: int = -1, timeout_ms: int = PATIENT_MS) -> str:
        request = produce_request(self._topic, data, acks, timeout_ms)
        with Wire(self._kafka.address(to), patience_s=patient(2 * PATIENT_MS / 1_000)) as wire:
            return outcome(wire.ask(ApiKey.PRODUCE, VERSION, request))

    def wall_ms(self) -> int:
        return int(time.time() * 1_000)

    def kill(self, broker_id: int) -> None:
        self._kafka.kill(broker_id)

    def start(self, broker_id: int) -> None:
        self._kafka.restart(broker_id)

    def pause(self, broker_id: int) -> None:
        self._paused.add(broker_id)
        self._kafka.pause(broker_id)
        # A request that waits at the leader would be answered with the next record. Nobody shows its end.
        time.sleep(_FETCH_WAIT_MS * 2 / 1_000)

    def resume(self, broker_id: int) -> None:
        self._paused.discard(broker_id)
        self._kafka.resume(broker_id)

    def await_isr(self, *broker_ids: int) -> None:
        def are_in_sync() -> bool:
            seen = self._views()
            return bool(seen) and all(
                set(each.isr) == set(broker_ids) and each.leader in broker_ids for each in seen
            )

        wait_until(are_in_sync, what=f"{broker_ids} are in sync", last_seen=self._views)
        # A leader leads a moment after it has that metadata.
        wait_until(lambda: self._kafka.admin.high_watermarks(self._topic), what="the leader leads")

    def _views(self) -> list[SeenPartition]:
        """Of all brokers that run; empty if one of them does not answer."""
        running = [
            broker_id
            for broker_id in self._kafka.broker_ids
            if self._kafka.is_running(broker_id) and broker_id not in self._paused
        ]
        seen = views({broker_id: self._kafka.address(broker_id) for broker_id in running}, self._topic)
        found = [each[0] for each in seen.values() if each]
        return found if len(found) == len(running) else []

    def await_session_end(self, broker_id: int) -> None:
        wait_until(
            lambda: bool(seen := self._views()) and all(each.leader != broker_id for each in seen),
            what=f"broker {broker_id} leads no more",
            last_seen=self._views,
        )

    def leader(self) -> int | None:
        return self._views()[0].leader

    def values(self, of: int | None = None) -> list[bytes]:
        if of is None:
            return [record.value or b"" for record in self._kafka.read_back(self._topic)]
        data = self._kafka.log_segment(of, self._topic, 0)
        found: list[bytes] = []
        while data:
            size = 12 + int.from_bytes(data[_LENGTH])
            found += [record.value or b"" for record in records_of(read_batch(data[:size]))]
            data = data[size:]
        return found

    def make_again(self) -> None:
        self._kafka.admin.delete_topic(self._topic)
        self._create()

    def forbid_writes(self) -> None:
        SecurityAdmin(self._kafka.bootstrap_servers).deny(_USER, "WRITE", topic=self._topic)
        wait_until(lambda: self._is_forbidden(), what="the leader forbids writes")

    def allow_writes(self) -> None:
        SecurityAdmin(self._kafka.bootstrap_servers).forget_acls(topic=self._topic)
        wait_until(lambda: not self._is_forbidden(), what="the leader allows writes")

    def _is_forbidden(self) -> bool:
        """By a request that no broker can store."""
        return self.produce(b"") == Errors.TOPIC_AUTHORIZATION_FAILED.name

    def throttle(self) -> None:
        self._kafka.admin.set_client_quota(producer_byte_rate=1_000)
        large = RealBrokers(self._kafka, f"{self._topic}-quota", self._scenario)
        wait_until(lambda: "throttled" in large.produce(batch(bytes(100_000))), what="quotas are known")

    def end(self) -> None:
        self._kafka.heal()
        self._kafka.admin.remove_client_quotas()
        self._kafka.admin.delete_topic(self._topic)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_real_brokers_do_what_the_scenario_expects(quick_kafka: KraftCluster, scenario: Scenario) -> None:
    brokers = RealBrokers(quick_kafka, f"scenario-{SCENARIOS.index(scenario)}", scenario)
    try:
        assert list(scenario.steps(brokers)) == scenario.expected
    finally:
        brokers.end()
