"""Stalled loops: logged once with the stacks of all threads, which are bounded and show no values."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from service.process.admin import AdminThread, make_registry
from service.process.health import Health
from service.process.loop_watchdog import (
    EVENT_LOOP,
    MAX_CALLS,
    MAX_THREADS,
    POLL_LOOP,
    LoopWatchdog,
    ThreadStack,
    stacks,
)
from service.process.server import bound_socket
from tests.support.coroutine_tests import run, until
from tests.support.http_app import NativeApp
from tests.support.log_lines import log_lines
from tests.support.plain_http import NO_TLS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from service.wire.asgi import Message, Receive, Scope, Send

THREADS = [ThreadStack("pilotfish-admin", "a.py:1 in look"), ThreadStack("pilotfish-io", "b.py:2 in resolve")]
HEAD = "did not complete a turn within 50 ms; the stacks of 2 threads follow:"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The watchdog's log lines from here on."""
    with log_lines("service.process.loop_watchdog") as lines:
        yield lines


class Probed:
    """A sidecar whose poll loop turns or not, and a probe of it."""

    def __init__(self) -> None:
        self.web = NativeApp(liveness_timeout_ms=50)
        self.web.producer.start()
        self.loop_watchdog = LoopWatchdog(lambda: THREADS)

    def probe(self, *, poll: bool, event: bool = True) -> str | None:
        self.web.producer.turns_when_woken = poll

        async def scenario() -> str | None:
            stuck = asyncio.new_event_loop()
            try:
                loop = asyncio.get_running_loop() if event else stuck
                health = Health(self.web.app.sidecar, loop, lambda: True, self.loop_watchdog)
                return await health.fault_of_life()
            finally:
                stuck.close()

        return run(scenario())

    def counted(self) -> dict[str, float]:
        registry = make_registry(self.web.app, [self.loop_watchdog])
        return {
            sample.labels["loop"]: sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "pilotfish_loop_standstills_total"
        }


def test_the_stacks_of_a_stall_are_logged_once_however_often_it_is_probed(logged: list[str]) -> None:
    probed = Probed()
    for _ in range(3):
        assert probed.probe(poll=False) == "the poll loop did not complete a turn within 50 ms"
    assert logged == [
        f"the poll loop {HEAD}",
        "thread pilotfish-admin is at\na.py:1 in look",
        "thread pilotfish-io is at\nb.py:2 in resolve",
    ]
    assert probed.counted() == {"poll": 1, "event": 0}


def test_the_end_of_a_stall_is_logged_and_the_next_stall_is_logged_anew(logged: list[str]) -> None:
    probed = Probed()
    probed.probe(poll=False)
    assert probed.probe(poll=True) is None
    assert logged[-1] == "the poll loop completes turns again"
    assert probed.probe(poll=True) is None
    probed.probe(poll=False)
    assert logged.count(f"the poll loop {HEAD}") == 2
    assert logged.count("the poll loop completes turns again") == 1
    assert probed.counted() == {"poll": 2, "event": 0}


def test_each_loop_has_stalls_of_its_own(logged: list[str]) -> None:
    probed = Probed()
    probed.probe(poll=True, event=False)
    assert probed.probe(poll=False, event=False) == (
        "the poll loop and the event loop did not complete a turn within 50 ms"
    )
    probed.probe(poll=False, event=True)
    assert [line for line in logged if not line.startswith("thread ")] == [
        f"the event loop {HEAD}",
        f"the poll loop {HEAD}",
        "the event loop completes turns again",
    ]
    assert probed.counted() == {"poll": 1, "event": 1}


def test_both_at_once_are_logged_with_one_set_of_stacks(logged: list[str]) -> None:
    probed = Probed()
    probed.probe(poll=False, event=False)
    assert logged[0] == f"the poll loop and the event loop {HEAD}"
    assert len(logged) == 1 + len(THREADS)


def test_a_client_that_closes_is_not_said_to_turn_again(logged: list[str]) -> None:
    probed = Probed()
    probed.probe(poll=False)
    probed.web.app.sidecar.drain.begun = True
    assert probed.probe(poll=False) is None
    assert "the poll loop completes turns again" not in logged


def test_without_a_stall_no_stack_is_taken() -> None:
    def take() -> list[ThreadStack]:
        raise AssertionError("no stack was wanted")

    LoopWatchdog(take).judged(turned=[POLL_LOOP, EVENT_LOOP], stalled=[], after_ms=50)


async def test_without_probes_the_sidecar_watches_its_loops_itself(logged: list[str]) -> None:
    probed = Probed()
    probed.web.producer.turns_when_woken = False
    loop = asyncio.get_running_loop()
    health = Health(probed.web.app.sidecar, loop, lambda: True, probed.loop_watchdog)
    watch = asyncio.create_task(health.watch(every_s=0.001))
    await until(lambda: probed.counted() == {"poll": 1, "event": 0})
    probed.web.producer.turns_when_woken = True
    await until(lambda: logged[-1] == "the poll loop completes turns again")
    watch.cancel()
    assert logged[0] == f"the poll loop {HEAD}"


