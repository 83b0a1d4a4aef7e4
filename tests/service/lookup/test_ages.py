"""The bound on the age of answers: what is refreshed, when, how often; and what a look-up waits for."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from client_core import Cause, Errors, IllegalStateError, MetadataResult
from service.lookup.ages import BURST, MOST_TOPICS, PARTITIONS_PER_TOKEN, Ages
from service.lookup.lookup_table import LookupTable
from tests.support.coroutine_tests import run, timed, until
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import httpx

    from tests.support.fake_producer import FakeTicket

ORDERS = b"/v1/topics/orders"


class Brokers(FakeProducer):
    """Brokers that answer each refresh at once, unless they are silent."""

    is_silent = False

    def refresh_topics(self, names: Iterable[str], **asked: Any) -> FakeTicket:
        self.holds_refreshes = not self.is_silent
        ticket = super().refresh_topics(names, **asked)
        if not self.is_silent:
            self.answer(ticket)
        return ticket

    def answer(self, ticket: FakeTicket) -> None:
        counts = self._counts()
        self.set_topics({name: counts[name] for name in ticket.asked["names"]}, partial=True)
        self.finish(ticket, MetadataResult(self.cache))


def ages_over(producer: FakeProducer, **topics: int) -> Ages:
    producer.set_topics(topics or {"orders": 3})
    return Ages(producer, revalidate_after_ms=2_000, max_stale_ms=5_000, wait_ms=250)


def names(producer: FakeProducer) -> list[list[str]]:
    return [ticket.asked["names"] for ticket in producer.refreshes]


def look(producer: FakeProducer, ages: Ages, topic: str | None = "orders") -> bool:
    """Looks a topic up now; whether it must be refreshed first."""
    return ages.look(topic, producer.clock.now_ms()).before


# -- behind an answer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_ms", "refreshes", "is_first"),
    [(0, 0, False), (2_000, 0, False), (2_001, 1, False), (5_000, 1, False), (5_001, 1, True)],
)
def test_an_age_decides_what_happens(age_ms: int, refreshes: int, *, is_first: bool) -> None:
    producer = FakeProducer(holds_refreshes=True)
    ages = ages_over(producer)
    producer.clock.advance(age_ms)
    assert ages.waits_for("orders") is is_first
    assert (look(producer, ages), len(producer.refreshes)) == (is_first, refreshes)


def test_what_is_checked_again_and_when() -> None:
    producer = FakeProducer(holds_refreshes=True)
    ages, began_ms = ages_over(producer), producer.clock.now_ms()
    assert ages.look("orders", began_ms).at_ms == began_ms + 2_001
    assert ages.look("orders", began_ms + 2_001).at_ms == began_ms + 5_001
    refreshes = len(producer.refreshes)
    producer.clock.advance(60_000)
    assert ages.look("nope", producer.clock.now_ms()).at_ms > began_ms + 10**12
    assert len(producer.refreshes) == refreshes


def test_nobody_asks_for_a_topic_that_nobody_looks_up() -> None:
    producer = Brokers()
    ages = ages_over(producer, orders=3, audit=1)
    producer.clock.advance(60_000)
    assert producer.refreshes == []
    look(producer, ages)
    assert names(producer) == [["orders"]]


def test_a_refresh_asks_for_what_was_looked_up_within_the_bound_and_is_not_fresh() -> None:
    producer = Brokers()
    known = {"orders": 3, "audit": 1, "stale": 1, "edge": 1, "fresh": 1}
    ages = ages_over(producer, **known)
    look(producer, ages, "stale")
    producer.clock.advance(1)
    look(producer, ages, "edge")
    producer.clock.advance(2_740)
    producer.set_topics(known)
    producer.clock.advance(1_100)
    producer.set_topics({"fresh": 1}, partial=True)
    for topic in ("audit", "fresh", None, "orders"):
        look(producer, ages, topic)
    producer.clock.advance(910)
    look(producer, ages)
    assert names(producer) == [["edge", "audit", "orders"]], (
        "and the brokers, which were in the last response"
    )


def test_a_busy_sidecar_refreshes_once_in_two_seconds() -> None:
    producer = Brokers()
    ages = ages_over(producer, orders=3, audit=1)
    for _ in range(60_000 // 20):
        producer.clock.advance(20)
        look(producer, ages)
        look(producer, ages, "audit")
    assert 28 <= len(producer.refreshes) <= 30
    assert all(set(asked) == {"orders", "audit"} for asked in names(producer)[1:])


def test_topics_of_different_ages_share_a_refresh_a_second_at_most() -> None:
    producer = Brokers()
    ages = ages_over(producer, **{f"t{n}": 1 for n in range(10)})
    for n in range(10):
        producer.clock.advance(333)
        producer.set_topics({f"t{n}": 1}, partial=True)
    producer.clock.advance(2_000)
    for _ in range(10_000 // 20):
        producer.clock.advance(20)
        for n in range(10):
            look(producer, ages, f"t{n}")
    times_ms = [ticket.asked["at_ms"] for ticket in producer.refreshes]
    assert min(b - a for a, b in pairwise(times_ms)) >= 1_000
    assert len(times_ms) <= 10


def test_large_answers_are_asked_for_less_often() -> None:
    """Ten times the partitions of a token: a refresh in ten seconds."""
    producer = Brokers()
    ages = ages_over(producer, wide=10 * 500 - 1)
    for _ in range(100_000 // 100):
        producer.clock.advance(100)
        look(producer, ages, "wide")
    times_ms = [ticket.asked["at_ms"] for ticket in producer.refreshes]
    first, *others = (round(b - a, -2) for a, b in pairwise(times_ms))
    assert first in (6_000, 6_100), "five of the tokens it began with, and one is the least"
    assert 8 <= len(others) <= 10
    assert set(others) <= {10_000, 10_100}


def test_a_topic_counts_as_one_more_partition() -> None:
    """100 topics of 39 partitions count as 8 times 500: a refresh in 8 seconds."""
    producer, topics = Brokers(), {f"t{n}": 39 for n in range(100)}
    ages = ages_over(producer, **topics)
    for _ in range(30_000 // 200):
        producer.clock.advance(200)
        for topic in topics:
            look(producer, ages, topic)
    times_ms = [ticket.asked["at_ms"] for ticket in producer.refreshes]
    assert [b - a for a, b in pairwise(times_ms)][1:] == [8_000, 8_000]


def test_the_most_topics_in_one_refresh_and_the_others_in_the_next() -> None:
    producer = Brokers()
    ages = ages_over(producer, **{f"t{n}": 1 for n in range(MOST_TOPICS + 10)})
    producer.clock.advance(1_500)
    for n in range(MOST_TOPICS + 10):
        look(producer, ages, f"t{n}")
    producer.clock.advance(600)
    look(producer, ages, "t0")
    producer.clock.advance(4_000)
    for n in range(MOST_TOPICS, MOST_TOPICS + 10):
        look(producer, ages, f"t{n}")
    assert [len(asked) for asked in names(producer)] == [MOST_TOPICS, MOST_TOPICS] == [1_000, 1_000]
    assert f"t{MOST_TOPICS}" in names(producer)[1]


# -- before an answer ----------------------------------------------------------------------------------------


async def freshened(ages: Ages, *topics: str | None, max_wait_ms: int | None = None) -> None:
    await ages.freshen(topics, max_wait_ms)


def test_all_who_wait_share_one_refresh() -> None:
    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        ages = ages_over(producer, orders=3, audit=1)
        producer.clock.advance(10_000)
        waiting = [asyncio.create_task(freshened(ages, "orders")) for _ in range(100)]
        await until(lambda: producer.waiting)
        assert ages.waits_for("orders")
        (ticket,) = producer.waiting
        assert ticket.asked["deadline_ms"] == producer.clock.now_ms() + 250
        producer.set_topics({"orders": 4}, partial=True)
        producer.finish(ticket, MetadataResult(producer.cache))
        await asyncio.gather(*waiting)
        assert names(producer) == [["orders"]]
        assert not ages.waits_for("orders")

    run(scenario())


def test_who_waits_for_a_topic_more_than_a_running_refresh_has_begins_another() -> None:
    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        ages = ages_over(producer, orders=3, audit=1)
        producer.clock.advance(10_000)
        first = asyncio.create_task(freshened(ages, "orders"))
        await until(lambda: producer.waiting)
        second = asyncio.create_task(freshened(ages, "orders", "audit"))
        await asyncio.sleep(0)
        assert names(producer) == [["orders"], ["orders", "audit"]]
        for ticket in tuple(producer.waiting):
            producer.finish(ticket, MetadataResult(producer.cache))
        await asyncio.gather(first, second)

    run(scenario())


def test_sparse_callers_of_other_topics_do_not_wait_for_the_next_second() -> None:
    """The topics are so wide that each refresh costs its token for one of them."""

    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer, **{f"t{n}": 400 for n in range(10)})
        producer.clock.advance(60_000)
        for n in range(9):
            await ages.freshen([f"t{n}"])
        assert len(producer.refreshes) == BURST == 5
        assert not ages.waits_for("t8"), "it is served at once, as old as it is"
        producer.clock.advance(1_000)
        assert ages.waits_for("t8")
        await ages.freshen(["t8"])
        assert len(producer.refreshes) == BURST + 1
        assert len(names(producer)[-1]) == 4, "with those that were served old, for three tokens and more"
        producer.clock.advance(3_300)
        look(producer, ages, "t9")
        assert len(producer.refreshes) == BURST + 2, "behind the answer, for the only token"

    run(scenario())


def test_over_minutes_even_sparse_callers_of_many_topics_cause_a_refresh_a_second_at_most() -> None:
    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer, **{f"t{n}": 1 for n in range(100)})
        for turn in range(600):
            producer.clock.advance(100)
            await ages.freshen([f"t{turn % 100}"])
        assert len(producer.refreshes) <= 60 + BURST

    run(scenario())


async def oldest_served_ms(ages: Ages, producer: FakeProducer, topics: Iterable[str]) -> int:
    """Looks up each topic, and returns the greatest age of an answer."""
    oldest_ms = 0
    for topic in topics:
        await ages.freshen([topic])
        refreshed_ms = producer.cache.refreshed_ms(topic)
        assert refreshed_ms is not None
        oldest_ms = max(oldest_ms, producer.clock.now_ms() - refreshed_ms)
    return oldest_ms


@pytest.mark.parametrize("walks", [1, 2], ids=["the first time", "again"])
def test_a_caller_of_many_topics_after_a_pause_gets_no_answer_older_than_the_bound(walks: int) -> None:
    async def scenario() -> None:
        producer = Brokers()
        topics = {f"t{n}": 3 for n in range(300)}
        ages = ages_over(producer, **topics)
        for _ in range(walks):
            refreshes = len(producer.refreshes)
            producer.clock.advance(60_000)
            assert await oldest_served_ms(ages, producer, topics) == 0
            assert len(producer.refreshes) - refreshes <= BURST
        asked = [sum(1 + topics[name] for name in each) for each in names(producer)]
        assert max(asked) <= PARTITIONS_PER_TOKEN

    run(scenario())


def test_sparse_callers_of_many_topics_get_no_answer_older_than_the_bound() -> None:
    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer, **{f"t{n}": 3 for n in range(60)})
        oldest_ms = 0
        for turn in range(1_200):  # each topic once in 10 s
            producer.clock.advance(10_000 // 60)
            oldest_ms = max(oldest_ms, await oldest_served_ms(ages, producer, [f"t{turn % 60}"]))
        assert oldest_ms <= 5_000
        assert len(producer.refreshes) <= 200 + BURST

    run(scenario())


def test_topics_that_were_looked_up_before_are_refreshed_before_those_that_never_were() -> None:
    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer, **{f"t{n}": 3 for n in range(2_000)})
        walked = [f"t{n}" for n in range(1_900, 2_000)]
        for _ in range(2):
            producer.clock.advance(60_000)
            oldest_ms = await oldest_served_ms(ages, producer, walked)
        assert oldest_ms == 0

    run(scenario())


def test_a_topic_that_is_too_wide_to_share_a_refresh_leaves_room_for_others() -> None:
    async def scenario() -> None:
        producer = Brokers()
        topics = {"wide": 600} | {f"t{n}": 3 for n in range(100)}
        ages = ages_over(producer, **topics)
        for _ in range(2):
            producer.clock.advance(60_000)
            narrow = [name for name in topics if name != "wide"]
            assert await oldest_served_ms(ages, producer, narrow) == 0
            await ages.freshen(["wide"])

    run(scenario())


def test_with_tokens_left_nobody_asks_for_what_was_not_looked_up_lately() -> None:
    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer, **{f"t{n}": 3 for n in range(10)})
        producer.clock.advance(60_000)
        await ages.freshen(["t0"])
        await ages.freshen(["t1"])
        assert names(producer) == [["t0"], ["t1"]]

    run(scenario())


def test_what_is_remembered_of_topics_that_end_is_bounded() -> None:
    async def scenario() -> None:
        producer = Brokers()
        ages = ages_over(producer)
        for n in range(3 * MOST_TOPICS):
            producer.set_topics({f"t{n}": 1})
            producer.clock.advance(6_000)
            await ages.freshen([f"t{n}"])
        assert len(ages.__dict__["_earlier"]) <= MOST_TOPICS

    run(scenario())


def test_what_is_remembered_of_refreshes_in_vain_is_bounded() -> None:
    """Brokers answer, and their answers lack the topics."""

    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        count = 3 * MOST_TOPICS
        ages = ages_over(producer, **{f"t{n}": 1 for n in range(count)})
        for n in range(count):
            producer.clock.advance(6_000)
            waiting = asyncio.create_task(freshened(ages, f"t{n}"))
            while not waiting.done():
                await asyncio.sleep(0)
                for ticket in producer.waiting:
                    producer.finish(ticket, MetadataResult(producer.cache))
        assert len(ages.__dict__["_failed"]) <= 2 * MOST_TOPICS

    run(scenario())


def test_no_refresh_in_vain_is_remembered_of_a_topic_that_has_ended() -> None:
    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        ages = ages_over(producer)
        for n in range(9):
            producer.set_topics({f"t{n}": 1})  # and no other one is left
            producer.clock.advance(6_000)
            waiting = asyncio.create_task(freshened(ages, f"t{n}"))
            await until(lambda: producer.waiting)
            producer.finish(producer.waiting[0], MetadataResult(producer.cache))
            await waiting
        assert ages.__dict__["_failed"].keys() <= {None, "t8"}

    run(scenario())


def test_a_caller_may_wait_less_or_not_at_all_and_not_longer() -> None:
    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        ages = ages_over(producer)
        producer.clock.advance(10_000)
        loop = asyncio.get_running_loop()
        for most_ms, waited_s in ((0, 0), (1, 0.001), (100, 0.101)):
            await ages.freshen(["orders"], most_ms)
            assert loop.time() == pytest.approx(waited_s)
        assert len(producer.refreshes) == 1
        longer = asyncio.create_task(freshened(ages, "orders", max_wait_ms=60_000))
        producer.time_out(producer.waiting[0])
        await longer

    timed(scenario())


# -- refreshes that fail -------------------------------------------------------------------------------------


def test_after_one_refresh_that_failed_nobody_waits_and_one_a_second_is_tried() -> None:
    producer = Brokers()
    producer.is_silent = True
    ages = ages_over(producer, orders=3, audit=1)
    producer.clock.advance(10_000)
    run(ages.freshen(["orders"]))
    assert len(producer.refreshes) == 1
    for _ in range(100):
        producer.clock.advance(100)
        assert not look(producer, ages)
        assert not look(producer, ages, "audit"), "no broker answers for any topic"
        assert not ages.waits_for("orders")
    assert 10 <= len(producer.refreshes) <= 11


def test_when_brokers_answer_again_look_ups_wait_for_them_again() -> None:
    producer = Brokers()
    producer.is_silent = True
    ages = ages_over(producer)
    producer.clock.advance(10_000)
    run(ages.freshen(["orders"]))
    producer.is_silent = False
    producer.clock.advance(1_000)
    assert not look(producer, ages)
    assert producer.cache.refreshed_ms("orders") == producer.clock.now_ms()
    producer.clock.advance(10_000)
    producer.holds_refreshes = True
    assert ages.waits_for("orders")


def test_a_topic_that_a_refresh_did_not_refresh_is_served_at_once_and_others_are_not() -> None:
    """One broker reports it missing, and no other one has answered in time."""

    async def scenario() -> None:
        producer = FakeProducer(holds_refreshes=True)
        ages = ages_over(producer, doubtful=1, audit=1)
        producer.clock.advance(10_000)
        asked = asyncio.create_task(freshened(ages, "doubtful"))
        await until(lambda: producer.waiting)
        producer.set_topics({}, partial=True)
        producer.finish(producer.waiting[0], MetadataResult(producer.cache))
        await asked
        assert not ages.waits_for("doubtful")
        assert ages.waits_for("audit")
        producer.clock.advance(1)
        producer.set_topics({"doubtful": 1}, partial=True)
        producer.clock.advance(10_000)
        assert ages.waits_for("doubtful")

    run(scenario())


def test_a_closed_producer_is_a_failure() -> None:
    class Closed(FakeProducer):
        def refresh_topics(self, names: Iterable[str], **asked: Any) -> FakeTicket:
            raise IllegalStateError("closed")

    producer = Closed()
    ages = ages_over(producer)
    producer.clock.advance(10_000)
    run(ages.freshen(["orders"]))
    assert not ages.waits_for("orders")


# -- prepared answers ----------------------------------------------------------------------------------------


def is_checked(table: LookupTable) -> bool:
    entry = table.find(ORDERS)
    assert entry is not None
    return entry.needs_route


def are_leaders_checked(table: LookupTable) -> bool:
    return table.leaders([("orders", 0)]) is None


@pytest.mark.parametrize("asked", [is_checked, are_leaders_checked])
def test_a_prepared_answer_is_checked_at_the_very_moment_at_which_it_reaches_a_bound(
    asked: Callable[[LookupTable], bool],
) -> None:
    producer = FakeProducer(holds_refreshes=True)
    ages = ages_over(producer)
    producer.clock.advance(1_700)
    producer.set_topics({"orders": 3})
    table = LookupTable(producer, "boot", None, ages)
    needs_route = []
    for step_ms in (0, 2_000, 1, 2_999, 1):
        producer.clock.advance(step_ms)
        is_due = asked(table)
        needs_route.append((len(producer.refreshes), is_due))
    assert needs_route == [(0, False), (0, False), (1, False), (2, False), (2, True)]


@pytest.mark.parametrize("asked", [is_checked, are_leaders_checked])
def test_a_prepared_answer_of_any_age_is_served_as_it_is_while_no_refresh_may_be_sent(
    asked: Callable[[LookupTable], bool],
) -> None:
    """A way through the routes, which would not wait either, costs fifteen times as much."""
    producer = Brokers()
    ages = ages_over(producer, orders=3, wide=20 * 500)
    table = LookupTable(producer, "boot", None, ages)
    producer.clock.advance(5_001)
    run(ages.freshen(["wide"]))  # costs twenty tokens, of five
    producer.clock.advance(5_001)
    assert not ages.waits_for("orders")
    assert not asked(table)
    tokens_again_ms = ages.look("orders", producer.clock.now_ms()).at_ms - producer.clock.now_ms()
    assert 10_900 <= tokens_again_ms <= 11_100
    producer.clock.advance(tokens_again_ms - 1)
    assert not asked(table)
    assert names(producer) == [["wide"]]
    producer.clock.advance(1)
    assert asked(table)
    assert [sorted(asked_for) for asked_for in names(producer)] == [["wide"], ["orders"]]


def test_a_hot_prepared_answer_is_compared_with_the_clock_and_no_more() -> None:
    looks: list[int] = []

    class Counted(Ages):
        def look(self, topic: str | None, now_ms: int) -> Any:
            looks.append(now_ms)
            return super().look(topic, now_ms)

    producer = Brokers()
    producer.set_topics({"orders": 3})
    table = LookupTable(producer, "boot", None, Counted(producer, revalidate_after_ms=2_000))
    for _ in range(1_000):
        producer.clock.advance(1)
        assert table.find(ORDERS) is not None
    assert len(looks) == 2, "at the first look-up, and at the turn of the second"


# -- over HTTP -----------------------------------------------------------------------------------------------


def refreshing(web: HttpApp, path: str, counts: dict[str, int], **sent: Any) -> httpx.Response:
    """Asks where the answer is too old, and the refresh finds these topics."""

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            method = "POST" if "json" in sent else "GET"
            asked = asyncio.create_task(client.request(method, path, **sent))
            await until(lambda: web.producer.waiting or asked.done())
            assert web.producer.waiting, f"{path} did not wait"
            web.producer.set_topics(counts)
            web.producer.finish(web.producer.waiting[0], MetadataResult(web.producer.cache))
            return await asked

    return run(scenario())


ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/topics/orders", {}),
    ("/v1/topics/orders/partitions/3", {}),
    ("/v1/topics/orders/leader?partition=3", {}),
    ("/v1/topics/orders/leader?key=c", {}),
    ("/v1/topics/orders/leader?key=%63", {}),
    ("/v1/topics/orders/leader?partition=3&max_block_ms=9000", {}),
    ("/v1/leaders", {"json": {"lookups": [{"topic": "orders", "partition": 3}]}}),
    ("/v1/brokers/1", {}),
    ("/v1/cluster", {}),
    ("/topics/orders", {}),
    ("/topics/orders/partitions", {}),
    ("/topics/orders/partitions/3", {}),
    ("/brokers", {}),
    ("/v3/clusters/fake/topics/orders", {}),
    ("/v3/clusters/fake/topics/orders/partitions", {}),
    ("/v3/clusters/fake/topics/orders/partitions/3", {}),
    ("/v3/clusters/fake/brokers", {}),
]


def test_every_route_refreshes_first_what_is_too_old() -> None:
    web = HttpApp()
    web.producer.holds_refreshes = True
    for path, sent in ROUTES:
        web.producer.set_topics({"orders": 3})
        web.producer.refreshes.clear()
        web.producer.clock.advance(5_001)
        path = path.replace("clusters/fake", f"clusters/{web.producer.cache.cluster_id}")
        answer = refreshing(web, path, {"orders": 4}, **sent)
        assert answer.status_code == 200, (path, answer.text)
        assert answer.headers.get("age", "0") == "0", path
        assert len(web.producer.refreshes) == 1, path


def test_every_route_serves_what_it_has_at_once_after_a_failed_refresh() -> None:
    web = HttpApp()
    for path, sent in ROUTES:
        web.producer.set_topics({"orders": 4})
        web.producer.refreshes.clear()
        path = path.replace("clusters/fake", f"clusters/{web.producer.cache.cluster_id}")
        web.producer.clock.advance(17_000)
        for _ in range(2):
            answer = web.ask("POST" if sent else "GET", path, **sent)
            assert answer.status_code == 200, (path, answer.text)
            assert answer.headers.get("age", "17") == "17", path
        assert len(web.producer.refreshes) == 1, path


def test_a_topic_that_the_refresh_finds_deleted_is_404_and_its_end_is_asked_for_once_more() -> None:
    web = HttpApp(lookup_wait_ms=1_000)
    web.producer.set_topics({"orders": 3, "audit": 1})
    web.producer.clock.advance(5_001)
    web.producer.holds_refreshes = True

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            asked = asyncio.create_task(client.get("/v1/topics/orders"))
            await until(lambda: web.producer.waiting)
            web.producer.set_topics({"audit": 1})
            web.producer.finish(web.producer.waiting[0], MetadataResult(web.producer.cache))
            await until(lambda: web.producer.waiting)
            web.producer.say_unknown(web.producer.waiting[0])
            return await asked

    answer = run(scenario())
    assert (answer.status_code, answer.json()["kafka_error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_the_answer_about_a_broker_refreshes_the_topics_that_it_leads() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    web.producer.clock.advance(17_000)
    web.producer.set_topics({"audit": 1}, partial=True)  # the brokers and this topic are fresh
    assert web.get("/v1/brokers/1").status_code == 200
    assert names(web.producer) == [["orders"]]


def test_a_caller_without_the_right_to_read_a_topic_refreshes_nothing(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, billing={"read": ["bills"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3})
    web.producer.clock.advance(17_000)
    assert web.get("/v1/topics/orders", headers=tokens.of("billing")).status_code == 403
    assert web.producer.refreshes == []


def test_what_is_missing_from_metadata_above_the_bound_is_503() -> None:
    """Also without a token: it may be there by now, and no broker was asked."""
    web = HttpApp()
    web.producer.set_topics({"orders": 3, "audit": 1})
    web.producer.cause_of_silence = Cause(Errors.NETWORK_EXCEPTION, 1, 9, 16_500, "no route", "refused")
    path = "/v1/topics/orders/partitions/3"
    web.producer.clock.advance(17_000)
    for missing in (path, "/v1/brokers/9"):
        answer = web.get(missing)
        problem, cause = answer.json(), answer.json()["cause"]
        assert (answer.status_code, problem["kafka_error"]) == (503, "REQUEST_TIMED_OUT")
        assert problem["detail"].startswith("17000 ms ago ")
        assert "; no broker has confirmed this since. The cause: NETWORK_EXC" in problem["detail"]
        assert (cause["kafka_error"], cause["reason"]) == ("NETWORK_EXCEPTION", "refused")
    web.producer.clock.advance(1)
    web.producer.set_topics({"orders": 3, "audit": 1})
    assert web.get(path).status_code == 404
    web.producer.holds_refreshes = True
    web.producer.clock.advance(5_000)
    assert web.get(path).status_code == 404, "as old as it may be, and refreshed behind the answer"
    assert len(web.producer.waiting) == 1
    web.producer.time_out(web.producer.waiting[0])
    web.producer.holds_refreshes = False
    web.producer.clock.advance(1)
    web.producer.set_topics({"orders": 3, "audit": 1})
    web.producer.clock.advance(17_000)
    web.app.sidecar.lookups._ages._tokens_ms = 0
    web.app.sidecar.lookups._ages._counted_ms = web.producer.clock.now_ms()
    web.producer.refreshes.clear()
    assert (web.get(path).status_code, web.producer.refreshes) == (503, [])


def test_with_a_bound_of_zero_a_refresh_of_this_moment_shows_what_is_missing() -> None:
    web = HttpApp(lookup_max_stale_ms=0)
    web.producer.set_topics({"orders": 3})
    web.producer.clock.advance(1)
    assert web.get("/v1/topics/orders/partitions/3").status_code == 404


def test_a_caller_that_waits_for_nothing_gets_no_404_that_no_broker_has_said() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    web.producer.holds_refreshes = True
    web.producer.clock.advance(17_000)
    assert web.get("/v1/topics/orders/partitions/3?max_block_ms=0").status_code == 503


def test_both_bounds_are_settings() -> None:
    web = HttpApp(lookup_revalidate_after_ms=500, lookup_max_stale_ms=700)
    web.producer.set_topics({"orders": 3})
    web.producer.holds_refreshes = True
    for advance_ms, refreshes in ((500, 0), (1, 1), (199, 1)):
        web.producer.clock.advance(advance_ms)
        assert web.get("/v1/topics/orders").status_code == 200
        assert len(web.producer.refreshes) == refreshes
    web.producer.time_out(web.producer.waiting[0])
    web.producer.clock.advance(1)
    web.producer.set_topics({"orders": 3})
    web.producer.clock.advance(701)
    assert refreshing(web, "/v1/topics/orders", {"orders": 4}).headers["age"] == "0"


def test_a_revalidation_bound_above_the_other_is_the_other() -> None:
    producer = FakeProducer(holds_refreshes=True)
    producer.set_topics({"orders": 3})
    ages = Ages(producer, revalidate_after_ms=60_000, max_stale_ms=5_000, wait_ms=250)
    producer.clock.advance(5_001)
    assert look(producer, ages)


def test_a_refresh_that_memory_is_lacking_for_costs_no_later_look_up_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    web = HttpApp(lookup_max_stale_ms=60_000)
    web.producer.set_topics({"orders": 3})
    web.producer.clock.advance(100_000)
    with monkeypatch.context() as patched:
        patched.setattr(web.producer, "refresh_topics", no_memory)
        with pytest.raises(MemoryError):
            web.get(ORDERS.decode())
    for _ in range(2):
        assert web.get(ORDERS.decode()).status_code == 200


async def test_look_ups_do_not_wait_for_a_refresh_that_was_never_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    brokers = Brokers()
    ages = ages_over(brokers)
    brokers.clock.advance(10_000)
    with monkeypatch.context() as patched:
        patched.setattr(brokers, "refresh_topics", no_memory)
        with pytest.raises(MemoryError):
            await ages.freshen(["orders"])
    await ages.freshen(["orders"])
    assert [ticket.asked["names"] for ticket in brokers.refreshes] == [["orders"]]


def test_a_broker_is_as_young_as_demanded_however_many_topics_are_known() -> None:
    web = HttpApp()
    topics = {f"topic-{number:04}": 1 for number in range(MOST_TOPICS + 1)}
    web.producer.set_topics(topics)
    web.producer.clock.advance(17_000)
    web.producer.set_topics(dict(list(topics.items())[:MOST_TOPICS]), partial=True)
    assert web.get("/v1/brokers/1").headers["age"] == "17"

    def answer(ticket: FakeTicket) -> None:
        web.producer.set_topics(topics)
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    assert web.get("/v1/brokers/1?max_age_ms=5000", ends=answer).headers["age"] == "0"
