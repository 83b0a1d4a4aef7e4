"""Failing batches in the log: one line for each partition and error, and one when it works again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.producer.sender.batch_settlement import MOST_LINES, WINDOW_MS, FailureLogLimiter
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced

if TYPE_CHECKING:
    import pytest

DEBUG, WARNING = logging.DEBUG, logging.WARNING
MOVED, FEW = Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_ENOUGH_REPLICAS


def test_a_partition_is_told_once_for_each_error_and_again_when_it_is_given_up() -> None:
    news = FailureLogLimiter()
    assert [news.failed(ORDERS_0, MOVED, 0) for _ in range(3)] == [WARNING, DEBUG, DEBUG]
    assert news.failed(ORDERS_0, FEW, 0) == WARNING
    assert [news.failed(ORDERS_0, FEW, 0, for_good=True) for _ in range(2)] == [WARNING, DEBUG]


def test_that_it_works_again_is_told_and_makes_failures_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    news = FailureLogLimiter()
    news.succeeded(ORDERS_0)
    assert caplog.messages == []
    news.failed(ORDERS_0, MOVED, 0)
    news.succeeded(ORDERS_0)
    news.succeeded(ORDERS_0)
    assert caplog.messages == ["Produce to orders-0 works again"]
    assert news.failed(ORDERS_0, MOVED, 0) == WARNING


def test_a_thousand_partitions_that_fail_together_are_a_few_lines_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    news = FailureLogLimiter()
    partitions = [TopicPartition("orders", n) for n in range(1_000)]
    levels = [news.failed(partition, MOVED, 100_000) for partition in partitions]
    assert levels.count(WARNING) == MOST_LINES
    assert caplog.messages == [f"Produce fails for more partitions than are named in a minute ({MOST_LINES})"]
    assert news.failed(partitions[-1], MOVED, 100_000 + WINDOW_MS) == WARNING


def test_what_is_remembered_is_bounded() -> None:
    news = FailureLogLimiter()
    for n in range(3_000):
        news.failed(TopicPartition("orders", n), MOVED, n * WINDOW_MS)
        news.too_large(f"topic-{n}")
    assert (len(news.reported), len(news._reported_too_large)) == (1_000, 1_000)


def test_batches_that_are_split_are_told_once_a_topic() -> None:
    news = FailureLogLimiter()
    assert [news.too_large("a"), news.too_large("a"), news.too_large("b")] == [WARNING, DEBUG, WARNING]


def test_a_producer_tells_of_a_partition_that_fails_and_works_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", turns=1)
    for _ in range(3):
        rig.answer(produced(ORDERS_0, error=FEW))
        rig.turn_after(100)
    rig.answer(produced(ORDERS_0, offset=7))
    assert waiting.offsets == [7]
    reported = [message for message in caplog.messages if "orders-0" in message]
    assert reported == [
        "Produce to orders-0 by node 0 failed, it is tried again: NOT_ENOUGH_REPLICAS",
        "Produce to orders-0 works again",
    ]


def test_a_producer_tells_of_records_that_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", b"b", turns=1)
    rig.answer(produced(ORDERS_0, error=Errors.TOPIC_AUTHORIZATION_FAILED))
    assert len(waiting.failures) == 2
    assert "2 records of orders-0 are given up: Not authorized to access topics: [orders]" in caplog.text
