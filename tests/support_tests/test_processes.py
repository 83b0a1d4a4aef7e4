"""Processes that tests steer: they end with the session that started them and stop when they are paused.

A test can set their name resolution and their clock. They lose what was not fsynced. They can be shared.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from pipeline.java import JavaMissingError
from tests.support import power_cut
from tests.support.java import require_compiler
from tests.support.java_peer import Completed, JavaPeer, JavaPeerError, completed, longest_gap_ms
from tests.support.kafka_home import KafkaHome
from tests.support.paused_process import pause_process, thread_states
from tests.support.process_guard import ProcessGuard
from tests.support.shared_sidecar import SharedSidecar
from tests.support.steered_clock import SteeredClock
from tests.support.steered_dns import SteeredDns
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROOT: Final = Path(__file__).resolve().parents[2]


class Answering:
    """A process of Python that answers line by line."""

    def __init__(self, program: str, environment: Mapping[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=patient(30))

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: object) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.says()


# -- guarded processes end with the session that started them ------------------------------------------------

#: A session of its own that starts a sleeper under guard, says its pid, and hangs.
_SESSION: Final = """
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
    with Answering(_SESSION, {}, str(tmp_path)) as session:
        sleeper = int(session.says())
        os.kill(sleeper, 0)
        session.process.send_signal(signal.SIGKILL)
    wait_until(_is_gone(sleeper), what=f"process {sleeper} is gone")
    wait_until(lambda: not (tmp_path / "data").exists(), what="the folder is gone")


def test_closing_kills_what_still_runs_or_was_adopted_and_spares_what_was_let_go(tmp_path: Path) -> None:
    guard = ProcessGuard()
    sleeps = ["sleep", "1000"]
    watched, spared = (guard.start(sleeps, log=tmp_path / "log", cwd=tmp_path) for _ in range(2))
    adopted = subprocess.Popen(sleeps, cwd=tmp_path)
    try:
        guard.forget(spared)
        guard.adopt(adopted.pid)
        guard.close()
        guard.close()
        assert watched.wait(30) == adopted.wait(30) == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        for process in (spared, adopted):
            process.kill()
            process.wait(30)


def test_the_output_of_a_process_is_appended_to_its_log(tmp_path: Path) -> None:
    guard = ProcessGuard()
    log = tmp_path / "log"
    for word in ("first", "second"):
        process = guard.start(["sh", "-c", f"echo {word}; pwd"], log=log, cwd=tmp_path)
        assert process.wait(30) == 0
        guard.forget(process)
    guard.close()
    assert log.read_text(encoding="utf-8").split() == ["first", str(tmp_path), "second", str(tmp_path)]


_SPINS: Final = ("/bin/sh", "-c", "echo spinning; while :; do :; done")


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


# -- the clock and the names of another process --------------------------------------------------------------

_SAYS_TIME: Final = """
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
    with Answering(_SAYS_TIME, clock.environment()) as process:
        for difference_s in (0, 3_600, -3_600, -86_400_000, 0):
            clock.set(difference_s)
            *walls_s, monotonic_s, written_s = map(float, process.ask(looked_at).split())
            for wall_s in walls_s:
                assert abs(wall_s - time.time() - difference_s) < _TOLERANCE_S
            assert abs(monotonic_s - time.monotonic()) < _TOLERANCE_S
            assert written_s == looked_at.stat().st_mtime
    assert process.process.returncode == 0


_RESOLVES: Final = """
import asyncio, socket, sys

async def by_loop(host):
    return await asyncio.get_running_loop().getaddrinfo(host, 9092, type=socket.SOCK_STREAM)

for line in sys.stdin:
    host = line.strip()
    try:
        found = socket.getaddrinfo(host, 9092, type=socket.SOCK_STREAM)
        assert asyncio.run(by_loop(host)) == found
        print(*[sockaddr[0] for *_, sockaddr in found], flush=True)
    except socket.gaierror as error:
        print("EAI_NONAME" if error.errno == socket.EAI_NONAME else error, flush=True)
