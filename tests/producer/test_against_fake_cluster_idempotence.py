"""An idempotent producer over loopback: several batches in flight, lost answers, refused batches.

Whatever happens to one batch, the later ones are stored once and in order. The same holds at the end of a
seeded run of all faults at once.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core import Errors, MetadataResult, ProduceResult, RecordMetadata, Written
from client_core.protocol.api_keys import ApiKey
from client_core.testing import (
    Delay,
    Disconnect,
    FakeCluster,
    Garbage,
    HalfFrame,
    Hold,
    InPieces,
    Silence,
    WrongCorrelationId,
)
from tests.support.live_producer import live_producer, look_up, producing, submit
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core import KafkaProducer
    from tests.support.live_producer import Outcome


def value(n: int) -> bytes:
    """So long that, at batch.size 1, it has a batch for itself."""
    return b"%05d" % n + b"." * 60


def numbers(cluster: FakeCluster, partition: int) -> list[int]:
    return [int((record.value or b"")[:5]) for record in cluster.records("orders", partition)]


@pytest.mark.parametrize("known", [True, False], ids=["known producer", "unknown producer"])
@pytest.mark.parametrize("error", [Errors.INVALID_RECORD, Errors.UNKNOWN_SERVER_ERROR], ids=repr)
def test_a_batch_behind_a_refused_one_is_stored_once_though_its_answer_is_lost(
    error: Errors, known: bool
) -> None:
    """A broker that doesn't know the producer yet accepts the batches after the refused one."""
    with producing({"batch.size": 1}) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        if known:
            assert submit(producer, "orders", [value(99)]).offsets() == [0]
        cluster.fail_next_produces(error)
        hold = cluster.hold_next(ApiKey.PRODUCE)
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=True))
        refused = submit(producer, "orders", [value(0)])
        hold.wait_until_held()
        reported = [submit(producer, "orders", [value(n)]) for n in range(1, 4)]
        if known:  # else the first goes alone
            wait_until(lambda: producer.status().in_flight_batches == 4, what="all sent", every_s=0.002)
        hold.release()
        assert refused.error().error is error
        assert [one.offsets() for one in reported] == [[n + known] for n in range(3)]
    assert numbers(cluster, 0) == ([99, 1, 2, 3] if known else [1, 2, 3])


def test_a_batch_that_is_refused_after_its_first_answer_was_lost_leaves_those_behind_it_stored_once() -> None:
    """The first attempt is in the log, so the next batches are accepted; their answers are lost as well."""
    with producing({"batch.size": 1}) as (cluster, producer):
        assert submit(producer, "orders", [value(99)]).offsets() == [0]
        first = cluster.hold_next(ApiKey.PRODUCE)
        cluster.react_next(ApiKey.PRODUCE, Delay(0))  # the second attempt is answered
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=True))
        reported = [submit(producer, "orders", [value(n)]) for n in range(4)]
        first.wait_until_held()
        wait_until(lambda: producer.status().in_flight_batches == 4, what="four in flight", every_s=0.002)
        cluster.fail_next_produces(Errors.INVALID_RECORD)
        cluster.drop_connections(1)  # the first is stored, the others were never read
        (failure,) = reported[0].failures()
        assert failure.written is Written.UNKNOWN
        assert [one.offsets() for one in reported[1:]] == [[2], [3], [4]]
    assert numbers(cluster, 0) == [99, 0, 1, 2, 3]


def test_a_very_first_batch_that_must_be_retried_is_not_overtaken() -> None:
    """The broker doesn't know the producer yet: it would take the second batch, and never again the first."""
    with producing({"batch.size": 1}) as (cluster, producer):
        assert look_up(producer, "orders").result(MetadataResult).topic_errors == {}
        cluster.fail_next_produces(Errors.NOT_ENOUGH_REPLICAS)
        hold = cluster.hold_next(ApiKey.PRODUCE)
        reported = [submit(producer, "orders", [value(n)]) for n in range(6)]
        hold.wait_until_held()
        hold.release()
        assert [one.offsets() for one in reported] == [[n] for n in range(6)]


def test_batches_between_two_refused_ones_are_stored() -> None:
    with producing({"batch.size": 1}) as (cluster, producer):
        assert submit(producer, "orders", [value(99)]).offsets() == [0]
        hold = cluster.hold_next(ApiKey.PRODUCE)
        cluster.fail_next_produces(Errors.INVALID_RECORD)
        reported = [submit(producer, "orders", [value(n)]) for n in range(3)]
        hold.wait_until_held()
        wait_until(lambda: producer.status().in_flight_batches == 3, what="three in flight", every_s=0.002)
        cluster.fail_next_produces(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)  # what a broker would say
        cluster.fail_next_produces(Errors.INVALID_RECORD)
        hold.release()
        reported[0].failures()
        reported[2].failures()
        assert reported[1].offsets() == [1]
        assert submit(producer, "orders", [value(5)]).offsets() == [2]
    assert numbers(cluster, 0) == [99, 1, 5]


# -- everything at once --------------------------------------------------------------------------------------

PARTITIONS = 3


