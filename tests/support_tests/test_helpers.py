"""Helpers for waiting, reading, mounting and ending; and the runs that `tests/stress.py` has left."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing.loop_thread import end_other_tasks, stop_accepting
from tests.mutants.one_line_recording import DURATIONS_VARIABLE
from tests.stress import Ran, command, left
from tests.support.event_stream import EventReader, ServerSentEvent
from tests.support.secured_settings import MountedSecret
from tests.support.tiers import HYPOTHESIS_VARIABLE
from tests.support.waiting import PATIENCE_VARIABLE, wait_until

if TYPE_CHECKING:
    from pathlib import Path

# -- waiting -------------------------------------------------------------------------------------------------


def test_it_returns_the_first_true_thing_it_saw() -> None:
    answers = iter([0, "", 7, 8])
    assert wait_until(lambda: next(answers), what="a number", every_s=0.0) == 7


def test_it_looks_once_even_without_time() -> None:
    assert wait_until(lambda: True, what="the truth", timeout_s=0.0)


def test_it_fails_with_what_was_awaited_and_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"broker 3 is up: not within 0 s; last seen: brokers 1 and 2"):
        wait_until(lambda: None, what="broker 3 is up", timeout_s=0.0, last_seen=lambda: "brokers 1 and 2")


# -- event streams, as the standard says (WHATWG HTML, 9.2.6) ------------------------------------------------


def test_events_are_read_however_they_are_cut() -> None:
    stream = (
        b'retry: 2000\n\nevent: a\nid: x-1\ndata: {"n":\ndata: 1}\n\n: still here\n\nevent: b\ndata: 2\n\n'
    )
    for chunk in (1, 3, 1_000):
        reader = EventReader()
        events = [e for at in range(0, len(stream), chunk) for e in reader.feed(stream[at : at + chunk])]
        assert events == [ServerSentEvent("a", '{"n":\n1}', "x-1"), ServerSentEvent("b", "2", "x-1")], chunk
        assert events[0].data == {"n": 1}
        assert (reader.retry_ms, reader.comments) == (2_000, 1)


def test_an_event_without_data_or_end_is_none_and_another_field_is_a_fault_of_the_server() -> None:
    assert EventReader().feed(b"event: a\n\nevent: b\ndata: 1\n") == []
    with pytest.raises(AssertionError, match="no field"):
        EventReader().feed(b"evnet: a\n")


# -- a mounted secret changes as a kubelet changes it: all of its files at once, by one link -----------------


def test_a_swap_changes_all_files_behind_the_same_paths_and_what_it_leaves_out_leads_nowhere(
    tmp_path: Path,
) -> None:
    old, new = {"user": "old user", "password": "old"}, {"user": "new user", "password": "new"}
    mounted = MountedSecret(tmp_path / "mounted", old)
    paths = {name: mounted.path(name) for name in old}
    assert {name: path.read_text() for name, path in paths.items()} == old
    inode = os.stat(paths["password"]).st_ino
    mounted.swap(new)
    assert {name: path.read_text() for name, path in paths.items()} == new
    assert os.stat(paths["password"]).st_ino != inode
    mounted.swap({"user": "u"})
    assert not mounted.path("password").exists()
    assert mounted.path("user").read_text() == "u"


# -- the loop that servers of tests run on ends without leaving anything open --------------------------------


async def _until_ended(name: str, ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


def test_a_task_that_has_not_begun_when_the_loop_ends_still_closes_what_it_was_given() -> None:
    ended: list[str] = []

    async def accept_and_end() -> None:
        loop = asyncio.get_running_loop()
        made: list[asyncio.Task[None]] = []
        accepted = asyncio.create_task(_until_ended("accepted in this very turn", ended))
        loop.call_soon(lambda: made.append(loop.create_task(_until_ended("as the end begins", ended))))
        await end_other_tasks()
        assert accepted.cancelled()
        assert made[0].done()

    asyncio.run(accept_and_end())
    assert sorted(ended) == ["accepted in this very turn", "as the end begins"]


def test_a_task_that_another_begins_as_it_ends_is_ended_too() -> None:
    ended: list[str] = []
    followers: list[asyncio.Task[None]] = []

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            followers.append(asyncio.create_task(_until_ended("last", ended)))

    async def run() -> None:
        started = asyncio.create_task(first())
        await end_other_tasks()
        assert started.cancelled()

    asyncio.run(run())
    assert ended == ["last"]


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


# -- stress --------------------------------------------------------------------------------------------------

WANTED: Final = {"whole": 2, "no-brokers": 1}


def test_all_is_to_be_run_when_nothing_is_known_of_this_commit() -> None:
    fresh = [("whole", None), ("whole", None), ("no-brokers", None)]
    assert left(WANTED, "b", []) == fresh
    assert left(WANTED, "b", [Ran("whole", 1, "a", True), Ran("no-brokers", 2, "a", False)]) == fresh


def test_passed_runs_are_not_repeated_and_failed_ones_are_with_their_seed() -> None:
    ran = [Ran("whole", 1, "a", True), Ran("no-brokers", 2, "a", False)]
    assert left(WANTED, "a", ran) == [("whole", None), ("no-brokers", 2)]
    ran += [Ran("whole", 3, "a", False), Ran("no-brokers", 2, "a", True)]
    assert left(WANTED, "a", ran) == [("whole", 3)]
    assert left(WANTED, "a", [*ran, Ran("whole", 3, "a", True)]) == []


def test_a_failed_seed_is_run_again_though_others_have_passed() -> None:
    passed = [Ran("no-brokers", seed, "a", True) for seed in (1, 2)]
    assert left({"no-brokers": 1}, "a", [*passed, Ran("no-brokers", 3, "a", False)]) == [("no-brokers", 3)]


def test_no_variable_of_the_tests_is_a_setting_of_the_sidecars_that_they_start() -> None:
    """A sidecar refuses to start with a variable of its prefix that it does not know."""
    assert not [
        name
        for name in (PATIENCE_VARIABLE, HYPOTHESIS_VARIABLE, DURATIONS_VARIABLE)
        if name.startswith("PILOTFISH_")
    ]


def test_both_seeds_are_in_the_command() -> None:
    words = command("no-brokers", 7, 60, ["tests/values"])
    assert {"--randomly-seed=7", "--hypothesis-seed=7", "--timeout=60"} < set(words)
    assert words[-1] == "tests/values"
