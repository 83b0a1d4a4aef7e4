"""Puts a steered wall clock into a process; Python imports it at its start. See `__init__.py`."""

from __future__ import annotations

import mmap
import os
import time


def _steer(path: str) -> None:
    with open(path, "rb") as file:
        difference = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    true_time_ns = time.time_ns

    def time_ns() -> int:
        return true_time_ns() + int.from_bytes(difference[:], "little", signed=True)

    def seconds() -> float:
        return time_ns() / 1e9

    time.time_ns, time.time = time_ns, seconds


if "STEERED_CLOCK_DIFFERENCE" in os.environ:
    _steer(os.environ["STEERED_CLOCK_DIFFERENCE"])
