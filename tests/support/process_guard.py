"""Ends foreign processes, and removes their folders, when the test process that started them is gone.

A test session can be killed in a way that runs no `finally`. So a small process reads from a pipe whose other
end only the session holds. When the pipe ends, for whatever reason, it kills the processes that it watches.
It holds them by pidfd where the system has it, so a process id that was reused meanwhile is never hit. It
looks for nothing by name.

    guard = ProcessGuard() broker = guard.start(["java", ...], log=path, cwd=folder)     # a Popen; watched
    before its first instruction guard.forget(broker)                                          # after it was
    reaped guard.close(); or just die

The child waits for one line on its stdin before it becomes the wanted program: it can't outlive a session
that died between the start and the watching. Used by kraft.py; any thread. POSIX only, as Kafka's scripts
are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Final

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Becomes the program named after it when a line comes; ends if the session is gone before.
_WAIT_FOR_THE_WORD: Final = ("/bin/sh", "-c", 'read -r word && exec "$@"', "guarded")


class ProcessGuard:
    """Starts processes that don't outlive this one. One lock; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the session; the guard ends when its pipe does
        )

    def start(self, command: Sequence[str], *, log: Path, cwd: Path) -> subprocess.Popen[bytes]:
        """Starts a program under guard; what it says is appended to the log."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*_WAIT_FOR_THE_WORD, *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                start_new_session=True,
            )
        self._report(f"watch {process.pid}")
        if process.stdin is not None:
            process.stdin.write(b"go\n")
            process.stdin.close()
        return process

    def adopt(self, pid: int) -> None:
        """Has a process that a guarded one started end with this one too, as a container's first process."""
        self._report(f"watch {pid}")

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Stops watching a process that has ended."""
        self._report(f"forget {process.pid}")

    def remove_at_end(self, folder: Path) -> None:
        """Removes a folder after everything watched was killed."""
        self._report(f"remove {folder}")

    def close(self) -> None:
        """Ends what is still watched, removes the folders, and waits until that is done. Idempotent."""
        with self._lock:
            if self._guard.stdin is not None and not self._guard.stdin.closed:
                self._guard.stdin.close()
            self._guard.wait(timeout=patient(30))

    def _report(self, line: str) -> None:
        with self._lock:
            if self._guard.stdin is None:
                raise RuntimeError("the guard has no pipe")
            self._guard.stdin.write(f"{line}\n".encode())
            self._guard.stdin.flush()


def _signal_target(pid: int) -> int | None:
    """A handle on exactly this process; None when it is gone, or the system has no such handles."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill(pid: int, pidfd: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        elif not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGKILL)


def watch(orders: IO[str]) -> None:
    """Takes orders until they end, then kills and removes. The guard's whole life."""
    watched: dict[int, int | None] = {}
    folders: list[str] = []
    for order in orders:
        verb, _, what = order.rstrip("\n").partition(" ")
        if verb == "watch":
            watched[int(what)] = _signal_target(int(what))
        elif verb == "forget":
            pidfd = watched.pop(int(what), None)
            if pidfd is not None:
                os.close(pidfd)
        elif verb == "remove":
            folders.append(what)
    for pid, pidfd in watched.items():
        _kill(pid, pidfd)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin)
