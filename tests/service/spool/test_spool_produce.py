"""Producing with delivery=spool over HTTP: what is answered, what is refused, and what the status shows."""

from __future__ import annotations

import asyncio
import json
import sys
from subprocess import run as run_program
from typing import TYPE_CHECKING, Any

import pytest

from client_core import ProducerRecord, RecordTooLargeError
from service.native.status_schemas import SpoolState, StatusAnswer
from tests.support.coroutine_tests import run, timed, until
from tests.support.http_app import NativeApp
from tests.support.spooling import BadDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    import httpx

    from service.spool.spool import Spool

THREE = b'{"records":[{"value":0},{"value":1,"key":"k"},{"value":2}]}'
JSON = {"content-type": "application/json"}
PATH = "/v1/topics/orders/records?delivery=spool"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[NativeApp]:
    """A sidecar with a spool, the threads of which do not run: `turned` asks and turns the writer by hand."""
    app = NativeApp(spool_folder=str(tmp_path / "spool"))
    app.producer.set_topics({"orders": 3})
    app.spool_producer.set_topics({"orders": 3})
    yield app
    spool_of(app).release()


def spool_of(web: NativeApp) -> Spool:
    assert web.app.spool is not None
    return web.app.spool


async def asked(web: NativeApp, *bodies: bytes, path: str = PATH, **headers: str) -> list[httpx.Response]:
    """Posts bodies at once, and turns the writer when all of them wait, until all are answered."""
    async with web.client() as client:
        given = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        tasks = [asyncio.create_task(client.post(path, content=body, headers=given)) for body in bodies]
        while not all(task.done() for task in tasks):
            spool_of(web).writer.turn()
            await asyncio.sleep(0)
        return [task.result() for task in tasks]


def turned(web: NativeApp, body: bytes = THREE, path: str = PATH, **headers: str) -> httpx.Response:
    (answer,) = run(asked(web, body, path=path, **headers))
    return answer


def delivered(web: NativeApp) -> list[ProducerRecord]:
    """What the spool sends, once it is turned."""
    for _ in range(3):
        spool_of(web).delivery.turn(web.producer.clock.now_ms())
    return [record for chunk in web.spool_producer.submitted for record in chunk]


# -- taken ---------------------------------------------------------------------------------------------------


def test_spooled_records_are_answered_202_with_their_numbers(web: NativeApp) -> None:
    answer = turned(web)
    numbers = {"spooled": 3, "first_sequence": 1, "last_sequence": 3}
    assert answer.status_code == 202
    assert answer.json() == {"topic": "orders", **numbers, "status": "/v1/status"}
    assert turned(web).json()["first_sequence"] == 4
    # It goes through the producer of the spool, and not the other.
    assert web.producer.submitted == []
    once = [(b"0", None), (b"1", b"k"), (b"2", None)]
    assert [(record.value, record.key) for record in delivered(web)] == 2 * once


def test_one_record_as_octets_is_spooled_too(web: NativeApp) -> None:
    headers = {"content_type": "application/octet-stream"}
    answer = turned(web, b"\x00\xff", f"{PATH}&key=k&partition=2&timestamp=17", **headers)
    assert (answer.status_code, answer.json()["spooled"]) == (202, 1)
    assert delivered(web) == [ProducerRecord("orders", b"\x00\xff", b"k", 2, 17)]


def test_an_unknown_topic_is_accepted_since_kafka_may_be_away(web: NativeApp) -> None:
    for topic in ("new", "o%72ders"):  # and a path in an unusual spelling is served the same
        assert turned(web, path=f"/v1/topics/{topic}/records?delivery=spool").status_code == 202


def test_records_of_many_topics_are_spooled_together(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 3, "audit": 1})
    path = "/v1/records?delivery=spool"
    body = b'{"records":[{"topic":"orders","value":0},{"topic":"audit","value":1},{"topic":"new","value":2}]}'
    answer = turned(web, body, path=path, Idempotency_Key="k")
    assert answer.status_code == 202
    assert answer.json() == {
        "spooled": 3,
        "first_sequence": 1,
        "last_sequence": 3,
        "status": "/v1/status",
    }
    assert turned(web, body, path=path, Idempotency_Key="k").headers["pilotfish-replayed"] == "true"
    assert sorted(record.topic for record in delivered(web)) == ["audit", "new", "orders"]
    beyond = body.replace(b'"audit"', b'"audit","partition":1')
    answer = turned(web, beyond, path=path)
    assert (answer.status_code, answer.json()["place"]) == (404, "records[1].partition")
    assert answer.json()["type"] == "/problems/unknown-partition"


