"""The machine's clocks, and the one that tests turn."""

from __future__ import annotations

import threading

from client_core.clock import FOREVER_MS, SystemClock
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient


def test_the_system_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.now_ms() for _ in range(1_000)]
    assert readings == sorted(readings)


def test_the_system_clock_gives_up_at_the_deadline() -> None:
    clock = SystemClock()
    condition = threading.Condition()
    started_ms = clock.now_ms()
    with condition:
        assert not clock.wait_for(condition, lambda: False, started_ms + 5)
    assert clock.now_ms() >= started_ms + 5


def test_the_system_clock_returns_as_soon_as_the_predicate_holds() -> None:
    clock = SystemClock()
    condition = threading.Condition()
    done: list[bool] = []

    def finish() -> None:
        with condition:
            done.append(True)
            condition.notify_all()

    thread = threading.Thread(target=finish)
    with condition:
        thread.start()
        assert clock.wait_for(condition, lambda: bool(done), FOREVER_MS)
    thread.join()


def test_a_past_deadline_is_not_waited_for_but_the_predicate_is_asked() -> None:
    clock = SystemClock()
    condition = threading.Condition()
    with condition:
        assert clock.wait_for(condition, lambda: True, 0)
        assert not clock.wait_for(condition, lambda: False, 0)


def test_a_mock_clock_does_not_advance_by_itself() -> None:
    clock = MockClock(now_ms=5)
    assert [clock.now_ms(), clock.now_ms()] == [5, 5]
    clock.advance(10)
    assert clock.now_ms() == 15


def test_a_mock_clock_ticks_at_each_reading_if_asked_to() -> None:
    clock = MockClock(auto_tick_ms=2)
    assert [clock.now_ms(), clock.now_ms()] == [2, 4]


def test_the_mock_wall_moves_with_the_mock_clock() -> None:
    clock = MockClock(wall_ms=1_000)
    clock.advance(7)
    assert clock.wall_ms() == 1_007


def test_advancing_a_mock_clock_lets_a_waiter_reach_its_deadline() -> None:
    clock = MockClock()
    condition = threading.Condition()
    answers: list[bool] = []
    waiting = threading.Event()

    def never() -> bool:
        waiting.set()
        return False

    def wait() -> None:
        with condition:
            answers.append(clock.wait_for(condition, never, 100))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(10)
    clock.advance(100)
    thread.join(patient(30))
    assert answers == [False]
    assert clock.waiters == 0
