"""Pausing a process: that nothing of it runs any more when the call returns, however busy the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack

from tests.support.paused_process import pause_process, thread_states
from tests.support.waiting import wait_until

_SPINS = ("/bin/sh", "-c", "echo spinning; while :; do :; done")


def test_nothing_of_a_paused_process_runs_any_more_though_it_waited_for_a_processor() -> None:
    with ExitStack() as at_the_end:
        processes = []
        for _ in range(2 * (os.cpu_count() or 1)):
            process = at_the_end.enter_context(subprocess.Popen(_SPINS, stdout=subprocess.PIPE))
            at_the_end.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"spinning\n"
            processes.append(process)
        for process in processes:
            pause_process(process.pid)
            assert thread_states(process.pid) == ["T"]
        resumed = processes[0]
        resumed.send_signal(signal.SIGCONT)
        wait_until(lambda: thread_states(resumed.pid) == ["R"], what="the process runs again")
