"""Wakeup: none is lost, none blocks, and a second one is free (SEL-15)."""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from client_core.network.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup.open()
    yield made
    made.close()


def is_readable(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_a_wakeup_makes_the_reader_readable_until_it_is_cleared(wakeup: Wakeup) -> None:
    assert not is_readable(wakeup)
    wakeup.wakeup()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)


@pytest.mark.behaviour("SEL-15")
def test_a_wakeup_that_is_pending_costs_no_second_byte(wakeup: Wakeup) -> None:
    for _ in range(1000):
        wakeup.wakeup()
    assert wakeup.clear() == 1


def test_a_wakeup_after_a_clear_wakes_again(wakeup: Wakeup) -> None:
    for _ in range(3):
        wakeup.wakeup()
        assert wakeup.clear() == 1


def test_clear_without_a_wakeup_does_not_block(wakeup: Wakeup) -> None:
    assert wakeup.clear() == 0


def test_a_wakeup_that_comes_while_the_byte_is_read_takes_no_later_one_with_it() -> None:
    # Someone wakes just before the byte is read. Were the flag cleared first, that someone would write a
    # second byte, the read would take both, and the flag would stay set with nothing to read: every later
    # wakeup would be lost.
    class Racing(socket.socket):
        def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
            made.wakeup()
            return super().recv(bufsize, flags)

    reader, writer = socket.socketpair()
    made = Wakeup(Racing(fileno=reader.detach()), writer)
    try:
        made.wakeup()
        made.clear()
        made.wakeup()
        assert is_readable(made)
    finally:
        made.close()


def test_threads_that_wake_at_once_leave_one_byte(wakeup: Wakeup) -> None:
    together = threading.Barrier(8)

    def wake() -> None:
        together.wait()
        wakeup.wakeup()

    threads = [threading.Thread(target=wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wakeup.clear() == 1


def test_a_wakeup_after_close_does_nothing() -> None:
    made = Wakeup.open()
    made.close()
    made.wakeup()
    made.close()
