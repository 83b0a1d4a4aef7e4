"""The cost of a look-up, or of a record for a known topic, does not grow with known topics or waiters.

Calls and lines are counted, not timed (`benchmarks/growth.py` has the seconds). Their number is the same with
many topics as with few. Counting lines also finds loops that call nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from service.lookup.fast_lookups import FastLookups
from service.lookup.lookup_table import LookupTable
from service.observe.http_metrics import HttpMetrics
from tests.speed.counted_calls import calls_of
from tests.support.fake_producer import FakeProducer
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.speed.counted_calls import Calls
    from tests.support.producer_rig import Waiting

FEW: Final = 10
MANY: Final = 300
UNKNOWN: Final = 3


class Cost(NamedTuple):
    """What a piece of work called, and how many lines of each function it ran."""

    calls: Calls
    lines: Counter[tuple[str, str]]


def cost_of(work: Callable[[], object]) -> Cost:
    """Does the work, on this thread."""
    lines: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            code = frame.f_code
            lines[code.co_filename, code.co_name] += 1
        return count

    def line_by_line() -> None:
        before = sys.gettrace()
        sys.settrace(count)
        try:
            work()
        finally:
            sys.settrace(before)

    return Cost(calls_of(line_by_line), lines)


def assert_costs_the_same(cost_with: Callable[[int], Cost]) -> None:
    """With few as with many, once what is made for a process's first time is there."""
    cost_with(FEW)
    assert cost_with(FEW) == cost_with(MANY)


# -- known topics --------------------------------------------------------------------------------------------


def knowing(topics: int) -> tuple[FakeProducer, LookupTable]:
    """A table over topics `t0`, `t1`, ... of one partition each."""
    producer = FakeProducer()
    producer.set_topics({f"t{number}": 1 for number in range(topics)})
    return producer, LookupTable(producer, "boot")


def last_of(topics: int) -> bytes:
    """The path of the topic that was made last: who walks them finds it last."""
    return b"/v1/topics/t%d" % (topics - 1)


def ask_for_all(table: LookupTable, topics: int) -> list[object]:
    """The prepared answers, one for each topic."""
    return [table.find(b"/v1/topics/t%d" % number) for number in range(topics)]


def test_a_prepared_look_up_costs_the_same_with_few_topics_known_as_with_many() -> None:
    def look_up_again(topics: int) -> Cost:
        _, table = knowing(topics)
        ask_for_all(table, topics)
        return cost_of(lambda: table.find(last_of(topics)))

    assert_costs_the_same(look_up_again)


def test_a_topics_first_look_up_costs_the_same_with_few_topics_known_as_with_many() -> None:
    def look_up(topics: int) -> Cost:
        _, table = knowing(topics)
        return cost_of(lambda: table.find(last_of(topics)))

    assert_costs_the_same(look_up)


def test_a_leaders_first_look_up_decodes_no_replicas() -> None:
    """They were almost half of its cost. With more topics than kept answers, most look-ups are first ones."""
    _, table = knowing(FEW)

    calls = calls_of(lambda: table.find(b"/v1/topics/t0/leader?partition=0"))
    of_several = calls_of(lambda: table.leaders([("t0", 0), ("t1", 0)]))

    for counted in (calls, of_several):
        assert counted.into("answers")
        assert not counted.into("primitives")


def test_the_answer_over_http_costs_the_same_with_few_topics_known_as_with_many() -> None:
    async def falls_through(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("a prepared answer is given by nobody else")

    async def ask(topics: int) -> Cost:
        _, table = knowing(topics)
        ask_for_all(table, topics)
        fast = FastLookups(falls_through, table, HttpMetrics())
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": last_of(topics),
            "query_string": b"",
            "headers": [],
            "scheme": "http",
        }
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await fast(scope, None, send)  # type: ignore[arg-type]  # a look-up has no body to receive
        cost = cost_of(lambda: next(fast(scope, None, send).__await__(), None))  # type: ignore[arg-type]
        assert [message.get("status") for message in sent] == [200, None] * 2
        return cost

    assert_costs_the_same(lambda topics: asyncio.run(ask(topics)))


def test_a_new_snapshot_costs_the_next_look_up_the_same_whatever_lies_prepared() -> None:
    def look_up_after_a_swap(topics: int) -> Cost:
        producer, table = knowing(topics)
        ask_for_all(table, topics)
        producer.set_topics({f"t{number}": 1 for number in range(topics)})
        return cost_of(lambda: table.find(last_of(topics)))

    assert_costs_the_same(look_up_after_a_swap)


def test_a_refresh_that_changes_one_topic_has_one_answer_built_anew() -> None:
    producer, table = knowing(MANY)
    before = ask_for_all(table, MANY)
    producer.set_topics({f"t{number}": 2 if number == 7 else 1 for number in range(MANY)})
    after: list[object] = []

    calls = calls_of(lambda: after.extend(ask_for_all(table, MANY)))

    assert calls.python["lookup_table", "_build"] == 1
    assert [number for number in range(MANY) if after[number] is not before[number]] == [7]


# -- waiting requests ----------------------------------------------------------------------------------------


def with_waiting(waiting: int, *topics: str, look_ups: bool = True) -> tuple[ProducerRig, list[Waiting]]:
    """A client that knows `orders`, and so many produces and look-ups of each topic that wait for it."""
    rig = ProducerRig(topics={"orders": 1})
    crowd = [rig.submit(topic, b"v") for topic in topics for _ in range(waiting)]
    if look_ups:
        crowd += [rig.look_up(topic, settle=False) for topic in topics for _ in range(waiting)]
    rig.will_know({"orders": 1}, errors=dict.fromkeys(topics, UNKNOWN))
    rig.turn()  # takes them in, and asks for the topics
    assert rig.producer.status().waiting_for_metadata == len(crowd)
    return rig, crowd


def test_a_metadata_change_looks_once_at_each_topic_however_many_wait_for_it() -> None:
    topics = ("a", "b", "c")
    rig, crowd = with_waiting(200, *topics)

    calls = calls_of(rig.turn)

    # Once for produce requests, and once for look-ups.
    assert calls.python["metadata_wait", "judge_metadata_wait"] == 2 * len(topics)
    assert not any(each.reported for each in crowd)


def test_a_metadata_change_that_settles_nothing_costs_the_same_for_few_records_as_for_many() -> None:
    def turn(waiting: int) -> Cost:
        rig, _ = with_waiting(waiting, "not-there", look_ups=False)
        return cost_of(rig.turn)

    assert_costs_the_same(turn)


@pytest.mark.parametrize("topics", [("not-there",), ("a", "b", "c")])
def test_a_look_up_costs_the_same_with_few_waiters_as_with_many(topics: tuple[str, ...]) -> None:
    def look_up(waiting: int) -> Cost:
        rig, _ = with_waiting(waiting, *topics)
        table = LookupTable(rig.producer, "boot")
        path = b"/v1/topics/orders/leader?partition=0"
        assert table.find(path) is not None
        return cost_of(lambda: table.find(path))

    assert_costs_the_same(look_up)


def test_a_record_for_a_known_topic_costs_the_same_with_few_records_that_wait_as_with_many() -> None:
    def produce(waiting: int) -> Cost:
        rig, _ = with_waiting(waiting, "not-there", look_ups=False)
        rig.turn()  # the answer that the topic is not there is behind us

        def submit_and_send() -> None:
            rig.submit("orders", b"v")
            rig.turn()

        cost = cost_of(submit_and_send)
        assert rig.client.in_flight_request_count() == 1
        return cost

    assert_costs_the_same(produce)
