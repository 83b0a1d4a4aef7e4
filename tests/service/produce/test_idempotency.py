"""Idempotency-Key: a repeated request is answered as the first was, and written once."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from client_core import Errors, Phase, RecordFailure, RecordMetadata, RecordTooLargeError, Written
from client_core.errors import BufferExhaustedError, error_for
from service.admission.admission_control import bytes_of_records
from service.admission.caller import Caller, TopicRules, set_caller
from service.base.fast_metrics import Counter
from service.produce.idempotency import IdempotencyKeys, KeyLimits, Name, key_of
from service.produce.produce_answers import Answer
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import timed, until
from tests.support.fake_producer import FakeResult
from tests.support.http_app import NativeApp
from tests.support.mock_clock import MockClock
from tests.support.stream_caller import StreamCaller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import httpx

    from service.wire.asgi import Receive, Scope, Send
    from service.wire.errors import Problem
    from tests.support.fake_producer import FakeTicket, Outcome

PATH = "/v1/topics/orders/records"
ONE = b'{"records":[{"value":1}]}'
THREE = b'{"records":[{"value":0},{"value":1},{"value":2}]}'
HOUR_MS = 3_600_000
#: Without and with a key.
HEADS = ({"content-type": "application/json"}, {"content-type": "application/json", "idempotency-key": "k"})


def app(**settings: Any) -> NativeApp:
    web = NativeApp(**settings)
    web.producer.set_topics({"orders": 3, "audit": 1})
    return web


@pytest.fixture
def web() -> NativeApp:
    return app()


def headers_of(key: str, content_type: str = "application/json") -> dict[str, str]:
    return {"content-type": content_type, "idempotency-key": key}


def post(
    web: NativeApp, body: bytes = ONE, key: str = '"k1"', path: str = PATH, **headers: str
) -> httpx.Response:
    return web.post(path, content=body, headers={**headers_of(key), **headers})


async def ask(client: Any, body: bytes = ONE, key: str = "k1", query: str = "") -> httpx.Response:
    """The same within a scenario of several requests."""
    answer: httpx.Response = await client.post(PATH + query, content=body, headers=headers_of(key))
    return answer


def is_replay(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("pilotfish-replayed") == "true")


def failure(error: Errors, written: Written, phase: Phase = Phase.DELIVERY) -> RecordFailure:
    return RecordFailure(error_for(error.code), phase, written, 250)


UNKNOWN = failure(Errors.REQUEST_TIMED_OUT, Written.UNKNOWN)
NOT_WRITTEN = failure(Errors.REQUEST_TIMED_OUT, Written.NO)
REFUSED = failure(Errors.INVALID_TIMESTAMP, Written.NO)
ACKNOWLEDGED = RecordMetadata("orders", 1, 7, 17)


def answers_with(web: NativeApp, *outcomes: Outcome) -> None:
    web.producer.outcome_of = lambda index, _: outcomes[index]


def end(ticket: FakeTicket, *outcomes: Outcome) -> None:
    """The request's deadline: its caller gets the result, and the client goes on."""
    ticket.done(FakeResult(outcomes))


def settle(ticket: FakeTicket, *outcomes: Outcome) -> None:
    """The client has accounted for all of it."""
    ticket.asked["settled"](FakeResult(outcomes))


# -- again ---------------------------------------------------------------------------------------------------


def test_the_same_request_under_the_same_key_is_answered_the_same_and_written_once(web: NativeApp) -> None:
    first = post(web, THREE)
    assert (first.status_code, is_replay(first)) == (200, False)
    for again in ('"k1"', "k1", ' "k1" '):
        second = post(web, THREE, key=again)
        assert (second.status_code, is_replay(second)) == (200, True), again
        assert second.content == first.content
        assert second.headers["content-type"] == first.headers["content-type"]
    assert len(web.producer.submitted) == 1
    assert web.app.sidecar.http.replays.value == 3


