"""An exception during a produce is answered as a problem on every path, and logged once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from service.produce.body_threads import FEW_RECORDS
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core import ProducerRecord, RecordFailure, RecordMetadata

BODY = {"records": [{"value": 1}]}


class _NoMemoryForIt:
    """The result of acknowledged records whose outcomes don't fit in memory."""

    error = None
    any_acknowledged = True

    @property
    def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]:
        raise MemoryError


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp()
    app.producer.set_topics({"orders": 3})
    return app


def test_a_bug_is_a_500_that_does_not_say_what_it_does_not_know(
    web: NativeApp, caplog: pytest.LogCaptureFixture
) -> None:
    web.producer.refuses = ZeroDivisionError("nobody foresaw this")
    for path in ("/v1/topics/orders/records", "/v1/topics/%6Frders/records"):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            answer = web.post(path, json=BODY)
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["written"] == "unknown"
        assert "nobody foresaw this" not in answer.text
        (outcomes,) = [record for record in caplog.records if record.exc_info]
        assert outcomes.exc_info is not None
        assert outcomes.exc_info[0] is ZeroDivisionError


def test_the_next_produce_is_served(web: NativeApp) -> None:
    web.producer.refuses = MemoryError()
    assert web.post("/v1/topics/orders/records", json=BODY).status_code == 500
    web.producer.refuses = None
    assert web.post("/v1/topics/orders/records", json=BODY).status_code == 200
    assert web.app.sidecar.admission.requests == 0


@pytest.mark.parametrize("records", [1, FEW_RECORDS + 1])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "order-7"}])
async def test_records_that_were_sent_are_not_called_unwritten_where_memory_for_the_answer_is_lacking(
    web: NativeApp, records: int, headers: dict[str, str]
) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        body = {"records": [{"value": 1}] * records}
        asked = asyncio.create_task(client.post("/v1/topics/orders/records", json=body, headers=headers))
        await until(lambda: web.producer.waiting or asked.done())
        web.producer.finish(web.producer.waiting[-1], _NoMemoryForIt())
        answer = await asked
        assert (answer.status_code, answer.json()["written"]) == (500, "unknown")


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "order-7"}])
def test_many_records_are_checked_with_the_headers_that_they_are_sent_with(
    web: NativeApp, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Sequence[ProducerRecord]] = []
    monkeypatch.setattr(web.producer, "check", lambda topic, records: checked.append(records))
    traced = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", **headers}
    body = {"records": [{"value": 1}] * (FEW_RECORDS + 1)}
    assert web.post("/v1/topics/orders/records", json=body, headers=traced).status_code == 200
    assert checked == web.producer.submitted
    assert checked[0][0].headers
