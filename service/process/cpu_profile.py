"""Samples the calls in which the process's threads spend CPU time, for GET /profile.

    pilotfish-io;threading.py:Thread._bootstrap;client_core/clock.py:SystemClock.now_ms 1520

That is a folded stack, as flamegraph.pl, inferno and speedscope read it: a thread, its calls, the innermost
last, and the microseconds of CPU time that it spent there. It has no values and no source lines.

Most threads wait, and a stack does not show whether its thread runs. So a sample reads the CPU clock of each
thread twice, a moment apart. If a thread ran in between, the CPU time since it was last found running counts
for the calls that it is in now, at most the time since the last sample. What remains is shown as NOT_SAMPLED,
so that the sum of each thread is right. Where the system has no such clocks, which are Linux's, the time that
passes counts for every thread.

The sampler has a thread of its own, which it leaves out. It needs the interpreter's lock, and would get it
mostly where a thread releases it, at the wait after the work. So the switch interval is shorter during this
moment. Runs that are shorter still count for the call after them that releases the lock, such as a wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Final, NamedTuple, Protocol

#: Pause between two samples. It is no divisor of the round periods that timers have.
PERIOD_S: Final = 1 / 99

#: The moment within a sample, and its switch interval.
_MOMENT_S: Final = 0.0001
_SWITCH_INTERVAL_S: Final = 0.00001

#: A thread that used as much in the moment ran. Waiting for the interpreter's lock uses less.
RUNNING_NS: Final = 20_000

#: The most calls of a stack, and the most stacks: an answer has at most some megabytes.
MAX_CALLS: Final = 64
MAX_STACKS: Final = 2_000
OUTER_CALLS: Final = "(calls further out are left out)"
OTHER_STACKS: Final = "(other stacks)"
NOT_SAMPLED: Final = "(not sampled)"

#: A call's file and function; or no file, and the name of a thread or of what is left out. Code objects would
#: not do: equal ones of two files are the same key.
_Place = tuple[str, str]


class Call(Protocol):
    """What is read of a frame."""

    @property
    def f_code(self) -> CodeType: ...
    @property
    def f_back(self) -> Call | None: ...


class Thread(NamedTuple):
    """A thread, and its innermost call."""

    native_id: int
    name: str
    call: Call


def other_threads() -> Iterator[Thread]:
    """Yields all threads of Python except the caller's."""
    own = threading.get_ident()
    frames = sys._current_frames()
    frames.pop(own, None)  # this very frame, which would keep all of them alive
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread.native_id is not None:
            yield Thread(thread.native_id, thread.name, frame)


def thread_cpu_ns(native_id: int) -> int:
    """Returns the CPU time of a thread of this process. Raises OSError if it has ended.

    The clock's id is that of Linux's MAKE_THREAD_CPUCLOCK. time.pthread_getcpuclockid is not used: it is
    undefined for a thread that has just ended.
    """
    return time.clock_gettime_ns((~native_id << 3) | 6)


def thread_clock() -> Callable[[int], int]:
    """Returns `thread_cpu_ns` where the system has it, else a clock of the time that passes."""
    try:
        thread_cpu_ns(threading.get_native_id())
    except OSError:
        return _passed_ns
    return thread_cpu_ns


def _passed_ns(_: int) -> int:
    return time.monotonic_ns()


