"""How old an answer may be, by what has changed, how often it is looked up, and by which route.

In simulated time, over a whole client and brokers of this process.
"""

from __future__ import annotations

import asyncio
import statistics
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.support.coroutine_tests import run
from tests.support.partition_routes import ROUTES, look_up, shows
from tests.support.simulated_sidecar import SimulatedSidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.partition_routes import Seen


class Caller(NamedTuple):
    """How often a topic is looked up, and whether others look up other topics all the time."""

    pause_ms: int
    among_others: bool = False


CALLERS: Final = {
    "busy": Caller(250),
    "each 10 s": Caller(10_000),
    "each 10 s among others": Caller(10_000, among_others=True),
    "each 60 s": Caller(60_000),
    "quiet": Caller(600_000),
}
OTHERS: Final = ("other",)
#: An answer up to 2 s old is served, the next one too, and refreshed behind it.
BUSY_MS: Final = 2_300
BUSY_MEDIAN_MS: Final = 1_500


class Change(NamedTuple):
    """What changes a topic of three partitions, by whose partition it is seen, and what is right then."""

    make: Callable[[SimulatedSidecar, str], None]
    partition: int
    is_right: Callable[[Seen], bool]


def _recreate(sidecar: SimulatedSidecar, topic: str) -> None:
    sidecar.controller.delete_topic(topic)
    sidecar.controller.create_topic(topic, partitions=5, replication_factor=3)


CHANGES: Final = {
    "deleted": Change(lambda s, topic: s.controller.delete_topic(topic), 0, lambda seen: not seen.exists),
    "made again": Change(_recreate, 4, lambda seen: seen.exists),
    "partition added": Change(
        lambda s, topic: s.controller.add_partitions(topic, 5), 4, lambda seen: seen.exists
    ),
    "leader moved": Change(
        lambda s, topic: s.controller.move_leader(topic, 0, 3), 0, lambda seen: seen.leader == 3
    ),
}


@pytest.fixture
def sidecar() -> Iterator[SimulatedSidecar]:
    simulated = SimulatedSidecar()
    yield simulated
    simulated.close()


async def _look(sidecar: SimulatedSidecar, route: str, topic: str, partition: int) -> Seen:
    asked = look_up(route, topic, partition, "in-process")
    if asked.body is not None:
        return asked.read(await sidecar.ask(asked.method, asked.path, json=asked.body))
    return asked.read(await sidecar.get(asked.path))


class Measured(NamedTuple):
    """When the last wrong answer was given, after the change; and the longest wait of a look-up."""

    stale_ms: int
    waited_ms: int