def test_without_a_key_each_request_is_written(web: NativeApp) -> None:
    web.produce(ONE)
    web.produce(ONE)
    assert len(web.producer.submitted) == 2


def test_another_body_under_the_key_is_422_and_writes_nothing(web: NativeApp) -> None:
    post(web, ONE)
    answer = post(web, THREE)
    outcomes = answer.json()
    assert (answer.status_code, outcomes["place"], outcomes["written"]) == (422, "Idempotency-Key", "no")
    assert "was used for another request to topic orders: repeat a request with the same body" in str(
        outcomes
    )
    assert len(web.producer.submitted) == 1


def test_what_else_the_head_says_of_the_record_makes_another_request(web: NativeApp) -> None:
    octets = {"content-type": "application/octet-stream"}
    post(web, ONE, **octets)
    for query in ("", "?timeout_ms=5000&max_block_ms=0", "?key_format=base64"):
        assert post(web, ONE, path=PATH + query, **octets).status_code == 200, query
    for query in ("?key=a", "?partition=0", "?timestamp=1"):
        assert post(web, ONE, path=PATH + query, **octets).status_code == 422, query
    for name, value in {
        "pilotfish-key": "a",
        "pilotfish-headers": "aA==",
        "content-type": "application/json",
    }.items():
        assert post(web, ONE, **{**octets, name: value}).status_code == 422, name
    assert len(web.producer.submitted) == 1


def test_a_key_belongs_to_its_topic_and_to_its_caller(web: NativeApp) -> None:
    everything = TopicRules(prefixes=("",))

    async def as_ana(scope: Scope, receive: Receive, send: Send) -> None:
        set_caller(scope, Caller("ana", everything, everything))
        await web.app(scope, receive, send)

    post(web)
    other = post(web, THREE, path="/v1/topics/audit/records")
    hers = web.ask("POST", PATH, app=as_ana, content=THREE, headers=headers_of("k1"))
    assert [other.status_code, hers.status_code] == [200, 200]
    assert not is_replay(other)
    assert not is_replay(hers)


def test_a_key_that_is_none_or_a_duplicate_is_400(web: NativeApp) -> None:
    none = ("", '"', '""', "a b", '"a', 'a"', "a,b", "ü", "a\x7f", '"a"b', '"a";b=1', "x" * 256, "a\\b")
    for keys in (*([key] for key in none), ["a", "a"]):
        given = [(b"idempotency-key", key.encode()) for key in keys]
        answer = web.post(PATH, content=ONE, headers=[(b"content-type", b"application/json"), *given])
        assert (answer.status_code, answer.json()["place"]) == (400, "Idempotency-Key"), keys
    assert web.producer.submitted == []


def test_a_quoted_key_may_hold_what_a_bare_one_may_not() -> None:
    assert key_of([b'"a \\"b\\" \\\\, c;d"']) == 'a "b" \\, c;d'
    assert key_of([b"8e03978e-40d5-43dd-bc93-6894a57f9324"]) == "8e03978e-40d5-43dd-bc93-6894a57f9324"


def test_where_nothing_may_be_remembered_a_key_is_refused_and_not_ignored() -> None:
    web = app(idempotency_max_bytes=0)
    assert post(web).status_code == 400
    assert web.producer.submitted == []
    assert web.produce(ONE).status_code == 200


# -- which outcomes are kept ---------------------------------------------------------------------------------


