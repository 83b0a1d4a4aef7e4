"""A produce that meets a bug is answered as a problem, whichever way it came, and told of in the log once."""

from __future__ import annotations

import logging

import pytest

from tests.support.http_app import HttpApp

BODY = {"records": [{"value": 1}]}


@pytest.mark.parametrize("path", ["/v1/topics/orders/records", "/v1/topics/%6Frders/records"])
def test_a_bug_is_a_500_that_does_not_say_what_it_does_not_know(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    web.producer.refuses = ZeroDivisionError("nobody foresaw this")
    with caplog.at_level(logging.ERROR):
        answer = web.post(path, json=BODY)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["written"] == "unknown"
    assert "nobody foresaw this" not in answer.text
    (told,) = [record for record in caplog.records if record.exc_info]
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


def test_the_next_produce_is_served() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    web.producer.refuses = MemoryError()
    assert web.post("/v1/topics/orders/records", json=BODY).status_code == 500
    web.producer.refuses = None
    assert web.post("/v1/topics/orders/records", json=BODY).status_code == 200
    assert web.app.sidecar.room.requests == 0