async def _measure(
    sidecar: SimulatedSidecar, topic: str, change: Change, caller: Caller, route: str, after_ms: int
) -> Measured:
    clock, pause_ms = sidecar.clock, caller.pause_ms
    sidecar.controller.create_topic(topic, partitions=3, assignment=[[1, 2, 3]] * 3, replication_factor=3)
    assert (await _look(sidecar, route, topic, 0)).exists
    for _ in range(2 if pause_ms > 1_000 else 8 + after_ms // 50 % 9):
        await _pause(sidecar, caller, pause_ms)
        assert (await _look(sidecar, route, topic, 0)).leader in (1, None)
    await _pause(sidecar, caller, after_ms % pause_ms)
    change.make(sidecar, topic)
    changed_ms = clock.now_ms()
    stale_ms = waited_ms = 0
    await _pause(sidecar, caller, pause_ms - after_ms % pause_ms)
    for _ in range(1_000):
        began_ms = clock.now_ms()
        seen = await _look(sidecar, route, topic, change.partition)
        if change.is_right(seen):
            # The memory of a missing topic has a limit of its own.
            waited_ms = max(waited_ms, clock.now_ms() - began_ms if seen.exists else 0)
            break
        stale_ms, waited_ms = began_ms - changed_ms, max(waited_ms, clock.now_ms() - began_ms)
        await _pause(sidecar, caller, pause_ms)
    return Measured(stale_ms, waited_ms)


async def _pause(sidecar: SimulatedSidecar, caller: Caller, pause_ms: int) -> None:
    while caller.among_others and pause_ms > 0:
        for topic in OTHERS:
            await sidecar.get(f"/v1/topics/{topic}")
        await sidecar.sleep(min(pause_ms, 1_000))
        pause_ms -= 1_000
    await sidecar.sleep(max(pause_ms, 0))


async def _begin(sidecar: SimulatedSidecar) -> None:
    for topic in OTHERS:
        sidecar.controller.create_topic(topic, partitions=3, replication_factor=3)
    await sidecar.sleep(1_000)


def _check(caller: str, measured: Measured, *what: str) -> None:
    assert measured.stale_ms <= (BUSY_MS if caller == "busy" else 0), (caller, *what, measured)
    assert measured.waited_ms <= 15, (caller, *what, measured)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("change", CHANGES)
def test_how_old_an_answer_of_every_route_is_20_times(
    sidecar: SimulatedSidecar, change: str, caller: str
) -> None:
    async def scenario() -> None:
        await _begin(sidecar)
        for m, route in enumerate(ROUTES):
            stale_ms = []
            for n in range(20 if shows(route, change) else 0):
                topic = f"t-{n}-{m}"
                how = (sidecar, topic, CHANGES[change], CALLERS[caller], route, 137 * m + 211 * n)
                measured = await _measure(*how)
                _check(caller, measured, change, route)
                stale_ms.append(measured.stale_ms)
            if stale_ms and caller == "busy":
                assert statistics.median(stale_ms) <= BUSY_MEDIAN_MS, (change, route, sorted(stale_ms))

    asyncio.run(scenario())


def test_how_old_an_answer_is(sidecar: SimulatedSidecar) -> None:
    """Each change and each caller once, by the routes in turn; the test above has all of them."""

    async def scenario() -> None:
        await _begin(sidecar)
        routes = cycle(ROUTES)
        for n, (change, caller) in enumerate(product(CHANGES, CALLERS)):
            route = next(name for name in routes if shows(name, change))
            how = (sidecar, f"t-{n}", CHANGES[change], CALLERS[caller], route, 137 * n)
            _check(caller, await _measure(*how), change, route)

    run(scenario())


def test_a_broker_is_as_young_as_demanded_with_all_that_it_leads(sidecar: SimulatedSidecar) -> None:
    async def scenario() -> None:
        for topic in ("quiet", "busy"):
            sidecar.controller.create_topic(topic, assignment=[[1, 2, 3]], replication_factor=3)
        await sidecar.sleep(1_000)
        await sidecar.get("/v1/topics/quiet")
        for _ in range(12):
            await sidecar.get("/v1/topics/busy")
            await sidecar.sleep(500)
        sidecar.controller.move_leader("quiet", 0, 3)
        await sidecar.get("/v1/topics/busy")
        ages = [int((await sidecar.get(f"/v1/{path}")).headers["age"]) for path in ("cluster", "brokers/1")]
        assert ages[0] < 2 <= ages[1], ages
        answer = await sidecar.get("/v1/brokers/1?max_age_ms=2000")
        assert int(answer.headers["age"]) < 2
        assert [leads["topic"] for leads in answer.json()["leads"]] == ["busy"]

    run(scenario())


def test_a_partition_that_was_added_is_never_404_however_many_large_topics_are_looked_up(
    sidecar: SimulatedSidecar,
) -> None:
    async def scenario() -> None:
        topics = [f"t-{n}" for n in range(4)]
        for topic in topics:
            sidecar.controller.create_topic(topic, partitions=2_000, replication_factor=1)
        await sidecar.sleep(1_000)
        for topic in topics:
            await sidecar.get(f"/v1/topics/{topic}/partitions/0")
        await sidecar.sleep(60_000)
        for topic in topics:
            sidecar.controller.add_partitions(topic, 2_001)
        paths = [f"/v1/topics/{topic}/partitions/2000" for topic in topics]
        answers = [(await sidecar.get(path)).status_code for path in paths]
        assert answers == [200, 200, 503, 503], "a refresh costs four tokens, and there were five"

    run(scenario())


@pytest.mark.parametrize("path", ["topics/orders", "topics/orders/leader?partition=0", "brokers/1"])
def test_who_demands_an_age_does_not_get_a_topic_that_only_one_broker_has_reported_missing(
    sidecar: SimulatedSidecar, path: str
) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", assignment=[[1, 2, 3]], replication_factor=3)
        await sidecar.sleep(1_000)
        assert (await sidecar.get("/v1/topics/orders")).status_code == 200
        await sidecar.sleep(3_000)
        sidecar.controller.delete_topic("orders")
        answer = await sidecar.get(f"/v1/{path}{'&' if '?' in path else '?'}max_age_ms=1000")
        if path == "brokers/1":
            assert (answer.json()["leads"], answer.headers["age"]) == ([], "0")
        else:
            assert answer.status_code == 404

    run(scenario())


def test_a_demand_that_one_broker_alone_cannot_meet_is_503_at_its_deadline() -> None:
    sidecar = SimulatedSidecar(brokers=1)

    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=1)
        await sidecar.sleep(1_000)
        assert (await sidecar.get("/v1/topics/orders")).status_code == 200
        sidecar.controller.delete_topic("orders")
        await sidecar.sleep(1_000)
        began_ms = sidecar.clock.now_ms()
        answer = await sidecar.get("/v1/topics/orders?max_age_ms=0&max_block_ms=1000")
        assert (answer.status_code, answer.json()["waited_ms"]) == (503, 1_000)
        assert answer.json()["detail"].startswith("A broker reports topic orders missing, and no other")
        assert sidecar.clock.now_ms() - began_ms == 1_000
        assert (await sidecar.get("/v1/topics/orders")).status_code == 200, "without a demand it is served"
        assert (await sidecar.get("/v1/topics/orders?max_age_ms=0")).status_code == 404

    run(scenario())
    sidecar.close()


