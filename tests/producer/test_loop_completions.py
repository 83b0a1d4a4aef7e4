"""Results on their way from the I/O thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from client_core import RecordMetadata
from client_core.async_kafka_producer import LoopCompletions, RecordFuture, _Resolved
from tests.support.coroutine_tests import run
from tests.support.fake_producer import FakeResult

if TYPE_CHECKING:
    from client_core import Result


def on_another_thread(completions: LoopCompletions, finished: list[object]) -> None:
    thread = threading.Thread(target=completions.post, args=(finished,))
    thread.start()
    thread.join()


async def test_results_arrive_on_the_loop_in_order_and_together() -> None:
    completions = LoopCompletions()
    arrived: list[tuple[int, int]] = []
    me = threading.get_ident()
    completions.bind(asyncio.get_running_loop())
    all_there = asyncio.Event()

    def done(n: int) -> object:
        def take(_: Result) -> None:
            arrived.append((n, threading.get_ident()))
            if n == 2:
                all_there.set()

        return take

    on_another_thread(completions, [(done(n), FakeResult()) for n in range(3)])
    assert arrived == []
    await all_there.wait()
    assert arrived == [(0, me), (1, me), (2, me)]


async def test_one_receipt_that_memory_is_lacking_for_does_not_cost_the_others_theirs() -> None:
    class Receipts:
        def error_for(self, _: int) -> None:
            return None

        def metadata_for(self, position: int) -> RecordMetadata:
            if position == 1:
                raise MemoryError
            return RecordMetadata("orders", 0, position, 17)

    completions, loop, outcome = LoopCompletions(), asyncio.get_running_loop(), Receipts()
    completions.bind(loop)
    resolved = _Resolved(lambda done, result: completions.post([(done, result)]))
    futures = [RecordFuture(resolved, loop) for _ in range(3)]
    for position, future in enumerate(futures):
        future.batch_done((0,), position, outcome)  # type: ignore[arg-type]  # one without memory
    ended = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(one) for one in ended] == [RecordMetadata, MemoryError, RecordMetadata]


@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError()], ids=repr)
async def test_a_callback_that_fails_does_not_cost_the_others_theirs(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    completions = LoopCompletions()

    def fails(_: Result) -> None:
        raise error

    completions.bind(asyncio.get_running_loop())
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    completions.post([(fails, FakeResult()), (future.set_result, FakeResult())])
    assert await future == FakeResult()
    assert type(error).__name__ in caplog.text


async def test_a_wakeup_that_could_not_be_scheduled_does_not_keep_the_next_one_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completions = LoopCompletions()
    loop = asyncio.get_running_loop()
    completions.bind(loop)
    woken = asyncio.Event()

    def call_soon(*_: object) -> None:
        raise MemoryError("no room for a handle")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon", call_soon)
        with pytest.raises(MemoryError):
            completions.wake_soon(woken.set)
    completions.wake_soon(woken.set)
    await woken.wait()


def test_after_the_loop_has_ended_results_are_nobodys() -> None:
    completions = LoopCompletions()

    async def scenario() -> None:
        completions.bind(asyncio.get_running_loop())

    run(scenario())
    completions.post([(lambda _: None, FakeResult())])


def test_before_a_loop_is_bound_losing_results_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    LoopCompletions().post([(lambda _: None, FakeResult())])
    assert "before an event loop was bound" in caplog.text


# -- waking the I/O thread -----------------------------------------------------------------------------------


async def test_the_io_thread_is_woken_once_when_the_loop_has_done_what_lies_before_it() -> None:
    completions = LoopCompletions()
    happened: list[str] = []
    loop = asyncio.get_running_loop()
    completions.bind(loop)
    for number in range(3):
        loop.call_soon(lambda number=number: happened.append(f"request {number}"))  # type: ignore[misc]
        completions.wake_soon(lambda: happened.append("woken"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    completions.wake_soon(lambda: happened.append("woken again"))
    await asyncio.sleep(0)
    assert happened == ["request 0", "woken", "request 1", "request 2", "woken again"]


def test_a_submit_outside_of_a_loop_wakes_the_io_thread_at_once() -> None:
    woken: list[int] = []
    LoopCompletions().wake_soon(lambda: woken.append(1))
    assert woken == [1]