#: How three records end, the status, and whether that is kept.
OUTCOMES: list[tuple[list[Outcome], int, bool]] = [
    ([ACKNOWLEDGED] * 3, 200, True),
    ([ACKNOWLEDGED, REFUSED, ACKNOWLEDGED], 207, True),
    ([ACKNOWLEDGED, UNKNOWN, REFUSED], 207, True),
    ([UNKNOWN] * 3, 504, True),
    ([REFUSED, UNKNOWN, REFUSED], 504, True),
    ([failure(Errors.MESSAGE_TOO_LARGE, Written.UNKNOWN)] * 3, 413, True),
    ([REFUSED] * 3, 422, False),
    ([NOT_WRITTEN] * 3, 503, False),
    ([failure(Errors.TOPIC_AUTHORIZATION_FAILED, Written.NO)] * 3, 403, False),
    ([failure(Errors.UNKNOWN_TOPIC_OR_PARTITION, Written.NO, Phase.METADATA)] * 3, 404, False),
    ([failure(Errors.UNKNOWN_SERVER_ERROR, Written.NO)] * 3, 500, False),
]


def test_a_request_that_may_have_been_written_is_kept_and_one_that_was_not_is_tried_again(
    web: NativeApp,
) -> None:
    for number, (outcomes, status, is_kept) in enumerate(OUTCOMES):
        web.producer.submitted.clear()
        key = f"of-{number}"
        answers_with(web, *outcomes)
        first = post(web, THREE, key)
        answers_with(web, *[ACKNOWLEDGED] * 3)
        second = post(web, THREE, key)
        assert first.status_code == status, outcomes
        said = (second.status_code, is_replay(second))
        assert said == ((status, True) if is_kept else (200, False)), outcomes
        assert len(web.producer.submitted) == (1 if is_kept else 2), outcomes
        if is_kept:
            failed = "pilotfish-failed-records"
            assert (second.content, second.headers.get(failed)) == (first.content, first.headers.get(failed))


def test_a_request_without_acknowledgements_is_kept() -> None:
    web = NativeApp(kafka={"acks": "0"})
    web.producer.set_topics({"orders": 1})
    assert [post(web).status_code, post(web).status_code] == [202, 202]
    assert len(web.producer.submitted) == 1


def test_a_request_that_is_refused_before_it_is_accepted_is_tried_again(web: NativeApp) -> None:
    assert post(web, b"{").status_code == 400
    web.producer.refuses = RecordTooLargeError("The message is too large")
    assert post(web, ONE).status_code == 413
    web.producer.refuses = None
    assert post(web, ONE).status_code == 200
    assert len(web.app.sidecar.keys) == 1


# -- at the same time ----------------------------------------------------------------------------------------


