"""The loop that servers of tests run on ends without leaving anything open."""

from __future__ import annotations

import asyncio
import socket

import pytest

from client_core.testing.loop_thread import end_other_tasks, stop_accepting


def test_a_task_that_has_not_begun_when_the_loop_ends_still_closes_what_it_was_given() -> None:
    closed: list[str] = []

    async def serve(connection: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(connection)

    async def accept_and_end() -> None:
        accepted = asyncio.create_task(serve("accepted in this very turn"))
        await end_other_tasks()
        assert accepted.cancelled()

    asyncio.run(accept_and_end())
    assert closed == ["accepted in this very turn"]


def test_a_task_that_another_begins_as_it_ends_is_ended_too() -> None:
    ended: list[str] = []

    async def last() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("last")

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            followers.append(asyncio.create_task(last()))

    followers: list[asyncio.Task[None]] = []

    async def run() -> None:
        started = asyncio.create_task(first())
        await end_other_tasks()
        assert started.cancelled()

    asyncio.run(run())
    assert ended == ["last"]


def test_a_task_that_is_made_as_the_end_begins_runs_its_finally_too() -> None:
    ended = []

    async def connected() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("connected")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        made: list[asyncio.Task[None]] = []
        loop.call_soon(lambda: made.append(loop.create_task(connected())))
        await end_other_tasks()
        assert made[0].done()

    asyncio.run(scenario())
    assert ended == ["connected"]


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_accepted_as_the_listening_ends_reaches_the_server(turns: int) -> None:
    served: list[object] = []

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer.get_extra_info("peername"))
        writer.close()
        await writer.wait_closed()

    async def scenario() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            ours = client.getsockname()
            # The kernel has it; then the loop accepts it, begins with it, and hands it over.
            for _ in range(turns):
                await asyncio.sleep(0)
            await stop_accepting(server)
            await end_other_tasks()
        assert served in ([], [ours]), "still in the kernel, or handed over"
        if turns > 1:
            assert served == [ours]

    asyncio.run(scenario())
