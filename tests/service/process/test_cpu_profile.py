"""CPU time by stack: which stack gets it, and what of it is bounded. No values are shown."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from service.process.cpu_profile import (
    MAX_CALLS,
    MAX_STACKS,
    NOT_SAMPLED,
    OTHER_STACKS,
    OUTER_CALLS,
    RUNNING_NS,
    Call,
    Profile,
    Profiler,
    Thread,
    other_threads,
    thread_clock,
    thread_cpu_ns,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

MS = 1_000_000


@dataclass
class FakeCall:
    f_code: CodeType
    f_back: Call | None = None


def call(*functions: str, file: str = "app.py") -> Call:
    """The innermost of these calls; the outermost is named first."""
    innermost: Call | None = None
    for function in functions:
        code = (lambda: None).__code__.replace(co_filename=file, co_qualname=function)
        innermost = FakeCall(code, innermost)
    assert innermost is not None
    return innermost


class FakeProcess:
    """Threads by native id, each with its CPU clock. `runs_ns` is what each uses within a sample's moment."""

    def __init__(self) -> None:
        self.threads: dict[int, Thread] = {}
        self.used_ns: dict[int, int] = {}
        self.runs_ns: dict[int, int] = {}
        self.now_ns = 0
        self.profile = Profile(self.threads.values, self.clock_ns, lambda: self.now_ns, self.let_others_run)

    def clock_ns(self, native_id: int) -> int:
        if native_id not in self.used_ns:
            raise OSError("no such thread")
        return self.used_ns[native_id]

    def let_others_run(self) -> None:
        for native_id, ns in self.runs_ns.items():
            self.used_ns[native_id] += ns

    def at(self, native_id: int, name: str, *functions: str) -> None:
        self.threads[native_id] = Thread(native_id, name, call(*functions))
        self.used_ns.setdefault(native_id, 0)

    def sample(self, *, after_ms: int = 10) -> None:
        self.now_ns += after_ms * MS
        self.profile.sample()

    def lines(self) -> list[str]:
        return self.profile.folded().splitlines()


@pytest.fixture
def process() -> FakeProcess:
    """One thread that runs, one that waits, and the first sample."""
    process = FakeProcess()
    process.at(1, "main", "serve", "work")
    process.at(2, "idle", "serve", "wait")
    process.sample()
    process.runs_ns[1] = MS
    return process


def test_a_thread_that_ran_counts_for_its_calls_in_microseconds_and_one_that_waits_does_not(
    process: FakeProcess,
) -> None:
    process.used_ns[1] += 3 * MS
    process.sample()
    assert process.lines() == ["main;app.py:serve;app.py:work 4000"]


def test_what_a_thread_used_before_the_first_sample_does_not_count() -> None:
    process = FakeProcess()
    process.at(1, "main", "work")
    process.used_ns[1] = 5 * MS
    process.sample()
    assert process.lines() == []


def test_what_was_used_between_samples_counts_where_the_thread_is_next_found_running(
    process: FakeProcess,
) -> None:
    process.runs_ns.clear()
    process.at(1, "main", "serve", "wait")
    process.used_ns[1] += 3 * MS
    process.sample()
    assert process.lines() == [f"main;{NOT_SAMPLED} 3000"]
    process.at(1, "main", "serve", "work")
    process.runs_ns[1] = MS
    process.sample()
    assert process.lines() == ["main;app.py:serve;app.py:work 4000"]


def test_a_call_gets_no_more_than_the_time_since_the_last_sample(process: FakeProcess) -> None:
    process.runs_ns.clear()
    for _ in range(5):
        process.used_ns[1] += 9 * MS
        process.sample()
    process.runs_ns[1] = MS
    process.sample(after_ms=12)
    assert process.lines() == [f"main;{NOT_SAMPLED} 34000", "main;app.py:serve;app.py:work 12000"]


def test_a_thread_that_only_waits_for_the_interpreters_lock_is_not_found_running(
    process: FakeProcess,
) -> None:
    process.runs_ns[1] = RUNNING_NS - 1000
    process.sample()
    assert process.lines() == [f"main;{NOT_SAMPLED} 19"]


def test_threads_begin_and_end_while_a_profile_is_taken(process: FakeProcess) -> None:
    process.at(3, "late", "work")
    process.runs_ns[3] = MS
    process.sample()  # it was not there at the first look
    process.runs_ns[3] = 0
    process.used_ns[3] += 2 * MS
    process.sample()
    del process.used_ns[3], process.runs_ns[3]  # still among the threads, when its clock is gone
    process.sample()
    assert f"late;{NOT_SAMPLED} 2000" in process.lines()
    del process.threads[3]
    process.sample()
    assert f"late;{NOT_SAMPLED} 2000" in process.lines()


