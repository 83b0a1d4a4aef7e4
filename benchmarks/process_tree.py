"""Measures a command with all its children: CPU of the whole tree, wall time, the largest process.

A Spark job is a driver in Python, a JVM beside it and Python workers below that; the JVM may outlive the
driver by a second. So this process adopts orphaned descendants (PR_SET_CHILD_SUBREAPER, Linux) and waits for
all of them. The sums are the kernel's, with each process counted once. This process must start nothing else
while a command runs.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True, slots=True)
class TreeCost:
    """The cost of one run of a command."""

    cpu_s: float
    wall_s: float
    #: The largest resident memory of its largest process.
    peak_bytes: int


class CommandFailedError(RuntimeError):
    """The command ended with a code other than 0; the message has the end of its output."""


def run_tree(command: Sequence[str], log: Path) -> TreeCost:
    """Runs a command until it and all its descendants have ended. Raises CommandFailedError."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't adopt orphaned processes")
    begun_s = time.perf_counter()
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    cpu_s, peak_bytes, wall_s = 0.0, 0, 0.0
    while True:
        try:
            pid, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu_s += used.ru_utime + used.ru_stime
        peak_bytes = max(peak_bytes, used.ru_maxrss * 1024)
        if pid == started.pid:
            wall_s = time.perf_counter() - begun_s
            started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        raise CommandFailedError(f"{' '.join(command)} ended with {started.returncode}:\n{said}")
    return TreeCost(cpu_s, wall_s, peak_bytes)
