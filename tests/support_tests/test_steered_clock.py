"""A process's wall clock jumps as the test says, and its other clocks don't."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.support.steered_clock import SteeredClock

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM: Final = """
import os, sys, time

for line in sys.stdin:
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), os.stat(line.strip()).st_mtime, flush=True)
"""
#: Far more than a slow machine needs between two looks, far less than a jump.
_TOLERANCE_S: Final = 100.0


def test_the_wall_clock_jumps_and_other_clocks_do_not(tmp_path: Path) -> None:
    clock = SteeredClock(tmp_path)
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
    for difference_s in (0, 3_600, -3_600, -86_400_000, 0):
        clock.set(difference_s)
        process.stdin.write(f"{looked_at}\n")
        process.stdin.flush()
        *walls_s, monotonic_s, written_s = map(float, process.stdout.readline().split())
        for wall_s in walls_s:
            assert abs(wall_s - time.time() - difference_s) < _TOLERANCE_S
        assert abs(monotonic_s - time.monotonic()) < _TOLERANCE_S
        assert written_s == looked_at.stat().st_mtime
    process.communicate(timeout=30)
    assert process.returncode == 0