def test_a_new_thread_with_the_id_of_an_ended_one_takes_nothing_away(process: FakeProcess) -> None:
    process.used_ns[1] += 3 * MS
    process.sample()
    process.used_ns[1] = 0
    process.sample()
    assert process.lines() == ["main;app.py:serve;app.py:work 4000"]


def test_of_a_deep_stack_the_innermost_calls_are_shown(process: FakeProcess) -> None:
    process.at(1, "main", "outermost", *("recursive" for _ in range(MAX_CALLS - 1)), "innermost")
    process.sample()
    (line,) = process.lines()
    calls = line.split(";")
    assert calls[:3] == ["main", OUTER_CALLS, "app.py:recursive"]
    assert calls[-1] == "app.py:innermost 1000"
    assert len(calls) == MAX_CALLS + 2


def test_beyond_so_many_stacks_the_time_of_others_is_one_line(process: FakeProcess) -> None:
    for number in range(MAX_STACKS + 3):
        process.at(1, "main", f"work{number}")
        process.sample()
    lines = process.lines()
    assert len(lines) == MAX_STACKS + 1
    assert lines[0] == f"{OTHER_STACKS} 3000"


def test_no_name_breaks_the_format(process: FakeProcess) -> None:
    process.threads[1] = Thread(1, "a;b\nc", call("f", file="x;y.py"))
    process.sample()
    assert process.lines() == ["a_b_c;x_y.py:f 1000"]


def test_files_are_named_below_the_folder_that_they_are_imported_from() -> None:
    process = FakeProcess()
    process.threads[1] = Thread(1, "main", call("loads", file=threading.__file__))
    process.used_ns[1] = 0
    process.sample()
    process.runs_ns[1] = MS
    process.sample()
    assert process.lines() == ["main;threading.py:loads 1000"]


def test_without_clocks_of_threads_the_time_that_passes_counts() -> None:
    process = FakeProcess()
    process.threads[2] = Thread(2, "idle", call("wait"))

    def pass_by() -> None:
        process.now_ns += MS

    profile = Profile(process.threads.values, lambda _: process.now_ns, lambda: process.now_ns, pass_by)
    profile.sample()
    process.now_ns += 9 * MS
    profile.sample()
    assert profile.folded() == "idle;app.py:wait 10000\n"


# -- the threads of this process -----------------------------------------------------------------------------


def work(password: str, stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(len(password) * 100))


@pytest.fixture
def worker() -> Iterator[threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=("hunter2", stop), name="worker")
    thread.start()
    yield thread
    stop.set()
    thread.join()


def test_a_busy_thread_is_found_and_no_value_is_shown(worker: threading.Thread) -> None:
    profile = Profile()
    switch_interval_s = sys.getswitchinterval()

    def is_found() -> bool:
        profile.sample()
        return "test_cpu_profile.py:work" in profile.folded()

    wait_until(is_found, what="the busy thread")
    shown = profile.folded()
    assert "worker;threading.py:Thread._bootstrap;" in shown
    assert "hunter2" not in shown
    assert "password" not in shown
    assert sys.getswitchinterval() == switch_interval_s


def test_the_sampling_thread_is_left_out(worker: threading.Thread) -> None:
    names = [thread.name for thread in other_threads()]
    assert "worker" in names
    assert threading.current_thread().name not in names


class Value:
    pass


def test_a_sample_keeps_nothing_of_a_thread_alive() -> None:
    kept: list[weakref.ref[Value]] = []
    ready, stop = threading.Event(), threading.Event()

    def hold() -> None:
        value = Value()
        kept.append(weakref.ref(value))
        ready.set()
        stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    gc.disable()
    try:
        Profile().sample()
        stop.set()
        thread.join()
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the CPU clocks of threads")
def test_a_thread_has_a_clock_of_its_cpu_time(worker: threading.Thread) -> None:
    assert thread_clock() is thread_cpu_ns
    native_id = worker.native_id
    assert native_id is not None
    before_ns = thread_cpu_ns(native_id)
    wait_until(lambda: thread_cpu_ns(native_id) > before_ns, what="CPU time of the worker")
    with pytest.raises(OSError, match="Invalid argument"):
        thread_cpu_ns((1 << 22) + 1)  # beyond the greatest id


def test_an_unexpected_error_of_a_profile_is_its_callers_and_the_next_one_is_taken() -> None:
    def no_profile() -> Profile:
        raise MemoryError

    profiler = Profiler(no_profile)
    for _ in range(2):
        taken = profiler.start(1, threading.Event(), lambda: False)
        assert taken is not None
        with pytest.raises(MemoryError):
            taken.result()