def test_delivery_direct_is_what_is_meant_without_it(web: NativeApp) -> None:
    answer = web.produce(THREE, query="?delivery=direct")
    assert answer.status_code == 200
    assert len(web.producer.submitted) == 1


def test_the_trace_of_the_request_goes_with_its_records_unless_trace_headers_are_off(
    web: NativeApp, tmp_path: Path
) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert turned(web, traceparent=parent).status_code == 202
    assert {record.headers for record in delivered(web)} == {(("traceparent", parent.encode()),)}
    without = NativeApp(spool_folder=str(tmp_path / "traces"), trace_headers=False)
    assert turned(without, traceparent=parent).status_code == 202
    assert {record.headers for record in delivered(without)} == {()}
    spool_of(without).release()


# -- refused -------------------------------------------------------------------------------------------------


def test_without_a_spool_the_setting_is_named() -> None:
    answer = NativeApp().produce(THREE, query="?delivery=spool")
    assert (answer.status_code, answer.json()["written"]) == (400, "no")
    assert answer.json()["detail"] == "query.delivery: there is no spool (spool_folder is not set)"
    assert NativeApp().get("/v1/status").json()["spool"] is None


def test_another_way_of_delivery_is_refused_and_so_is_a_stream(web: NativeApp) -> None:
    for delivery in ("disk", "", "Spool"):
        answer = web.produce(THREE, query=f"?delivery={delivery}")
        assert (answer.status_code, answer.json()["place"]) == (422, "query.delivery")
        assert "must be direct or spool" in answer.json()["detail"]
    for path, refusal in (
        (PATH, (422, "query.delivery")),
        (PATH.replace("?delivery=", "/"), (415, "Content-Type")),
    ):
        answer = web.post(path, content=b'{"value":1}\n', headers={"content-type": "application/x-ndjson"})
        assert (answer.status_code, answer.json()["place"]) == refusal
        assert "send the records as application/json" in answer.json()["detail"], path


def test_a_request_that_can_never_be_sent_is_refused_at_once_and_whole(web: NativeApp) -> None:
    error = RecordTooLargeError("The message is 9 bytes when serialized")
    error.record_index = 1
    web.producer.refuses = error
    answer = turned(web)
    assert (answer.status_code, answer.json()["place"]) == (413, "records[1]")
    assert answer.json()["written"] == "no"
    web.producer.refuses = None
    answer = turned(web, b'{"records":[{"value":1},{"value":2,"partition":3}]}')
    reported = answer.json()
    assert (answer.status_code, reported["place"]) == (404, "records[1].partition")
    assert "topic orders has 3 partitions" in reported["detail"]
    kafka_error = (reported["kafka_error"], reported["code"], reported["written"])
    assert kafka_error == ("UNKNOWN_TOPIC_OR_PARTITION", 3, "no")
    assert turned(web, b'{"records":[{"value":1},{"key":2}]}').status_code == 422
    assert spool_of(web).entries == 0


def test_a_partition_that_only_old_metadata_lacks_is_accepted(web: NativeApp) -> None:
    """The topic may have grown since. Delivery asks the brokers."""
    body = b'{"records":[{"value":1,"partition":3}]}'
    web.producer.clock.advance(5_000)
    assert turned(web, body).status_code == 404
    web.producer.clock.advance(1)
    assert turned(web, body).status_code == 202


def test_a_full_spool_is_a_503_that_names_the_setting(tmp_path: Path) -> None:
    web = NativeApp(spool_folder=str(tmp_path / "small"), spool_max_bytes=1024 * 1024)
    large = json.dumps({"records": [{"value": "x" * 700_000}]}).encode()
    assert turned(web, large).status_code == 202
    answer = turned(web, large)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
    assert "spool_max_bytes (1048576)" in answer.json()["detail"]
    assert (answer.json()["written"], answer.json()["retriable"]) == ("no", True)
    spool_of(web).release()