def _let_others_run() -> None:
    """Waits for a moment, and gets the interpreter's lock back in the midst of what a thread runs."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        time.sleep(_MOMENT_S)
    finally:
        sys.setswitchinterval(usual_s)


@dataclass(slots=True)
class _Used:
    """The CPU time of a thread at the last sample, and how much of it does not count for a stack yet."""

    name: str
    used_ns: int
    open_ns: int = 0


class Profile:
    """CPU time by stack. One thread."""

    def __init__(
        self,
        threads: Callable[[], Iterable[Thread]] = other_threads,
        used_ns: Callable[[int], int] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        let_others_run: Callable[[], None] = _let_others_run,
    ) -> None:
        """`used_ns` is the clock of a thread by its native id; it raises OSError for one that has ended."""
        self._threads = threads
        self._clock_ns = used_ns or thread_clock()
        self._now_ns = now_ns
        self._let_others_run = let_others_run
        self._sampled_at_ns = now_ns()
        self._used: dict[int, _Used] = {}
        self._spent_ns: Counter[tuple[_Place, ...]] = Counter()

    def sample(self) -> None:
        """Takes one sample. The first one counts nothing."""
        before = dict(self._clocks(self._used))
        self._let_others_run()
        threads = {thread.native_id: thread for thread in self._threads()}
        now_ns = self._now_ns()
        most_ns, self._sampled_at_ns = now_ns - self._sampled_at_ns, now_ns
        last, self._used = self._used, {}
        for native_id, used_ns in self._clocks(threads):
            thread = threads[native_id]
            used = last.pop(native_id) if native_id in last else _Used(thread.name, used_ns)
            self._used[native_id] = used
            used.open_ns += max(used_ns - used.used_ns, 0)  # it is less if the id is a new thread's
            used.used_ns = used_ns
            if used_ns - before.get(native_id, used_ns) >= RUNNING_NS:
                counted_ns = min(used.open_ns, most_ns)
                used.open_ns -= counted_ns
                self._count((("", thread.name), *_calls(thread.call)), counted_ns)
        for ended in last.values():
            self._count((("", ended.name), ("", NOT_SAMPLED)), ended.open_ns)

    def _clocks(self, native_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
        for native_id in native_ids:
            try:
                yield native_id, self._clock_ns(native_id)
            except OSError:
                continue  # it has just ended

    def _count(self, stack: tuple[_Place, ...], spent_ns: int) -> None:
        if stack not in self._spent_ns and len(self._spent_ns) >= MAX_STACKS:
            stack = (("", OTHER_STACKS),)
        self._spent_ns[stack] += spent_ns

    def folded(self) -> str:
        """Returns a line per stack with its microseconds, those with most first."""
        lines: Counter[str] = Counter()
        shown = cache(_shown)
        for stack, spent_ns in self._spent_ns.items():
            lines[";".join(map(shown, stack))] += spent_ns
        for used in self._used.values():
            lines[f"{shown(('', used.name))};{NOT_SAMPLED}"] += used.open_ns
        return "".join(f"{line} {ns // 1000}\n" for line, ns in lines.most_common() if ns >= 1000)


def _calls(call: Call | None) -> tuple[_Place, ...]:
    """Returns the innermost MAX_CALLS calls, because a recursion may be very deep. The innermost is last."""
    calls: list[_Place] = []
    while call is not None and len(calls) < MAX_CALLS:
        code = call.f_code
        calls.append((code.co_filename, code.co_qualname))
        call = call.f_back
    if call is not None:
        calls.append(("", OUTER_CALLS))
    return tuple(reversed(calls))


def _shown(place: _Place) -> str:
    """Returns the name of a thread or a call, without what ends a call or a line of the format."""
    file, name = place
    shown = f"{_short(file)}:{name}" if file else name
    return "".join(c if c.isprintable() else "_" for c in shown).replace(";", "_")


def _short(path: str) -> str:
    """Returns the path of a module's file below the folder that it is imported from."""
    folders = [folder for folder in sys.path if folder and path.startswith(folder + os.sep)]
    return path[len(max(folders, key=len)) + 1 :] if folders else path


class Profiler:
    """Takes one profile at a time, each on a thread of its own."""

    def __init__(self, new_profile: Callable[[], Profile] = Profile) -> None:
        self._new_profile = new_profile
        self._taken: Future[str] | None = None

    def start(self, seconds: float, stop: threading.Event, is_over: Callable[[], bool]) -> Future[str] | None:
        """Starts a profile; returns its folded stacks to be, or None while another one is being taken.

        It ends after `seconds`, soon after `stop` is set, or when `is_over`, which its thread asks after each
        sample. One thread may call this.
        """
        if self._taken is not None and not self._taken.done():
            return None
        taken: Future[str] = Future()
        taken.set_running_or_notify_cancel()  # who cancels it has to wait for its end

        def run() -> None:
            try:
                taken.set_result(self._sampled(seconds, stop, is_over))
            except BaseException as error:  # noqa: BLE001 -- the caller gets it
                taken.set_exception(error)

        threading.Thread(target=run, name="pilotfish-profile", daemon=True).start()
        self._taken = taken
        return taken

    def _sampled(self, seconds: float, stop: threading.Event, is_over: Callable[[], bool]) -> str:
        profile = self._new_profile()
        ends_at_s = time.monotonic() + seconds
        profile.sample()
        while time.monotonic() < ends_at_s and not is_over() and not stop.wait(PERIOD_S):
            profile.sample()
        return profile.folded()
