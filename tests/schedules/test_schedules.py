"""A producer keeps its promises whichever thread goes on and wherever it pauses (ORD-01..03, schedule.py).

A few seeds in `make test`, a thousand and all planted faults in `make test-long`. `python -m tests.schedules`
runs any number.
"""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from client_core.producer.results.producer_record import ProducerRecord
from tests.mutants.behaviour.mutant import ROOT, copied_tree, environment_of, mutated, planted
from tests.schedules.__main__ import FOUND_A_FAULT
from tests.schedules.faults import FAULTS
from tests.schedules.schedule import Ran, run
from tests.schedules.turns import TurnClient, TurnClock, Turns
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.mutants.behaviour.mutant import Mutant

_SHORT = range(24)
_LONG = range(24, 1_024)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nobody reads the warnings of a thousand producers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def all_reached(ran: Iterable[Ran]) -> Counter[str]:
    return sum((one.counts for one in ran), Counter[str]())


@pytest.mark.behaviour("ORD-01", "ORD-02", "ORD-03")
def test_order_flush_callbacks_memory_and_the_report_hold_in_some_schedules() -> None:
    reached = all_reached(map(run, _SHORT))
    for what in ("blocked sends", "parked", "flushes that waited", "preempted", "flushed", "cancelled"):
        assert reached[what] > 2, reached


def test_order_flush_callbacks_memory_and_the_report_hold_in_a_thousand_schedules() -> None:
    reached = all_reached(map(run, _LONG))
    for what in ("refused", "calls in callbacks", "closed in a callback", "settled before the close"):
        assert reached[what] > 2, reached


def test_a_seed_is_the_same_schedule_each_time() -> None:
    def traced(seed: int) -> tuple[list[str], Ran]:
        said: list[str] = []
        return said, run(seed, said.append)

    assert traced(3) == traced(3)
    assert traced(3) != traced(4)


# -- planted faults ------------------------------------------------------------------------------------------


def test_every_fault_applies_to_the_present_tree_and_changes_it() -> None:
    for fault in FAULTS:
        for file, text in mutated(fault, ROOT).items():
            original = (ROOT / file).read_text(encoding="utf-8")
            assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(original)), fault.name


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied_tree() as copied:
        yield copied


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_schedules_find_a_planted_fault(fault: Mutant, tree: Path) -> None:
    with planted(fault, tree):
        command = [sys.executable, "-m", "tests.schedules", "--until-broken"]
        ran = subprocess.run(command, cwd=tree, env=environment_of(tree), capture_output=True, check=False)
    assert ran.returncode == FOUND_A_FAULT, ran


# -- the turns -----------------------------------------------------------------------------------------------


def test_only_one_thread_runs_and_it_pauses_where_it_says() -> None:
    turns, order = Turns(), list[str]()

    def work(name: str) -> None:
        for _ in range(2):
            order.append(name)
            turns.pause()

    TurnClock(turns, now_ms=0)
    first, second = (turns.start(name, lambda name=name: work(name)) for name in ("a", "b"))  # type: ignore[misc]
    for actor in (first, second, second, first, second, first):
        turns.give(actor)
    assert order == ["a", "b", "b", "a"]
    assert first.is_over
    assert second.is_over


def test_what_a_thread_raises_is_raised_where_the_turn_was_given() -> None:
    def fail() -> None:
        raise LookupError("found by a check")

    turns = Turns()
    with pytest.raises(LookupError, match="found by a check"):
        turns.give(turns.start("fails", fail))


def test_a_wait_by_the_clock_ends_by_its_notification_or_at_its_deadline_and_not_before() -> None:
    turns = Turns()
    clock = TurnClock(turns, now_ms=0)
    condition, results = threading.Condition(), list[bool]()
    is_true = False

    def wait(deadline_ms: int) -> None:
        with condition:
            results.append(clock.wait_for(condition, lambda: is_true, deadline_ms))

    notified, late = turns.start("notified", lambda: wait(100)), turns.start("late", lambda: wait(10))
    turns.give(notified)
    turns.give(late)
    clock.advance(10)
    assert late.can_run(clock.now_ms())
    turns.give(late)
    is_true = True
    assert not notified.can_run(clock.now_ms()), "nobody has notified it"
    with condition:
        condition.notify_all()
    assert notified.can_run(clock.now_ms())
    turns.give(notified)
    assert results == [False, True]


def test_a_thread_that_pauses_between_lines_holds_no_lock() -> None:
    """Wherever it pauses in a send, another thread can send, and take each lock."""
    for lines in range(1, 60):
        turns = Turns()
        clock = TurnClock(turns, now_ms=1_000_000)
        rig = ProducerRig(topics={"orders": 1}, clock=clock)

        def send(rig: ProducerRig = rig) -> None:
            rig.producer.send(ProducerRecord("orders", b"a", partition=0))

        sends = [turns.start(f"sender {n}", send) for n in range(2)]
        turns.give(sends[0], lines=lines)
        turns.give(sends[1])
        assert sends[1].is_over
        while not sends[0].is_over:
            turns.give(sends[0])


def test_a_producer_that_several_threads_close_stays_closed_wherever_one_of_them_pauses() -> None:
    def close_twice(lines: int) -> bool:
        """Returns whether the first close was paused after so many lines."""
        turns = Turns()
        clock = TurnClock(turns, now_ms=1_000_000)
        rig = ProducerRig(topics={"orders": 1}, clock=clock, client_type=TurnClient)
        assert isinstance(rig.client, TurnClient)
        rig.client.turns = turns
        clock.at_next_reading = lambda: turns.adopt("io")
        rig.producer.start()
        turns.wait_for_pause()

        def close() -> None:
            rig.producer.close()

        first = turns.start("first", close)
        turns.start("second", close)
        turns.give(first, lines=lines)
        was_paused = first.is_ready is None and not first.is_over
        for actor in (*turns.actors[::2], turns.actors[0], turns.actors[2], first) * 3:
            if actor.can_run(clock.now_ms()):
                turns.give(actor)
        assert all(actor.is_over for actor in turns.actors), turns.actors
        assert rig.producer.status().state == "closed"
        return was_paused

    assert sum(map(close_twice, range(1, 90))) > 20
