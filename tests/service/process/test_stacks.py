"""Where threads stand, as text: all of them, bounded, and nothing of what they work on."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from service.process.loop_watchdog import MAX_CALLS, MAX_THREADS, stacks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def wait_here(go_on: threading.Event, password: str) -> None:
    assert password
    go_on.wait(30)


def deeply(calls: int, go_on: threading.Event) -> None:
    if calls:
        deeply(calls - 1, go_on)
    else:
        wait_here(go_on, "hunter2")


def stands(thread: threading.Thread) -> bool:
    """Looked up without `stacks`, which shows some only where other tests have left many threads."""
    functions, frame = [], sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        functions.append(frame.f_code.co_name)
        frame = frame.f_back
    return functions[:2] == ["wait", "wait"] and "wait_here" in functions


@contextmanager
def standing(count: int = 1, deep: int = 0) -> Iterator[None]:
    """So many threads that stand in `wait_here`, named 0-stuck-0, 0-stuck-1, …: the first by name."""
    go_on = threading.Event()
    threads = [
        threading.Thread(target=deeply, args=(deep, go_on), name=f"0-stuck-{number}")
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all(map(stands, threads)), what="threads that stand")
        yield
    finally:
        go_on.set()
        for thread in threads:
            thread.join()


def stack_of(name: str) -> str:
    return dict(stacks())[name]


def test_a_thread_is_shown_by_its_name_with_each_call_the_innermost_last() -> None:
    with standing():
        calls = stack_of("0-stuck-0").splitlines()
    places = [call.rpartition(" in ")[2] for call in calls]
    assert places[-1] == "Condition.wait"
    assert places.index("deeply") < places.index("wait_here") < places.index("Event.wait")
    assert all(call.rpartition(" in ")[0].rpartition(":")[2].isdigit() for call in calls)


def test_neither_values_nor_lines_of_source_are_shown() -> None:
    with standing():
        shown = stack_of("0-stuck-0")
    assert "hunter2" not in shown
    assert "password" not in shown


def test_who_asks_is_not_among_them() -> None:
    assert threading.current_thread().name not in dict(stacks())


def test_of_a_deep_stack_the_innermost_calls_are_shown() -> None:
    with standing(deep=500):
        calls = stack_of("0-stuck-0").splitlines()
    assert len(calls) == MAX_CALLS + 1
    assert calls[0] == "(calls further out are left out)"
    assert calls[-1].endswith("Condition.wait")


def test_of_many_threads_so_many_are_shown() -> None:
    with standing(MAX_THREADS + 1):
        assert len(stacks()) == MAX_THREADS
