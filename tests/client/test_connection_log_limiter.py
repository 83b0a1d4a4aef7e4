"""Which ends and beginnings of connections are news, and which were told already."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from client_core.client.disconnection import Disconnection, setup_timeout
from client_core.client.node_connections import ConnectionLogLimiter
from tests.client.client_builders import NODE, Bench

if TYPE_CHECKING:
    import pytest

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING
REFUSED = Disconnection("refused", "connection refused", WARNING)
CLOSED = Disconnection("closed", "the peer closed the connection", INFO)


def test_a_node_that_cannot_be_connected_to_is_told_once_and_what_is_otherwise_wrong_again() -> None:
    news = ConnectionLogLimiter()
    assert [news.ended(1, REFUSED, was_up=False) for _ in range(3)] == [WARNING, DEBUG, DEBUG]
    other = Disconnection("refused", "no route to host", WARNING)
    assert [news.ended(1, other, was_up=False) for _ in range(2)] == [WARNING, DEBUG]
    assert news.ended(2, REFUSED, was_up=False) == WARNING


def test_timeouts_are_the_same_however_long_they_are() -> None:
    news = ConnectionLogLimiter()
    assert news.ended(1, setup_timeout(10_000), was_up=False) == INFO
    assert news.ended(1, setup_timeout(21_345), was_up=False) == DEBUG


def test_a_node_that_fails_in_ever_new_words_is_not_told_for_ever() -> None:
    news = ConnectionLogLimiter()
    ways = [Disconnection("refused", f"way {n}", WARNING) for n in range(100)]
    assert [news.ended(1, way, was_up=False) for way in ways].count(WARNING) == 8


def test_when_it_is_ready_that_is_told_with_how_often_it_failed_and_failures_are_news_again() -> None:
    news = ConnectionLogLimiter()
    for _ in range(7):
        news.ended(1, REFUSED, was_up=False)
    assert news.ready(1) == (INFO, 7)
    assert news.ended(1, CLOSED, was_up=True) == INFO
    assert news.ended(1, REFUSED, was_up=False) == WARNING
    assert news.ready(1) == (INFO, 1)


def test_a_node_that_accepts_and_hangs_up_again_and_again_is_told_once() -> None:
    news = ConnectionLogLimiter()
    reported = []
    for _ in range(5):
        reported += [news.ready(1)[0], news.ended(1, CLOSED, was_up=True)]
    assert reported == [INFO, INFO, *[DEBUG] * 8]


def test_a_node_that_has_served_is_news_when_it_goes() -> None:
    news = ConnectionLogLimiter()
    for _ in range(3):
        assert news.ready(1)[0] == INFO
        news.forget(1)
        assert news.reported == {}
        assert news.ended(1, CLOSED, was_up=True) == INFO
        assert news.ended(1, REFUSED, was_up=False) == WARNING


def test_the_client_tells_a_bootstrap_server_by_its_address_and_its_failure_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(can_connect=lambda _: False)
    with caplog.at_level(INFO):
        for _ in range(5):
            bench.client.ready(NODE, bench.now_ms)
            bench.poll()
            bench.clock.advance(60_000)
    reported = [record for record in caplog.records if "can't be connected to" in record.getMessage()]
    assert [record.levelno for record in reported] == [WARNING]
    assert reported[0].getMessage().startswith(f"Node {NODE.id} can't be connected to (refused): ")
