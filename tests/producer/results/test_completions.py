"""Completions: one post per turn, in order, and nobody left behind at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.producer.results.results import ProduceResult
from client_core.producer.results.ticket import CallInline, Completions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from client_core.producer.results.ticket import Done, Result


class Posts:
    def __init__(self) -> None:
        self.posted: list[list[Result]] = []

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        self.posted.append([result for _, result in finished])


class BrokenSink:
    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        raise RuntimeError("the loop is closed")


def result() -> ProduceResult:
    return ProduceResult(0, (), 0)


def ignore(result: Result) -> None:
    """Nobody listens."""


def test_all_that_was_added_is_posted_together_and_in_order() -> None:
    sink = Posts()
    completions = Completions(sink)
    first, second = result(), result()
    completions.add(ignore, first)
    completions.add(ignore, second)
    assert completions
    assert sink.posted == []
    completions.post()
    assert sink.posted == [[first, second]]
    assert not completions


def test_nothing_is_posted_where_nothing_is_finished() -> None:
    sink = Posts()
    Completions(sink).post()
    assert sink.posted == []


def test_after_the_end_whoever_adds_posts() -> None:
    sink = Posts()
    completions = Completions(sink)
    waiting, late = result(), result()
    completions.add(ignore, waiting)
    completions.post_from_now_on()
    completions.add(ignore, late)
    assert sink.posted == [[waiting], [late]]


def test_a_sink_that_fails_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    completions = Completions(BrokenSink())
    completions.add(ignore, result())
    completions.post()
    assert "The completion sink failed on 1 finished tickets" in caplog.text


def test_inline_calls_go_on_after_a_callback_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Result] = []

    def fail(result: Result) -> None:
        raise RuntimeError("a bug of the user's")

    completions = Completions(CallInline())
    completions.add(fail, result())
    completions.add(heard.append, result())
    completions.post()
    assert len(heard) == 1
    assert "A callback failed" in caplog.text
