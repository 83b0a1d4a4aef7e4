"""How long turns of the I/O thread work: what is counted, and that sleep is not."""

from __future__ import annotations

import pytest

from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selector import NetworkConfig, Selector
from client_core.producer.sender.io_thread import BOUNDS_MS, TurnTimes
from tests.support.mock_clock import MockClock
from tests.support.producer_rig import ProducerRig


def counts(rig: ProducerRig) -> dict[int | None, int]:
    """Turns by the bound that they stayed below, None for those beyond all, of which there were any."""
    work = rig.producer.loop_work()
    bounds: list[int | None] = [*work.bounds_ms, None]
    return {bound: count for bound, count in zip(bounds, work.counts, strict=True) if count}


def test_a_time_on_a_bound_is_counted_below_it() -> None:
    times = TurnTimes()
    for worked_ms in (0, BOUNDS_MS[0], BOUNDS_MS[0] + 1, BOUNDS_MS[-1], BOUNDS_MS[-1] + 1):
        times.add(worked_ms)
    work = times.read(failed_turns=0)
    assert (work.counts[0], work.counts[1], work.counts[-2], work.counts[-1]) == (2, 1, 1, 1)
    assert work.total_ms == 3 * BOUNDS_MS[0] - BOUNDS_MS[0] + 1 + 2 * BOUNDS_MS[-1] + 1
    assert repr(times) == f"<TurnTimes turns=5 total_ms={work.total_ms}>"


def test_bounds_grow() -> None:
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))


def test_a_turn_is_counted_with_what_it_did() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.io_thread.do(lambda _: rig.clock.advance(30))
    rig.turn()
    assert counts(rig) == {50: 1}
    assert rig.producer.loop_work().total_ms == 30


def test_the_sleep_of_a_turn_is_not_counted() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    rig.submit("orders", b"a")
    rig.client.advance_time_during_poll = True
    began_ms = rig.clock.now_ms()
    rig.turn()
    assert rig.clock.now_ms() - began_ms == 1_000
    assert counts(rig) == {1: 1}
    assert rig.producer.loop_work().total_ms == 0


def test_a_turn_that_fails_is_counted_as_failed_and_nowhere_else() -> None:
    rig = ProducerRig(topics={"orders": 1})

    def fail(_: int) -> None:
        raise RuntimeError("a bug")

    rig.producer.io_thread.do(fail)
    with pytest.raises(RuntimeError):
        rig.turn()
    assert counts(rig) == {}


def test_a_selector_knows_how_long_it_has_waited() -> None:
    clock = MockClock(auto_tick_ms=1)  # each look at it takes a millisecond
    selector = Selector(NetworkConfig(), PlaintextChannelBuilder(), clock)
    try:
        selector.wakeup()
        selector.poll(1_000)
        assert selector.waited_ms == 1
        selector.poll(0)  # asks and does not wait
        assert selector.waited_ms == 1
    finally:
        selector.close()


def test_only_the_sleep_of_this_turn_is_taken_from_its_time() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    rig.submit("orders", b"a")
    rig.client.advance_time_during_poll = True
    rig.turn()
    assert rig.client.waited_ms == 1_000
    rig.producer.io_thread.do(lambda _: rig.clock.advance(30))
    rig.turn()
    assert counts(rig) == {1: 1, 50: 1}
    assert rig.producer.loop_work().total_ms == 30
