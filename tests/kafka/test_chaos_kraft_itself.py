"""The brokers of the chaos runs: clients see only their proxies, and each fault has its effect."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority, write_pem
from tests.support.chaos_kraft import PROXIED_HOST
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from confluent_kafka import Message, ThrottleEvent

    from tests.support.chaos_kraft import ChaosCluster

_QUIET: Final[dict[str, Any]] = {"log_level": 0, "error_cb": lambda _: None, "reconnect.backoff.max.ms": 200}
_LED_BY_EACH: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture
def chaos(chaos_cluster: ChaosCluster) -> ChaosCluster:
    """All of it healed, whatever the test before did."""
    chaos_cluster.heal()
    return chaos_cluster


@pytest.fixture
def topic(chaos: ChaosCluster, topic_name: Callable[[], str]) -> str:
    """A topic of three partitions, one led by each broker."""
    name = topic_name()
    chaos.kafka.admin.create_topic(name, assignment=_LED_BY_EACH, config={"min.insync.replicas": "2"})
    return name


def _produce(settings: Mapping[str, Any], topic: str, partition: int = 0) -> str | None:
    """Writes a record by librdkafka; the name of the error, None when it was acknowledged."""
    ends: list[str | None] = []

    def reported(error: KafkaError | None, _: Message) -> None:
        ends.append(None if error is None else error.name())

    producer = Producer({**_QUIET, "message.timeout.ms": 30_000, **settings})
    producer.produce(topic, b"x", partition=partition, on_delivery=reported)
    producer.flush(60)
    return ends[0]


def _by_name(chaos: ChaosCluster, **changed: str) -> dict[str, str]:
    """The user's settings as librdkafka names them."""
    settings = chaos.secured_settings
    settings["ssl.ca.location"] = settings.pop("ssl.truststore.location")
    del settings["ssl.truststore.type"]
    return settings | changed


def _gets_in(settings: Mapping[str, str]) -> bool:
    """Whether a client with these settings gets a list of brokers."""
    complaints: list[KafkaError] = []
    listening: dict[str, Any] = {"log_level": 0, "error_cb": complaints.append}
    client = AdminClient({**settings, **listening})
    refused = {KafkaError._AUTHENTICATION, KafkaError._SSL}
    future = client.describe_cluster(request_timeout=30)

    def is_decided() -> bool:
        client.poll(0)
        return future.done() or any(complaint.code() in refused for complaint in complaints)

    wait_until(is_decided, what="an end of the connecting", every_s=0.02)
    return future.done()


def _listed_addresses(bootstrap_servers: str) -> dict[int, tuple[str, int]]:
    brokers = AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET}).list_topics(timeout=10).brokers
    return {broker.id: (str(broker.host), broker.port) for broker in brokers.values()}


def test_clients_see_proxies_only_also_when_a_broker_has_moved(chaos: ChaosCluster, topic: str) -> None:
    proxies = {broker_id: (PROXIED_HOST, proxy.address[1]) for broker_id, proxy in chaos.proxies.items()}
    assert _listed_addresses(chaos.bootstrap_servers) == proxies
    before = chaos.kafka.address(1)

    chaos.kafka.restart(1, new_port=True)
    chaos.kafka.admin.wait_until_in_sync(topic)

    assert chaos.kafka.address(1) != before
    assert _listed_addresses(chaos.bootstrap_servers) == proxies
    passed = chaos.proxies[2].request_bytes
    assert _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic, partition=1) is None
    assert chaos.proxies[2].request_bytes > passed


def test_all_brokers_move_and_only_the_front_door_is_where_it_was(chaos: ChaosCluster, topic: str) -> None:
    before = {proxy.address[1] for proxy in chaos.proxies.values()}
    old_bootstrap = chaos.bootstrap_servers
    chaos.move_all_brokers()
    chaos.kafka.admin.wait_until_in_sync(topic)

    reported = _listed_addresses(chaos.front_door.bootstrap_servers)
    after = {broker_id: proxy.address[1] for broker_id, proxy in chaos.proxies.items()}
    assert reported == {broker_id: (PROXIED_HOST, port) for broker_id, port in after.items()}
    assert not before & set(after.values())
    for port in (address.rsplit(":", 1)[1] for address in old_bootstrap.split(",")):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=5)
    assert _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic) is None
    assert _gets_in(_by_name(chaos))


