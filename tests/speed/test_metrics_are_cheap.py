"""What metrics cost those who are counted, in counts: a turn of the poll loop, a request without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service.observe.http_metrics import HttpMetrics
from tests.speed.counted_calls import calls_of
from tests.support.counted_work import CountedLocks, kept_blocks
from tests.support.http_app import HttpApp
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from tests.speed.counted_calls import Calls

TURNS: Final = 100
TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ROUTE: Final = "/v1/topics/{topic}"


def turns(rig: ProducerRig) -> Calls:
    rig.turn()
    return calls_of(lambda: rig.turn(TURNS))


def test_a_turn_of_the_poll_loop_is_counted_by_one_function_and_one_bisection() -> None:
    calls = turns(ProducerRig(topics={"orders": 1}))
    assert calls.python["io_thread", "add"] == TURNS
    assert calls.c["bisect_left"] == TURNS


def test_a_turn_of_the_poll_loop_takes_no_lock_and_emits_nothing_for_being_counted() -> None:
    locks = CountedLocks("client_core")
    with locks.made_here():
        rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    taken, events = locks.taken, len(rig.events.events)
    rig.turn(TURNS)
    assert locks.taken == taken
    assert len(rig.events.events) == events


def test_turns_are_counted_without_memory() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn(TURNS)
    times = rig.producer.io_thread.turn_times

    def count() -> None:
        for worked_ms in range(TURNS):
            times.add(worked_ms)

    assert kept_blocks(count) <= 10


def produced(*, exemplars: bool, traceparent: str | None) -> Calls:
    """What a produce request calls, once what is made for the first one is there."""
    web = HttpApp(exemplars=exemplars)
    web.producer.set_topics({"orders": 3})
    headers = {"content-type": "application/json"}
    if traceparent is not None:
        headers["traceparent"] = traceparent

    def ask() -> None:
        web.post("/v1/topics/orders/records", content=b'{"records":[{"value":1}]}', headers=headers)

    ask()
    return calls_of(ask)


def test_exemplars_cost_a_request_that_brings_no_trace_three_looks_at_a_dict() -> None:
    """Who asks, and what it finds; where they are off, who asks."""
    on, off = (produced(exemplars=exemplars, traceparent=None) for exemplars in (True, False))
    assert on.into("http_metrics") == off.into("http_metrics")
    assert 0 <= on.into("asgi") - off.into("asgi") <= 3


def test_a_trace_that_nobody_is_to_show_is_not_read() -> None:
    off, on = (produced(exemplars=exemplars, traceparent=TRACEPARENT) for exemplars in (False, True))
    assert off.python["http_metrics", "recorded_trace"] == 0
    assert on.python["http_metrics", "recorded_trace"] > 0


def test_a_prepared_look_up_without_a_trace_calls_nothing_more_for_exemplars() -> None:
    on, off = (
        HttpMetrics(exemplars=exemplars).route_counters("GET", ROUTE, 200) for exemplars in (True, False)
    )
    assert calls_of(lambda: on.add(0.001, None)) == calls_of(lambda: off.add(0.001, None))
