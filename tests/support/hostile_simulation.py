"""A whole KafkaProducer against hostile brokers in simulated time: a tenth of a second, the same each time.

`survive_in_process(seed)` raises AssertionError, with the seed, when a turn of the I/O thread raises, a
request is reported late or twice, a turn follows a turn for nothing, connections are made faster than the
backoff allows, memory is lost, or brokers that are honest again can't be produced to. No thread, no socket:
NetworkClient and all above it are the real ones, over HostileNetwork and a MockClock.
"""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.events import ProduceFinished
from client_core.testing.api_versions import KAFKA_2_1, KAFKA_4_3, drawn_versions
from tests.support.fake_cluster.hostile import Hostility
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.hostile_load import (
    BLOCK_MS,
    DEADLINE_MS,
    PARTITIONS,
    RECONNECT_MS,
    TOPIC,
    LookUp,
    Request,
    Survived,
    check_look_ups,
    check_reported,
    counts,
    failures,
    hostile_config,
    hostile_producer,
    is_fatal,
    look_up,
    submit,
)
from tests.support.hostile_network import HostileNetwork
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Sequence

_START_MS: Final = 1_000_000
#: The backoff's jitter takes a fifth of it away at most.
_SHORTEST_RECONNECT_MS: Final = 40
#: A turn of the I/O thread at its longest pause: a result may be late by so much.
_SLACK_MS: Final = 150
#: Longer than any pause that an int32 of milliseconds can ask for.
_AFTER_EVERY_THROTTLE_MS: Final = 26 * 24 * 60 * 60 * 1_000
#: How often a look-up goes along with a request.
_LOOK_UPS: Final = 0.1
#: Turns that brought nothing and took no time, one after the other: settling, expiring, sending, then sleep.
_MOST_IDLE_TURNS: Final = 12


class _EndedBatches:
    """An EventSink that counts the batches that came to an end."""

    def __init__(self) -> None:
        self.batches = 0

    def emit(self, event: object, /) -> None:
        self.batches += isinstance(event, ProduceFinished)


class Simulation:
    """One producer and its hostile brokers, turned by hand."""

    def __init__(self, seed: int, *, idempotent: bool, rate: float) -> None:
        self.seed = seed
        self.random = Random(f"simulation {seed}")
        self.clock = MockClock(now_ms=_START_MS)
        versions = (KAFKA_4_3, drawn_versions(self.random), KAFKA_4_3, KAFKA_2_1)[seed % 4]
        self.brokers = InProcessBrokers(3, versions=versions, seed=seed)
        self.brokers.state.controller.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        self.brokers.hostility = Hostility(seed, rate=rate)
        self.network = HostileNetwork(self.clock, self.brokers, self.random)
        restarts = bool(seed % 2)  # every other producer recovers from errors that are fatal in Java
        config = hostile_config({"enable.idempotence": idempotent, "idempotence.restart.enable": restarts})
        self.ended = _EndedBatches()
        bootstrap = (HOST, FIRST_PORT)
        self.producer = hostile_producer(config, self.clock, self.network, self.random, bootstrap, self.ended)
        self.requests: list[Request] = []
        self.look_ups: list[LookUp] = []
        self.turns = 0
        self._idle_turns = 0

    def turn(self) -> None:
        before = self._work_done()
        self.producer.io_thread.turn()
        self.turns += 1
        if self._work_done() != before:
            self._idle_turns = 0
        else:
            self._idle_turns += 1
        assert self._idle_turns <= _MOST_IDLE_TURNS, f"seed {self.seed}: {self._idle_turns} turns for nothing"

    def _work_done(self) -> tuple[int, ...]:
        """The values that change in a useful turn: time, network events, ended batches."""
        return self.clock.now_ms(), self.network.delivered, self.ended.batches

    def run_for(self, ms: int, *, submits: bool) -> None:
        """Turns until so much time has passed, with requests coming in."""
        until_ms = self.clock.now_ms() + ms
        next_ms = self.clock.now_ms()
        while (now_ms := self.clock.now_ms()) < until_ms:
            if now_ms >= next_ms:
                next_ms = min(now_ms + self.random.choice((1, 10, 50)), until_ms)
                self.network.after(next_ms - now_ms, self.network.wakeup)
                if submits:
                    self.requests.append(submit(self.producer, self.random))
                    if self.random.random() < _LOOK_UPS:
                        self.look_ups.append(look_up(self.producer, self.random))
                    self._idle_turns = 0
            self.turn()

    def run_until_reported(self) -> None:
        until_ms = self.clock.now_ms() + BLOCK_MS + DEADLINE_MS + _SLACK_MS
        asked: tuple[Request | LookUp, ...] = (*self.requests, *self.look_ups)
        while not all(one.reported for one in asked) and self.clock.now_ms() < until_ms:
            self.turn()

    def check_connects(self) -> None:
        """No node is tried again before its backoff is over."""
        last: dict[int, int] = {}
        for node_id, now_ms in self.network.connects:
            since_ms = now_ms - last.get(node_id, now_ms - RECONNECT_MS)
            assert since_ms >= _SHORTEST_RECONNECT_MS, (
                f"seed {self.seed}: node {node_id} was connected to again after {since_ms} ms"
            )
            last[node_id] = now_ms


