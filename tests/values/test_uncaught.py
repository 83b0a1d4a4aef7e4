"""Unexpected exceptions: logged once with their stack, counted, and summed up."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import pytest

from client_core.uncaught import MAX_KINDS, SUM_UP_EVERY_MS, UncaughtErrors, is_interrupt

LOG = logging.getLogger("tests.uncaught")


@pytest.fixture
def uncaught(caplog: pytest.LogCaptureFixture) -> UncaughtErrors:
    caplog.set_level(logging.ERROR)
    return UncaughtErrors(LOG, "the loop")


def error_here(text: str = "a bug") -> Exception:
    """One that was raised in this place, always the same."""
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        return error


def error_there() -> Exception:
    try:
        raise RuntimeError("a bug")
    except RuntimeError as error:
        return error


def made_elsewhere(number: int) -> Exception:
    """One of a place of its own for each number."""
    try:
        exec(compile("\n" * number + "raise RuntimeError('a bug')", "<elsewhere>", "exec"))
    except RuntimeError as error:
        return error
    raise AssertionError("it raises")


def stacks_in(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.exc_info is not None for record in caplog.records)


def test_an_exception_that_comes_every_turn_is_logged_once_with_its_stack(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for turn in range(1_000):
        uncaught.report(error_here(f"turn {turn}"), now_ms=turn)
    assert (uncaught.count, uncaught.unreported) == (1_000, 999)
    assert [record.getMessage() for record in caplog.records] == ["Uncaught error in the loop"]
    assert "in error_here" in caplog.text


def test_another_exception_is_logged_with_its_own_stack_after_the_sum_of_the_first(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        uncaught.report(error_here(), now_ms=0)
    uncaught.report(error_there(), now_ms=0)
    assert stacks_in(caplog) == 2
    summed_up = caplog.records[1].getMessage()
    assert summed_up.startswith("Uncaught error in the loop again: RuntimeError at ")
    assert summed_up.endswith(", 2 times since it was last logged")
    assert "in error_there" in (caplog.records[2].exc_text or "")


def far_in(number: int, calls: int = 5) -> None:
    """Raises in a place of its own for each number, below calls that are always the same."""
    if calls:
        far_in(number, calls - 1)
    raise made_elsewhere(number)


def test_bugs_below_the_same_calls_are_several(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 1):
        with pytest.raises(RuntimeError) as raised:
            far_in(number)
        uncaught.report(raised.value, now_ms=0)
    assert stacks_in(caplog) == 2


def test_the_same_place_with_another_kind_of_error_is_another_bug(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in (KeyError, ValueError, KeyError):
        try:
            raise kind("orders")
        except LookupError as error:
            uncaught.report(error, now_ms=0)
        except ValueError as error:
            uncaught.report(error, now_ms=0)
    assert stacks_in(caplog) == 2


def test_two_bugs_in_turn_do_not_tell_their_stacks_again_and_again(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        uncaught.report(error_here(), now_ms=0)
        uncaught.report(error_there(), now_ms=0)
    assert stacks_in(caplog) == len(caplog.records) == 2


def test_repetitions_are_summed_up_once_a_minute(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for turn in range(11):
        uncaught.report(error_here(), now_ms=turn * SUM_UP_EVERY_MS // 5)
    assert [record.getMessage().rpartition(", ")[2] for record in caplog.records[1:]] == [
        "5 times since it was last logged"
    ] * 2


def test_repetitions_before_a_good_turn_are_summed_up_when_the_minute_is_over(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    uncaught.report(error_here(), now_ms=0)
    uncaught.report(error_here(), now_ms=1)
    uncaught.sum_up_when_due(SUM_UP_EVERY_MS - 1)
    assert len(caplog.records) == 1
    uncaught.sum_up_when_due(SUM_UP_EVERY_MS)
    assert (len(caplog.records), uncaught.unreported) == (2, 0)


def test_the_end_sums_up_unlogged_repetitions_and_logs_nothing_otherwise(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    uncaught.report(error_here(), now_ms=0)
    uncaught.report(error_here(), now_ms=1)
    uncaught.end(2)
    uncaught.end(3)
    assert len(caplog.records) == 2


def test_only_so_many_kinds_are_remembered_and_the_one_seen_longest_ago_is_logged_again(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_KINDS + 1):
        uncaught.report(made_elsewhere(number), now_ms=0)
    assert repr(uncaught) == f"<UncaughtErrors in the loop count={MAX_KINDS + 1} kinds={MAX_KINDS}>"
    before = stacks_in(caplog)
    uncaught.report(made_elsewhere(MAX_KINDS), now_ms=0)
    assert stacks_in(caplog) == before
    uncaught.report(made_elsewhere(0), now_ms=0)
    assert stacks_in(caplog) == before + 1


def test_an_error_that_was_never_raised_is_logged_too(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    uncaught.report(RuntimeError("handed over"), now_ms=0)
    uncaught.report(RuntimeError("handed over"), now_ms=SUM_UP_EVERY_MS * 2)
    uncaught.end(SUM_UP_EVERY_MS * 2)
    assert "RuntimeError at nowhere:0" in caplog.text


def test_it_keeps_nothing_alive_that_the_functions_of_a_stack_worked_on(uncaught: UncaughtErrors) -> None:
    class Large:
        pass

    def fail() -> weakref.ref[Large]:
        large = Large()
        try:
            raise RuntimeError("a bug")
        except RuntimeError as error:
            LOG.disabled = True  # what captures log records keeps them
            try:
                uncaught.report(error, now_ms=0)
            finally:
                LOG.disabled = False
        return weakref.ref(large)

    held = fail()
    gc.collect()
    assert held() is None


def test_of_very_many_bugs_the_one_seen_longest_ago_is_forgotten(
    uncaught: UncaughtErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (*range(MAX_KINDS), 0, MAX_KINDS, 0):
        uncaught.report(made_elsewhere(number), now_ms=0)
    assert stacks_in(caplog) == MAX_KINDS + 1
    uncaught.report(made_elsewhere(1), now_ms=0)
    assert stacks_in(caplog) == MAX_KINDS + 2


def test_a_signal_interrupts_the_main_thread_alone() -> None:
    found = [is_interrupt(KeyboardInterrupt())]
    thread = threading.Thread(target=lambda: found.append(is_interrupt(KeyboardInterrupt())))
    thread.start()
    thread.join()
    assert found == [True, False]
