"""What of metadata refreshes is told to people, and how often."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from client_core.client.refresh_log_limiter import RefreshLogLimiter
from tests.support.metadata_responses import partition, read, topic

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN = 3
LISTENER_NOT_FOUND = 72


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """What was told at INFO and above since this was last asked."""
    caplog.set_level(logging.INFO)

    def take() -> list[tuple[str, str]]:
        lines = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return lines

    return take


def test_that_nobody_can_be_asked_is_a_warning_once_until_a_refresh_works(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    for now_ms in range(1_000, 60_000, 50):
        news.no_node(now_ms)
    assert reported() == [
        ("WARNING", "No broker can be connected to; metadata is not refreshed until one can")
    ]
    news.refreshed(61_000)
    news.refreshed(62_000)
    assert reported() == [("INFO", "Metadata is refreshed again, 60000 ms after that first failed")]
    news.no_node(63_000)
    assert [level for level, _ in reported()] == ["WARNING"]


def test_each_way_of_failing_is_told_once_and_not_more_than_a_few(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    for _ in range(3):
        news.failed("expired", "timeout", "no answer", 0)
        news.failed("expired", "error", "no brokers", 0)
    assert reported() == [
        ("INFO", "Metadata refresh (expired) failed: no answer"),
        ("INFO", "Metadata refresh (expired) failed: no brokers"),
    ]
    for n in range(100):
        news.failed("expired", "error", f"way {n}", 0)
    assert len(reported()) == 6


def test_topics_that_callers_make_up_are_a_line_in_ten_seconds_at_most(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    for n in range(1_000):
        news.response_came(read(3, errors={f"made-up-{n}": UNKNOWN}), n, now_ms=n * 100)
    assert len(reported()) == 10


def test_what_could_not_be_told_then_is_told_when_it_is_met_again(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    news.response_came(read(3, errors={"a": UNKNOWN}), 1, now_ms=0)
    news.response_came(read(3, errors={"b": UNKNOWN}), 2, now_ms=1)
    assert len(reported()) == 1
    news.response_came(read(3, errors={"a": UNKNOWN}), 3, now_ms=20_000)
    assert reported() == []
    news.response_came(read(3, errors={"b": UNKNOWN}), 4, now_ms=20_000)
    ((level, line),) = reported()
    assert (level, "{'b': 'UNKNOWN_TOPIC_OR_PARTITION'}" in line) == ("WARNING", True)


def test_what_is_remembered_of_topics_is_bounded() -> None:
    news = RefreshLogLimiter()
    many = {f"made-up-{n}": UNKNOWN for n in range(3_000)}
    news.response_came(read(3, errors=many), 1, now_ms=0)
    assert len(news._reported_topics) == 1_000


def test_ways_of_failing_that_never_end_are_told_and_remembered_in_bounded_number(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    for number in range(100):
        news.failed("expired", "error", f"way {number}", number)
    assert len(reported()) == 8
    news.refreshed(1_000)
    reported()
    news.failed("expired", "error", "way 99", 2_000)
    assert len(reported()) == 1


def test_partitions_without_a_listener_are_counted_and_some_are_named(
    reported: Callable[[], list[tuple[str, str]]],
) -> None:
    news = RefreshLogLimiter()
    described = [partition(p, error=LISTENER_NOT_FOUND if p > 0 else 0) for p in range(13)]
    response = read(3, [topic("well", 1), topic("t", described)], errors={"gone": UNKNOWN})
    news.response_came(response, 1, now_ms=0)
    named = [f"t-{p}" for p in range(1, 11)]
    said = f"12 partitions have leader brokers without a matching listener, including {named}"
    assert reported()[0] == ("WARNING", said)
    news.response_came(response, 2, now_ms=1)
    assert reported() == []
    news.response_came(read(3, [topic("well", 1)]), 3, now_ms=2)
    assert reported() == []
    news.response_came(response, 4, now_ms=3)
    assert reported() == [("WARNING", said)]
