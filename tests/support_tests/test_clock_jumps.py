"""A process's wall clock jumps as the test says, and its other clocks don't."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.clock_jumps import ClockJumps, find_libfaketime
from tests.support.debian_packages import PackagesMissingError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM: Final = """
import os, sys, threading, time

for line in sys.stdin:
    threading.Event().wait(0.001)
    print(time.time(), time.monotonic(), os.stat(line.strip()).st_mtime, flush=True)
"""
#: Far more than a slow machine needs between two looks, far less than a jump.
_TOLERANCE_S: Final = 100.0


@pytest.mark.tools
def test_the_wall_clock_jumps_and_other_clocks_do_not(tmp_path: Path) -> None:
    clock = ClockJumps(tmp_path)
    looked_at = tmp_path / "file"
    looked_at.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clock.environment()},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    talk = process.stdin, process.stdout

    def looks() -> tuple[float, float, float]:
        talk[0].write(f"{looked_at}\n")
        talk[0].flush()
        wall_s, monotonic_s, written_s = map(float, talk[1].readline().split())
        return wall_s, monotonic_s, written_s

    def is_ahead(by_s: float) -> bool:
        return abs(looks()[0] - time.time() - by_s) < _TOLERANCE_S

    for difference_s in (0, 3_600, -3_600, -86_400_000, 0):
        clock.set(difference_s)
        wait_until(partial(is_ahead, difference_s), what=f"a clock that is {difference_s} s ahead")
        _, monotonic_s, written_s = looks()
        assert abs(monotonic_s - time.monotonic()) < _TOLERANCE_S
        assert written_s == looked_at.stat().st_mtime
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_an_installed_library_is_taken_first(tmp_path: Path) -> None:
    for root in ("system", "tools"):
        library = tmp_path / root / "usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
        library.parent.mkdir(parents=True)
        library.touch()
    assert (tmp_path / "system") in find_libfaketime(tmp_path / "tools", tmp_path / "system").parents
    assert (tmp_path / "tools") in find_libfaketime(tmp_path / "tools", tmp_path / "none").parents


def test_without_a_package_manager_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PackagesMissingError, match="libfaketime"):
        find_libfaketime(tmp_path, tmp_path)
