"""The list of all topics, and their configs: fetched on demand, shared, and served while brokers are away."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from client_core import (
    ListedTopic,
    ListingResult,
    NoBrokersError,
    RefreshTime,
    TopicAuthorizationError,
    TopicConfigsResult,
    TopicListing,
    TopicTable,
)
from service.lookup.listing import FETCH_MS, KEEP_S, MAX_BODY_BYTES, Listed, Listing
from service.lookup.lookups import NO_DEMANDS, Demands
from service.lookup.topic_configs import Configs, ConfigsOfTopics
from service.wire.errors import ProblemError
from service.wire.long_answers import Slices
from tests.support.coroutine_tests import run, timed, until
from tests.support.fake_producer import FakeProducer, answered_configs
from tests.support.http_app import NativeApp
from tests.support.metadata_responses import topic as described_topic
from tests.support.metadata_responses import topic_id_of

if TYPE_CHECKING:
    import httpx

    from tests.support.fake_producer import FakeTicket


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp(listing_max_age_ms=10_000)
    app.producer.set_topics({})
    app.producer.on_brokers = {"orders.v1": 3, "orders.v2": 1, "audit": 2, "__offsets": 50}
    return app


def names(answer: httpx.Response) -> list[str]:
    return [topic["name"] for topic in answer.json()["topics"]]


def test_topics_are_listed_by_name_without_internal_ones_unless_these_are_asked_for(web: NativeApp) -> None:
    answer = web.get("/v1/topics")
    assert names(answer) == ["audit", "orders.v1", "orders.v2"]
    audit = {"name": "audit", "id": None, "internal": False, "partition_count": 2, "error": None}
    assert answer.json()["topics"][0] == audit
    assert names(web.get("/v1/topics?prefix=orders.")) == ["orders.v1", "orders.v2"]
    assert names(web.get("/v1/topics?internal=true&prefix=__")) == ["__offsets"]


def test_a_young_list_is_not_fetched_again_and_an_old_one_is_on_demand(web: NativeApp) -> None:
    web.get("/v1/topics")
    web.producer.clock.advance(10_000)
    assert web.get("/v1/topics").headers["age"] == "10"
    assert len(web.producer.calls) == 1
    web.producer.clock.advance(1)
    web.producer.on_brokers["new"] = 1
    answer = web.get("/v1/topics")
    assert ("new" in names(answer), answer.headers["age"]) == (True, "0")
    assert dict(web.producer.cache.topics) == {}, "a listing is never merged into the producer's topics"


async def unanswered(web: NativeApp, path: str) -> httpx.Response:
    """Asks while no broker answers; the ticket ends at its deadline."""
    web.producer.on_brokers = {}
    async with web.client() as client:
        asked = asyncio.create_task(client.get(path))
        await until(lambda: web.producer.waiting)
        web.producer.clock.advance(70)
        end(web.producer.waiting[0])
        return await asked


def end(ticket: FakeTicket) -> None:
    ticket.producer.finish(ticket, ListingResult(None, error=NoBrokersError("nobody answers"), waited_ms=0))


def report(ticket: FakeTicket, *topics: str) -> None:
    listed = {topic: ListedTopic(topic, None, False, 1) for topic in topics}
    ticket.producer.finish(ticket, ListingResult(TopicListing(listed), waited_ms=0))


def test_an_old_list_is_served_where_there_is_no_newer_with_its_age_or_503_if_more_is_demanded(
    web: NativeApp,
) -> None:
    on_brokers = web.producer.on_brokers
    answer = run(unanswered(web, "/v1/topics"))  # there is none at all
    assert (answer.status_code, answer.json()["waited_ms"]) == (503, 70)
    assert "nobody answers" in answer.json()["detail"]
    web.producer.on_brokers = on_brokers
    web.get("/v1/topics")
    web.producer.clock.advance(60_000)
    answer = run(unanswered(web, "/v1/topics"))
    assert (answer.status_code, answer.headers["age"]) == (200, "60")
    answer = run(unanswered(web, "/v1/topics?max_age_ms=1000"))
    assert (answer.status_code, answer.json()["phase"]) == (503, "metadata")


def test_while_no_broker_answers_only_the_first_caller_waits_for_a_newer_list(web: NativeApp) -> None:
    """Once each of them waited for five seconds."""
    producer = web.producer

    async def scenario() -> None:
        loop, waits = asyncio.get_running_loop(), []
        async with web.client() as client:

            async def asked(path: str) -> httpx.Response:
                since_s = loop.time()
                answer = await client.get(path)
                waits.append(round((loop.time() - since_s) * 1000))
                return answer

            await asked("/v1/topics")
            there, producer.on_brokers = producer.on_brokers, {}
            producer.clock.advance(60_000)
            for path in ("/v1/topics?max_block_ms=10", *["/v1/topics", "/v1/topics?internal=true"] * 2):
                assert (await asked(path)).headers["age"] == "60"
            assert waits == [0, 10, 5_000, 0, 0, 0], "a caller in a hurry may have left too early"
            assert len(producer.calls) == 2, "one request goes on behind them"
            assert (await asked("/v1/topics?max_age_ms=0&max_block_ms=300")).status_code == 503
            report(producer.waiting[0], "new")
            assert names(await asked("/v1/topics")) == ["new"]
            producer.clock.advance(11_000)
            producer.on_brokers = there
            assert (await asked("/v1/topics")).headers["age"] == "0", "now callers wait again"

    timed(scenario())


def test_a_caller_waits_again_as_soon_as_a_broker_has_answered_anything(web: NativeApp) -> None:
    producer = web.producer

    async def scenario() -> None:
        async with web.client() as client:
            await client.get("/v1/topics")
            producer.on_brokers = {}
            producer.clock.advance(60_000)
            await client.get("/v1/topics")
            producer.clock.advance(1)
            producer.set_topics({})
            await client.get("/v1/topics")

    assert timed(scenario())[1] == 10_000


@pytest.fixture
def listing(web: NativeApp) -> Listing:
    """Its askers wait: no broker answers yet."""
    web.producer.on_brokers = {}
    return Listing(web.producer, max_age_ms=0, wait_ms=5_000)


async def test_many_askers_share_one_request(web: NativeApp, listing: Listing) -> None:
    asked = [asyncio.create_task(listing.current(NO_DEMANDS)) for _ in range(20)]
    await until(lambda: web.producer.waiting)
    with pytest.raises(ProblemError, match="The topics were not listed"):
        await listing.current(Demands(max_block_ms=1))  # who waits no longer ends nobody's request
    end(web.producer.waiting[0])
    answers = await asyncio.gather(*asked, return_exceptions=True)
    listing.close()
    assert [type(answer) for answer in answers] == [ProblemError] * 20
    assert len(web.producer.calls) == 1


def test_an_answer_that_comes_after_the_close_is_dropped(web: NativeApp, listing: Listing) -> None:
    async def scenario() -> None:
        asked = asyncio.create_task(listing.current(NO_DEMANDS))
        await until(lambda: web.producer.waiting)
        ticket = web.producer.waiting[0]
        listing.close()
        with pytest.raises(ProblemError, match="shutting down"):
            await asked
        ticket.done(ListingResult(None, error=NoBrokersError("too late"), waited_ms=0))

    assert timed(scenario())[1] == 0


def test_a_caller_waits_as_long_as_it_demands_and_no_longer(web: NativeApp, listing: Listing) -> None:
    async def scenario(demands: Demands) -> None:
        with pytest.raises(ProblemError, match="The topics were not listed"):
            await listing.current(demands)
        listing.close()
        await until(lambda: listing._fetch is None)

    for demands, waited_ms in ((NO_DEMANDS, 5_000), (Demands(max_block_ms=700), 700)):
        assert timed(scenario(demands))[1] == waited_ms


def test_a_list_is_as_young_as_a_caller_demands(web: NativeApp) -> None:
    fetches = []
    for query in ("", "?max_age_ms=5000", "?max_age_ms=4999", "?max_age_ms=0"):
        web.get(f"/v1/topics{query}")
        fetches.append(len(web.producer.calls))
        web.producer.clock.advance(5_000)
    web.get("/v1/topics?max_age_ms=15000")
    web.producer.clock.advance(10_000)
    web.get("/v1/topics?max_age_ms=15000")
    assert [*fetches, len(web.producer.calls)] == [1, 1, 2, 3, 3]


async def test_a_list_that_comes_after_its_callers_have_left_is_for_the_next_one(
    web: NativeApp, listing: Listing
) -> None:
    for _ in range(2):
        with pytest.raises(ProblemError, match="The topics were not listed"):
            await listing.current(Demands(max_block_ms=1))
    (ticket,) = web.producer.waiting
    assert ticket.asked["deadline_ms"] == web.producer.clock.now_ms() + FETCH_MS
    report(ticket, "a")
    assert "a" in (await listing.current(NO_DEMANDS)).listing.topics
    assert len(web.producer.calls) == 1
    listing.close()


async def test_a_caller_in_a_hurry_does_not_end_the_wait_of_a_patient_one(
    web: NativeApp, listing: Listing
) -> None:
    with pytest.raises(ProblemError, match="The topics were not listed"):
        await listing.current(Demands(max_block_ms=1))
    patient = asyncio.create_task(listing.current(NO_DEMANDS))
    await asyncio.sleep(0)
    report(web.producer.waiting[0], "a")
    assert "a" in (await patient).listing.topics
    listing.close()


async def test_a_list_is_as_old_as_its_request(web: NativeApp, listing: Listing) -> None:
    """A topic that was created after the request may be missing in its answer."""
    early = asyncio.create_task(listing.current(NO_DEMANDS))
    await until(lambda: web.producer.waiting)
    web.producer.clock.advance(1_000)
    asked = [
        asyncio.create_task(listing.current(Demands(max_age_ms=max_age_ms))) for max_age_ms in (999, 1_000)
    ]
    await asyncio.sleep(0)
    report(web.producer.waiting[0], "a")
    await until(lambda: len(web.producer.calls) == 2)
    report(web.producer.waiting[0], "a", "new")
    lists = [sorted(one.listing.topics) for one in await asyncio.gather(early, *asked)]
    assert lists == [["a"], ["a", "new"], ["a"]]
    listing.close()


async def test_a_list_that_nobody_asks_for_is_dropped_and_each_caller_keeps_it_longer(web: NativeApp) -> None:
    web.producer.on_brokers = {"a": 1}
    listing = Listing(web.producer, max_age_ms=0, wait_ms=5_000)
    await listing.current(NO_DEMANDS)
    first = listing._drop
    assert first is not None
    await listing.current(NO_DEMANDS)
    last = listing._drop
    assert last is not None
    assert first.cancelled()
    assert last.when() - asyncio.get_running_loop().time() <= KEEP_S
    listing._let_go()
    web.producer.on_brokers = {}
    with pytest.raises(ProblemError, match="The topics were not listed"):
        await listing.current(Demands(max_block_ms=1))
    drop = listing._drop
    listing.close()
    assert drop is not None
    assert drop.cancelled()


async def test_bodies_of_one_list_are_kept_up_to_a_size() -> None:
    """A caller could ask for the same topics by each beginning of their names."""
    topics = {name: ListedTopic(name, None, False, 1) for name in (f"t{n:0248}" for n in range(27_000))}
    listed = Listed(TopicListing(MappingProxyType(topics)), RefreshTime(0, 0), 0, Slices())
    whole = await listed.body("", internal=False)
    assert MAX_BODY_BYTES / 2 < whole.length < MAX_BODY_BYTES
    again = await listed.body("t", internal=False)
    assert again == whole
    few = await listed.body("t" + "0" * 247, internal=False)
    assert await listed.body("", internal=False) is whole
    assert await listed.body("t", internal=False) is not again
    assert await listed.body("t" + "0" * 247, internal=False) is few


async def test_bodies_of_one_list_are_kept_up_to_a_number(web: NativeApp) -> None:
    web.producer.on_brokers = {"a": 1}
    listing = Listing(web.producer, max_age_ms=10_000, wait_ms=5_000)
    listed = await listing.current(NO_DEMANDS)
    kept = [await listed.body(f"{n}", internal=False) for n in range(65)]
    again = [await listed.body(f"{n}", internal=False) for n in range(65)]
    assert [one is other for one, other in zip(kept, again, strict=True)] == [True] * 64 + [False]
    listing.close()


async def test_lists_are_built_in_the_slices_of_the_app(web: NativeApp) -> None:
    web.producer.on_brokers = {"a": 1}
    slices = Slices()
    listing = Listing(web.producer, max_age_ms=0, wait_ms=5_000, slices=slices)
    assert (await listing.current(NO_DEMANDS)).slices is slices
    listing.close()


async def test_one_caller_who_leaves_does_not_end_the_others_wait(web: NativeApp, listing: Listing) -> None:
    leaver = asyncio.create_task(listing.current(NO_DEMANDS))
    stayer = asyncio.create_task(listing.current(NO_DEMANDS))
    await until(lambda: web.producer.waiting)
    leaver.cancel()
    await asyncio.sleep(0)
    report(web.producer.waiting[0], "a")
    assert "a" in (await stayer).listing.topics
    listing.close()


OLD, NEW = {"retention.ms": "1"}, {"retention.ms": "2"}


class Rig:
    """Configs of topics over a fake producer, whose answers wait for the test unless it says otherwise."""

    def __init__(self, *, max_age_ms: int = 60_000, wait_ms: int = 20_000) -> None:
        self.producer = FakeProducer(configs=None)
        self.producer.set_topics({"orders": 1, "audit": 1})
        self.configs = ConfigsOfTopics(self.producer, max_age_ms=max_age_ms, wait_ms=wait_ms)

    def topic(self, name: str = "orders") -> TopicTable:
        return self.producer.cache.topics[name]

    def ask(self, name: str = "orders") -> asyncio.Task[Configs]:
        return asyncio.get_running_loop().create_task(self.of(name))

    async def of(self, name: str = "orders") -> Configs:
        return await self.configs.of(self.topic(name))

    @property
    def requests(self) -> int:
        return len(self.producer.calls)

    async def report(self, result: TopicConfigsResult) -> None:
        """Answers the one request that waits, as soon as it does."""
        await until(lambda: self.producer.waiting)
        (ticket,) = self.producer.waiting
        self.producer.finish(ticket, result)


def refused() -> TopicConfigsResult:
    return TopicConfigsResult(None, error=TopicAuthorizationError("not allowed"))


async def test_they_are_asked_for_once_until_they_are_too_old() -> None:
    rig = Rig(max_age_ms=60_000)
    first = rig.ask()
    await rig.report(answered_configs({**OLD, "password": None}))
    assert await first == {**OLD, "password": None}
    rig.producer.clock.advance(59_999)
    assert await rig.of() == {**OLD, "password": None}
    assert rig.requests == 1
    rig.producer.clock.advance(1)
    second = rig.ask()
    await rig.report(answered_configs(NEW))
    assert await second == NEW
    assert rig.requests == 2


async def test_concurrent_callers_share_one_request_and_one_who_leaves_does_not_end_it() -> None:
    rig = Rig()
    gone, *others = [rig.ask() for _ in range(5)]
    await until(lambda: rig.requests)
    gone.cancel()
    await rig.report(answered_configs(NEW))
    assert await asyncio.gather(*others) == [NEW] * 4
    assert gone.cancelled()
    assert rig.requests == 1


async def test_topics_are_asked_for_apart() -> None:
    rig = Rig()
    asked = [rig.ask("orders"), rig.ask("audit")]
    await until(lambda: len(rig.producer.waiting) == 2)
    for ticket, configs in zip(list(rig.producer.waiting), (OLD, NEW), strict=True):
        rig.producer.finish(ticket, answered_configs(configs))
    assert await asyncio.gather(*asked) == [OLD, NEW]


async def test_a_refusal_is_an_empty_object_and_is_not_repeated_at_once() -> None:
    rig = Rig()
    first = rig.ask()
    await rig.report(refused())
    assert await first == {}
    for advance_ms in (0, 4_999):
        rig.producer.clock.advance(advance_ms)
        assert await rig.of() == {}
    assert rig.requests == 1
    rig.producer.clock.advance(1)
    again = rig.ask()
    await rig.report(answered_configs(NEW))
    assert await again == NEW


async def test_the_old_ones_are_served_while_new_ones_can_not_be_had() -> None:
    rig = Rig(max_age_ms=1_000)
    first = rig.ask()
    await rig.report(answered_configs(OLD))
    assert await first == OLD
    for _ in range(2):
        rig.producer.clock.advance(1_000)
        later = rig.ask()
        await rig.report(refused())
        assert await later == OLD


async def test_nobody_waits_longer_than_a_moment() -> None:
    rig = Rig(wait_ms=1)
    assert await rig.of() == {}
    assert rig.producer.waiting[0].asked["deadline_ms"] == rig.producer.clock.now_ms() + 30_000
    for _ in range(2):
        assert await rig.of() == {}, "nobody waits again at once"
    # A late answer is kept for the next caller.
    await rig.report(answered_configs(NEW))
    assert await rig.of() == NEW
    assert rig.requests == 1


def test_a_closed_producer_is_no_failure_and_nobody_waits_for_it() -> None:
    rig = Rig()
    assert timed(rig.of()) == ({}, 20_000)
    rig.producer.close(0)
    for _ in range(2):
        assert timed(rig.of("audit")) == ({}, 0)
        rig.producer.clock.advance(5_000)


async def test_a_topic_that_was_made_anew_does_not_inherit_them() -> None:
    rig = Rig()
    rig.producer.set_topics([described_topic("orders", 1, topic_id=topic_id_of("first"))])
    first = rig.ask()
    await rig.report(answered_configs(OLD))
    assert await first == OLD
    rig.producer.set_topics([described_topic("orders", 1, topic_id=topic_id_of("second"))])
    second = rig.ask()
    await rig.report(refused())
    assert await second == {}


async def test_kept_lists_are_bounded_and_used_ones_stay_longest() -> None:
    rig = Rig()
    names = [f"t{n}" for n in range(1_001)]
    rig.producer.set_topics(dict.fromkeys(names, 1))
    rig.producer.configs = {}
    for name in names[:-1]:
        await rig.of(name)
    await rig.of("t0")
    await rig.of("t1000")  # one too many
    assert rig.requests == 1_001
    await rig.of("t0")
    assert rig.requests == 1_001
    await rig.of("t1")
    assert rig.requests == 1_002


async def test_no_more_than_a_thousand_topics_are_asked_for_at_once() -> None:
    rig = Rig()
    rig.producer.set_topics({f"t{n}": 1 for n in range(1_001)})
    asked = [rig.ask(f"t{n}") for n in range(1_000)]
    await until(lambda: rig.requests == 1_000)
    assert await rig.of("t1000") == {}
    for ticket in list(rig.producer.waiting):
        rig.producer.finish(ticket, answered_configs(NEW))
    assert await asyncio.gather(*asked) == [NEW] * 1_000


async def test_a_request_that_memory_is_lacking_for_is_sent_at_the_next_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    rig = Rig(wait_ms=0)
    rig.producer.configs = {"orders": {**OLD}}
    with monkeypatch.context() as patched:
        patched.setattr(rig.producer, "describe_topic_configs", no_memory)
        with pytest.raises(MemoryError):
            await rig.of()
    assert await rig.of() == OLD


async def test_answers_are_read_only() -> None:
    for max_age_ms in (0, 60_000):
        rig = Rig(max_age_ms=max_age_ms)
        rig.producer.configs = {"orders": {**OLD}}
        reported = await rig.of()
        with pytest.raises(TypeError):
            reported["x"] = "y"  # type: ignore[index]
