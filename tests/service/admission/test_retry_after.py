"""Retry-After of each 503: what it follows from, and that it reaches the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import BufferExhaustedError, Phase, RecordFailure, Written
from service.wire.errors import Problem
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from service.admission.admission_control import RetryAfter

FULL = Problem(503, "no memory", phase=Phase.BUFFER.value)
NO_METADATA = Problem(503, "no metadata", phase=Phase.METADATA.value)


def seconds(problem: Problem) -> int:
    return int(dict(problem.all_headers())[b"retry-after"])


@pytest.fixture
def web() -> HttpApp:
    return HttpApp()


def parts(web: HttpApp) -> RetryAfter:
    return web.app.sidecar.retry_after


def leave(web: HttpApp, body_bytes: int) -> None:
    """So many bytes leave the room now."""
    web.app.sidecar.room.enter(body_bytes).leave()


def test_memory_that_was_full_is_waited_for_as_long_as_the_request_takes_to_leave(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    body = '{"value_format":"text","records":[{"value":"%s"}]}' % ("a" * 952)  # which makes 1,000 bytes
    assert len(body) == 1_000
    assert web.produce(body).status_code == 200
    reported = [seconds(parts(web).on(FULL, request_bytes)) for request_bytes in (1, 1_000, 4_500, 1_000_000)]
    assert reported == [1, 1, 5, 30]


def test_memory_from_which_nothing_leaves_is_waited_for_longest(web: HttpApp) -> None:
    assert seconds(parts(web).on(FULL, 1)) == 30


def test_metadata_is_waited_for_until_every_broker_was_tried_again() -> None:
    for backoff_ms, reported in (("1000", 1), ("7200", 8), ("3600000", 30)):
        web = HttpApp(kafka={"reconnect.backoff.max.ms": backoff_ms})
        assert seconds(parts(web).on(NO_METADATA)) == reported, backoff_ms


def test_a_sidecar_that_ends_is_waited_for_until_it_is_gone() -> None:
    web = HttpApp(drain_timeout_ms=20_000)
    room = web.app.sidecar.room
    leave(web, 1_000)
    web.app.sidecar.drain.begin()
    assert seconds(parts(web).on(NO_METADATA)) == 1
    with room.enter(5_500):
        assert seconds(parts(web).on(FULL)) == 6
    with room.enter(1_000_000):
        assert seconds(parts(web).on(FULL)) == 20


def test_what_is_no_503_or_says_it_already_is_left_as_it_is(web: HttpApp) -> None:
    for problem in (
        Problem(504, "unknown", phase=Phase.BUFFER.value),
        Problem(503, "later", headers=((b"retry-after", b"7"),)),
    ):
        assert parts(web).on(problem, 1_000_000) is problem


def test_it_reaches_who_produces_into_full_memory(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    error = BufferExhaustedError("Failed to allocate 100 bytes within the configured max blocking time 0 ms.")
    web.producer.outcome_of = lambda index, record: RecordFailure(error, Phase.BUFFER, Written.NO, 0)
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")


def test_it_reaches_who_asks_a_sidecar_without_brokers() -> None:
    web = HttpApp(kafka={"reconnect.backoff.max.ms": "4000"})
    refused = web.get("/v1/cluster", ends=web.producer.time_out)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "4")


def test_it_reaches_who_is_refused_at_the_door_of_one_that_ends(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    web.app.sidecar.drain.begin()
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
