"""Waiting looks at least once, returns what it saw, and fails with a sentence."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_until


def test_it_returns_the_first_true_thing_it_saw() -> None:
    answers = iter([0, "", 7, 8])
    assert wait_until(lambda: next(answers), what="a number", every_s=0.0) == 7


def test_it_looks_once_even_without_time() -> None:
    assert wait_until(lambda: True, what="the truth", timeout_s=0.0)


def test_it_fails_with_what_was_awaited_and_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"broker 3 is up: not within 0 s; last seen: brokers 1 and 2"):
        wait_until(lambda: None, what="broker 3 is up", timeout_s=0.0, last_seen=lambda: "brokers 1 and 2")
