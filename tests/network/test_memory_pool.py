"""How many bytes all receives may hold together: counts, and whose turn it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from client_core.network.network_receive import MemoryPool


def test_what_is_reserved_is_missing_until_it_is_released() -> None:
    pool = MemoryPool(1000)
    assert pool.try_reserve(1, 400)
    assert pool.available_bytes == 600
    pool.release(1)
    assert pool.available_bytes == 1000


def test_one_frame_may_take_more_than_there_is_and_then_nobody_gets_any() -> None:
    pool = MemoryPool(1000)
    assert pool.try_reserve(1, 5000)
    assert pool.available_bytes == -4000
    assert not pool.try_reserve(2, 1)
    pool.release(1)
    assert pool.try_reserve(2, 1)


def test_those_refused_get_their_turn_in_the_order_in_which_they_asked() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(1, 10)
    assert not pool.try_reserve(2, 1)
    assert not pool.try_reserve(3, 1)
    assert pool.next_in_line() is None
    pool.release(1)
    assert pool.next_in_line() == 2
    assert not pool.try_reserve(4, 1)
    assert not pool.try_reserve(3, 1)
    assert pool.try_reserve(2, 1)
    assert pool.try_reserve(3, 1)
    assert pool.next_in_line() == 4


def test_one_that_leaves_the_line_holds_nobody_up() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(1, 10)
    assert not pool.try_reserve(2, 1)
    assert not pool.try_reserve(3, 1)
    pool.leave_line(2)
    pool.release(1)
    assert pool.next_in_line() == 3


def test_releasing_what_is_not_held_changes_nothing() -> None:
    pool = MemoryPool(10)
    pool.release(7)
    assert pool.available_bytes == 10


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000), st.booleans())))
def test_all_but_the_last_frame_fit_and_in_the_end_everything_is_back(
    steps: list[tuple[int, int, bool]],
) -> None:
    pool = MemoryPool(1000)
    held: dict[int, int] = {}
    for node_id, size_bytes, gives_back in steps:
        if gives_back:
            pool.release(node_id)
            held.pop(node_id, None)
        elif node_id not in held and pool.try_reserve(node_id, size_bytes):
            assert sum(held.values()) < 1000
            held[node_id] = size_bytes
    assert pool.available_bytes == 1000 - sum(held.values())
    for node_id in range(5):
        pool.release(node_id)
    assert pool.available_bytes == 1000
