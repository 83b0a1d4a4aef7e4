"""Producing in REST Proxy v2 over HTTP: what is written, how outcomes are reported, and the time limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from client_core import (
    Errors,
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from client_core.errors import error_for
from tests.support.fake_producer import FakeResult
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

JSON = {"content-type": "application/vnd.kafka.json.v2+json"}
TEXT = {"content-type": "application/vnd.kafka.text.v2+json"}
BINARY = {"content-type": "application/vnd.kafka.binary.v2+json"}
ONE = '{"records":[{"value":1}]}'
THREE = '{"records":[{"value":0},{"value":1},{"value":2}]}'
V2 = "application/vnd.kafka.v2+json"


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    return app


def post(
    web: HttpApp, body: str, path: str = "/topics/orders", headers: dict[str, str] | None = None
) -> httpx.Response:
    return web.post(path, content=body.encode(), headers=headers or JSON)


def failure(
    error: Errors, *, phase: Phase = Phase.DELIVERY, written: Written = Written.UNKNOWN
) -> RecordFailure:
    return RecordFailure(error_for(error.code), phase, written, 250)


def timed_out(written: Written) -> RecordFailure:
    return RecordFailure(TimeoutError("too late"), Phase.DELIVERY, written, 250)


def fail_with(web: HttpApp, *failures: RecordFailure | None) -> None:
    """Record n ends as failures[n]; None is an acknowledgement."""

    def report(index: int, record: ProducerRecord) -> RecordMetadata | RecordFailure:
        return failures[index] or RecordMetadata(record.topic, 1, 100 + index, 17)

    web.producer.outcome_of = report


def code_of(answer: httpx.Response) -> tuple[int, int]:
    """Status and code of a refusal, whose shape is looked at."""
    assert answer.headers["content-type"] == V2, answer.text
    assert set(answer.json()) in ({"error_code", "message"}, {"error_code", "message", "offsets"})
    return answer.status_code, answer.json()["error_code"]


def produced(web: HttpApp) -> dict[str, float]:
    """How many produce requests ended in which way, as the metrics have it."""
    return {o: web.app.sidecar.http.produced(o).count for o in ("success", "partial", "error")}


def acknowledged(partition: int, offset: int | None) -> dict[str, object]:
    """The result of an acknowledged record."""
    return {"partition": partition, "offset": offset, "error_code": None, "error": None}


# -- acknowledged --------------------------------------------------------------------------------------------


def test_acknowledged_records_are_reported_in_order_and_in_confluents_shape(web: HttpApp) -> None:
    answer = post(web, THREE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == V2
    assert int(answer.headers["content-length"]) == len(answer.content)
    offsets = [acknowledged(0, 100 + n) for n in range(3)]
    assert answer.json() == {"offsets": offsets, "key_schema_id": None, "value_schema_id": None}
    assert len(web.producer.submitted) == 1  # one ticket, whatever the number of records


def test_the_path_may_name_the_partition(web: HttpApp) -> None:
    answer = post(web, '{"records":[{"value":1},{"value":2,"partition":2}]}', "/topics/orders/partitions/2")
    assert [offset["partition"] for offset in answer.json()["offsets"]] == [2, 2]
    assert [record.partition for record in web.producer.submitted[0]] == [2, 2]


def test_null_is_a_tombstone_and_no_false_value_becomes_one(web: HttpApp) -> None:
    written = ["null", "0", "false", '""', "[]", "{}"]
    body = ",".join(f'{{"key":"k","value":{value}}}' for value in written)
    assert post(web, f'{{"records":[{body}]}}').status_code == 200
    values = [record.value for record in web.producer.submitted[0]]
    assert values == [None, b"0", b"false", b'""', b"[]", b"{}"]


def test_an_offset_that_the_broker_did_not_say_is_null(web: HttpApp) -> None:
    web.producer.outcome_of = lambda _, record: RecordMetadata(record.topic, 2, None, 5)
    answer = post(web, ONE)
    assert (answer.status_code, answer.json()["offsets"]) == (200, [acknowledged(2, None)])


# -- some of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (failure(Errors.MESSAGE_TOO_LARGE, written=Written.NO), 413),
        (failure(Errors.TOPIC_AUTHORIZATION_FAILED, written=Written.NO), 40301),
        (failure(Errors.INVALID_RECORD, written=Written.NO), 422),
        (failure(Errors.UNKNOWN_SERVER_ERROR, written=Written.NO), 50002),
        (failure(Errors.NOT_ENOUGH_REPLICAS, written=Written.NO), 50003),
        (timed_out(Written.NO), 50003),
        (timed_out(Written.UNKNOWN), 50003),
        (failure(Errors.UNKNOWN_TOPIC_OR_PARTITION, written=Written.NO), 40401),
    ],
    ids=repr,
)
def test_a_partial_failure_is_200_and_says_which_record_failed_and_why(
    web: HttpApp, failed: RecordFailure, code: int
) -> None:
    fail_with(web, None, failed, None)
    answer = post(web, THREE)
    assert answer.status_code == 200
    body = answer.json()
    first, outcomes, third = body["offsets"]
    assert (first, third) == (acknowledged(1, 100), acknowledged(1, 102))
    assert set(outcomes) == {"partition", "offset", "error_code", "error", "message"}
    assert (outcomes["partition"], outcomes["offset"], outcomes["error_code"]) == (None, None, code)
    assert outcomes["error"] == outcomes["message"]
    assert failed.error.message in outcomes["error"]
    assert (body["key_schema_id"], body["value_schema_id"]) == (None, None)


def test_a_record_that_may_have_been_written_says_so(web: HttpApp) -> None:
    fail_with(web, timed_out(Written.UNKNOWN), timed_out(Written.NO), None)
    unknown, not_written, _ = post(web, THREE).json()["offsets"]
    assert unknown["error"] == "too late; it may still have been written"
    assert not_written["error"] == "too late"


def test_a_partition_that_is_not_there_fails_its_record_and_no_other(web: HttpApp) -> None:
    missing = failure(Errors.UNKNOWN_TOPIC_OR_PARTITION, phase=Phase.METADATA, written=Written.NO)
    fail_with(web, None, missing)
    answer = post(web, '{"records":[{"value":1,"partition":1},{"value":2,"partition":500}]}')
    assert answer.status_code == 200
    assert [offset["error_code"] for offset in answer.json()["offsets"]] == [None, 40402]


# -- none of them --------------------------------------------------------------------------------------------


#: A failure of all records, and the status and the code of the answer.
FAILED_ALL = [
    (failure(Errors.TOPIC_AUTHORIZATION_FAILED, written=Written.NO), (403, 40301)),
    (failure(Errors.UNKNOWN_TOPIC_OR_PARTITION, written=Written.NO), (404, 40401)),
    (failure(Errors.MESSAGE_TOO_LARGE, written=Written.NO), (413, 413)),
    (failure(Errors.INVALID_TIMESTAMP, written=Written.NO), (422, 422)),
    (failure(Errors.UNKNOWN_SERVER_ERROR, written=Written.NO), (500, 50002)),
    (timed_out(Written.UNKNOWN), (500, 50003)),
    (failure(Errors.NETWORK_EXCEPTION, written=Written.UNKNOWN), (500, 50003)),
    (timed_out(Written.NO), (503, 50302)),
    (failure(Errors.SASL_AUTHENTICATION_FAILED, written=Written.NO), (503, 50302)),
]


def test_where_none_is_acknowledged_the_common_cause_is_the_answer(web: HttpApp) -> None:
    for failed, said in FAILED_ALL:
        fail_with(web, failed, failed, failed)
        answer = post(web, THREE)
        assert (code_of(answer), set(answer.json())) == (said, {"error_code", "message"}), failed
        assert failed.error.message in answer.json()["message"]
        assert ("retry-after" in answer.headers) == (said[0] == 503), failed


def test_different_causes_are_the_gravest_with_each_records_own_beside_it(web: HttpApp) -> None:
    fail_with(web, failure(Errors.MESSAGE_TOO_LARGE, written=Written.NO), timed_out(Written.UNKNOWN))
    answer = post(web, '{"records":[{"value":0},{"value":1}]}')
    assert code_of(answer) == (500, 50003)
    assert [offset["error_code"] for offset in answer.json()["offsets"]] == [413, 50003]


def test_a_partition_that_is_not_there_is_404(web: HttpApp) -> None:
    missing = TimeoutError("Partition 500 of topic orders …")
    fail_with(web, RecordFailure(missing, Phase.METADATA, Written.NO, 1_000))
    assert code_of(post(web, '{"records":[{"value":1,"partition":500}]}')) == (404, 40402)
    assert code_of(post(web, ONE, "/topics/orders/partitions/500")) == (404, 40402)


def test_a_path_that_names_no_partition_is_404(web: HttpApp) -> None:
    for partition in ("x", "-1", "1.5", "2147483648", "%20", "²", "1e3", "99999999999999999999"):
        answer = post(web, ONE, f"/topics/orders/partitions/{partition}")
        assert code_of(answer) == (404, 40402), partition
    assert web.producer.submitted == []


# -- refused before anything is written ----------------------------------------------------------------------


#: A body, the headers besides those of JSON, the status and the code.
REFUSED: list[tuple[str, dict[str, str], tuple[int, int]]] = [
    *((body, {}, (400, 40002)) for body in ("{", "[]", '{"records":[{"partition":1.5}]}')),
    *((body, {}, (422, 422)) for body in ("", "{}", '{"records":[]}', '{"records":[{"valeu":1}]}')),
    ('{"records":[{"value":1}],"value_schema_id":1}', {}, (422, 42205)),
    (ONE, TEXT, (422, 42206)),
    (ONE, BINARY, (422, 42206)),
    ('{"records":[{"value":"!"}]}', BINARY, (422, 42207)),
    (ONE, {"content-type": "application/json"}, (415, 415)),
    (ONE, {"content-type": "application/vnd.kafka.avro.v2+json"}, (415, 415)),
    (ONE, {"content-encoding": "br"}, (415, 415)),
    (ONE, {"accept": "text/html"}, (406, 406)),
    (ONE, {"origin": "http://evil.example"}, (403, 40301)),
    (ONE, {"host": "evil.example"}, (421, 421)),
]


def test_a_request_that_can_not_be_served_is_refused_whole(web: HttpApp) -> None:
    for body, headers, said in REFUSED:
        answer = post(web, body, headers={**JSON, **headers})
        assert (code_of(answer), set(answer.json())) == (said, {"error_code", "message"}), (body, headers)
    assert code_of(post(web, ONE, headers={"x": "y"})) == (415, 415)
    for topic in ("a%20b", "%C3%A9", "%ff", "a" * 250, "a:b"):  # which no topic can be called
        assert code_of(post(web, ONE, f"/topics/{topic}")) == (400, 40002), topic
    assert web.producer.submitted == []


def test_parameters_are_refused_and_not_ignored(web: HttpApp) -> None:
    for path in ("/topics/orders", "/topics/orders/partitions/0"):
        for query in ("acks=0", "async=true&acks=0", "async=true&async=false"):
            assert code_of(post(web, ONE, f"{path}?{query}")) == (422, 422), query
        for query in ("async=wrong", "async="):
            assert code_of(post(web, ONE, f"{path}?{query}")) == (400, 40002), query
    assert web.producer.submitted == []


def test_strimzis_async_leaves_the_offsets_out_of_what_is_acknowledged_all_the_same(web: HttpApp) -> None:
    for number, path in enumerate(("/topics/orders", "/topics/orders/partitions/0")):
        answer = post(web, THREE, f"{path}?async=true")
        assert (answer.status_code, answer.content) == (204, b"")
        assert "content-type" not in answer.headers
        assert len(web.producer.submitted) == 2 * number + 1
        assert produced(web) == {"success": 2 * number + 1, "partial": 0, "error": 0}
        assert len(post(web, THREE, f"{path}?async=false").json()["offsets"]) == 3


def test_strimzis_async_hides_no_failure(web: HttpApp) -> None:
    fail_with(web, None, failure(Errors.NOT_LEADER_OR_FOLLOWER), None)
    answer = post(web, THREE, "/topics/orders?async=true")
    assert answer.status_code == 200
    assert [item["error_code"] for item in answer.json()["offsets"]] == [None, 50003, None]
    fail_with(web, failure(Errors.NOT_LEADER_OR_FOLLOWER))
    assert post(web, ONE, "/topics/orders?async=true").status_code >= 400


def test_a_record_that_is_too_large_refuses_the_request_with_413(web: HttpApp) -> None:
    error = RecordTooLargeError("The message is 2000000 bytes")
    error.record_index = 1
    web.producer.refuses = error
    answer = post(web, THREE)
    assert code_of(answer) == (413, 413)
    assert "records[1]" in answer.json()["message"]


def test_a_producer_that_is_closed_is_503(web: HttpApp) -> None:
    web.producer.close(0)
    assert code_of(post(web, ONE)) == (503, 50302)


# -- how long ------------------------------------------------------------------------------------------------


def waits_ms(web: HttpApp, body: str, path: str = "/topics/orders") -> tuple[int, int]:
    """How long a request may wait for metadata and memory, and in all."""
    post(web, body, path)
    kind, asked = web.producer.calls[-1]
    assert kind == "records"
    now_ms = web.producer.clock.now_ms()
    return asked["block_deadline_ms"] - now_ms, asked["deadline_ms"] - now_ms


def test_an_unknown_topic_is_waited_for_once_whatever_the_number_of_records(web: HttpApp) -> None:
    many = json.dumps({"records": [{"value": n} for n in range(500)]})
    assert waits_ms(web, many, "/topics/absent") == (1_000, 120_000)
    assert len(web.producer.calls) == 1


def test_a_partition_that_a_topic_lacks_is_waited_for_as_shortly(web: HttpApp) -> None:
    assert waits_ms(web, '{"records":[{"value":1,"partition":3}]}')[0] == 1_000
    assert waits_ms(web, ONE, "/topics/orders/partitions/3")[0] == 1_000


def test_a_body_that_comes_slowly_does_not_use_up_the_wait_for_its_topic(web: HttpApp) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield ONE[:9].encode()
        web.producer.clock.advance(5_000)
        yield ONE[9:].encode()

    assert web.post("/topics/absent", content=slowly(), headers=JSON).status_code == 200
    _, asked = web.producer.calls[-1]
    assert asked["block_deadline_ms"] - web.producer.clock.now_ms() == 1_000


def test_memory_for_a_known_topic_is_waited_for_as_kafka_has_it(web: HttpApp) -> None:
    assert waits_ms(web, '{"records":[{"value":1,"partition":2}]}') == (60_000, 120_000)


def test_an_unknown_topic_is_404_whatever_the_number_of_records(web: HttpApp) -> None:
    waited = TimeoutError("Topic absent not present in metadata after 1000 ms.")
    waited.__cause__ = UnknownTopicOrPartitionError()
    fail_with(web, *[RecordFailure(waited, Phase.METADATA, Written.NO, 1_000)] * 3)
    answer = post(web, THREE, "/topics/absent")
    assert code_of(answer) == (404, 40401)
    assert answer.json()["message"] == f"{waited.message} The brokers have no such topic or partition."


def test_topics_are_created_only_where_the_setting_says_so(web: HttpApp) -> None:
    post(web, ONE, "/topics/absent")
    assert web.producer.calls[-1][1]["create"] is False
    making = HttpApp(auto_create_topics=True)
    post(making, ONE, "/topics/absent")
    assert making.producer.calls[-1][1]["create"] is True


# -- callers -------------------------------------------------------------------------------------------------


def test_a_topic_that_the_caller_may_not_use_is_403_whether_or_not_it_exists(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"], "produce": ["orders"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3, "hidden": 3})
    headers = {**JSON, **tokens.of("shop")}
    assert post(web, ONE, headers=headers).status_code == 200
    for path in ("/topics/hidden", "/topics/absent", "/topics/hidden/partitions/x"):
        assert code_of(post(web, ONE, path, headers)) == (403, 40301), path
    assert code_of(post(web, ONE)) == (401, 40101)
    assert len(web.producer.submitted) == 1


# -- callers who leave ---------------------------------------------------------------------------------------


def test_every_end_is_counted_once(web: HttpApp) -> None:
    post(web, ONE)
    fail_with(web, None, timed_out(Written.NO), None)
    post(web, THREE)
    post(web, "{}")
    post(web, ONE, "/topics/orders/partitions/x")
    fail_with(web, timed_out(Written.NO))
    post(web, ONE)
    assert produced(web) == {"success": 1, "partial": 1, "error": 3}


def test_a_request_that_failed_as_a_whole_has_a_result_for_each_record(web: HttpApp) -> None:
    web.producer.holds_records = True
    closed = FakeResult(error=TimeoutError("closed"))
    sent = {"content": THREE, "headers": JSON}
    answer = web.post("/topics/orders", ends=lambda ticket: web.producer.finish(ticket, closed), **sent)
    assert code_of(answer) == (500, 50003)
    assert answer.json()["message"] == "closed; it may still have been written"
