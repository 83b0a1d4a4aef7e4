"""A whole KafkaProducer against hostile brokers over real sockets, and many such runs.

`survive_over_sockets(seed)` takes some tenths of a second, with the real I/O thread and Selector. It checks
the same rules as hostile_simulation.py, as far as real time allows. `python -m
tests.support.fake_cluster.hostile` runs `run_many`.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.clock import SystemClock
from client_core.network.channel_builder import security_channel_builder
from client_core.network.selector import NetworkConfig, Selector
from client_core.network.transport_layer import open_socket
from client_core.testing.cluster import FakeCluster
from client_core.testing.sasl import SaslDemand
from tests.support.fake_cluster.hostile import Hostility
from tests.support.hostile_load import (
    BLOCK_MS,
    DEADLINE_MS,
    PARTITIONS,
    TOPIC,
    Request,
    Survived,
    check_reported,
    counts,
    failures,
    hostile_config,
    hostile_producer,
    is_fatal,
    submit,
)
from tests.support.hostile_simulation import survive_in_process
from tests.support.waiting import patient

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from client_core import KafkaProducer
    from client_core.clock import Clock

_SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "request.timeout.ms": 120,
    "delivery.timeout.ms": 600,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 40,
    "metadata.max.age.ms": 100,
    "metadata.recovery.rebootstrap.trigger.ms": 500,
}
#: Three nodes, each after 8 ms of backoff at the least; a machine that is busy makes it fewer.
_MOST_CONNECTS_A_SECOND: Final = 400
#: A turn for each request, answer, end and pause; thousands in half a second would be a loop.
_MOST_TURNS: Final = 20_000
#: How late a request may be answered on a busy machine.
_LATE_MS: Final = patient(10_000)
_LONGEST_CLOSE_S: Final = patient(20.0)
#: A busy machine may fail honest records by their deadline of 600 ms; a producer that is harmed fails all.
_HEALS_S: Final = patient(60.0)


class _OurPorts:
    """Opens sockets to the cluster alone: what hostile brokers name may be anybody's on this machine."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._ports = {cluster.address(broker_id)[1] for broker_id in cluster.broker_ids}
        self.connects = 0

    def __call__(
        self, address: tuple[str, int], send_bytes: int, receive_bytes: int
    ) -> tuple[socket.socket, bool]:
        self.connects += 1
        if address[1] in range(1, 65_536) and address[1] not in self._ports:
            raise ConnectionRefusedError("not one of ours")
        return open_socket(address, send_bytes, receive_bytes)


def survive_over_sockets(
    seed: int, *, idempotent: bool = False, seconds: float = 0.4, mechanism: str | None = None
) -> Survived:
    """A moment of hostility on real sockets, then honesty, some records more, and close.

    With a SASL mechanism the brokers demand it, and lie in that as well.
    """
    random, clock = Random(f"sockets {seed}"), SystemClock()
    with FakeCluster(brokers=3, seed=seed) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        security = {} if mechanism is None else _demand_sasl(cluster, mechanism)
        ports = _OurPorts(cluster)
        idempotence = {"enable.idempotence": idempotent, "idempotence.restart.enable": bool(seed % 2)}
        producer = _producer(cluster, ports, clock, random, {**security, **idempotence})
        hostility = Hostility(seed, lasting=False)
        cluster.disturb(hostility)
        producer.start()
        try:
            requests = _submit_for(seconds, producer, random)
            check_reported(seed, requests, _LATE_MS)
            turns = producer.io_thread.turns
            assert turns < _MOST_TURNS, f"seed {seed}: {turns} turns"
            most_connects = _MOST_CONNECTS_A_SECOND * (1 + seconds)
            assert ports.connects < most_connects, f"seed {seed}: {ports.connects} connections"
            requests += _produce_to_honest_brokers(seed, cluster, producer, random)
        finally:
            cluster.disturb(None)
            _close(seed, producer)
        acknowledged, failed = counts(requests)
        return Survived(
            seed, hostility.spoilt_answers, acknowledged, failed, turns, ports.connects, is_fatal(producer)
        )


def _demand_sasl(cluster: FakeCluster, mechanism: str) -> dict[str, str | int | bool]:
    """Has every connection authenticate, again after a tenth of a second; the client's settings for it."""
    cluster.demand_sasl(SaslDemand((mechanism,), passwords={"alice": "wonder"}, session_lifetime_ms=100))
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }


