"""A setting forbids connections to an address elsewhere that a broker names for another broker."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: As good as the metadata service of a cloud: not where any broker is.
ELSEWHERE = "127.0.0.2"


@contextmanager
def trap() -> Iterator[socket.socket]:
    """A port that nobody may connect to; looking for connections does not block."""
    with socket.create_server((ELSEWHERE, 0)) as listener:
        listener.setblocking(False)
        yield listener


def was_connected_to(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def advertise_elsewhere(cluster: FakeCluster, port: int) -> None:
    """From now on every broker says that broker 2 is at the trap."""

    def lie(response: Any) -> Any:
        brokers = [
            broker._replace(host=ELSEWHERE, port=port) if broker.node_id == 2 else broker
            for broker in response.brokers
        ]
        return response._replace(brokers=tuple(brokers))

    cluster.change_next(ApiKey.METADATA, lie, times=100_000)


@contextmanager
def sidecar_of(cluster: FakeCluster, folder: Path, allowed: str) -> Iterator[Sidecar]:
    host, port = cluster.address(1)
    kafka = {"allowed.broker.hosts": allowed, "delivery.timeout.ms": "4000", "request.timeout.ms": "2000"}
    with Sidecar(folder, bootstrap_servers=f"{host}:{port}", kafka=kafka) as sidecar:
        yield sidecar


def node_2(sidecar: Sidecar) -> dict[str, Any]:
    nodes: Sequence[dict[str, Any]] = sidecar.api.get("/v1/status").json()["nodes"]
    return next((node for node in nodes if node["id"] == 2), {"last_error": None})


def test_a_broker_that_is_advertised_elsewhere_is_not_connected_to(tmp_path: Path) -> None:
    """Which hosts an entry of each kind holds is in tests/client/test_allowed_hosts.py."""
    allowed = "*.kafka.svc,127.0.0.1/32,10.0.0.0/8"
    with FakeCluster(brokers=2) as cluster, trap() as listener:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        cluster.move_leader("orders", 0, 1)
        cluster.move_leader("orders", 1, 2)
        advertise_elsewhere(cluster, listener.getsockname()[1])
        with sidecar_of(cluster, tmp_path, allowed) as sidecar:
            assert sidecar.produce("orders", [{"value": "x", "partition": 0}]).status_code == 200
            failed = sidecar.produce("orders", [{"value": "x", "partition": 1}])
            assert failed.is_error, failed.text
            refused = f"{ELSEWHERE} is not in allowed.broker.hosts"
            assert node_2(sidecar)["last_error"] == refused
            assert node_2(sidecar)["state"] == "disconnected"
            # Tried again and again by then, and logged once.
            attempts = sidecar.metric("pilotfish_broker_disconnects_total", broker="2", reason="forbidden")
            assert attempts is not None
            assert attempts > 1
            assert sidecar.log().count(f"(forbidden): {refused}") == 1
            assert not was_connected_to(listener)


def test_without_the_setting_it_is(tmp_path: Path) -> None:
    """Checks that the test above can fail."""
    with FakeCluster(brokers=2) as cluster, trap() as listener:
        cluster.create_topic("orders", partitions=1, replication_factor=2)
        cluster.move_leader("orders", 0, 2)
        advertise_elsewhere(cluster, listener.getsockname()[1])
        with sidecar_of(cluster, tmp_path, "") as sidecar:
            sidecar.produce("orders", [{"value": "x"}])
            wait_until(lambda: was_connected_to(listener), what="a connection elsewhere")