def test_one_report_that_a_topic_is_missing_is_404_for_nobody(sidecar: SimulatedSidecar) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", assignment=[[1, 2, 3]], replication_factor=3)
        await sidecar.sleep(1_000)
        sidecar.brokers.amnesiac = {1, 2, 3}
        one = {"records": [{"value": 1}]}
        produced = await sidecar.ask("POST", "/v1/topics/orders/records?max_block_ms=20", json=one)
        assert (produced.status_code, produced.json()["kafka_error"]) == (503, "REQUEST_TIMED_OUT")
        await sidecar.sleep(10_000)
        answer = await sidecar.get("/v1/topics/orders?max_block_ms=20")
        assert (answer.status_code, answer.json()["kafka_error"]) == (503, "REQUEST_TIMED_OUT")
        sidecar.brokers.amnesiac = set()
        assert (await sidecar.get("/v1/topics/orders")).status_code == 200

    run(scenario())


# -- what it costs the brokers -------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What some look-ups cost: Metadata requests for their age, and bytes of all responses."""

    refreshes: int
    answered_bytes: int


async def _cost(sidecar: SimulatedSidecar, topics: list[str], pause_ms: int, for_ms: int) -> Cost:
    before = Cost(sidecar.refreshes, sidecar.brokers.answered_bytes)
    for n in range(for_ms // pause_ms):
        await sidecar.get(f"/v1/topics/{topics[n % len(topics)]}")
        await sidecar.sleep(pause_ms)
    return Cost(sidecar.refreshes - before.refreshes, sidecar.brokers.answered_bytes - before.answered_bytes)


def test_what_look_ups_cost_the_brokers(sidecar: SimulatedSidecar) -> None:
    """Five topics of 20 partitions and three replicas. See "What it costs the brokers" in docs/http.md."""

    async def scenario() -> dict[str, Cost]:
        topics = [f"t-{n}" for n in range(5)]
        for topic in topics:
            sidecar.controller.create_topic(topic, partitions=20, replication_factor=3)
        await sidecar.sleep(1_000)
        for topic in topics:
            await sidecar.get(f"/v1/topics/{topic}")
        costs = {}
        for name, pause_ms in (("busy", 200), ("sparse", 10_000)):
            costs[name] = await _cost(sidecar, topics, pause_ms, 60_000)
        before = Cost(sidecar.refreshes, sidecar.brokers.answered_bytes)
        await sidecar.sleep(60_000)
        assert before == Cost(sidecar.refreshes, sidecar.brokers.answered_bytes), "an idle one sends nothing"
        return costs

    busy, sparse = run(scenario()).values()
    assert 25 <= busy.refreshes <= 31
    assert busy.answered_bytes / busy.refreshes < 5_000
    assert sparse.refreshes in (5, 6)
    assert sparse.answered_bytes / sparse.refreshes < 1_200


# -- brokers that do not answer ------------------------------------------------------------------------------


def test_while_all_brokers_are_silent_one_look_up_waits_and_the_others_are_served_at_once(
    sidecar: SimulatedSidecar,
) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        await sidecar.get("/v1/topics/orders")
        assert await sidecar.readiness() is None
        sidecar.brokers.silent = {1, 2, 3}
        await sidecar.sleep(6_000)
        assert await sidecar.readiness() is None, "nobody has asked them"
        waits, ages, sent = [], [], len(sidecar.sent)
        for _ in range(60):
            began_ms = sidecar.clock.now_ms()
            answer = await sidecar.get("/v1/topics/orders/leader?partition=0")
            assert answer.status_code == 200
            waits.append(sidecar.clock.now_ms() - began_ms)
            ages.append(int(answer.headers["age"]))
            await sidecar.sleep(200)
        assert (waits[0], max(waits[1:])) == (250, 0)
        assert ages == sorted(ages)
        assert ages[-1] >= 17
        # One a second, until as many are in flight as max.in.flight.requests.per.connection allows.
        assert 5 <= len(sidecar.sent) - sent <= 14
        fault = await sidecar.readiness()
        assert fault is not None
        assert fault.startswith("no broker has answered for 1")
        for path in (
            "/v1/topics/nobody-has-said-that-it-is-not-there",
            "/v1/topics/orders/partitions/7",
            "/v1/topics/orders/leader?partition=7",
            "/v1/brokers/9",
            "/topics/orders/partitions/7",
            "/v3/clusters/in-process/topics/orders/partitions/7",
            "/v3/clusters/in-process/brokers/9",
        ):
            answer = await sidecar.get(path)
            assert answer.status_code == 503, (path, answer.text)
        answer = await sidecar.ask(
            "POST", "/v1/leaders", json={"lookups": [{"topic": "orders", "partition": 7}]}
        )
        assert answer.json()["results"][0]["error"]["kafka_error"] == "REQUEST_TIMED_OUT"
        sidecar.brokers.silent = set()
        sidecar.network.disconnect_all()
        await sidecar.sleep(2_000)
        answer = await sidecar.get("/v1/topics/orders/leader?partition=0")
        assert answer.status_code == 200
        assert int(answer.headers["age"]) <= 2
        assert (await sidecar.get("/v1/topics/orders/partitions/7")).status_code == 404
        assert await sidecar.readiness() is None

    run(scenario())


def test_a_long_poll_does_not_wait_longer_than_it_asks_for_while_all_brokers_are_silent(
    sidecar: SimulatedSidecar,
) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        snapshot = (await sidecar.get("/v1/watch/snapshot?topics=orders,nope")).json()
        sidecar.brokers.silent = {1, 2, 3}
        await sidecar.sleep(6_000)
        began_ms = sidecar.clock.now_ms()
        query = f"topics=orders,nope&last_event_id={snapshot['version']}&max_block_ms=0"
        answer = await sidecar.get(f"/v1/watch/changes?{query}")
        assert answer.json() == {"version": snapshot["version"], "reset": False, "changes": []}
        assert sidecar.clock.now_ms() == began_ms

    run(scenario())


each_broker = pytest.mark.parametrize("silent", [1, 2, 3])


@each_broker
def test_one_broker_that_hangs_does_not_keep_answers_old(sidecar: SimulatedSidecar, silent: int) -> None:
    async def scenario() -> list[int]:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        await sidecar.get("/v1/topics/orders")
        ages = []
        sidecar.brokers.silent = {silent}
        for _ in range(100):
            answer = await sidecar.get("/v1/topics/orders")
            ages.append(int(answer.headers["age"]))
            await sidecar.sleep(250)
        assert await sidecar.readiness() is None
        return ages

    ages = run(scenario())
    assert max(ages) <= 4, ages


@each_broker
def test_one_broker_that_hangs_does_not_keep_new_topics_and_lists_away(
    sidecar: SimulatedSidecar, silent: int
) -> None:
    async def waited_ms(path: str, status: int) -> int:
        began_ms = sidecar.clock.now_ms()
        assert (await sidecar.get(path)).status_code == status, path
        return sidecar.clock.now_ms() - began_ms

    async def scenario() -> None:
        for number in range(9):
            sidecar.controller.create_topic(f"topic-{number}", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        await sidecar.get("/v1/topics/topic-0")
        sidecar.brokers.silent = {silent}
        for number, pause_ms in enumerate((0, 500, 500, 2_500, 6_000, 0, 500, 0), 1):
            await sidecar.sleep(pause_ms)
            assert await waited_ms(f"/v1/topics/topic-{number}/leader?partition=0", 200) < 1_100
        assert await waited_ms("/v1/topics/typo", 404) < 2_200
        assert await waited_ms("/v1/topics", 200) < 2_200

    run(scenario())


@each_broker
def test_one_broker_that_hangs_does_not_keep_young_answers_away(
    sidecar: SimulatedSidecar, silent: int
) -> None:
    async def scenario() -> list[int]:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        await sidecar.get("/v1/topics/orders")
        sidecar.brokers.silent = {silent}
        waits = []
        for pause_ms in (2_000, 500, 500, 10_000, 0):
            await sidecar.sleep(pause_ms)
            began_ms = sidecar.clock.now_ms()
            answer = await sidecar.get("/v1/topics/orders/leader?partition=0&max_age_ms=0")
            assert (answer.status_code, answer.headers["age"]) == (200, "0")
            waits.append(sidecar.clock.now_ms() - began_ms)
        return waits

    assert max(run(scenario())) < 1_100


@pytest.mark.parametrize("after_ms", range(1, 7))
def test_one_broker_that_hangs_during_the_start_delays_a_produce_by_a_second(
    sidecar: SimulatedSidecar, after_ms: int
) -> None:
    """Versions, metadata or the producer id are requested from it."""

    async def scenario() -> None:
        sidecar.controller.create_topic("orders", assignment=[[1, 2, 3]], replication_factor=3)
        await sidecar.sleep(after_ms)
        sidecar.brokers.silent = {3}
        status, waited_ms, _ = await _produced(sidecar, "orders")
        assert (status, waited_ms < 1_100) == (200, True), waited_ms

    run(scenario())


def test_a_list_that_takes_longer_than_its_callers_wait_is_there_for_the_next_one(
    sidecar: SimulatedSidecar,
) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        sidecar.network.delay_ms = lambda broker_id, payload: 7_000
        assert (await sidecar.get("/v1/topics?max_block_ms=1")).status_code == 503
        await sidecar.sleep(7_000)
        answer = await sidecar.get("/v1/topics?max_block_ms=1")
        assert (answer.status_code, [topic["name"] for topic in answer.json()["topics"]]) == (200, ["orders"])

    run(scenario())


def test_a_broker_that_restarts_and_knows_no_topic_does_not_make_one_vanish(
    sidecar: SimulatedSidecar,
) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        sidecar.brokers.amnesiac = {2}
        for _ in range(200):
            answer = await sidecar.get("/v1/topics/orders")
            assert answer.status_code == 200
            assert int(answer.headers["age"]) <= 4
            await sidecar.sleep(250)

    run(scenario())


# -- a produce -----------------------------------------------------------------------------------------------


async def _produced(sidecar: SimulatedSidecar, topic: str, query: str = "", partition: int = 0) -> Any:
    body = {"records": [{"value": "x", "partition": partition}]}
    began_ms = sidecar.clock.now_ms()
    answer = await sidecar.ask("POST", f"/v1/topics/{topic}/records{query}", step_ms=25, json=body)
    return answer.status_code, sidecar.clock.now_ms() - began_ms, answer.json()


def test_a_produce_to_what_is_not_there_fails_as_soon_as_that_is_known(sidecar: SimulatedSidecar) -> None:
    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=3, replication_factor=3)
        await sidecar.sleep(1_000)
        assert (await _produced(sidecar, "orders"))[0] == 200
        for topic, partition in (("nope", 0), ("orders", 7)):
            status, waited_ms, problem = await _produced(sidecar, topic, partition=partition)
            assert (status, problem["kafka_error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION"), problem
            assert 1_000 <= waited_ms <= 1_200
            status, waited_ms, problem = await _produced(sidecar, topic, "?max_block_ms=3000", partition)
            assert (status, problem["phase"]) == (404, "metadata")
            assert 3_000 <= waited_ms <= 3_100
        sidecar.brokers.silent = {1, 2, 3}
        for topic, partition in (("nope", 0), ("orders", 7)):
            status, waited_ms, problem = await _produced(sidecar, topic, "", partition)
            assert (status, problem["written"]) == (503, "no"), problem
            assert waited_ms >= 60_000, "no broker has said that it is not there"

    run(scenario())