async def test_a_request_that_comes_while_the_first_runs_waits_for_its_outcome(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        asked = [asyncio.create_task(ask(client)) for _ in range(3)]
        await until(lambda: web.app.sidecar.admission.requests == 3)
        web.producer.acknowledge(web.producer.waiting[0])
        answers = await asyncio.gather(*asked)
    assert_one_was_written(web, answers)
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


async def test_a_repeated_request_that_finds_no_room_says_that_the_first_may_be_written() -> None:
    web = app(max_waiting_requests=1)
    web.producer.holds_records = True
    async with web.client() as client:
        first = asyncio.create_task(ask(client))
        await until(lambda: web.producer.waiting)
        for key, written in (("k1", "unknown"), ("k2", "no")):
            refused = await ask(client, key=key)
            assert (refused.status_code, refused.json()["written"]) == (429, written), key
        web.producer.acknowledge(web.producer.waiting[0])
        assert (await first).status_code == 200
        web.producer.refuses = BufferExhaustedError("no memory")
        refused = await ask(client, key="k3")
    assert (refused.status_code, refused.json()["written"]) == (503, "no")


async def test_a_repeated_request_whose_body_is_late_says_that_the_first_may_be_written(
    web: NativeApp,
) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        first = asyncio.create_task(ask(client))
        await until(lambda: web.producer.waiting)
        for key, written in (("k1", "unknown"), ("k2", "no")):
            async with StreamCaller(web.app, PATH, "timeout_ms=0", headers_of(key)) as caller:
                (problem,) = await caller.rest()
            assert (problem["status"], problem["written"]) == (408, written), key
        web.producer.acknowledge(web.producer.waiting[0])
        assert (await first).status_code == 200


def assert_one_was_written(web: NativeApp, answers: Sequence[httpx.Response]) -> None:
    assert [answer.status_code for answer in answers] == [200] * 3
    assert sorted(map(is_replay, answers)) == [False, True, True]
    assert len(web.producer.submitted) == 1


async def test_two_of_a_body_so_long_that_both_are_read_at_once_are_one(web: NativeApp) -> None:
    """A long body is parsed in chunks, and the second request comes between those of the first."""
    long = b'{"records":[' + b'{"value":1},' * 9_999 + b'{"value":1}]}'
    async with web.client() as client:
        answers = await asyncio.gather(*(ask(client, long) for _ in range(3)))
    assert_one_was_written(web, answers)


async def test_a_joined_request_of_which_nothing_was_written_gets_that_answer_too(web: NativeApp) -> None:
    web.producer.holds_records = True
    answers_with(web, NOT_WRITTEN)
    async with web.client() as client:
        asked = [asyncio.create_task(ask(client)) for _ in range(2)]
        await until(lambda: web.app.sidecar.admission.requests == 2)
        web.producer.acknowledge(web.producer.waiting[0])
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [503, 503]
    assert len(web.app.sidecar.keys) == 0


def test_a_repeated_request_waits_no_longer_than_its_own_time(web: NativeApp) -> None:
    web.producer.holds_records = True

    async def scenario() -> list[httpx.Response]:
        async with web.client() as client:
            asked = asyncio.create_task(ask(client))
            await until(lambda: web.producer.waiting)
            late = await ask(client, query="?timeout_ms=10")
            web.producer.acknowledge(web.producer.waiting[0])
            return [late, await asked, await ask(client)]

    (late, first, again), waited_ms = timed(scenario())
    assert waited_ms == 10
    outcomes = late.json()
    said = [outcomes[name] for name in ("status", "written", "phase", "waited_ms", "retriable")]
    assert said == [504, "unknown", "delivery", 10, True]
    assert "retry with the same key" in outcomes["detail"]
    assert first.status_code == 200
    assert [is_replay(answer) for answer in (late, first, again)] == [False, False, True]
    assert web.app.sidecar.http.replays.value == 1


def test_an_outcome_in_the_turn_in_which_the_time_of_a_repeated_request_is_over_is_its_answer(
    web: NativeApp,
) -> None:
    web.producer.holds_records = True

    async def scenario() -> list[httpx.Response]:
        async with web.client() as client:
            asked = asyncio.create_task(ask(client))
            await until(lambda: web.producer.waiting)
            loop = asyncio.get_running_loop()
            loop.call_later(0.010, lambda: web.producer.acknowledge(web.producer.waiting[0]))
            return [await ask(client, query="?timeout_ms=10"), await asked]

    (late, first), waited_ms = timed(scenario())
    assert waited_ms == 10
    assert (late.status_code, late.content, is_replay(late)) == (200, first.content, True)


def test_the_time_of_a_repeated_request_begins_with_its_head(web: NativeApp) -> None:
    web.producer.holds_records = True

    async def slow_body() -> AsyncIterator[bytes]:
        yield ONE[:10]
        web.producer.clock.advance(4)
        yield ONE[10:]

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            asked = asyncio.create_task(ask(client))
            await until(lambda: web.producer.waiting)
            path = f"{PATH}?timeout_ms=10"
            late: httpx.Response = await client.post(path, content=slow_body(), headers=headers_of("k1"))
            web.producer.acknowledge(web.producer.waiting[0])
            await asked
            return late

    late, waited_ms = timed(scenario())
    assert (late.status_code, waited_ms) == (504, 6)


async def test_the_disconnects_of_two_waiting_callers_are_independent(web: NativeApp) -> None:
    web.producer.holds_records = True
    headers = {"content-type": "application/json", "idempotency-key": "k1"}
    async with (
        StreamCaller(web.app, PATH, headers=headers) as first,
        StreamCaller(web.app, PATH, headers=headers) as second,
        StreamCaller(web.app, PATH, headers=headers) as third,
    ):
        for caller in (first, second, third):
            caller.end(ONE)
        await until(lambda: web.app.sidecar.admission.requests == 3)
        second.leave()
        first.leave()
        await until(lambda: web.app.sidecar.admission.requests == 1)
        web.producer.acknowledge(web.producer.waiting[0])
        await asyncio.shield(third.request)
        assert (first.status, second.status) == (None, None)
        assert third.status == 200
    assert len(web.producer.submitted) == 1


# -- the caller is gone, the outcome unknown -----------------------------------------------------------------


async def test_a_caller_who_lost_its_connection_learns_the_outcome_when_it_asks_again(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with StreamCaller(web.app, PATH, headers=headers_of("k1")) as caller:
        caller.end(ONE)
        await until(lambda: web.producer.waiting)
        caller.leave()
        await asyncio.shield(caller.request)
        assert caller.status is None
    admission, ticket = web.app.sidecar.admission, web.producer.waiting[0]
    assert not ticket.cancelled, "what was asked for under a key is delivered"
    assert (admission.requests, admission.bytes) == (0, len(ONE))
    web.producer.acknowledge(ticket)
    assert admission.bytes == 0
    async with web.client() as client:
        again = await ask(client)
    assert (again.status_code, is_replay(again)) == (200, True)
    assert len(web.producer.submitted) == 1


@asynccontextmanager
async def ended_with(
    web: NativeApp, body: bytes, *outcomes: Outcome
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.Response, FakeTicket]]:
    """A client, the answer to its request, whose time ended so, and the ticket, which is not settled yet."""
    web.producer.holds_records = True
    async with web.client() as client:
        asked = asyncio.create_task(ask(client, body))
        await until(lambda: web.producer.waiting)
        [ticket] = web.producer.waiting
        end(ticket, *outcomes)
        yield client, await asked, ticket


@pytest.mark.parametrize(
    ("truth", "status"), [(ACKNOWLEDGED, 200), (UNKNOWN, 504)], ids=["it was written", "nobody knows"]
)
async def test_a_retry_of_what_answered_504_waits_for_the_truth(
    web: NativeApp, truth: Outcome, status: int
) -> None:
    async with ended_with(web, ONE, UNKNOWN) as (client, first, ticket):
        retry = asyncio.create_task(ask(client))
        await until(lambda: web.app.sidecar.admission.requests)
        assert not retry.done()
        settle(ticket, truth)
        answers = [first, await retry, await ask(client)]
    assert [answer.status_code for answer in answers] == [504, status, status]
    assert [is_replay(answer) for answer in answers] == [False, True, True]
    assert len(web.producer.submitted) == 1


async def test_a_504_of_which_nothing_was_written_after_all_is_tried_again(web: NativeApp) -> None:
    async with ended_with(web, ONE, UNKNOWN) as (client, _, ticket):
        settle(ticket, NOT_WRITTEN)
        web.producer.holds_records = False
        answer = await ask(client)
    assert (answer.status_code, is_replay(answer)) == (200, False)
    assert len(web.producer.submitted) == 2


async def test_a_sidecar_that_stops_does_not_say_that_a_retry_of_a_504_wrote_nothing(web: NativeApp) -> None:
    async with ended_with(web, ONE, UNKNOWN) as (client, first, ticket):
        web.app.sidecar.drain.begin()
        said = {
            (path, key): (await client.post(path, content=ONE, headers=headers_of(key))).json()["written"]
            for path in (
                PATH,
                "/v1/topics/%6frders/records",
                f"{PATH}/bytes",
                "/v1/topics/audit/records",
                "/v1/records",
            )
            for key in ("k1", "another", "")
        }
        settle(ticket, NOT_WRITTEN)
        after = await ask(client)
    assert first.status_code == 504
    assert {asked for asked, written in said.items() if written == "unknown"} == {
        (PATH, "k1"),
        ("/v1/topics/%6frders/records", "k1"),
        (f"{PATH}/bytes", "k1"),
    }
    assert (after.status_code, after.json()["type"]) == (503, "/problems/shutting-down")
    assert after.json()["written"] == "no"


async def test_a_207_with_an_unknown_record_becomes_what_it_was_in_truth(web: NativeApp) -> None:
    async with ended_with(web, THREE, ACKNOWLEDGED, UNKNOWN, ACKNOWLEDGED) as (client, first, ticket):
        settle(ticket, *[ACKNOWLEDGED] * 3)
        assert [first.status_code, (await ask(client, THREE)).status_code] == [207, 200]


def test_an_unknown_topic_is_waited_for_under_a_key_as_without(web: NativeApp) -> None:
    web = NativeApp(unknown_topics_per_second=1)
    web.producer.set_topics({})
    assert post(web, path="/v1/topics/a/records").status_code == 200
    assert post(web, path="/v1/topics/b/records").status_code == 429
    for key, refusal, status in (
        ("k2", None, 200),
        ("k3", RecordTooLargeError("The message is 9 bytes"), 413),
    ):
        # Nobody waits for the topic any more, so in the next second it is a new one.
        web.producer.clock.advance(1_000)
        web.producer.refuses = refusal
        assert post(web, key=key, path="/v1/topics/a/records").status_code == status
        assert post(web, path="/v1/topics/b/records").status_code == 429
    web.producer.refuses = None
    web.producer.clock.advance(1_000)
    assert post(web, key="k4", path="/v1/topics/a/records").status_code == 200
    assert post(web, path="/v1/topics/b/records").status_code == 429
    web.producer.clock.advance(1_000)
    assert post(web, path="/v1/topics/b/records").status_code == 200
    assert len(web.app.sidecar.keys) == 4


# -- how much, how long --------------------------------------------------------------------------------------


def test_an_answer_is_kept_for_its_time_and_no_longer_and_at_least_for_what_a_delivery_may_take() -> None:
    web = app(idempotency_memory_ms=300_000)
    post(web)
    web.producer.clock.advance(300_000)
    assert is_replay(post(web))
    web.producer.clock.advance(1)
    assert not is_replay(post(web))
    assert (len(web.producer.submitted), len(web.app.sidecar.keys)) == (2, 1)
    forgetful = app(idempotency_memory_ms=0)
    post(forgetful)
    forgetful.producer.clock.advance(2 * 120_000)
    assert is_replay(post(forgetful))


@pytest.mark.parametrize("settings", [{"idempotency_max_keys": 2}, {"idempotency_max_bytes": 2_500}])
def test_where_there_is_no_room_the_oldest_answers_go(settings: dict[str, int]) -> None:
    web = app(**settings)
    for key in ("k1", "k2", "k3"):
        assert post(web, key=key).status_code == 200
    assert [is_replay(post(web, key=key)) for key in ("k3", "k2")] == [True, True]
    assert not is_replay(post(web, key="k1"))
    assert web.app.sidecar.http.keys_forgotten_early.value == 2
    families = {family.name: family.samples for family in web.app.sidecar.http.collect()}
    assert [sample.value for sample in families["pilotfish_idempotency_keys_forgotten_early"]] == [2]


async def test_running_requests_are_never_forgotten_and_too_many_of_them_are_429() -> None:
    web = app(idempotency_max_keys=2)
    web.producer.holds_records = True
    async with web.client() as client:
        asked = [asyncio.create_task(ask(client, key=key)) for key in ("k1", "k2")]
        await until(lambda: len(web.producer.waiting) == 2)
        refused = await ask(client, key="k3")
        for ticket in list(web.producer.waiting):
            web.producer.acknowledge(ticket)
        answers = [refused, *await asyncio.gather(*asked)]
        web.producer.holds_records = False
        again = [await ask(client, key=key) for key in ("k1", "k2")]
    assert [answer.status_code for answer in answers] == [429, 200, 200]
    assert [is_replay(answer) for answer in again] == [True, True]


def test_a_request_whose_answer_could_not_be_remembered_is_refused_before_it_is_sent() -> None:
    web = app(idempotency_max_bytes=5_000)
    body = json.dumps({"records": [{"value": 1}] * 50}).encode()
    answer = post(web, body)
    assert (answer.status_code, answer.json()["place"]) == (413, "Idempotency-Key")
    assert web.producer.submitted == []


def test_an_answer_that_came_out_too_large_is_replayed_as_unknown_and_not_forgotten() -> None:
    web = app(idempotency_max_bytes=3_000)
    count = 15
    body = json.dumps({"records": [{"value": 1}] * count}).encode()
    answers_with(web, ACKNOWLEDGED, *[REFUSED] * (count - 1))
    assert post(web, body).status_code == 207
    again = post(web, body)
    assert (again.status_code, is_replay(again), again.json()["written"]) == (504, True, "unknown")
    assert "207" in again.json()["detail"]
    assert again.json()["place"] == "Idempotency-Key"
    assert web.app.sidecar.keys.bytes == 1_000 + len("k1") + len(again.content)
    assert len(web.producer.submitted) == 1


def keys(clock: MockClock, **limits: int) -> tuple[IdempotencyKeys, Counter]:
    forgotten = Counter()
    given = {"max_bytes": 1_000_000, "max_keys": 1_000, "hold_ms": HOUR_MS, **limits}
    return IdempotencyKeys(clock, KeyLimits(**given), forgotten), forgotten


def answered(kept: IdempotencyKeys, caller: str, key: str, body: bytes = b"{}") -> Name:
    name = Name(caller, "orders", key)
    kept.begin(name, b"", 1).end(Answer(200, [], body, "success"), keep=True)
    return name


def test_a_key_takes_what_its_answer_may_take_until_it_ends_and_then_what_it_takes() -> None:
    kept, _ = keys(MockClock())
    attempt = kept.begin(Name("ana", "orders", "four"), b"", 3)
    assert kept.bytes == 1_000 + len("four") + 3 * 96
    attempt.end(Answer(200, [], b"x" * 10, "success"), keep=True)
    assert kept.bytes == 1_000 + len("four") + 10
    attempt.end(Answer(200, [], b"x" * 20, "success"), keep=True)
    assert kept.bytes == 1_000 + len("four") + 10


def fault_of(kept: IdempotencyKeys, key: str) -> Problem:
    """Why there is no room for three records under this key."""
    with pytest.raises(ProblemError) as refused:
        kept.begin(Name("ana", "orders", key), b"", 3)
    return refused.value.problem


def test_a_key_whose_answer_just_fits_is_taken() -> None:
    for max_bytes, status in ((0, 400), (1_291, 413)):
        kept, _ = keys(MockClock(), max_bytes=max_bytes)
        problem = fault_of(kept, "four")
        assert (problem.status, problem.place) == (status, "Idempotency-Key"), max_bytes
        assert (len(kept), kept.bytes) == (0, 0), max_bytes
    kept, _ = keys(MockClock(), max_bytes=1_292)
    name, answer = Name("ana", "orders", "four"), Answer(200, [], b"x" * 288, "success")
    kept.begin(name, b"", 3).end(answer, keep=True)
    found = kept.find(name, b"")
    assert found is not None
    assert found.answer == answer


def test_an_answer_longer_than_foreseen_makes_older_ones_go() -> None:
    kept, forgotten = keys(MockClock(), max_bytes=3_500)
    names = [answered(kept, "ana", key, b"x" * length) for key, length in (("a", 2), ("b", 2), ("c", 1_000))]
    assert [kept.find(name, b"") is not None for name in names] == [False, True, True]
    assert (kept.bytes, forgotten.value) == (2 * 1_001 + 2 + 1_000, 1)


def test_more_at_once_than_there_is_room_for_is_to_be_tried_again() -> None:
    kept, _ = keys(MockClock(), max_bytes=2 * 1_292)
    first = kept.begin(Name("ana", "orders", "four"), b"", 3)
    kept.begin(Name("ana", "orders", "five"), b"", 3)
    problem = fault_of(kept, "more")
    assert (problem.status, problem.retriable, problem.place) == (429, True, "Idempotency-Key")
    first.end(Answer(503, [], b"", "error"), keep=False)
    kept.begin(Name("ana", "orders", "more"), b"", 3)
    assert len(kept) == 2


def test_one_callers_keys_do_not_make_the_others_be_forgotten() -> None:
    kept, forgotten = keys(MockClock(), max_bytes=20_000)
    hers = answered(kept, "ana", "only")
    his = [answered(kept, "bob", str(number)) for number in range(100)]
    assert kept.find(hers, b"") is not None
    assert kept.find(his[0], b"") is None
    assert kept.find(his[-1], b"") is not None
    assert forgotten.value == 101 - len(kept)
    assert kept.bytes <= 20_000


def test_answers_whose_time_is_over_do_not_count_against_their_caller() -> None:
    clock = MockClock()
    kept, _ = keys(clock, max_bytes=20_000)
    for number in range(18):
        answered(kept, "ana", f"{number}")
    clock.advance(HOUR_MS)
    hers = answered(kept, "ana", "new")
    clock.advance(1)
    his = [answered(kept, "bob", str(number)) for number in range(30)]
    assert kept.find(hers, b"") is not None
    assert kept.find(his[0], b"") is None


def test_all_that_was_counted_is_given_back() -> None:
    clock = MockClock()
    kept, _ = keys(clock)
    for number in range(10):
        answered(kept, f"caller-{number % 3}", str(number), b"x" * number)
    kept.begin(Name("ana", "orders", "failed"), b"", 100).end(Answer(503, [], b"", "error"), keep=False)
    clock.advance(HOUR_MS + 1)
    assert kept.find(Name("ana", "orders", "nobody's"), b"") is None
    assert (len(kept), kept.bytes, kept._ended, kept._ended_bytes) == (0, 0, {}, {})


def test_an_attempt_ends_once() -> None:
    kept, _ = keys(MockClock())
    attempt = kept.begin(Name("ana", "orders", "a"), b"", 1)
    outcomes: list[int] = []
    attempt.join(lambda answer: outcomes.append(answer.status))
    attempt.join(lambda answer: outcomes.append(-answer.status)).cancel()
    attempt.end(Answer(200, [], b"", "success"), keep=True)
    attempt.end(Answer(504, [], b"", "error"), keep=False)
    attempt.join(lambda answer: outcomes.append(answer.status + 1)).cancel()
    assert outcomes == [200, 201]
    with pytest.raises(ProblemError):
        kept.find(attempt.name, b"another digest")


def test_many_small_records_count_as_the_memory_they_take_with_and_without_a_key(web: NativeApp) -> None:
    """Records that are parsed take more than their bodies: before they are checked, and while they wait."""
    records = 1_000
    body = b'{"records":[%b]}' % b",".join([b'{"value":1}'] * records)
    web.producer.holds_records = True
    counted = []

    def ends(ticket: FakeTicket) -> None:
        counted.append(web.app.sidecar.admission.bytes)
        web.producer.acknowledge(ticket)

    for head in HEADS:
        assert web.ask("POST", PATH, ends=ends, content=body, headers=head).status_code == 200
    assert counted == [bytes_of_records(records)] * 2
    small = app(max_waiting_bytes=len(body) + 1_000)
    small.app.sidecar.admission.acquire(1)  # a single body always fits
    for head in HEADS:
        assert small.post(PATH, content=body, headers=head).status_code == 429
    assert small.producer.submitted == []
