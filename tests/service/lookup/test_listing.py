"""The list of all topics: fetched on demand, shared, and served while brokers are away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from client_core import ListingResult, NoBrokersError
from service.lookup.listing import Listing
from service.lookup.lookups import NO_DEMANDS, Demands
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import run, until
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    import httpx

    from tests.support.fake_producer import FakeTicket


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp(listing_max_age_ms=10_000)
    app.producer.set_topics({})
    app.producer.on_brokers = {"orders.v1": 3, "orders.v2": 1, "audit": 2, "__offsets": 50}
    return app


def names(answer: httpx.Response) -> list[str]:
    return [topic["name"] for topic in answer.json()["topics"]]


def test_topics_are_listed_by_name_without_internal_ones(web: HttpApp) -> None:
    answer = web.get("/v1/topics")
    assert names(answer) == ["audit", "orders.v1", "orders.v2"]
    assert answer.json()["topics"][0] == {
        "name": "audit",
        "id": None,
        "internal": False,
        "partition_count": 2,
        "error": None,
    }


def test_a_prefix_and_internal_topics_can_be_asked_for(web: HttpApp) -> None:
    assert names(web.get("/v1/topics?prefix=orders.")) == ["orders.v1", "orders.v2"]
    assert names(web.get("/v1/topics?internal=true&prefix=__")) == ["__offsets"]


def test_a_young_list_is_not_fetched_again(web: HttpApp) -> None:
    web.get("/v1/topics")
    web.producer.clock.advance(10_000)
    assert web.get("/v1/topics").headers["age"] == "10"
    assert len(web.producer.calls) == 1


def test_an_old_list_is_fetched_for_who_asks(web: HttpApp) -> None:
    web.get("/v1/topics")
    web.producer.clock.advance(10_001)
    web.producer.on_brokers["new"] = 1
    answer = web.get("/v1/topics")
    assert ("new" in names(answer), answer.headers["age"]) == (True, "0")


def test_a_listing_is_never_merged_into_the_topics_of_the_producer(web: HttpApp) -> None:
    web.get("/v1/topics")
    assert dict(web.producer.cache.topics) == {}


async def unanswered(web: HttpApp, path: str) -> httpx.Response:
    """Asks while no broker answers; the ticket ends at its deadline."""
    web.producer.on_brokers = {}
    async with web.client() as client:
        asked = asyncio.create_task(client.get(path))
        await until(lambda: web.producer.waiting)
        end(web.producer.waiting[0])
        return await asked


def end(ticket: FakeTicket) -> None:
    ticket.producer.finish(ticket, ListingResult(None, error=NoBrokersError("nobody answers")))


def test_an_old_list_is_served_where_there_is_no_newer_and_says_its_age(web: HttpApp) -> None:
    web.get("/v1/topics")
    web.producer.clock.advance(60_000)
    answer = run(unanswered(web, "/v1/topics"))
    assert (answer.status_code, answer.headers["age"]) == (200, "60")


def test_who_demands_a_younger_list_than_there_is_gets_503(web: HttpApp) -> None:
    web.get("/v1/topics")
    web.producer.clock.advance(60_000)
    answer = run(unanswered(web, "/v1/topics?max_age_ms=1000"))
    assert (answer.status_code, answer.json()["phase"]) == (503, "metadata")


def test_without_any_list_it_is_503(web: HttpApp) -> None:
    assert run(unanswered(web, "/v1/topics")).status_code == 503


async def test_many_askers_share_one_request(web: HttpApp) -> None:
    web.producer.on_brokers = {}
    listing = Listing(web.producer, max_age_ms=0, wait_ms=5_000)
    asked = [asyncio.create_task(listing.current(NO_DEMANDS)) for _ in range(20)]
    await until(lambda: web.producer.waiting)
    with pytest.raises(ProblemError, match="No list of topics came"):
        await listing.current(Demands(max_block_ms=1))  # who waits no longer ends nobody's request
    end(web.producer.waiting[0])
    answers = await asyncio.gather(*asked, return_exceptions=True)
    listing.close()
    assert [type(answer) for answer in answers] == [ProblemError] * 20
    assert len(web.producer.calls) == 1


async def test_an_answer_that_comes_after_the_close_is_dropped(web: HttpApp) -> None:
    web.producer.on_brokers = {}
    listing = Listing(web.producer, max_age_ms=0, wait_ms=5_000)
    asked = asyncio.create_task(listing.current(NO_DEMANDS))
    await until(lambda: web.producer.waiting)
    ticket = web.producer.waiting[0]
    listing.close()
    with pytest.raises(ProblemError, match="No list of topics came"):
        await asked
    ticket.done(ListingResult(None, error=NoBrokersError("too late")))


def test_one_asker_who_leaves_does_not_end_the_others_wait(web: HttpApp) -> None:
    web.producer.on_brokers = {}
    listing = Listing(web.producer, max_age_ms=0, wait_ms=5_000)

    async def scenario() -> bool:
        leaver = asyncio.create_task(listing.current(NO_DEMANDS))
        stayer = asyncio.create_task(listing.current(NO_DEMANDS))
        await until(lambda: web.producer.waiting)
        leaver.cancel()
        await asyncio.sleep(0)
        web.producer.on_brokers = {"a": 1}
        ticket = web.producer.waiting[0]
        web.producer.list_topics(deadline_ms=0, done=ticket.done)
        listed = await stayer
        listing.close()
        return "a" in listed.listing.topics

    assert run(scenario())