def test_the_users_right_to_write_is_taken_and_given(chaos: ChaosCluster, topic: str) -> None:
    assert _produce(_by_name(chaos), topic) is None
    chaos.take_write(topic)
    wait_until(
        lambda: _produce(_by_name(chaos), topic) == "TOPIC_AUTHORIZATION_FAILED", what="the right is taken"
    )
    # An anonymous client is a super user, whatever is denied.
    assert _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic) is None
    chaos.give_write(topic)
    wait_until(lambda: _produce(_by_name(chaos), topic) is None, what="the right is given")


def test_a_rotated_password_is_the_only_one(chaos: ChaosCluster) -> None:
    old = _by_name(chaos)
    assert _gets_in(old)
    chaos.rotate_password()
    wait_until(lambda: not _gets_in(old), what="the old password is of no use")
    wait_until(lambda: _gets_in(_by_name(chaos)), what="the new password lets in")


def test_a_certificate_of_another_authority_is_shown(chaos: ChaosCluster, tmp_path: Path) -> None:
    old = write_pem(tmp_path / "old.pem", chaos.authority.certificate)
    assert _gets_in(_by_name(chaos, **{"ssl.ca.location": str(old)}))
    chaos.rotate_certificates(Authority())
    assert not _gets_in(_by_name(chaos, **{"ssl.ca.location": str(old)}))
    assert _gets_in(_by_name(chaos))


def test_a_quota_throttles_until_it_is_removed(chaos: ChaosCluster, topic: str) -> None:
    throttled: list[float] = []

    def reported(event: ThrottleEvent) -> None:
        throttled.append(event.throttle_time)

    producer = Producer(
        {
            **_QUIET,
            "bootstrap.servers": chaos.bootstrap_servers,
            "client.id": "greedy",
            "linger.ms": 0,
            "throttle_cb": reported,
        }
    )

    def is_throttled() -> bool:
        producer.produce(topic, b"x" * 20_000, partition=0)
        producer.flush(30)
        return any(time > 0 for time in throttled)

    chaos.kafka.admin.set_client_quota(client_id="greedy", producer_byte_rate=10_000)
    wait_until(is_throttled, what="the producer is throttled", every_s=0.01)
    chaos.kafka.admin.remove_client_quotas(client_id="greedy")

    def is_free() -> bool:
        throttled.clear()
        return not is_throttled()

    wait_until(is_free, what="the producer is free", every_s=0.01)


def test_leaders_are_moved_and_elected(chaos: ChaosCluster, topic: str) -> None:
    admin = chaos.kafka.admin
    assert admin.move_leader(topic, 0) == 2
    assert admin.leader(topic, 0) == 2
    chaos.kafka.stop(3)
    assert admin.wait_for_leader_other_than(topic, 2, 3) == 1
    chaos.kafka.restart(3)
    admin.wait_until_in_sync(topic)
    admin.elect_preferred_leaders(topic)
    assert [admin.leader(topic, partition) for partition in range(3)] == [2, 2, 3]


def test_a_topics_config_is_changed_and_taken_back(chaos: ChaosCluster, topic: str) -> None:
    admin = chaos.kafka.admin
    admin.set_topic_config(topic, "max.message.bytes", "10")
    wait_until(  # each broker learns of it in its own time
        lambda: _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic) == "MSG_SIZE_TOO_LARGE",
        what="records are too large",
    )
    admin.set_topic_config(topic, "max.message.bytes", None)
    wait_until(
        lambda: _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic) is None,
        what="records fit again",
    )


def test_without_its_controller_a_cluster_takes_records_and_makes_no_topics(
    chaos: ChaosCluster, topic: str
) -> None:
    chaos.kafka.kill_controller()
    assert not chaos.kafka.admin.has_controller()
    assert _produce({"bootstrap.servers": chaos.bootstrap_servers}, topic) is None
    chaos.kafka.restart_controller()
    assert chaos.kafka.admin.has_controller()
    chaos.kafka.pause_controller()
    assert not chaos.kafka.admin.has_controller()
    chaos.heal()
    wait_until(chaos.kafka.admin.has_controller, what="the controller is back")


def test_a_broker_whose_disk_fails_ends_and_loses_nothing(chaos: ChaosCluster, topic: str) -> None:
    plain = {"bootstrap.servers": chaos.bootstrap_servers}
    assert _produce({**plain, "acks": "all"}, topic, partition=2) is None
    chaos.kafka.fail_disk(3)
    assert _produce({**plain, "acks": "all"}, topic, partition=2) is None
    assert not chaos.kafka.is_running(3)
    assert chaos.kafka.admin.leader(topic, 2) in (1, 2)
    chaos.heal()
    chaos.kafka.admin.wait_until_in_sync(topic)
    assert len(chaos.kafka.read_back(topic)) == 2