class Chaos:
    """A cluster with a fault at each step, and a caller that goes on meanwhile."""

    def __init__(self, cluster: FakeCluster, producer: KafkaProducer, random: Random) -> None:
        self.cluster = cluster
        self.producer = producer
        self.random = random
        self.dead: int | None = None
        self.holds: list[Hold] = []
        self.reported: dict[int, tuple[Outcome, Sequence[int], int]] = {}
        self.cancelled: list[Outcome] = []
        self.next = 0

    def step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.submit()
        if self.random.random() < 0.4:
            self.steer()
        if self.random.random() < 0.15:
            self.let_go()
            self.random.choice(list(self.reported.values()))[0].outcomes()

    def submit(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        mine = range(self.next, self.next + self.random.choice((1, 1, 3, 12)))
        self.next = mine.stop
        deadline_in_ms = self.random.choice((20_000, 20_000, 20_000, 30))
        reported = submit(
            self.producer,
            "orders",
            [value(n) for n in mine],
            partition=partition,
            deadline_in_ms=deadline_in_ms,
        )
        if self.random.random() < 0.05:
            reported.cancel()
            self.cancelled.append(reported)
        else:
            self.reported[mine.start] = (reported, mine, partition)

    def steer(self) -> None:
        random, cluster = self.random, self.cluster
        alive = [broker for broker in (1, 2, 3) if broker != self.dead]
        api = random.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS))
        match random.randrange(10):
            case 0:
                cluster.move_leader("orders", random.randrange(PARTITIONS), random.choice(alive))
            case 1:
                cluster.drop_connections(random.choice(alive))
            case 2 if self.dead is None:
                self.dead = random.choice(alive)
                cluster.kill(self.dead)
            case 3 if self.dead is not None:
                cluster.revive(self.dead, new_port=random.random() < 0.3)
                self.dead = None
            case 4:
                cluster.freeze_metadata(random.choice(alive))
            case 5:
                for broker in alive:
                    cluster.thaw_metadata(broker)
            case 6:
                self.holds.append(cluster.hold_next(api))
            case 7:
                retriable = [error for error in Errors if error.retriable]
                cluster.fail_next_produces(
                    random.choice([*retriable, Errors.INVALID_RECORD]), times=random.randrange(1, 4)
                )
            case 8:
                cluster.throttle_next(random.choice((ApiKey.PRODUCE, ApiKey.METADATA)), 5)
            case _:
                reactions = (
                    Delay(3),
                    Disconnect(applied=False),
                    Disconnect(applied=True),
                    Garbage(),
                    HalfFrame(then_close=True),
                    InPieces(7),
                    Silence(),
                    WrongCorrelationId(),
                )
                cluster.react_next(api, random.choice(reactions))

    def let_go(self) -> None:
        for hold in self.holds:
            hold.release()
        self.holds.clear()
        for broker in (
            1,
            2,
            3,
        ):  # a frozen leader that does not know that it leads would refuse all requests
            self.cluster.thaw_metadata(broker)

    def calm_down(self) -> None:
        self.let_go()
        if self.dead is not None:
            self.cluster.revive(self.dead)

    def judge(self) -> None:
        """Every request was reported once. Every acknowledged record is stored once, at its offset."""
        stored = {
            (record.partition, record.offset): int((record.value or b"")[:5])
            for record in self.cluster.records("orders")
        }
        everything = sorted(stored.values())
        assert everything == sorted(set(everything)), "a record is stored twice"
        for partition in range(PARTITIONS):
            in_order = numbers(self.cluster, partition)
            assert in_order == sorted(in_order)
        for reported, mine, partition in self.reported.values():
            outcomes = reported.result(ProduceResult).outcomes
            assert len(outcomes) == len(mine)
            for number, outcome in zip(mine, outcomes, strict=True):
                if isinstance(outcome, RecordMetadata):
                    assert outcome.partition == partition
                    if outcome.offset is None:  # an old duplicate: the broker knows no more where it is
                        assert number in everything
                    else:
                        assert stored[partition, outcome.offset] == number
                elif outcome.written is Written.NO:
                    assert number not in everything
        for reported in self.cancelled:  # one that was reported before it was cancelled is not reported again
            assert len(reported.results) <= 1


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_every_acknowledged_record_is_stored_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    settings: dict[str, str | int | bool] = {
        "batch.size": random.choice((1, 300, 16_384)),
        "buffer.memory": random.choice((20_000, 400_000)),
        "request.timeout.ms": 120,
        "max.in.flight.requests.per.connection": random.choice((1, 5, 5)),
        "linger.ms": random.choice((0, 0, 2)),
    }
    with FakeCluster(brokers=3, seed=seed) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            chaos = Chaos(cluster, producer, random)
            for _ in range(80):
                chaos.step()
            chaos.calm_down()
            producer.flush()
            for reported, _, _ in chaos.reported.values():
                reported.outcomes()
            wait_until(lambda: producer.status().buffer.batches == 0, what="all is settled", every_s=0.005)
            buffer = producer.status().buffer
            assert buffer.available_bytes == buffer.total_bytes
            assert producer.status().in_flight_batches == 0
        chaos.judge()