def _producer(
    cluster: FakeCluster,
    ports: _OurPorts,
    clock: Clock,
    random: Random,
    settings: Mapping[str, str | int | bool],
) -> KafkaProducer:
    config = hostile_config({**_SETTINGS, **settings})
    channels = security_channel_builder(
        config.security, client_id=config.client_id, clock=clock, random=random
    )
    selector = Selector(NetworkConfig(), channels, clock, ports)
    return hostile_producer(config, clock, selector, random, cluster.address(1))


def _submit_for(seconds: float, producer: KafkaProducer, random: Random) -> list[Request]:
    """Submits at a caller's pace for so long, and waits until all requests are reported."""
    requests = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        requests.append(submit(producer, random))
        _pause(producer, random.uniform(0.0, 0.02))
    _wait_until_reported(producer, requests)
    return requests


def _produce_to_honest_brokers(
    seed: int, cluster: FakeCluster, producer: KafkaProducer, random: Random
) -> list[Request]:
    """Ends the hostility; its effects on the producer must not last."""
    cluster.disturb(None)
    for broker_id in cluster.broker_ids:  # a lie about versions holds as long as its connection
        cluster.drop_connections(broker_id)
    # A new topic: a client that has seen a leader epoch of 2^31 - 1 accepts no smaller one of that topic.
    cluster.create_topic("later", partitions=PARTITIONS, replication_factor=3)
    # The last lie may be one that the next metadata request fails with, once.
    later_request = submit(producer, random, "later")
    _wait_until_reported(producer, [later_request])
    late: list[Request] = []
    until_s = time.monotonic() + _HEALS_S
    while True:  # on a busy machine honest answers may come too late, but not for ever
        three = [submit(producer, random, "later") for _ in range(3)]
        _wait_until_reported(producer, three)
        check_reported(seed, three, _LATE_MS)
        late += three
        _, failed = counts(three)
        if not failed or is_fatal(producer):
            break
        assert time.monotonic() < until_s, f"seed {seed}: {failed} records failed: {failures(three)}"
    acknowledged, unsure = counts([later_request, *late])
    stored = len(cluster.records("later"))
    # On a busy machine an honest answer may come too late. Then there may be records without a reported
    # success, and twice those of a plain producer. In simulated time (hostile_simulation.py) both are equal.
    is_idempotent = producer._transaction_manager is not None
    most = acknowledged + unsure if is_idempotent else stored
    assert acknowledged <= stored <= most, f"seed {seed}: {stored} stored, {acknowledged} acknowledged"
    return [later_request, *late]


def _close(seed: int, producer: KafkaProducer) -> None:
    began_s = time.monotonic()
    producer.close(2_000)
    took_s = time.monotonic() - began_s
    assert took_s < _LONGEST_CLOSE_S, f"seed {seed}: close took {took_s:.1f} s"
    assert producer.io_thread.failed_turns == 0, f"seed {seed}: a turn failed, see the log"
    assert producer.status().state == "closed", f"seed {seed}: {producer.io_thread}"


def _pause(producer: KafkaProducer, seconds: float) -> None:
    """Lets the other threads run. A caller's pace, not a wait for anything."""
    pause = producer.io_thread._pause
    with pause:
        pause.wait(seconds)


def _wait_until_reported(producer: KafkaProducer, requests: Sequence[Request]) -> None:
    """Waits as long as they may take, and some more."""
    until_s = time.monotonic() + (BLOCK_MS + DEADLINE_MS + _LATE_MS) / 1_000
    while not all(request.reported for request in requests) and time.monotonic() < until_s:
        _pause(producer, 0.002)


@contextmanager
def without_log() -> Iterator[None]:
    """Drops thousands of justified log lines, which would not explain a failure."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_many(seeds: Iterable[int], *, sockets: bool) -> int:
    """Runs seed after seed, says what was found; 1 if anything was."""
    survive = survive_over_sockets if sockets else survive_in_process
    found = ran = 0
    began_s = time.monotonic()
    for seed in seeds:
        for idempotent in (False, True):
            ran += 1
            try:
                with without_log():
                    survive(seed, idempotent=idempotent)
            except Exception as error:  # noqa: BLE001 -- that is what it looks for
                found += 1
                print(
                    f"seed {seed} idempotent={idempotent}: {type(error).__name__}: {error}", file=sys.stderr
                )
    print(f"{ran} runs in {time.monotonic() - began_s:.1f} s, {found} not survived")
    return 1 if found else 0
