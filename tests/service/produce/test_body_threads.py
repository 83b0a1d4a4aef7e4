"""Which bodies are understood aside, and what comes back from there."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from service.produce.body_threads import SURELY_LIGHT_BYTES, BodyThreads, is_light, let_go
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import run


@pytest.mark.parametrize(
    ("body", "light"),
    [
        (b"[" * SURELY_LIGHT_BYTES, True),
        (b"[" * 10_000, True),
        (b"[" * 10_001, False),
        (b"0," * 20_000, False),
        (b'{"":' * 20_000, False),
        (b"a" * 256 * 1024, True),
        (b"a" * (256 * 1024 + 1), False),
        (b'{"key":"customer-7","value":{"total":12.5,"items":[1,2,3]}},' * 1_000, True),
    ],
)
def test_a_body_is_light_by_its_bytes_members_and_levels(body: bytes, light: bool) -> None:
    assert is_light(body) is light


def test_a_light_body_is_read_at_once_and_a_heavy_one_on_a_thread() -> None:
    aside, here = BodyThreads(), threading.current_thread()

    async def scenario() -> tuple[threading.Thread, threading.Thread]:
        light = aside.read(lambda body: threading.current_thread(), b"a")
        with pytest.raises(StopIteration) as at_once:
            light.send(None)
        return at_once.value.value, await aside.read(
            lambda body: threading.current_thread(), b"a" * 1_000_000
        )

    light, heavy = run(scenario())
    aside.close()
    assert light is here
    assert heavy.name.startswith("pilotfish-bodies")


def test_a_close_waits_for_nothing_and_ends_what_has_not_begun() -> None:
    aside, goes_on = BodyThreads(), threading.Event()

    async def scenario() -> None:
        begun = [asyncio.create_task(aside.do(goes_on.wait)) for _ in range(4)]
        waits_for_a_thread = asyncio.create_task(aside.do(lambda: "never"))
        await asyncio.sleep(0)
        aside.close()
        goes_on.set()
        assert await asyncio.gather(*begun) == [True] * 4
        with pytest.raises(asyncio.CancelledError):
            await waits_for_a_thread

    run(scenario())


def test_what_the_work_raises_comes_through_and_want_of_memory_is_503() -> None:
    aside = BodyThreads()

    def fail(error: Exception) -> None:
        raise error

    async def scenario() -> None:
        with pytest.raises(ValueError, match="no body"):
            await aside.do(lambda: fail(ValueError("no body")))
        for body in (b"a", b"a" * 1_000_000):
            with pytest.raises(ProblemError) as refused:
                await aside.read(lambda body: fail(MemoryError()), body)
            assert refused.value.problem.status == 503
        with pytest.raises(MemoryError):  # records were sent: it is no 503 that says that none were
            await aside.report(lambda: fail(MemoryError()))

    run(scenario())
    aside.close()


def test_the_work_knows_whose_request_it_is() -> None:
    aside, request = BodyThreads(), ContextVar[str]("request")

    async def scenario() -> str:
        request.set("this one")
        return await aside.do(request.get)

    assert run(scenario()) == "this one"
    aside.close()


def test_a_caller_who_leaves_does_not_wait_for_the_work() -> None:
    aside, goes_on = BodyThreads(), threading.Event()

    async def scenario() -> None:
        task = asyncio.create_task(aside.do(goes_on.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()

    run(scenario())
    aside.close()


def test_a_list_is_let_go_of_and_a_tuple_is_not() -> None:
    items = list(range(5_000))
    let_go(items)
    let_go((1, 2))
    assert items == []