def test_records_that_never_fit_in_the_spool_are_a_413_that_nobody_repeats(tmp_path: Path) -> None:
    web = NativeApp(spool_folder=str(tmp_path / "small"), spool_max_bytes=1024 * 1024)
    large = json.dumps({"records": [{"value": "x" * 600_000}] * 2}).encode()
    answer = turned(web, large, idempotency_key="a")
    assert (answer.status_code, answer.json()["place"]) == (413, "body")
    assert "spool_max_bytes (1048576)" in answer.json()["detail"]
    assert (answer.json()["written"], answer.json()["retriable"]) == ("no", False)
    assert "retry-after" not in answer.headers
    assert turned(web, idempotency_key="a").status_code == 202
    spool_of(web).release()


def test_a_disk_that_fails_is_a_503_and_the_next_request_is_taken(web: NativeApp) -> None:
    disk = spool_of(web).segments.disk
    assert isinstance(disk, BadDisk)
    disk.fails["fsync"] = 1
    answers = run(asked(web, THREE, THREE))
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        reported = answer.json()
        assert reported["detail"] == "the spool could not store the records: fsync: no fsync here"
        assert (reported["written"], reported["retriable"]) == ("no", True)
    assert turned(web).json()["first_sequence"] == 1


def test_where_the_next_process_may_find_the_records_they_are_not_said_to_be_unwritten(
    web: NativeApp,
) -> None:
    disk = spool_of(web).segments.disk
    assert isinstance(disk, BadDisk)
    assert turned(web).status_code == 202
    disk.fails.update(fsync=1, truncate=1, create=1)
    answer = turned(web)
    assert (answer.status_code, answer.json()["written"]) == (503, "unknown")


def test_a_disk_that_does_not_answer_is_a_504_whose_outcome_is_unknown(web: NativeApp) -> None:
    async def asked_once() -> httpx.Response:
        async with web.client() as client:
            return await client.post(f"{PATH}&timeout_ms=30", content=THREE, headers=JSON)

    answer, waited_ms = timed(asked_once())
    assert (answer.status_code, waited_ms) == (504, 30)
    reported = answer.json()
    assert (reported["written"], reported["retriable"]) == ("unknown", True)
    assert (reported["phase"], reported["waited_ms"]) == ("delivery", 30)
    assert reported["detail"] == "the disk of the spool did not answer within 30 ms"


def test_the_time_that_a_body_took_is_no_time_to_wait_for_the_disk(web: NativeApp) -> None:
    read: list[bytes] = []

    async def slow() -> AsyncIterator[bytes]:
        web.producer.clock.advance(40_000)
        yield THREE
        read.append(THREE)

    async def answered() -> httpx.Response:
        async with web.client() as client:
            path = f"{PATH}&timeout_ms=30000"
            task = asyncio.create_task(client.post(path, content=slow(), headers=JSON))
            await until(lambda: read)
            for _ in range(50):
                await asyncio.sleep(0)
            spool_of(web).writer.turn()
            return await task

    assert run(answered()).status_code == 504


def test_a_sidecar_that_ends_takes_nothing(web: NativeApp) -> None:
    spool_of(web).writer.close(1_000)
    answer = turned(web)
    reported = answer.json()
    assert (answer.status_code, reported["detail"]) == (503, "the sidecar is shutting down")
    assert (reported["written"], reported["retriable"]) == ("no", True)


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_request_that_comes_again_under_its_key_is_spooled_once(web: NativeApp) -> None:
    first, second = turned(web, idempotency_key="a"), turned(web, idempotency_key="a")
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert second.headers["pilotfish-replayed"] == "true"
    # Delivered directly, the same records are another request.
    assert turned(web, path="/v1/topics/orders/records", idempotency_key="a").status_code == 422
    assert len(delivered(web)) == 3


def test_two_at_once_under_one_key_are_spooled_once(web: NativeApp) -> None:
    heavy = json.dumps({"records": [{"value": "x" * 300_000}] * 3}).encode()  # parsed on a thread
    for body in (THREE, heavy):
        before = spool_of(web).entries
        first, second = run(asked(web, body, body, idempotency_key=f"{len(body)}"))
        assert first.json() == second.json()
        assert spool_of(web).entries == before + 3


def test_the_answer_of_many_spooled_records_takes_no_more_memory_than_that_of_one(tmp_path: Path) -> None:
    for max_bytes, status in ((1_096, 413), (1_097, 202)):
        web = NativeApp(spool_folder=str(tmp_path / f"{max_bytes}"), idempotency_max_bytes=max_bytes)
        assert turned(web, idempotency_key="a").status_code == status, max_bytes
        spool_of(web).release()


