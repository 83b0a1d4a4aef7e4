"""SIGSTOP, and the wait until all threads are stopped.

The kernel hands the signal to one thread and stops the others when that one has seen it. On a busy machine it
waits for a processor meanwhile, and a server's other threads still take a connection and answer it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.waiting import wait_until

#: The state of a thread in /proc that has been stopped by a signal.
_STOPPED = "T"


def pause_process(pid: int) -> None:
    """Returns when no thread of the process runs any more; SIGCONT lets them go on. Linux only."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: set(thread_states(pid)) == {_STOPPED},
        what=f"process {pid} stopped",
        every_s=0.001,
        last_seen=lambda: thread_states(pid),
    )


def thread_states(pid: int) -> list[str]:
    """A letter for each thread, as in proc_pid_stat(5)."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended since the folder was read
        # The name is in brackets before the state, and may contain brackets itself.
        states.append(stat.rpartition(")")[2].split()[0])
    return states