async def test_a_bug_does_not_end_the_watch(logged: list[str], caplog: pytest.LogCaptureFixture) -> None:
    probed = Probed()
    probed.web.producer.turns_when_woken = False
    bugs = [RuntimeError("a bug")]

    def take() -> list[ThreadStack]:
        if bugs:
            raise bugs.pop()
        return THREADS

    loop_watchdog = LoopWatchdog(take)
    health = Health(probed.web.app.sidecar, asyncio.get_running_loop(), lambda: True, loop_watchdog)
    watch = asyncio.create_task(health.watch(every_s=0.001))
    await until(lambda: not bugs)
    probed.web.producer.turns_when_woken = True
    await until(lambda: bool(logged))
    watch.cancel()
    assert caplog.text.count("Uncaught error in the watch over both loops\n") == 1
    assert logged == ["the poll loop completes turns again"]


# -- the thread that answers probes --------------------------------------------------------------------------


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    start: Message = {"type": "http.response.start", "status": 200, "headers": []}
    await send(start)
    await send({"type": "http.response.body", "body": b"ok\n"})


def answers(bound: socket.socket) -> bool:
    port = bound.getsockname()[1]
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", verify=NO_TLS, timeout=5).text == "ok\n"
    except httpx.TransportError:
        return False


def test_an_admin_listener_that_ended_by_itself_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    with bound_socket("127.0.0.1", 0, "admin_port") as bound:
        admin = AdminThread(ok, bound, pause_s=0.01)
        admin.start()
        wait_until(lambda: answers(bound), what="an answer")
        first = admin._server
        assert first is not None
        first.should_exit = True
        wait_until(lambda: admin._server is not first, what="another server")
        wait_until(lambda: answers(bound), what="an answer of the next one")
        admin.stop(timeout_s=10)
        assert not admin._thread.is_alive()
    assert "the admin listener has ended unexpectedly and is restarted" in caplog.text


def test_tasks_beside_the_listener_are_ended_with_it() -> None:
    ended = threading.Event()

    async def watch() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with bound_socket("127.0.0.1", 0, "admin_port") as bound:
        admin = AdminThread(ok, bound, watch=watch)
        admin.start()
        wait_until(lambda: answers(bound), what="an answer")
        assert not ended.is_set()
        admin.stop(timeout_s=10)
    assert ended.is_set()


def test_an_admin_listener_that_can_not_begin_is_logged_once_and_can_be_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bound = bound_socket("127.0.0.1", 0, "admin_port")
    bound.close()
    admin = AdminThread(ok, bound, pause_s=0.001)
    admin.start()
    again = "the admin listener has ended unexpectedly and is restarted"
    wait_until(lambda: caplog.text.count(again) > 3, what="more attempts")
    assert caplog.text.count("Uncaught error in the admin listener\n") == 1
    admin.stop(timeout_s=10)
    assert not admin._thread.is_alive()


def test_an_admin_listener_that_is_stopped_at_once_ends() -> None:
    with bound_socket("127.0.0.1", 0, "admin_port") as bound:
        admin = AdminThread(ok, bound)
        admin.start()
        admin.stop(timeout_s=10)
        assert not admin._thread.is_alive()


# -- stacks of threads ---------------------------------------------------------------------------------------


def wait_here(go_on: threading.Event, password: str) -> None:
    assert password
    go_on.wait(30)


def deeply(calls: int, go_on: threading.Event) -> None:
    if calls:
        deeply(calls - 1, go_on)
    else:
        wait_here(go_on, "hunter2")


def is_waiting(thread: threading.Thread) -> bool:
    """Looked up without `stacks`, which shows some only where other tests have left many threads."""
    functions, frame = [], sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        functions.append(frame.f_code.co_name)
        frame = frame.f_back
    return functions[:2] == ["wait", "wait"] and "wait_here" in functions


@contextmanager
def waiting_threads(count: int = 1, deep: int = 0) -> Iterator[None]:
    """So many threads that wait in `wait_here`, named 0-stuck-0, 0-stuck-1, …: the first by name."""
    go_on = threading.Event()
    threads = [
        threading.Thread(target=deeply, args=(deep, go_on), name=f"0-stuck-{number}")
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all(map(is_waiting, threads)), what="waiting threads")
        yield
    finally:
        go_on.set()
        for thread in threads:
            thread.join()


def stack_of(name: str) -> str:
    return dict(stacks())[name]


def test_a_thread_is_shown_by_its_name_with_each_call_the_innermost_last() -> None:
    with waiting_threads():
        calls = stack_of("0-stuck-0").splitlines()
    places = [call.rpartition(" in ")[2] for call in calls]
    assert places[-1] == "Condition.wait"
    assert places.index("deeply") < places.index("wait_here") < places.index("Event.wait")
    assert all(call.rpartition(" in ")[0].rpartition(":")[2].isdigit() for call in calls)


def test_neither_values_nor_lines_of_source_are_shown() -> None:
    with waiting_threads():
        shown = stack_of("0-stuck-0")
    assert "hunter2" not in shown
    assert "password" not in shown


def test_the_asking_thread_is_not_among_them() -> None:
    assert threading.current_thread().name not in dict(stacks())


def test_of_a_deep_stack_the_innermost_calls_are_shown() -> None:
    with waiting_threads(deep=500):
        calls = stack_of("0-stuck-0").splitlines()
    assert len(calls) == MAX_CALLS + 1
    assert calls[0] == "(calls further out are left out)"
    assert calls[-1].endswith("Condition.wait")


def test_of_many_threads_so_many_are_shown() -> None:
    with waiting_threads(MAX_THREADS + 1):
        assert len(stacks()) == MAX_THREADS
