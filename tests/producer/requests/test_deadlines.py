"""Deadlines: the right entries expire at the right time, also after others were removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.clock import FOREVER_MS
from client_core.producer.requests.deadlines import (
    AGAIN_MS,
    Deadlines,
    TopicQueue,
    UnblockedRequests,
    topic_waits,
)


def test_an_empty_set_has_no_next_deadline() -> None:
    assert Deadlines[str]().next_ms == FOREVER_MS


def test_things_come_out_in_the_order_of_their_deadlines_and_then_of_their_coming() -> None:
    deadlines = Deadlines[str]()
    for moment, thing in ((30, "c"), (10, "a"), (20, "b1"), (20, "b2"), (40, "d")):
        deadlines.add(moment, thing)
    assert deadlines.pop_due(30) == ["a", "b1", "b2", "c"]
    assert deadlines.next_ms == 40
    assert len(deadlines) == 1


def test_nothing_is_due_before_its_time() -> None:
    deadlines = Deadlines[str]()
    deadlines.add(10, "a")
    assert deadlines.pop_due(9) == []
    assert deadlines.pop_due(10) == ["a"]


def test_a_removed_entry_is_never_due() -> None:
    deadlines = Deadlines[str]()
    deadlines.add(10, "a")
    deadlines.add(20, "b")
    deadlines.discard(10, "a")
    deadlines.discard(10, "a")
    deadlines.discard(99, "never there")
    assert deadlines.next_ms == 20
    assert deadlines.pop_due(20) == ["b"]


def test_a_moment_that_was_emptied_can_be_used_again() -> None:
    deadlines = Deadlines[str]()
    deadlines.add(10, "a")
    deadlines.discard(10, "a")
    deadlines.add(10, "b")
    assert deadlines.next_ms == 10
    assert deadlines.pop_due(10) == ["b"]
    assert deadlines.next_ms == FOREVER_MS


@pytest.mark.parametrize(("error", "left"), [(MemoryError("none"), ["a"]), (ValueError("a bug"), [])])
def test_what_a_lack_of_memory_kept_from_its_end_is_due_again_but_a_bug_comes_once(
    error: Exception, left: list[str]
) -> None:
    deadlines = Deadlines[str]()
    deadlines.add(10, "a")
    deadlines.add(20, "b")
    deadlines.add(40, "c")
    ended: list[str] = []

    def end(thing: str) -> None:
        if thing == "a":
            raise error
        ended.append(thing)

    with pytest.raises(type(error)):
        deadlines.end_due(30, end)
    assert ended == (["b"] if left else [])
    assert deadlines.next_ms == 40
    assert deadlines.pop_due(30 + AGAIN_MS) == ["c", *left]
    assert deadlines.end_due(30 + AGAIN_MS, end) == []


def test_all_can_be_taken_out_at_once() -> None:
    deadlines = Deadlines[str]()
    deadlines.add(20, "b")
    deadlines.add(10, "a")
    assert deadlines.pop_all() == ["a", "b"]
    assert deadlines.next_ms == FOREVER_MS


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "discard", "pop"]), st.integers(0, 9), st.integers(0, 5)),
        max_size=60,
    )
)
def test_it_behaves_as_a_plain_sorted_list_would(steps: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines[int]()
    model: set[tuple[int, int]] = set()
    for verb, moment, thing in steps:
        if verb == "add":
            deadlines.add(moment, thing)
            model.add((moment, thing))
        elif verb == "discard":
            deadlines.discard(moment, thing)
            model.discard((moment, thing))
        else:
            due = {pair for pair in model if pair[0] <= moment}
            assert sorted(deadlines.pop_due(moment)) == sorted(thing for _, thing in due)
            model -= due
        assert deadlines.next_ms == min((pair[0] for pair in model), default=FOREVER_MS)
        assert len(deadlines) == len(model)


def test_entries_that_end_early_leave_no_memory_behind() -> None:
    deadlines = Deadlines[int]()
    deadlines.add(0, -1)
    for n in range(1, 10_000):
        deadlines.add(n, n)
        deadlines.discard(n, n)
    assert len(deadlines._moments) < 200
    assert len(deadlines._due) == 1
    assert deadlines.pop_due(10_000) == [-1]


def test_what_will_be_due_stays() -> None:
    deadlines = Deadlines[str]()
    for moment, thing in ((30, "c"), (10, "a"), (20, "b")):
        deadlines.add(moment, thing)
    assert deadlines.until(20) == ["a", "b"]
    assert len(deadlines) == 3


def test_a_queue_that_is_about_to_be_removed_has_no_waits() -> None:
    assert topic_waits({"orders": TopicQueue()}, {"users": UnblockedRequests(1)}) == ()
