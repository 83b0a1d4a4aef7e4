"""Configs of topics: kept for a while, shared by who asks at once, and never worth a failure."""

from __future__ import annotations

import asyncio

import pytest

from client_core import TopicAuthorizationError, TopicConfigsResult, TopicTable
from service.lookup.topic_configs import Configs, ConfigsOfTopics
from tests.support.coroutine_tests import until
from tests.support.fake_producer import FakeProducer, told_configs
from tests.support.metadata_responses import topic as described_topic
from tests.support.metadata_responses import topic_id_of

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
    await rig.report(told_configs({**OLD, "password": None}))
    assert await first == {**OLD, "password": None}
    rig.producer.clock.advance(59_999)
    assert await rig.of() == {**OLD, "password": None}
    assert rig.requests == 1
    rig.producer.clock.advance(1)
    second = rig.ask()
    await rig.report(told_configs(NEW))
    assert await second == NEW
    assert rig.requests == 2


async def test_who_asks_at_once_shares_one_request_and_one_who_leaves_does_not_end_it() -> None:
    rig = Rig()
    gone, *others = [rig.ask() for _ in range(5)]
    await until(lambda: rig.requests)
    gone.cancel()
    await rig.report(told_configs(NEW))
    assert await asyncio.gather(*others) == [NEW] * 4
    assert gone.cancelled()
    assert rig.requests == 1


async def test_topics_are_asked_for_apart() -> None:
    rig = Rig()
    asked = [rig.ask("orders"), rig.ask("audit")]
    await until(lambda: len(rig.producer.waiting) == 2)
    for ticket, configs in zip(list(rig.producer.waiting), (OLD, NEW), strict=True):
        rig.producer.finish(ticket, told_configs(configs))
    assert await asyncio.gather(*asked) == [OLD, NEW]


async def test_a_refusal_is_an_empty_object_and_is_not_repeated_at_once() -> None:
    rig = Rig()
    first = rig.ask()
    await rig.report(refused())
    assert await first == {}
    assert await rig.of() == {}
    assert rig.requests == 1
    rig.producer.clock.advance(5_000)
    again = rig.ask()
    await rig.report(told_configs(NEW))
    assert await again == NEW


async def test_the_old_ones_are_served_while_new_ones_can_not_be_had() -> None:
    rig = Rig(max_age_ms=1_000)
    first = rig.ask()
    await rig.report(told_configs(OLD))
    assert await first == OLD
    for _ in range(2):
        rig.producer.clock.advance(1_000)
        later = rig.ask()
        await rig.report(refused())
        assert await later == OLD


async def test_nobody_waits_longer_than_a_moment() -> None:
    rig = Rig(wait_ms=1)
    assert await rig.of() == {}
    # What comes late is kept for who asks next.
    await rig.report(told_configs(NEW))
    assert await rig.of() == NEW
    assert rig.requests == 1


async def test_a_topic_that_was_made_anew_does_not_inherit_them() -> None:
    rig = Rig()
    rig.producer.set_topics([described_topic("orders", 1, topic_id=topic_id_of("first"))])
    first = rig.ask()
    await rig.report(told_configs(OLD))
    assert await first == OLD
    rig.producer.set_topics([described_topic("orders", 1, topic_id=topic_id_of("second"))])
    second = rig.ask()
    await rig.report(refused())
    assert await second == {}


async def test_a_producer_that_is_closed_is_no_failure() -> None:
    rig = Rig()
    rig.producer.close(0)
    assert await rig.of() == {}


async def test_what_is_kept_is_bounded_and_what_is_used_stays_longest() -> None:
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


async def test_no_more_than_a_hundred_topics_are_asked_for_at_once() -> None:
    rig = Rig()
    rig.producer.set_topics({f"t{n}": 1 for n in range(101)})
    asked = [rig.ask(f"t{n}") for n in range(100)]
    await until(lambda: rig.requests == 100)
    assert await rig.of("t100") == {}
    for ticket in list(rig.producer.waiting):
        rig.producer.finish(ticket, told_configs(NEW))
    assert await asyncio.gather(*asked) == [NEW] * 100


@pytest.mark.parametrize("max_age_ms", [0, 60_000])
async def test_answers_are_read_only(max_age_ms: int) -> None:
    rig = Rig(max_age_ms=max_age_ms)
    rig.producer.configs = {"orders": {**OLD}}
    reported = await rig.of()
    with pytest.raises(TypeError):
        reported["x"] = "y"  # type: ignore[index]