def test_a_refusal_leaves_its_key_free(web: NativeApp) -> None:
    web.producer.refuses = RecordTooLargeError("The message is 9 bytes when serialized")
    assert turned(web, idempotency_key="a").status_code == 413
    web.producer.refuses = None
    again = turned(web, idempotency_key="a")
    assert again.status_code == 202
    assert "pilotfish-replayed" not in again.headers


def test_under_a_key_a_disk_that_failed_is_asked_again_and_what_came_of_it_is_kept(web: NativeApp) -> None:
    disk = spool_of(web).segments.disk
    assert isinstance(disk, BadDisk)
    disk.fails["fsync"] = 1
    answers = [turned(web, idempotency_key="a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 202, 202]
    assert ["pilotfish-replayed" in answer.headers for answer in answers] == [False, False, True]
    assert spool_of(web).entries == 3


def test_under_a_key_the_records_are_kept_though_the_caller_stopped_waiting(web: NativeApp) -> None:
    path = f"{PATH}&timeout_ms=30"
    headers = {**JSON, "idempotency-key": "a"}
    assert web.post(path, content=THREE, headers=headers).status_code == 504
    spool_of(web).writer.turn()
    again = turned(web, idempotency_key="a")
    assert (again.status_code, again.headers["pilotfish-replayed"]) == (202, "true")
    assert spool_of(web).entries == 3


def test_the_time_of_a_request_that_comes_again_begins_with_its_head(web: NativeApp) -> None:
    async def slow() -> AsyncIterator[bytes]:
        web.producer.clock.advance(20)
        yield THREE

    async def answered() -> httpx.Response:
        async with web.client() as client:
            headers, path = {**JSON, "idempotency-key": "k"}, f"{PATH}&timeout_ms=30"
            first = asyncio.create_task(client.post(PATH, content=THREE, headers=headers))
            await until(lambda: web.app.sidecar.admission.requests)
            late: httpx.Response = await client.post(path, content=slow(), headers=headers)
            spool_of(web).writer.turn()
            await first
            return late

    answer, waited_ms = timed(answered())
    assert (answer.status_code, waited_ms) == (504, 10)


# -- status and metrics --------------------------------------------------------------------------------------


def test_the_status_includes_the_spool(web: NativeApp) -> None:
    turned(web)
    web.producer.clock.advance(5_000)
    web.spool_producer.holds_records = True
    delivered(web)
    reported: Any = web.get("/v1/status").json()
    StatusAnswer.model_validate(reported, strict=True)
    spool = SpoolState.model_validate(reported["spool"], strict=True)
    assert (spool.entries, spool.oldest_age_ms, spool.set_aside, spool.last_error) == (3, 5_000, 0, None)
    assert 0 < spool.bytes < spool.max_bytes == 256 * 1024 * 1024


def test_a_sidecar_without_a_spool_and_events_loads_nothing_of_them() -> None:
    code = (
        "import sys, service.process.server\n"
        "from tests.support.http_app import NativeApp\n"
        'assert NativeApp().produce(b\'{"records":[{"value":1}]}\').status_code in (200, 503)\n'
        "metrics = ('service.spool.spool_metrics', 'service.events.event_metrics')\n"
        "print([name for name in sys.modules if name.startswith(('service.spool.', 'service.events.'))\n"
        "       and name not in metrics])\n"
    )
    ended = run_program([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_the_app_starts_and_closes_its_spool(web: NativeApp) -> None:
    """With its threads, as in a sidecar that runs."""

    async def life() -> list[int]:
        async with web.app.api.router.lifespan_context(web.app.api), web.client() as client:
            answers = [await client.post(PATH, content=THREE, headers=JSON) for _ in range(3)]
            await until(lambda: spool_of(web).entries == 0)
            return [answer.status_code for answer in answers]

    assert run(life()) == [202, 202, 202]
    assert web.spool_producer.closed_after_ms is not None


def test_spans_are_sent_last_when_all_that_was_delivered_at_the_end_has_its_own(
    web: NativeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    for part in ("traces", "spool"):
        close = getattr(web.app, part).close

        def closed(timeout_ms: int, *, part: str = part, close: Callable[[int], object] = close) -> None:
            close(timeout_ms)
            ended.append(part)

        monkeypatch.setattr(getattr(web.app, part), "close", closed)

    async def life() -> None:
        async with web.app.api.router.lifespan_context(web.app.api):
            pass

    run(life())
    assert ended == ["spool", "traces"]
