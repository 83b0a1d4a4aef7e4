"""The reasons of problems: each names a page that the sidecar serves, without a token."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from client_core import Errors, InvalidTopicError, Phase, ProducerClosedError, RecordFailure, Written
from client_core.errors import error_for
from service.wire.errors import Problem, problem_of, problem_of_failure
from service.wire.reasons import REASONS, SHUTTING_DOWN
from tests.support.http_app import NativeApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

PRODUCE = "/v1/topics/orders/records"


@pytest.fixture
def web() -> NativeApp:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    return web


def reason_of(web: NativeApp, method: str, path: str, **more: object) -> str:
    """Returns the reason of a refusal, after its page was read."""
    answer = web.ask(method, path, **more)  # type: ignore[arg-type]
    document = answer.json()
    assert answer.status_code >= 400
    page = web.get(document["type"])
    assert page.status_code == 200
    assert f"<h1>{document['title']}</h1>" in page.text
    assert str(answer.status_code) in page.text
    return str(document["type"].removeprefix("/problems/"))


def test_each_refusal_names_its_reason(web: NativeApp) -> None:
    json_type = {"content-type": "application/json"}
    refusals = {
        ("GET", "/v1/topics/orders/partitions/9", b""): "unknown-partition",
        ("GET", "/v1/brokers/99", b""): "unknown-broker",
        ("GET", "/v1/topics/a%20b/leader?partition=0", b""): "invalid-topic",
        ("GET", "/v1/topics/orders/leader?partition=x", b""): "invalid-value",
        ("GET", "/v1/topics/orders?min_version=other-1", b""): "other-process",
        ("GET", "/nothing", b""): "not-found",
        ("DELETE", "/v1/cluster", b""): "method-not-allowed",
        ("POST", PRODUCE, b"{"): "malformed-request",
        ("POST", PRODUCE, b'{"records":[]}'): "invalid-value",
        ("POST", "/v1/topics/or%20ders/records", b'{"records":[{"value":1}]}'): "invalid-topic",
    }
    for (method, path, body), reason in refusals.items():
        assert reason_of(web, method, path, headers=json_type, content=body) == reason, (method, path, body)
    assert reason_of(web, "POST", PRODUCE, headers={"content-type": "text/plain"}) == "media-type"
    assert reason_of(web, "GET", "/v1/cluster", headers={"origin": "https://evil.example"}) == "forbidden"


def test_a_wrong_path_method_or_form_is_named_with_the_remedy(web: NativeApp) -> None:
    form = 'the form is {"records":[{"value":...}]}'
    said = {
        ("POST", "/v1/topic/orders/records", b""): (
            "path",
            "no",
            "there is no path /v1/topic/orders/records",
        ),
        ("GET", "/nothing", b""): ("path", None, "there is no path /nothing"),
        ("GET", PRODUCE, b""): ("method", None, "GET is not possible for this path; use POST"),
        ("DELETE", PRODUCE, b""): ("method", "no", "DELETE is not possible for this path; use POST"),
        ("POST", PRODUCE, b'{"value":"hello"}'): (
            "body",
            "no",
            f"Object contains unknown field `value`; value is a member of a record; {form}",
        ),
        ("POST", PRODUCE, b'{"records":["hello"]}'): (
            "records[0]",
            "no",
            f"records[0]: Expected `object`, got `str`; {form}",
        ),
        ("POST", PRODUCE, b'{"records":[{"valeu":1}]}'): (
            "records[0]",
            "no",
            "records[0]: Object contains unknown field `valeu`",
        ),
    }
    for (method, path, body), expected in said.items():
        found = web.ask(method, path, headers={"content-type": "application/json"}, content=body).json()
        assert (found["place"], found.get("written"), found["detail"]) == expected
    assert len(web.get("/" + "x" * 5_000).json()["detail"]) < 300
    assert web.ask("DELETE", "/v1/status").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "body", "place", "said"),
    [
        (PRODUCE, '{"timeout_ms":5,"records":[{"value":1}]}', "body", "timeout_ms is a query parameter; "),
        (PRODUCE, '{"Idempotency-Key":"a","records":[]}', "body", "is the header Idempotency-Key; "),
        (PRODUCE, '{"partition":1,"records":[]}', "body", "partition is a member of a record; "),
        (
            PRODUCE,
            '{"records":[{"value":1,"key_format":"text"}]}',
            "records[0]",
            "key_format is a member of the body, beside records",
        ),
        (
            PRODUCE,
            '{"records":[{"value":1,"max_block_ms":5}]}',
            "records[0]",
            "max_block_ms is a query parameter",
        ),
        (
            PRODUCE,
            '{"records":[{"value":1,"key_format":"json"}]}',
            "records[0]",
            "key_format is a member of the",
        ),
        (
            PRODUCE,
            '{"records":[{"value":1,"topic":"orders"}]}',
            "records[0]",
            "topic is in the path; POST /v1",
        ),
        (PRODUCE + "?partition=1", "{}", "query.partition", "; partition is a member of a record"),
        (PRODUCE + "?Idempotency-Key=1", "{}", "query.Idempotency-Key", "; Idempotency-Key is the header"),
        (PRODUCE + "?topic=a", "{}", "query.topic", "; topic is in the path"),
        ("/v1/records", '{"topic":"orders","records":[]}', "body", "topic is a member of a record; "),
        ("/v1/records?topic=a", "{}", "query.topic", "; topic is a member of a record"),
        ("/v1/leaders", '{"max_age_ms":5,"lookups":[]}', "body", "; max_age_ms is a query parameter"),
        ("/v1/leaders", '{"topic":"orders","lookups":[]}', "body", "; topic is a member of a look-up"),
        ("/v1/leaders?topic=a", "{}", "query.topic", "is not a query parameter of this request"),
    ],
)
def test_a_name_in_the_wrong_part_of_a_request_is_said_with_its_place_and_where_it_belongs(
    web: NativeApp, path: str, body: str, place: str, said: str
) -> None:
    answer = web.ask("POST", path, headers={"content-type": "application/json"}, content=body.encode())
    assert answer.status_code == 422, answer.text
    found = answer.json()
    assert found["place"] == place
    assert said in found["detail"]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("Pilotfish-Key", "Pilotfish-Key"),
        ("headers", "Pilotfish-Headers"),
        ("Idempotency_Key", "Idempotency-Key"),
    ],
)
def test_a_header_of_one_record_that_is_in_the_query_is_named(web: NativeApp, name: str, header: str) -> None:
    answer = web.ask(
        "POST", f"{PRODUCE}/bytes?{name}=a", headers={"content-type": "application/octet-stream"}
    )
    assert (answer.status_code, answer.json()["place"]) == (422, f"query.{name}")
    assert answer.json()["detail"].endswith(f"; {name} is the header {header}")


def test_a_line_of_a_stream_with_a_format_gets_the_place_where_formats_belong(web: NativeApp) -> None:
    answer = web.ask(
        "POST",
        PRODUCE,
        headers={"content-type": "application/x-ndjson"},
        content=b'{"value":1,"value_format":"text"}\n',
    )
    error = json.loads(answer.text.splitlines()[0])["error"]
    assert error["message"].endswith("; value_format is a query parameter")


def test_the_pages_need_no_token_and_an_unknown_one_is_not_there(tmp_path: Path) -> None:
    web = NativeApp(tokens_file=TokensFile(tmp_path, shop={}).setting)
    for reason in REASONS:
        page = web.get(reason.uri)
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
    index = web.get("/problems").text
    assert [reason.uri for reason in REASONS if f'href="{reason.uri}"' not in index] == []
    assert web.get("/problems/nothing").status_code in (401, 404)
    assert web.ask("POST", REASONS[0].uri).status_code == 401


def test_every_status_and_error_of_kafka_has_a_reason_of_that_status() -> None:
    for known in Errors:
        if known is Errors.NONE:
            continue
        for written in Written:
            for phase in Phase:
                problem = problem_of_failure(RecordFailure(error_for(known.code), phase, written, 1))
                assert problem.status in problem.said_reason.statuses, (known, written, phase)
    statuses = {status for reason in REASONS for status in reason.statuses}
    for status in statuses:
        assert status in Problem(status, "no").said_reason.statuses
        assert HTTPStatus(status)


def test_a_reason_gives_way_if_the_status_is_not_its_own() -> None:
    assert problem_of(ProducerClosedError("closed")).said_reason is SHUTTING_DOWN
    late = problem_of_failure(
        RecordFailure(ProducerClosedError("closed"), Phase.DELIVERY, Written.UNKNOWN, 1)
    )
    assert json.loads(late.body())["type"] == "/problems/outcome-unknown"
    assert json.loads(problem_of(InvalidTopicError("no")).body())["type"] == "/problems/invalid-topic"


def test_no_two_reasons_have_one_name() -> None:
    assert len({reason.name for reason in REASONS}) == len(REASONS)
