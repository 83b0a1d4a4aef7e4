"""Hostile brokers cause no crash, no hang, no busy loop and no unbounded memory, whatever they answer.

There are dozens of runs in simulated time and a few over real sockets. The checks are in
tests/support/hostile_simulation.py and hostile_runs.py; `make fuzz` does the same for longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.hostile_runs import survive_over_sockets, without_log
from tests.support.hostile_simulation import memory_in_process, survive_in_process
from tests.support.live_producer import live_producer, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.protocol.messages.metadata_response import MetadataResponse


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    with without_log():
        yield


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_hostile_brokers_are_survived_and_produced_to_when_they_are_honest_again(first: int) -> None:
    for seed in range(first, first + 10):
        for idempotent in (True, False):
            survive_in_process(seed, idempotent=idempotent)


def test_hostile_brokers_are_not_all_fatal_to_an_idempotent_producer() -> None:
    """Otherwise the tests above would prove little: after a fatal refusal nothing else can go wrong."""
    ends = [survive_in_process(seed, idempotent=True, rate=0.3) for seed in range(1_000, 1_010)]
    assert sum(end.is_fatal for end in ends) <= 7  # about half of them are
    assert all(end.spoilt for end in ends)
    assert sum(end.acknowledged for end in ends) > 250


def test_brokers_that_always_lie_are_survived() -> None:
    for seed in range(5):
        survive_in_process(seed, rate=1.0)


def test_memory_does_not_grow_with_the_lies() -> None:
    rounds = memory_in_process(0, rounds=4)
    held = [now for now, _ in rounds]
    assert max(held) < 3_000_000
    assert max(held[2:]) < max(held[:2]) + 1_000_000
    assert max(peak for _, peak in rounds) < 40_000_000


@pytest.mark.parametrize("seed", range(6))
def test_hostile_brokers_are_survived_over_sockets(seed: int) -> None:
    survive_over_sockets(seed, idempotent=seed % 2 == 0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_hostile_brokers_that_demand_sasl_are_survived(mechanism: str) -> None:
    for seed in range(2):
        survive_over_sockets(seed, mechanism=mechanism)


# -- findings of the runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [{"producer_id": -1}, {"producer_epoch": -1}], ids=str)
def test_a_producer_id_that_no_batch_can_carry_is_asked_for_again(lie: dict[str, int]) -> None:
    """It failed every turn of the I/O thread from then on."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.change_next(ApiKey.INIT_PRODUCER_ID, lambda answer: answer._replace(**lie), times=2)
        with live_producer(cluster.bootstrap_servers) as producer:
            assert submit(producer, "orders", [b"a"]).offsets() == [0]


@pytest.mark.parametrize(("host", "port"), [("", 9_092), ("127.0.0.1", -1)])
def test_a_broker_without_an_address_is_none(host: str, port: int) -> None:
    """It failed every turn of the I/O thread for as long as it led a partition."""

    def without_address(answer: MetadataResponse) -> MetadataResponse:
        return answer._replace(
            brokers=tuple(b._replace(host=host, port=port) if b.node_id == 2 else b for b in answer.brokers)
        )

    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.change_next(ApiKey.METADATA, without_address, times=3)
        with live_producer(cluster.bootstrap_servers) as producer:
            reported = [submit(producer, "orders", [b"a"], partition=partition) for partition in range(2)]
            assert [one.offsets() for one in reported] == [[0], [0]]
