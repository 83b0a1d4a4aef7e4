"""What an event log costs those whose events it takes, in counts: functions entered, and no growth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core import events as e
from service.events.inbox import CROWDED
from service.events.produce_windows import ProduceWindow
from service.process.app import FanOut
from tests.speed.counted_calls import calls_of
from tests.support.counted_work import python_calls
from tests.support.event_log_rig import EventLogRig, finished

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES: Final = 1_000
#: The fan-out's own function, and the inbox's.
FUNCTIONS_A_BATCH: Final = 2


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


def test_it_costs_no_more_where_a_sink_hangs_and_nobody_takes_it() -> None:
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
        rig.producer.set_topics({f"t{n}": 3 for n in range(topics)})
        rig.settle()
        rig.producer.set_topics({f"t{n}": 3 for n in range(topics)})
        return python_calls(rig.log.turn)

    assert refreshing(1_100) - refreshing(100) <= 2_500
