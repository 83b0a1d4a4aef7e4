"""Which bodies are parsed on another thread, and their results; and the bytes of answers."""

from __future__ import annotations

import asyncio
import json
import threading
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import AcknowledgedRun, ProducerRecord, RecordMetadata
from service.produce.body_threads import FEW_RECORDS, SURELY_LIGHT_BYTES, BodyThreads, is_light, let_go
from service.produce.produce_answers import answer_of, answer_of_runs, in_common
from service.wire.errors import Problem, ProblemError
from tests.support.coroutine_tests import run
from tests.support.fake_producer import FakeResult
from tests.support.http_app import NativeApp


def test_a_body_is_light_by_its_bytes_members_and_levels() -> None:
    light = (
        *(b"[" * SURELY_LIGHT_BYTES, b"[" * 10_000, b"a" * 256 * 1024),
        b'{"key":"customer-7","value":{"total":12.5,"items":[1,2,3]}},' * 1_000,
    )
    heavy = (b"[" * 10_001, b"0," * 20_000, b'{"":' * 20_000, b"a" * (256 * 1024 + 1))
    assert [is_light(body) for body in light] == [True] * 4
    assert [is_light(body) for body in heavy] == [False] * 4


async def test_a_light_body_is_read_at_once_and_a_heavy_one_on_a_thread() -> None:
    body_threads, here = BodyThreads(), threading.current_thread()
    light = body_threads.read(lambda body: threading.current_thread(), b"a")
    with pytest.raises(StopIteration) as at_once:
        light.send(None)
    heavy = await body_threads.read(lambda body: threading.current_thread(), b"a" * 1_000_000)
    body_threads.close()
    assert at_once.value.value is here
    assert heavy.name.startswith("pilotfish-bodies")


async def test_a_close_waits_for_nothing_and_ends_what_has_not_begun() -> None:
    body_threads, goes_on = BodyThreads(), threading.Event()
    begun = [asyncio.create_task(body_threads.do(goes_on.wait)) for _ in range(4)]
    waits_for_a_thread = asyncio.create_task(body_threads.do(lambda: "never"))
    await asyncio.sleep(0)
    body_threads.close()
    goes_on.set()
    assert await asyncio.gather(*begun) == [True] * 4
    with pytest.raises(asyncio.CancelledError):
        await waits_for_a_thread


async def test_exceptions_of_the_work_come_through_and_a_lack_of_memory_is_503() -> None:
    body_threads = BodyThreads()

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="no body"):
        await body_threads.do(lambda: fail(ValueError("no body")))
    for body in (b"a", b"a" * 1_000_000):
        with pytest.raises(ProblemError) as refused:
            await body_threads.read(lambda body: fail(MemoryError()), body)
        assert refused.value.problem.status == 503
    with pytest.raises(MemoryError):  # records were sent: it is no 503 that says that none were
        await body_threads.report(lambda: fail(MemoryError()))
    body_threads.close()


async def test_the_work_knows_whose_request_it_is() -> None:
    body_threads, request = BodyThreads(), ContextVar[str]("request")
    request.set("this one")
    assert await body_threads.do(request.get) == "this one"
    body_threads.close()


async def test_a_caller_who_leaves_does_not_wait_for_the_work() -> None:
    body_threads, goes_on = BodyThreads(), threading.Event()
    task = asyncio.create_task(body_threads.do(goes_on.wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    goes_on.set()
    body_threads.close()


def test_records_are_checked_and_answered_on_a_thread_where_they_are_many() -> None:
    web, here = NativeApp(), threading.current_thread()
    web.producer.set_topics({"orders": 1})
    producing = web.app.sidecar.producing
    for count, are_many in ((FEW_RECORDS, False), (FEW_RECORDS + 1, True)):
        records = [ProducerRecord("orders", b"")] * count
        result = FakeResult([RecordMetadata("orders", 0, 7, 5)] * count)
        answered_by = run(producing.answered(records, result, lambda _: threading.current_thread()))
        assert (answered_by is not here, records == []) == (are_many, are_many), count
        assert web.produce(json.dumps({"records": [{"value": 1}] * count})).status_code == 200
        _, asked = web.producer.calls[-1]
        assert asked["checked"] is are_many  # else the client checks them


def test_a_list_is_let_go_of_and_a_tuple_is_not() -> None:
    items = list(range(5_000))
    let_go(items)
    let_go((1, 2))
    assert items == []


# -- the bytes of an answer: runs give the same ones as single receipts --------------------------------------


RUNS = st.lists(
    st.builds(
        AcknowledgedRun,
        st.integers(1, 4),
        st.integers(0, 2**31 - 1),
        st.none() | st.integers(0, 2**62),
        st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=4,
)


@given(runs=RUNS)
def test_runs_are_answered_as_their_records_would_be(runs: list[AcknowledgedRun]) -> None:
    receipts = [
        RecordMetadata("orders", partition, None if base is None else base + n, timestamp_ms)
        for records, partition, base, timestamp_ms in runs
        for n in range(records)
    ]
    assert answer_of_runs("orders", runs, 200) == answer_of("orders", receipts, 200)


@pytest.mark.parametrize("count", [5_000, 5_001, 10_001])
def test_a_long_answer_has_a_result_for_each_record(count: int) -> None:
    receipts = [RecordMetadata("orders", 0, 7 + n, 5) for n in range(count)]
    answer = answer_of("orders", receipts, 200)
    assert [result["offset"] for result in json.loads(answer.body)["results"]] == list(range(7, 7 + count))
    assert answer_of_runs("orders", [AcknowledgedRun(count, 0, 7, 5)], 200) == answer


@pytest.mark.parametrize("order", [1, -1])
def test_of_failures_with_one_status_any_unknown_outcome_makes_all_unknown(order: int) -> None:
    failures = [Problem(500, "refused", written="no"), Problem(500, "perhaps stored", written="unknown")]
    assert in_common(failures[::order], []).written == "unknown"
    assert in_common(failures[:1] * 2, []).written == "no"