"""


def test_answers_to_a_name_change_fail_and_hang_while_the_process_runs_and_other_names_are_as_ever(
    tmp_path: Path,
) -> None:
    dns = SteeredDns(tmp_path)
    dns.answer("kafka.test", ["127.0.0.1", "127.0.0.2"])
    dns.fail("127.0.0.9")
    with Answering(_RESOLVES, dns.environment()) as process, ThreadPoolExecutor(1) as executor:
        assert process.ask("kafka.test") == "127.0.0.1 127.0.0.2"
        dns.answer("kafka.test", ["127.0.0.3"])
        assert process.ask("kafka.test") == "127.0.0.3"
        dns.fail("kafka.test")
        assert process.ask("kafka.test") == "EAI_NONAME"
        dns.answer("kafka.test", ["::1"])
        assert process.ask("kafka.test") == "::1"
        assert process.ask("127.0.0.8") == "127.0.0.8"
        assert process.ask("127.0.0.9") == "EAI_NONAME"
        dns.forget("127.0.0.9")
        assert process.ask("127.0.0.9") == "127.0.0.9"
        dns.hang("kafka.test")
        found = executor.submit(process.ask, "kafka.test")
        assert not found.done()
        dns.answer("kafka.test", ["127.0.0.1"])
        assert found.result(patient(30)) == "127.0.0.1"
        assert process.ask("kafka.test") == "127.0.0.1"
    dns.close()


# -- a power cut ---------------------------------------------------------------------------------------------

_WRITES: Final = """
import os, pathlib, runpy, sys
folder, shadow = map(pathlib.Path, sys.argv[1:3])
runpy.run_path(sys.argv[3])["_keep_what_is_fsynced"](shadow)
def write(name, *parts):
    with open(folder / name, "wb") as file:
        for data, is_synced in parts:
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
write("half", (b"kept", True), (b"lost", False))
write("void", (b"lost", False))
opened = os.open(folder, os.O_RDONLY)
os.fsync(opened)
write("nameless", (b"kept in vain", True))
os.kill(os.getpid(), 9)
"""


def test_a_power_cut_leaves_what_was_fsynced(tmp_path: Path) -> None:
    folder, shadow = tmp_path / "spool", tmp_path / "shadow"
    folder.mkdir()
    shadow.mkdir()
    command = [sys.executable, "-c", _WRITES, str(folder), str(shadow), power_cut.__file__]
    assert subprocess.run(command, check=False).returncode == -9
    assert len(list(folder.iterdir())) == 3
    power_cut.restore(folder, shadow)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"half": b"kept", "void": b""}


# -- a sidecar that tests share ------------------------------------------------------------------------------


@dataclass
class SomeBrokers:
    bootstrap_servers: str = "kafka.test:9092"
    disturbances: int = 0


class FakeSidecar:
    """One that runs as long as it is entered, or until it is terminated."""

    def __init__(
        self, folder: Path, *, bootstrap_servers: str, kafka: object, flags: object, limits: object
    ) -> None:
        self.given = (folder.name, bootstrap_servers, kafka, flags, limits)
        self.is_running = False

    def __enter__(self) -> Self:
        self.is_running = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_running = False


def test_a_shared_sidecar_is_started_again_only_where_it_ended_or_brokers_were_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.shared_sidecar.Sidecar", FakeSidecar)
    brokers, settings = SomeBrokers(), {"acks": "all"}
    with SharedSidecar(tmp_path, brokers, settings=settings, flags=("--a",), limits={"b": 1}) as shared:
        started: list[Any] = [shared.running(), shared.running()]
        started[0].is_running = False
        started.append(shared.running())
        brokers.disturbances += 1
        started += [shared.running(), shared.running()]
        assert [sidecar.is_running for sidecar in started] == [False, False, False, True, True]
        assert [sidecar.given for sidecar in started] == [
            (f"sidecar-{number}", "kafka.test:9092", settings, ("--a",), {"b": 1})
            for number in (1, 1, 2, 3, 3)
        ]
    assert not started[-1].is_running


# -- the Java producer beside a sidecar, and the longest time that it had no success -------------------------

#: Speaks as ChaosPeer.java does, and keeps each command.
_SPEAKS: Final = """
echo ready
while read -r word name value; do
  echo "$word $name $value" >> commands
  case $word in
    start) echo "0 1000 1100 ok 0"; echo "1 1000 1200 ok 0"; echo "0 1100 1900 TimeoutException -1";;
    mark) echo "mark $name 2000";;
    quit) echo "1 1800 1900 ok 1"; echo end;;
  esac
done
"""


def _peer(folder: Path, program: str) -> JavaPeer:
    """A peer whose Java is a shell's script, for a topic of two partitions."""
    java = folder / "java"
    modules = '[ "$1" = --list-modules ] && echo jdk.compiler@17 && exit'
    java.write_text(f"#!/bin/sh\n{modules}\ncd {folder}\n{program}", encoding="utf-8")
    java.chmod(0o755)
    return JavaPeer(KafkaHome(java, []), folder, "kafka.test:9092", "t", 2, 10, {"max.block.ms": "5"})


def test_a_peer_is_started_asked_and_ended(tmp_path: Path) -> None:
    with _peer(tmp_path, _SPEAKS) as peer:
        wait_until(lambda: len(peer.results()) == 3, what="what was completed", every_s=0.001)
        assert peer.mark() == 2_000
        assert peer.acknowledged() == 2
        assert peer.longest_gap_ms(1_000, 2_000) == 900
        peer.quit()
        peer.quit()
        assert peer.acknowledged() == 3
        assert peer.longest_gap_ms(1_000, 2_000) == 900
        assert peer.results()[2] == Completed(0, 1_100, 1_900, "TimeoutException", None)
    reported = (tmp_path / "commands").read_text().split("\n")
    assert [line.split()[0] for line in reported if line] == ["set", "start", "mark", "mark", "quit"]
    assert reported[0] == "set max.block.ms 5"


def test_a_peer_that_ends_by_itself_is_reported_with_its_complaint(tmp_path: Path) -> None:
    with pytest.raises(JavaPeerError, match="no such class"), _peer(tmp_path, "echo no such class >&2"):
        raise AssertionError("it is ready")


def test_a_line_is_a_record_that_was_acknowledged_or_failed() -> None:
    failed = Completed(0, 1000, 121_000, "TimeoutException", None)
    assert completed("2 1000 1005 ok 7\n") == Completed(2, 1000, 1005, None, 7)
    assert completed("0 1000 121000 TimeoutException -1\n") == failed


def test_the_longest_gap_is_the_worst_partitions_within_the_window() -> None:
    for name, successes, partitions, gap_ms in (
        ("the worst", [(0, 1_100), (1, 1_100), (0, 1_400), (1, 1_700), (0, 1_800)], 2, 600),
        ("until the window's end", [(0, 1_300)], 1, 700),
        ("from its beginning", [(0, 1_900)], 1, 900),
        ("a partition without success", [(0, number) for number in range(1_000, 2_000, 10)], 2, 1_000),
        ("in any order of the reports", [(0, 1_900), (0, 500), (0, 1_500), (0, 2_500)], 1, 500),
    ):
        assert longest_gap_ms(successes, partitions, 1_000, 2_000) == gap_ms, name


def test_a_runtime_without_a_compiler_is_said_so(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho java.base@17.0.15\n", encoding="utf-8")
    java.chmod(0o755)
    with pytest.raises(JavaMissingError, match="default-jdk-headless"):
        require_compiler(java)
