"""Brokers are stopped, restarted, and stopped again: the cause of a failure is of the second outage alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.coroutine_tests import run
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST
from tests.support.simulated_sidecar import SimulatedSidecar

if TYPE_CHECKING:
    import httpx

ALL = {1, 2, 3}
TIMEOUT_MS = 2_000


async def produce(sidecar: SimulatedSidecar) -> httpx.Response:
    path = f"/v1/topics/orders/records?timeout_ms={TIMEOUT_MS}"
    return await sidecar.ask("POST", path, step_ms=10, json={"records": [{"value": "x", "partition": 0}]})


async def check_outage(sidecar: SimulatedSidecar) -> None:
    """Stops all brokers, and checks the causes that produces then fail with."""
    sidecar.network.down = set(ALL)
    sidecar.network.disconnect_all()
    for times in range(1, 4):
        answer = await produce(sidecar)
        cause = answer.json()["cause"]
        assert (answer.status_code, cause["kafka_error"], cause["node"]) == (503, "NETWORK_EXCEPTION", None)
        assert cause["since_ms"] <= times * TIMEOUT_MS


def test_the_cause_of_a_second_outage_does_not_count_the_failures_of_the_first() -> None:
    async def story() -> None:
        sidecar = SimulatedSidecar()
        sidecar.producer._metadata.bootstrap([(HOST, FIRST_PORT + broker) for broker in range(3)])
        sidecar.controller.create_topic("orders", partitions=1, assignment=[[1, 2, 3]], replication_factor=3)
        assert (await produce(sidecar)).status_code == 200
        await check_outage(sidecar)
        sidecar.network.down = set()  # one bootstrap server is enough: nobody needs the others
        await sidecar.sleep(20_000)
        assert (await produce(sidecar)).status_code == 200
        await check_outage(sidecar)
        sidecar.close()

    run(story())
