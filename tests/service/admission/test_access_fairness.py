"""Callers who share a sidecar: what each may hold of it, and that a greedy one leaves the others served."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from service.admission.admission_control import (
    FAIR_SHARE,
    AdmissionControl,
    Permit,
    exceeds_share,
    is_one_too_many,
)
from service.admission.caller import ALL_TOPICS, ANYONE, Caller
from service.lookup.unknown_topics import UnknownTopics
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp
from tests.support.mock_clock import MockClock
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

ALL = {"read": ["*"], "produce": ["*"]}
GREEDY = Caller("greedy", ALL_TOPICS, ALL_TOPICS)
MODEST = Caller("modest", ALL_TOPICS, ALL_TOPICS)
THIRD = Caller("third", ALL_TOPICS, ALL_TOPICS)


def admission_control(
    max_requests: int = 1_000, max_bytes: int = 1_000, shared_bytes: int | None = None
) -> AdmissionControl:
    return AdmissionControl(MockClock(), max_requests, max_bytes, shared_bytes)


def fill(take: Callable[[], Permit]) -> list[Permit]:
    """Takes permits until there are no more."""
    taken: list[Permit] = []
    while True:
        try:
            taken.append(take())
        except ProblemError:
            return taken


# -- the rule ------------------------------------------------------------------------------------------------


def test_nobody_holds_more_than_is_still_free() -> None:
    for own, more, total, exceeds in (
        (0, 50, 0, False),
        (0, 51, 0, True),
        (49, 1, 49, False),
        (49, 2, 49, True),
        (10, 1, 79, False),
        (10, 1, 89, True),
    ):
        assert exceeds_share(own, more, total, 100) is exceeds, (own, more, total)


def test_the_first_is_never_too_many_and_anyone_has_no_share() -> None:
    assert not is_one_too_many(GREEDY, 0, 100, 100)
    assert is_one_too_many(GREEDY, 1, 98, 100)
    assert not is_one_too_many(ANYONE, 99, 99, 100)


# -- admission control ---------------------------------------------------------------------------------------


def test_one_alone_gets_half_of_the_permits_and_the_next_a_third() -> None:
    admission = admission_control()
    assert len(fill(lambda: admission.acquire(10, GREEDY))) == 50
    assert len(fill(lambda: admission.acquire(10, MODEST))) == 25
    assert len(fill(lambda: admission.acquire(10, THIRD))) == 12


def test_requests_are_shared_as_bytes_are() -> None:
    admission = admission_control(max_requests=100)
    assert len(fill(lambda: admission.acquire(0, GREEDY))) == 50
    assert len(fill(lambda: admission.acquire(0, MODEST))) == 25


def test_what_an_earlier_request_releases_late_is_not_what_the_caller_holds_now() -> None:
    admission = admission_control()
    caller = Caller("one", ALL_TOPICS, ALL_TOPICS, max_waiting_requests=1)
    earlier = admission.acquire(0, caller)
    earlier.hand_on()
    earlier.release()
    admission.acquire(5, caller)
    earlier.release_bytes()
    with pytest.raises(ProblemError, match="max_waiting_requests of its token"):
        admission.acquire(5, caller)


def test_several_greedy_callers_come_to_equal_shares_and_leave_one_for_another() -> None:
    """Five who always want more: as permits are released and acquired, each comes to hold a sixth."""
    admission = admission_control(max_requests=600)
    callers = [Caller(f"greedy-{number}", ALL_TOPICS, ALL_TOPICS) for number in range(5)]
    held: dict[str, list[Permit]] = {caller.name: [] for caller in callers}
    for _ in range(1_000):
        for caller in callers:
            mine = held[caller.name]
            if mine:
                mine.pop().release()
            mine += fill(lambda caller=caller: admission.acquire(0, caller))  # type: ignore[misc]
    assert all(90 <= len(mine) <= 110 for mine in held.values())
    assert len(fill(lambda: admission.acquire(0, MODEST))) >= 40


def test_what_one_releases_the_others_may_acquire() -> None:
    admission = admission_control()
    permits = fill(lambda: admission.acquire(10, GREEDY))
    modest = fill(lambda: admission.acquire(10, MODEST))
    for permit in permits:
        permit.release()
    assert len(modest) + len(fill(lambda: admission.acquire(10, MODEST))) == 50


def test_bytes_are_shared_by_what_the_client_can_buffer() -> None:
    admission = admission_control(max_bytes=1_000, shared_bytes=100)
    assert len(fill(lambda: admission.acquire(10, GREEDY))) == 5
    assert len(fill(lambda: admission.acquire(10, MODEST))) == 2


def test_what_the_callers_of_a_sidecar_share_is_its_buffer_memory() -> None:
    admission = NativeApp(kafka={"buffer.memory": "2000000"}).app.sidecar.admission
    admission.acquire(900_000, GREEDY)
    with pytest.raises(ProblemError, match=FAIR_SHARE):
        admission.acquire(300_000, GREEDY)


def test_a_lower_limit_lowers_what_is_shared() -> None:
    admission = admission_control(max_bytes=1_000, shared_bytes=100)
    admission.limit(1_000, 40)
    assert len(fill(lambda: admission.acquire(10, GREEDY))) == 2
    admission.limit(1_000, 1_000)
    assert len(fill(lambda: admission.acquire(10, GREEDY))) == 3


def test_a_body_larger_than_a_share_fits_while_its_caller_holds_nothing() -> None:
    admission = admission_control(max_bytes=1_000, shared_bytes=100)
    first = admission.acquire(800, GREEDY)
    with pytest.raises(ProblemError, match="800 bytes of greedy"):
        admission.acquire(1, GREEDY)
    assert admission.acquire(150, MODEST).bytes == 150
    with pytest.raises(ProblemError, match="950 bytes are waiting"):
        admission.acquire(100, THIRD)
    first.release()
    assert admission.acquire(800, GREEDY).bytes == 800


def test_a_body_of_unknown_length_grows_as_if_it_had_been_announced() -> None:
    admission = admission_control(max_bytes=1_000, shared_bytes=100)
    alone = admission.acquire(0, GREEDY)
    for grown in (40, 80, 700):
        alone.grow_to(grown)
    second = admission.acquire(0, GREEDY)
    with pytest.raises(ProblemError, match="700 bytes of greedy"):
        second.grow_to(1)
    alone.release()
    second.grow_to(300)
    for permit in (second, admission.acquire(0, MODEST)):
        permit.release()
    assert (admission.requests, admission.bytes) == (0, 0)


def test_a_caller_without_a_token_of_its_own_is_bound_by_the_common_limits_alone() -> None:
    admission = admission_control(max_requests=100, max_bytes=1_000, shared_bytes=50)
    assert len(fill(lambda: admission.acquire(10))) == 100


def test_a_token_may_have_limits_of_its_own() -> None:
    admission = admission_control()
    few = Caller("few", ALL_TOPICS, ALL_TOPICS, max_waiting_requests=2)
    small = Caller("small", ALL_TOPICS, ALL_TOPICS, max_waiting_bytes=100)
    assert len(fill(lambda: admission.acquire(1, few))) == 2
    assert len(fill(lambda: admission.acquire(40, small))) == 2
    with pytest.raises(ProblemError, match=r"2 requests of few .*max_waiting_requests of its token"):
        admission.acquire(1, few)
    with pytest.raises(ProblemError, match=r"80 bytes of small .*max_waiting_bytes of its token"):
        admission.acquire(40, small)
    assert admission.acquire(20, small).bytes == 20, "its limit is reached, not exceeded"
    with pytest.raises(ProblemError, match=r"100 bytes of small "):
        admission.acquire(1, small)


def test_limits_that_were_changed_hold_for_who_comes_next() -> None:
    admission = admission_control()
    permits = [admission.acquire(10, MODEST) for _ in range(4)]
    with pytest.raises(ProblemError, match="4 requests of modest"):
        admission.acquire(10, Caller("modest", ALL_TOPICS, ALL_TOPICS, max_waiting_requests=3))
    for permit in permits:
        permit.release()
    admission.acquire(10, Caller("modest", ALL_TOPICS, ALL_TOPICS, max_waiting_requests=3))


def test_bytes_of_a_caller_who_left_count_against_it_until_they_are_delivered() -> None:
    admission = admission_control(max_bytes=100)
    permit = admission.acquire(50, GREEDY)
    permit.hand_on()
    permit.release()
    with pytest.raises(ProblemError, match="50 bytes of greedy"):
        admission.acquire(1, GREEDY)
    permit.release_bytes()
    admission.acquire(50, GREEDY)


def test_a_caller_without_permits_is_forgotten() -> None:
    admission = admission_control()
    permits = [admission.acquire(1, Caller(f"c{n}", ALL_TOPICS, ALL_TOPICS)) for n in range(10)]
    for number, permit in enumerate(permits):
        permit.hand_on()
        for end in (permit.release_bytes, permit.release)[:: 1 if number % 2 else -1]:
            end()
        permit.release_bytes()
    assert admission._shares == {}


def test_a_refused_request_leaves_nothing_behind() -> None:
    admission = admission_control(max_bytes=100)
    admission.acquire(90, GREEDY)
    with pytest.raises(ProblemError):
        admission.acquire(50, MODEST)
    assert (admission.requests, admission.bytes, list(admission._shares)) == (1, 90, ["greedy"])


def test_retry_after_is_when_enough_will_be_released() -> None:
    """100 bytes a second are released of 800, of which the caller holds 200 and another as many."""
    for limit, more, after_s in ((300, 200, 2), (250, 200, 3), (None, 200, 2), (None, 250, 3)):
        admission = AdmissionControl(MockClock(now_ms=500), 99, 800)
        caller = Caller("own", ALL_TOPICS, ALL_TOPICS, max_waiting_bytes=limit)
        admission.acquire(100).release()
        admission.acquire(200)
        admission.acquire(200, caller)
        with pytest.raises(ProblemError, match="200 bytes of own") as refused:
            admission.acquire(more, caller)
        assert dict(refused.value.problem.headers) == {b"retry-after": b"%d" % after_s}, (limit, more)


# -- names that the brokers do not know ----------------------------------------------------------------------


def test_who_makes_names_up_does_not_use_up_the_names_of_others() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=100)

    for caller, allowance, now_ms in [(GREEDY, 50, 0), (MODEST, 25, 0), (THIRD, 12, 0), (GREEDY, 50, 1_000)]:
        for number in range(allowance):
            unknown.begin(f"{caller.name}-{now_ms}-{number}", now_ms, caller)
        with pytest.raises(
            ProblemError, match=f"of {caller.name} in this second: one-too-many and {allowance} "
        ) as refused:
            unknown.begin("one-too-many", now_ms, caller)
        assert refused.value.problem.status == 429


def test_without_tokens_all_names_are_anyones() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=100)
    for number in range(100):
        unknown.begin(f"t{number}", 0)
    with pytest.raises(ProblemError, match="and 100 others"):
        unknown.begin("t", 0)


# -- over HTTP -----------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(tmp_path, greedy=ALL, modest=ALL, capped={**ALL, "max_waiting_requests": 1})


async def produce(client: httpx.AsyncClient, headers: dict[str, str], body_bytes: int) -> httpx.Response:
    body = b'{"records":[{"value":"%s"}]}' % (b"x" * body_bytes)
    headers = {**headers, "content-type": "application/json"}
    return await client.post("/v1/topics/orders/records", content=body, headers=headers)


async def test_a_caller_who_fills_its_share_leaves_the_others_served(tokens: TokensFile) -> None:
    web = NativeApp(tokens_file=tokens.setting, max_waiting_bytes=100_000)
    web.producer.set_topics({"orders": 3})
    web.producer.holds_records = True
    async with web.client() as client:
        async with asyncio.TaskGroup() as group:
            greedy = [group.create_task(produce(client, tokens.of("greedy"), 1_000)) for _ in range(200)]
            await until(lambda: sum(task.done() for task in greedy) + len(web.producer.waiting) == 200)
            refused = [task.result() for task in greedy if task.done()]
            held = len(web.producer.waiting)
            assert 40 < held < 50
            assert {answer.status_code for answer in refused} == {429}
            assert "greedy" in refused[0].json()["detail"]
            assert 1 <= int(refused[0].headers["retry-after"]) <= 30
            assert web.producer.submitted
            web.producer.holds_records = False
            for _ in range(20):
                assert (await produce(client, tokens.of("modest"), 1_000)).status_code == 200
            for ticket in list(web.producer.waiting):
                web.producer.acknowledge(ticket)
        assert sum(task.result().status_code == 200 for task in greedy) == held
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


async def test_look_ups_that_wait_are_shared_as_well(tokens: TokensFile) -> None:
    web = NativeApp(tokens_file=tokens.setting, max_waiting_requests=10)
    web.producer.set_topics({"orders": 3})

    async def look_up(client: httpx.AsyncClient, name: str, topic: str) -> int:
        path = f"/v1/topics/{topic}?max_block_ms=60000"
        return (await client.get(path, headers=tokens.of(name))).status_code

    async with web.client() as client, asyncio.TaskGroup() as group:
        greedy = [group.create_task(look_up(client, "greedy", f"g{n}")) for n in range(20)]
        await until(lambda: sum(task.done() for task in greedy) == 15)
        modest = group.create_task(look_up(client, "modest", "m"))
        await until(lambda: len(web.producer.waiting) == 6)
        web.producer.on_brokers = {"m": 1}
        for ticket in list(web.producer.waiting):
            web.producer.say_unknown(ticket)
    assert [modest.result(), *sorted(task.result() for task in greedy)] == [404, *[404] * 5, *[429] * 15]


async def test_names_that_are_made_up_cost_others_nothing(tokens: TokensFile) -> None:
    web = NativeApp(tokens_file=tokens.setting, unknown_topics_per_second=10)
    web.producer.set_topics({"orders": 3})
    asked = [{"topic": f"made-up-{n}", "partition": 0} for n in range(20)]
    async with web.client() as client:

        async def codes(name: str, lookups: list[dict[str, object]]) -> list[str]:
            waiting = asyncio.ensure_future(
                client.post("/v1/leaders", json={"lookups": lookups}, headers=tokens.of(name))
            )
            await until(lambda: web.producer.waiting)
            web.producer.say_unknown(web.producer.waiting[0])
            return [item["error"]["message"] for item in (await waiting).json()["results"]]

        greedy, modest = (
            await codes("greedy", asked),
            await codes("modest", [{"topic": "new", "partition": 0}]),
        )
    assert sum("too many unknown topics of greedy" in message for message in greedy) == 15
    assert modest == ["topic new is not there"]


async def test_a_cap_of_a_token_is_reported_as_its_own(tokens: TokensFile) -> None:
    web = NativeApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3})
    web.producer.holds_records = True
    async with web.client() as client, asyncio.TaskGroup() as group:
        group.create_task(produce(client, tokens.of("capped"), 1))
        await until(lambda: web.producer.waiting)
        refused = await produce(client, tokens.of("capped"), 1)
        web.producer.acknowledge(web.producer.waiting[0])
    refused = refused
    assert (refused.status_code, refused.json()["written"]) == (429, "no")
    assert "1 requests of capped are waiting already (max_waiting_requests of its token)" in refused.text


async def test_watchers_and_streams_are_shared() -> None:
    sidecar = NativeApp(max_watchers=8, max_streams=8).app.sidecar

    def watch(held: ExitStack, caller: Caller) -> None:
        held.enter_context(sidecar.feed.subscribe(caller, None))

    def stream(held: ExitStack, caller: Caller) -> None:
        held.enter_context(sidecar.streams.open("orders", caller, lambda: sidecar.producing.times))

    for begin in (watch, stream):
        with ExitStack() as third, ExitStack() as modest:
            with ExitStack() as greedy:
                for stack, caller, share in [(greedy, GREEDY, 4), (modest, MODEST, 2), (third, THIRD, 1)]:
                    for _ in range(share):
                        begin(stack, caller)
                    with pytest.raises(
                        ProblemError, match=f"{share} .*{caller.name} .*is left for the others"
                    ):
                        begin(stack, caller)
            begin(modest, MODEST)
            begin(third, GREEDY)  # what it held does not count any more
        with ExitStack() as everything:
            for _ in range(8):
                begin(everything, ANYONE)
