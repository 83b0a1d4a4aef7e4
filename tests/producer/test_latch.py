"""A latch: a caller waits until another thread sets it, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from client_core.latch import Latch
from tests.support.waiting import patient


def test_a_latch_releases_all_waiting_and_later_callers() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(0.001)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(latch.wait) for _ in range(4)]
        latch.set()
        latch.set()
        assert [each.result(patient(30)) for each in waiting] == [True] * 4
    assert latch.wait(0)
    assert repr(latch) == "<Latch is_set=True>"


class _NeverSet:
    """A lock that can never be acquired, and the timeout of each attempt."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def acquire(self, *, timeout: float) -> bool:
        self.waits_s.append(timeout)
        return False


@pytest.mark.parametrize(
    ("timeout_s", "waits_s"), [(1, [0.5, 0.5]), (0.7, [0.5, 0.2]), (0.05, [0.05]), (0, [])]
)
def test_a_latch_is_waited_for_in_pieces_that_a_signal_may_end(
    timeout_s: float, waits_s: list[float]
) -> None:
    """A signal that comes just before a wait does not end it, and is handled only after it."""
    latch, never = Latch(), _NeverSet()
    latch._lock = never  # type: ignore[assignment]
    assert not latch.wait(timeout_s)
    assert never.waits_s == pytest.approx(waits_s)
