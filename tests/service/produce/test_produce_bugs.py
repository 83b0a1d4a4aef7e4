"""An exception during a produce is answered as a problem on every path, and logged once."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from client_core import ProducerRecord, RecordMetadata
from service.admission.caller import ANYONE
from service.produce.body_threads import FEW_RECORDS
from service.wire.errors import Problem, problem_of_bug
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core import RecordFailure

BODY = {"records": [{"value": 1}]}
BAD = Problem(422, "must be a string", written="no")


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


async def test_a_stream_reports_what_it_does_not_know_goes_on_and_holds_no_bytes(
    web: NativeApp, caplog: pytest.LogCaptureFixture
) -> None:
    stream = web.app.sidecar.streams.open("orders", ANYONE, lambda: web.app.sidecar.producing.times)
    one = ProducerRecord("orders", b"1")
    with stream:
        web.producer.refuses = ZeroDivisionError("nobody foresaw this")
        await stream.put([one, BAD], 1_000)
        web.producer.refuses, web.producer.holds_records = None, True
        await stream.put([BAD, one], 1_000)
        web.producer.finish(web.producer.waiting[-1], _NoMemoryForIt())
        web.producer.holds_records = False
        await stream.put([one], 1_000)
        stream.finish()
        outcomes = [outcome async for some in stream for _, outcome in some]
    unknown = problem_of_bug(written="unknown")
    assert outcomes[:4] == [unknown, BAD, BAD, unknown]
    assert isinstance(outcomes[4], RecordMetadata)
    assert web.app.sidecar.admission.bytes == 0
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


async def test_a_stream_whose_outcomes_do_not_fit_into_memory_ends(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        headers = {"content-type": "application/x-ndjson"}
        path = "/v1/topics/orders/records"
        asked = asyncio.create_task(client.post(path, content=b'{"value":1}', headers=headers))
        await until(lambda: web.producer.waiting or asked.done())
        web.producer.finish(web.producer.waiting[-1], _NoMemoryForIt())
        line, summary = (await asked).text.splitlines()
    assert json.loads(line)["error"]["written"] == "unknown"
    assert json.loads(summary)["summary"]["failed"] == 1


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "order-7"}])
def test_of_several_topics_those_that_were_accepted_before_a_bug_are_answered(
    web: NativeApp, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def broken_for_audit(index: int, record: ProducerRecord) -> RecordMetadata:
        if record.topic == "audit":
            raise ZeroDivisionError("nobody foresaw this")
        return RecordMetadata(record.topic, 0, index, 17)

    web.producer.set_topics({"orders": 3, "audit": 1, "payments": 1})
    web.producer.outcome_of = broken_for_audit
    body = {"records": [{"topic": topic, "value": 1} for topic in ("orders", "audit", "payments")]}
    answer = web.post("/v1/records", json=body, headers=headers)
    assert answer.status_code == 207
    assert [one.get("error", {}).get("written") for one in answer.json()["results"]] == [
        None,
        "unknown",
        None,
    ]
    assert web.app.sidecar.admission.bytes == 0
    assert "nobody foresaw this" not in answer.text
    assert [record.exc_info is not None for record in caplog.records] == [True]
    if headers:
        web.producer.outcome_of = None
        assert web.post("/v1/records", json=body, headers=headers).json() == answer.json()


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
