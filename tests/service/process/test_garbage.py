"""Full collections run when few requests wait or when one is long overdue; at the end all is restored."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from service.process.garbage import FEW, LOOK_S, OVERDUE_S, Garbage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Loop:
    """The used part of an event loop; its time is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        self.timers.append((self.now_s + delay_s, callback))
        return asyncio.Handle(callback, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def advance(self, seconds: float) -> None:
        """Turns the time forward, timer by timer."""
        end_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= end_s]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = end_s


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # tests/conftest.py froze the objects of the collection
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Rig:
    def __init__(self) -> None:
        self.loop, self.waiting, self.collections = Loop(), 0, 0
        self.garbage = Garbage(self.loop, lambda: self.waiting, self._collect)  # type: ignore[arg-type]

    def _collect(self) -> None:
        self.collections += 1


def test_the_objects_of_the_start_are_frozen_and_full_collections_are_no_longer_counted_out() -> None:
    rig = Rig()
    rig.garbage.begin()
    assert rig.collections == 0  # it would hold the start up, for next to nothing
    assert gc.get_freeze_count() > 1_000
    assert gc.get_threshold()[2] >= 1_000_000


def test_with_few_waiting_it_collects_each_time_it_looks() -> None:
    rig = Rig()
    rig.garbage.begin()
    rig.waiting = FEW
    rig.loop.advance(3 * LOOK_S)
    assert rig.collections == 3


def test_with_many_waiting_it_puts_the_collection_off_but_not_for_ever() -> None:
    rig = Rig()
    rig.garbage.begin()
    rig.waiting = FEW + 1
    rig.loop.advance(OVERDUE_S - LOOK_S)
    assert rig.collections == 0
    rig.loop.advance(LOOK_S)
    assert rig.collections == 1
    rig.waiting = 0
    rig.loop.advance(LOOK_S)
    assert rig.collections == 2


def test_at_the_end_the_interpreter_has_its_own_ways_again() -> None:
    before = gc.get_threshold()
    rig = Rig()
    rig.garbage.begin()
    rig.garbage.end()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_an_application_has_frozen_itself_stays_frozen() -> None:
    gc.freeze()
    rig = Rig()
    rig.garbage.begin()
    rig.garbage.end()
    assert gc.get_freeze_count() > 1_000


_LARGE_BLOCKS: Final = """
import sys
from service.process.garbage import map_large_blocks
from tests.soak.allocators import mapped_bytes

sys.exit(0) if mapped_bytes() is None else None
assert map_large_blocks(4 * 1024 * 1024)
del (large := [bytearray(16_000_000)])[:]
before = mapped_bytes()
small, large = bytearray(3_000_000), bytearray(5_000_000)
assert mapped_bytes() - before >= len(large), mapped_bytes() - before
assert mapped_bytes() - before < len(large) + len(small), mapped_bytes() - before
"""


def test_a_large_block_is_mapped_by_itself_also_after_a_larger_one_was_freed() -> None:
    subprocess.run([sys.executable, "-c", _LARGE_BLOCKS], check=True, cwd=Path(__file__).parents[3])
