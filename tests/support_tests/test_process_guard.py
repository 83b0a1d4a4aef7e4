"""What the guard watches ends with the session that started it, even when that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.process_guard import ProcessGuard
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).resolve().parents[2]

#: A session of its own that starts a sleeper under guard, says its pid, and hangs.
_SESSION = """
import sys
from pathlib import Path
from tests.support.process_guard import ProcessGuard
folder = Path(sys.argv[1]) / "data"
folder.mkdir()
guard = ProcessGuard()
guard.remove_at_end(folder)
print(guard.start(["sleep", "1000"], log=folder / "log", cwd=folder).pid, flush=True)
sys.stdin.read()
"""


def _is_gone(pid: int) -> Callable[[], bool]:
    def look() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return look


def test_a_killed_session_takes_its_processes_and_their_folder_with_it(tmp_path: Path) -> None:
    session = subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(tmp_path)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with session:
        assert session.stdout is not None
        sleeper = int(session.stdout.readline())
        os.kill(sleeper, 0)
        session.send_signal(signal.SIGKILL)
    wait_until(_is_gone(sleeper), what=f"process {sleeper} is gone")
    wait_until(lambda: not (tmp_path / "data").exists(), what="the folder is gone")


def test_closing_kills_what_still_runs_and_spares_what_was_let_go(tmp_path: Path) -> None:
    guard = ProcessGuard()
    watched = guard.start(["sleep", "1000"], log=tmp_path / "log", cwd=tmp_path)
    spared = guard.start(["sleep", "1000"], log=tmp_path / "log", cwd=tmp_path)
    try:
        guard.forget(spared)
        guard.close()
        guard.close()
        assert watched.wait(30) == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        spared.kill()
        spared.wait(30)


def test_a_process_of_somebody_elses_can_be_watched_too(tmp_path: Path) -> None:
    guard = ProcessGuard()
    with subprocess.Popen(["sleep", "1000"], cwd=tmp_path) as adopted:
        guard.adopt(adopted.pid)
        guard.close()
        assert adopted.wait(30) == -signal.SIGKILL


def test_what_a_process_says_is_appended_to_its_log(tmp_path: Path) -> None:
    guard = ProcessGuard()
    log = tmp_path / "log"
    for word in ("first", "second"):
        process = guard.start(["sh", "-c", f"echo {word}; pwd"], log=log, cwd=tmp_path)
        assert process.wait(30) == 0
        guard.forget(process)
    guard.close()
    assert log.read_text(encoding="utf-8").split() == ["first", str(tmp_path), "second", str(tmp_path)]
