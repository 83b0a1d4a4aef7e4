"""POST …/records of REST Proxy v3: one record or many in a body of known length; refusals by HTTP itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from client_core import (
    InvalidTimestampError,
    NotLeaderOrFollowerError,
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.admission.caller import Caller, TopicRules, set_caller
from service.dialects.rest_v3 import schemas
from tests.support.http_app import HttpApp

PATH = "/v3/clusters/cluster/topics/orders/records"
JSON = {"content-type": "application/json"}


@pytest.fixture
def http() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    return app


def records(*written: str) -> bytes:
    return "".join(written).encode()


def post(http: HttpApp, body: bytes, path: str = PATH) -> list[dict[str, Any]]:
    """The reports of a request that is 200, each held against its schema."""
    answer = http.post(path, content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.text.endswith("\r\n")
    reports = [json.loads(line) for line in answer.text.splitlines()]
    for report in reports:
        model = schemas.DeliveryReport if report["error_code"] == 200 else schemas.ErrorAnswer
        model.model_validate(report)
    return reports


def codes(http: HttpApp, body: bytes, path: str = PATH) -> list[int]:
    return [report["error_code"] for report in post(http, body, path)]


def refused(http: HttpApp, body: bytes | None, path: str = PATH, **headers: str) -> tuple[int, int]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = http.post(path, content=body, headers=given)
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error_code", "message"]
    return answer.status_code, answer.json()["error_code"]


def sent(http: HttpApp) -> list[ProducerRecord]:
    return [record for submitted in http.producer.submitted for record in submitted]


# -- reports -------------------------------------------------------------------------------------------------


def test_a_record_is_reported_with_confluents_members_in_their_order(http: HttpApp) -> None:
    (report,) = post(
        http,
        b'{"partition_id":2,"key":{"type":"BINARY","data":"Zm9vYmFy"},"timestamp":"2021-02-05T19:14:42Z",'
        b'"headers":[{"name":"h","value":"AA=="}],"value":{"type":"JSON","data":{"foo": "bar"}}}',
    )
    assert list(report.items()) == [
        ("error_code", 200),
        ("cluster_id", "cluster"),
        ("topic_name", "orders"),
        ("partition_id", 2),
        ("offset", 100),
        ("timestamp", "2021-02-05T19:14:42Z"),
        ("key", {"type": "BINARY", "size": 6}),
        ("value", {"type": "JSON", "size": 13}),
    ]
    assert sent(http) == [
        ProducerRecord("orders", b'{"foo":"bar"}', b"foobar", 2, 1_612_552_482_000, (("h", b"\0"),))
    ]


def test_a_null_has_size_minus_one_and_a_missing_type_is_not_reported(http: HttpApp) -> None:
    typed, untyped = post(http, b'{"key":{"type":"STRING"},"value":{"type":"JSON","data":null}} {}')
    assert typed["key"] == {"type": "STRING", "size": -1}
    assert typed["value"] == {"type": "JSON", "size": -1}
    assert "key" not in untyped
    assert "value" not in untyped
    assert [(record.key, record.value) for record in sent(http)] == [(None, None)] * 2


def test_a_missing_offset_is_left_out(http: HttpApp) -> None:
    http.producer.outcome_of = lambda _, record: RecordMetadata(record.topic, 1, None, -1)
    (report,) = post(http, b"{}")
    assert report == {"error_code": 200, "cluster_id": "cluster", "topic_name": "orders", "partition_id": 1}


def test_records_may_be_parted_by_any_white_space_or_none(http: HttpApp) -> None:
    written = [f'{{"value":{{"type":"JSON","data":{n}}}}}' for n in range(5)]
    for between in ("", " ", "\n", "\r\n", " \t\n "):
        assert codes(http, between.join(written).encode()) == [200] * 5
        (one_submit,) = http.producer.submitted
        assert [record.value for record in one_submit] == [b"0", b"1", b"2", b"3", b"4"]
        http.producer.submitted.clear()


def test_thousands_of_records_are_one_submit_and_answered_in_order(http: HttpApp) -> None:
    reports = post(http, b"".join(b'{"key":{"type":"STRING","data":"%d"}}' % n for n in range(3_000)))
    assert [report["offset"] for report in reports] == [100 + n for n in range(3_000)]
    assert len(http.producer.submitted) == 1


def test_a_bad_record_is_answered_in_its_place_and_the_others_are_written(http: HttpApp) -> None:
    body = records(
        '{"value":{"type":"JSON","data":1}}',
        '{"value":{"type":"BINARY","data":"fooba"}}',
        '{"value":{"type":"STRING","data":1}}',
        '{"value":{"type":"AVRO","schema":"x","data":1}}',
        '{"value": nonsense}',
        '{"records":{"subject":"foobar"}}',
        '{"partition_id":-1}',
        '{"timestamp":"yesterday"}',
        "words",
        '{"value":{"type":"JSON","data":2}}',
    )
    assert codes(http, body) == [200, 400, 400, 415, 400, 400, 40402, 400, 400, 200]
    assert [record.value for record in sent(http)] == [b"1", b"2"]


def test_where_every_record_is_bad_nothing_is_submitted(http: HttpApp) -> None:
    assert codes(http, b'{"a":1}{"b":1}') == [400, 400]
    assert http.producer.submitted == []


def test_a_body_whose_brackets_do_not_match_is_taken_up_to_there(http: HttpApp) -> None:
    assert codes(http, b'{"value":{"type":"JSON","data":1}}]{}') == [200, 400]
    assert codes(http, b'{}{"value":') == [200, 400]
    assert len(sent(http)) == 2


# -- failures ------------------------------------------------------------------------------------------------


def failing(http: HttpApp, failure: RecordFailure) -> tuple[int, str]:
    """The code and message where the second of three records fails so."""

    def outcome(index: int, record: ProducerRecord) -> Any:
        return failure if index == 1 else http.producer.receipt(index, record)

    http.producer.outcome_of = outcome
    first, second, third = post(http, b'{}{"partition_id":1}{}')
    assert (first["error_code"], third["error_code"]) == (200, 200)
    return second["error_code"], second["message"]


def gone(topic: str) -> TimeoutError:
    error = TimeoutError(f"Topic {topic} not present in metadata after 1000 ms.")
    error.__cause__ = UnknownTopicOrPartitionError(f"topic {topic} is not there")
    return error


FAILURES = [
    (RecordFailure(gone("orders"), Phase.METADATA, Written.NO, 1000), 40401),
    (RecordFailure(TimeoutError("no broker"), Phase.METADATA, Written.NO, 1000), 50302),
    (RecordFailure(TimeoutError("no memory"), Phase.BUFFER, Written.NO, 1000), 50003),
    (RecordFailure(TimeoutError("expired"), Phase.DELIVERY, Written.NO, 1000), 50003),
    (RecordFailure(NotLeaderOrFollowerError("moved"), Phase.DELIVERY, Written.NO, 1000), 50003),
    (RecordFailure(InvalidTimestampError("too late"), Phase.DELIVERY, Written.NO, 10), 422),
]


def test_each_failure_has_its_code(http: HttpApp) -> None:
    for failure, code in FAILURES:
        outcomes, message = failing(http, failure)
        assert outcomes == code, failure
        assert "unknown" not in message, failure


def test_a_record_whose_fate_is_unknown_says_so(http: HttpApp) -> None:
    failure = RecordFailure(TimeoutError("expired"), Phase.DELIVERY, Written.UNKNOWN, 1000)
    code, message = failing(http, failure)
    assert code == 50003
    assert "a retry may write it twice" in message


def test_a_record_that_is_too_large_fails_alone(http: HttpApp) -> None:
    http.producer.too_large = frozenset({b"large"})
    written = ["a", "large", "b", "large"]
    body = records(*(f'{{"value":{{"type":"STRING","data":"{text}"}}}}' for text in written))
    assert codes(http, body) == [200, 413, 200, 413]
    assert [record.value for record in sent(http)] == [b"a", b"b"]
    assert http.app.sidecar.admission.bytes == 0


def test_where_the_client_refuses_everything_each_record_says_so(http: HttpApp) -> None:
    http.producer.state = "closed"
    assert set(codes(http, b"{}{}{bad}")) == {50302, 400}
    assert http.app.sidecar.admission.bytes == 0


def test_a_partition_that_the_topic_lacks_is_40402_and_not_waited_for_as_long_as_memory(
    http: HttpApp,
) -> None:
    http.producer.outcome_of = lambda _, record: RecordFailure(
        TimeoutError("Partition 3 of topic orders is not present"), Phase.METADATA, Written.NO, 1000
    )
    for partition in (3, 7):  # the first one is the topic's partition count
        assert codes(http, b'{"partition_id":%d}' % partition) == [40402]
        asked = [arguments for kind, arguments in http.producer.calls if kind == "records"][-1]
        assert asked["block_deadline_ms"] - http.producer.clock.now_ms() == 1_000


def test_a_topic_that_is_not_known_is_waited_for_a_second_and_40401(http: HttpApp) -> None:
    http.producer.outcome_of = lambda _, record: RecordFailure(
        gone("missing"), Phase.METADATA, Written.NO, 1000
    )
    path = PATH.replace("orders", "missing")
    assert codes(http, b'{}{"partition_id":0}', path) == [40401, 40401]
    (asked,) = [arguments for kind, arguments in http.producer.calls if kind == "records"]
    assert asked["block_deadline_ms"] - http.producer.clock.now_ms() == 1_000
    assert asked["create"] is False


# -- refusals by HTTP ----------------------------------------------------------------------------------------


#: A media type, None for none at all, the body, what follows the cluster in the path, and what is said.
REFUSED: list[tuple[str | None, bytes | None, str, tuple[int, int]]] = [
    *(("application/json", body, "/topics/orders/records", (422, 42206)) for body in (b"", b" \r\n\t ")),
    (None, None, "/topics/orders/records", (422, 42206)),
    *(
        (media_type, b"{}", "/topics/orders/records", (415, 415))
        for media_type in (
            *("text/plain", "application/x-www-form-urlencoded", "application/vnd.kafka.json.v2+json"),
            *("application/jsonx", "", None),
        )
    ),
    *(
        (f"application/json; charset={charset}", b"{}", "/topics/orders/records", (400, 400))
        for charset in ("DEADBEEF", "utf-16", "us-ascii", "")
    ),
    ("application/json", b"{}", "x/topics/orders/records", (404, 404)),
    ("application/json", b"{}", "/topics/a%20b/records", (400, 40002)),
    ("application/json", b"{}", "/topics/orders/records?timeout_ms=1", (422, 422)),
]


def test_a_body_that_is_no_request_for_records_is_refused(http: HttpApp) -> None:
    for media_type, body, path, said in REFUSED:
        headers = {} if media_type is None else {"content_type": media_type}
        found = refused(http, body, f"/v3/clusters/cluster{path}", **headers)
        assert found == said, (media_type, body, path)
    assert refused(http, b"{}", content_type="application/json", content_encoding="gzip") == (415, 415)
    assert http.producer.submitted == []


def test_a_body_in_another_charset_is_read_in_it(http: HttpApp) -> None:
    for media_type, written in {
        "application/json; charset=utf-8": "ü".encode(),
        'Application/JSON ;q=1; Charset="UTF-8"': "ü".encode(),
        "application/json;charset=ISO-8859-1": "ü".encode("latin-1"),
    }.items():
        content = b'{"value":{"type":"STRING","data":"' + written + b'"}}'
        answer = http.post(PATH, content=content, headers={"content-type": media_type})
        assert answer.json()["error_code"] == 200, media_type
        assert sent(http)[-1].value == "ü".encode(), media_type


def test_utf_8_that_is_none_is_a_bad_record(http: HttpApp) -> None:
    assert codes(http, b'{"value":{"type":"STRING","data":"\xfc"}}{}') == [400, 200]


def test_a_body_that_is_too_large_is_413() -> None:
    http = HttpApp(max_records_per_request=3)
    http.producer.set_topics({"orders": 3})
    assert codes(http, b"{}{}{}") == [200] * 3
    assert refused(http, b"{}{}{}{}", content_type="application/json") == (413, 413)
    assert len(sent(http)) == 3


def test_a_record_that_is_longer_than_the_limit_is_413_in_its_place() -> None:
    http = HttpApp(stream_max_line_bytes=50)
    http.producer.set_topics({"orders": 3})
    assert codes(http, b'{}{"value":{"type":"STRING","data":"%s"}}{}' % (b"x" * 50)) == [200, 413, 200]


def test_in_a_shutdown_nothing_is_accepted(http: HttpApp) -> None:
    http.app.sidecar.drain.begin()
    assert refused(http, b"{}", content_type="application/json") == (503, 503)


def test_before_any_broker_answered_the_cluster_is_not_known() -> None:
    http = HttpApp()
    answer = http.post(PATH, content=b"{}", headers=JSON, ends=http.producer.time_out)
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)


def test_a_caller_without_a_right_to_the_topic_is_40301(http: HttpApp) -> None:
    caller = Caller("reader", TopicRules.of(["*"]), TopicRules.of(["mine-*"]))

    async def as_reader(scope: Any, receive: Any, send: Any) -> None:
        set_caller(scope, caller)
        await http.app(scope, receive, send)

    for topic in ("orders", "missing"):
        answer = http.ask("POST", PATH.replace("orders", topic), app=as_reader, content=b"{}", headers=JSON)
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
    assert http.producer.submitted == []


def test_each_request_is_counted_by_its_outcome(http: HttpApp) -> None:
    post(http, b"{}")
    post(http, b"{}{bad}")
    post(http, b"{bad}")
    refused(http, b"", content_type="application/json")
    counted = {o: http.app.sidecar.http.produced(o).count for o in ("success", "partial", "error")}
    assert counted == {"success": 1, "partial": 1, "error": 2}
