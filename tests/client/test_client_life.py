"""A client works, is closing, is closed: NET-25."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from client_core.client.network_client import ClientLife, Life
from client_core.errors import DisconnectError


@pytest.mark.parametrize(
    ("moves", "allowed"),
    [
        ([Life.CLOSING, Life.CLOSED], [True, True]),
        ([Life.CLOSED], [True]),
        ([Life.CLOSING, Life.CLOSING], [True, False]),
        ([Life.CLOSED, Life.CLOSED], [True, False]),
        ([Life.CLOSED, Life.CLOSING], [True, False]),
        ([Life.ACTIVE], [False]),
    ],
)
def test_a_life_only_goes_towards_its_end(moves: list[Life], allowed: list[bool]) -> None:
    life = ClientLife()
    assert [life.move_to(state) for state in moves] == allowed


def test_only_an_active_client_may_work() -> None:
    life = ClientLife()
    life.ensure_active()
    was_active = life.is_active
    life.move_to(Life.CLOSING)
    assert (was_active, life.is_active, str(life)) == (True, False, "CLOSING")
    with pytest.raises(DisconnectError, match=r"^NetworkClient is no longer active, state is CLOSING$"):
        life.ensure_active()


def test_of_many_who_close_at_once_one_does() -> None:
    life = ClientLife()
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(life.move_to, [Life.CLOSED] * 100)) == 1
