"""What a caller waits for until another thread says so, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from client_core.latch import Latch
from tests.support.waiting import patient


def test_a_latch_lets_all_go_on_who_wait_and_who_come_later() -> None:
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
