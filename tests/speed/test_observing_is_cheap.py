"""The cost of metrics, traces and events for the observed code, in counts: calls, memory, locks.

Bounds are a little above the measured counts: if one is exceeded, a turn, request, record or batch does some
work once more.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from client_core import ProducerRecord
from client_core import events as e
from service.events.inbox import CROWDED
from service.events.produce_windows import ProduceWindow
from service.observe.http_metrics import HttpMetrics
from service.observe.request_trace import marked
from service.process.app import FanOut
from service.wire.trace_context import TraceContext
from tests.speed.asgi_call import JSON, TRACEPARENT, Call
from tests.speed.counted_calls import calls_of
from tests.support.counted_work import CountedLocks, kept_blocks, python_calls
from tests.support.event_log_rig import EventLogRig, finished
from tests.support.http_app import NativeApp
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.speed.counted_calls import Calls

TURNS: Final = 100
RECORDS: Final = 1_000
BATCHES: Final = 1_000
#: The fan-out's own function, and the inbox's.
FUNCTIONS_A_BATCH: Final = 2


def calls_of_produce(*headers: tuple[bytes, bytes], records: int = 1, **settings: Any) -> Calls:
    """What a produce calls, by a request that is not the first."""
    web = NativeApp(**settings)
    web.producer.set_topics({"orders": 3})
    body = json.dumps({"records": [{"value": n} for n in range(records)]}).encode()
    call = Call(web.app, "/v1/topics/orders/records", JSON, *headers, body=body)
    with asyncio.Runner() as runner:
        assert runner.run(call.ask()) == 200
        loop = runner.get_loop()
        calls = calls_of(lambda: loop.run_until_complete(call.ask()))
    assert call.status == 200
    return calls


def into_traces(calls: Calls) -> int:
    return calls.into("request_trace") + calls.into("trace_context")


# -- metrics -------------------------------------------------------------------------------------------------


def test_a_turn_of_the_poll_loop_is_counted_by_one_function_and_one_bisection() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    calls = calls_of(lambda: rig.turn(TURNS))
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

    # The least of three: what is counted is the process's, where other threads may allocate, too.
    assert min(kept_blocks(count) for _ in range(3)) <= 10


def test_exemplars_cost_a_request_that_brings_no_trace_three_looks_at_a_dict() -> None:
    """Who asks, and what it finds; where they are off, who asks."""
    on, off = (calls_of_produce(exemplars=exemplars) for exemplars in (True, False))
    assert on.into("http_metrics") == off.into("http_metrics")
    assert 0 <= on.into("asgi") - off.into("asgi") <= 3


def test_a_trace_that_is_not_shown_is_not_read() -> None:
    off, on = (calls_of_produce(TRACEPARENT, exemplars=exemplars) for exemplars in (False, True))
    assert off.python["http_metrics", "recorded_trace"] == 0
    assert on.python["http_metrics", "recorded_trace"] > 0


def test_a_prepared_look_up_without_a_trace_calls_nothing_more_for_exemplars() -> None:
    on, off = (
        HttpMetrics(exemplars=exemplars).route_counters("GET", "/v1/topics/{topic}", 200)
        for exemplars in (True, False)
    )
    assert calls_of(lambda: on.add(0.001, None)) == calls_of(lambda: off.add(0.001, None))


# -- traces: looked for in one place, and off or not there they cost as good as nothing ----------------------


def test_a_produce_without_a_trace_enters_next_to_nothing_for_it() -> None:
    """On, two: the look for a header, among those that were sorted by name in any case."""
    off, on = (calls_of_produce(trace_headers=setting) for setting in (False, True))
    assert into_traces(off) == 0
    assert into_traces(on) <= 2
    assert on.python.total() - off.python.total() <= 3


def test_a_thousand_records_are_marked_with_as_many_calls_as_one() -> None:
    few, many = (calls_of_produce(TRACEPARENT, records=records) for records in (1, RECORDS))
    assert into_traces(many) == into_traces(few) <= 16


def test_records_that_bring_headers_cost_some_calls_each() -> None:
    """Their names are looked at, and the record is made anew."""
    records = [ProducerRecord("orders", b"x", headers=(("h", b"1"),))] * RECORDS
    calls = calls_of(lambda: marked(records, TraceContext(TRACEPARENT[1])))
    assert calls.python.total() <= 7 * RECORDS


# -- events --------------------------------------------------------------------------------------------------


def emitting(rig: EventLogRig, batches: int, event: e.Event = finished()) -> Callable[[], None]:  # noqa: B008
    """The client's side of so many batches, through the fan-out that a sidecar has."""
    events = FanOut(rig.log)
    events.emit(event)  # it looks up who wants it once

    def emit() -> None:
        for _ in range(batches):
            events.emit(event)

    return emit


def test_a_finished_batch_costs_the_client_two_functions_and_an_append() -> None:
    calls = calls_of(emitting(EventLogRig(), BATCHES))
    assert sum(calls.python.values()) <= FUNCTIONS_A_BATCH * BATCHES + 1
    assert set(calls.c) == {"append", "len", "get"}  # the last is the fan-out's
    assert max(calls.c.values()) <= BATCHES


def test_without_a_log_that_wants_it_it_costs_one() -> None:
    unwanted = emitting(EventLogRig(), BATCHES, e.BatchSent(1, 1, 100, 100, 1, 1))
    assert python_calls(unwanted) <= BATCHES + 1


def test_it_costs_no_more_where_a_sink_hangs() -> None:
    rig = EventLogRig()
    rig.kept.hangs = True
    emitting(rig, 5 * CROWDED)()
    calls = calls_of(emitting(rig, BATCHES))
    # One more each: the log has been called already, and is not called again.
    assert sum(calls.python.values()) <= (FUNCTIONS_A_BATCH + 1) * BATCHES + 1


def test_the_logs_own_side_of_a_batch_is_two_functions() -> None:
    window, batches = ProduceWindow(0), [finished()] * BATCHES
    window.add(batches[:1])
    assert python_calls(lambda: window.add(batches)) <= 2 * BATCHES + 2


def test_a_refresh_that_changes_nothing_costs_no_call_for_a_topic_but_the_look() -> None:
    def refreshing(topics: int) -> int:
        rig = EventLogRig()
        for _ in range(2):
            rig.settle()
            rig.producer.set_topics({f"t{n}": 3 for n in range(topics)})
        return python_calls(rig.log.turn)

    assert refreshing(1_100) - refreshing(100) <= 2_500