def survive_in_process(seed: int, *, idempotent: bool = False, rate: float = 0.6) -> Survived:
    """Four simulated seconds of hostility, then honesty, one record more, and close."""
    simulation = Simulation(seed, idempotent=idempotent, rate=rate)
    producer, clock, brokers = simulation.producer, simulation.clock, simulation.brokers
    simulation.run_for(4_000, submits=True)
    simulation.run_until_reported()
    check_reported(seed, simulation.requests, _SLACK_MS)
    check_look_ups(seed, simulation.look_ups, _SLACK_MS)
    simulation.check_connects()
    per_second = simulation.turns / ((clock.now_ms() - _START_MS) / 1_000)
    assert per_second < 1_500, f"seed {seed}: {per_second:.0f} turns a second"

    hostility, brokers.hostility = brokers.hostility, None
    assert hostility is not None
    # False pauses and leader epochs may last for weeks. A new topic has none yet.
    clock.advance(_AFTER_EVERY_THROTTLE_MS)
    brokers.state.controller.create_topic("later", partitions=PARTITIONS, replication_factor=3)
    simulation.network.disconnect_all()  # a lie about versions holds as long as its connection
    # The last lie may be one that the next metadata request fails with, once.
    later_request = submit(producer, simulation.random, "later")
    simulation.requests.append(later_request)
    simulation.run_until_reported()
    late = [submit(producer, simulation.random, "later") for _ in range(3)]
    simulation.requests += late
    simulation.run_until_reported()
    was_fatal = is_fatal(producer)
    check_reported(seed, late, _SLACK_MS)
    acknowledged, failed = counts(late)
    assert was_fatal or not failed, (
        f"seed {seed}: {failed} records failed on honest brokers: {failures(late)}"
    )
    stored = sum(log.end_offset for (topic, _), log in brokers.state.logs.items() if topic == "later")
    acknowledged += counts([later_request])[0]
    assert stored == acknowledged, f"seed {seed}: {stored} records stored, {acknowledged} acknowledged"

    accumulator = producer._accumulator
    if not simulation.producer.io_thread.failed_turns and not was_fatal:
        simulation.run_for(1_000, submits=False)  # answers to batches that were given up
    assert not accumulator.has_incomplete, f"seed {seed}: a batch is not accounted for"
    assert producer._pool.available_bytes == producer._pool.total_bytes, f"seed {seed}: {producer._pool}"
    report = producer.close(0)  # the thread was never started: it is ended here
    assert not report.unacknowledged, f"seed {seed}: {report}"
    acknowledged, failed = counts(simulation.requests)
    return Survived(
        seed,
        hostility.spoilt_answers,
        acknowledged,
        failed,
        simulation.turns,
        len(simulation.network.connects),
        was_fatal,
    )


def memory_in_process(seed: int, *, rounds: int) -> Sequence[tuple[int, int]]:
    """What the client, its brokers and their network hold after each round of five simulated seconds.

    In bytes: what is held when nothing is under way, and the most that was held in the round. What the run
    itself keeps for its judgement is thrown away in between.
    """
    simulation = Simulation(seed, idempotent=False, rate=0.6)
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(rounds):
            tracemalloc.reset_peak()
            simulation.run_for(5_000, submits=True)
            simulation.run_until_reported()
            simulation.requests.clear()
            simulation.look_ups.clear()
            simulation.network.connects.clear()
            for log in simulation.brokers.state.logs.values():
                log.batches.clear()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
        simulation.producer.close(0)
    return sizes
