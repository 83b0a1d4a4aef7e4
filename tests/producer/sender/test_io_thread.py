"""The I/O thread: its turns and their length, wakeups by other threads, exceptions, and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import ProducerClosedError
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selector import NetworkConfig, Selector
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.results import ProduceResult
from client_core.producer.results.ticket import CallInline
from client_core.producer.sender.io_thread import BOUNDS_MS, LifeCycle, TurnTimes
from tests.support.mock_clock import MockClock
from tests.support.producer_rig import ProducerRig, Waiting
from tests.support.sender_rig import ORDERS_0, ORDERS_1, produced, producer_id_given, together
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client_core.producer.results.ticket import Result

PATIENCE_S = patient(30)
NO_RESULT = ProduceResult(0, (), 0)


def break_turns(rig: ProducerRig, times: int, error: BaseException | None = None) -> threading.Event:
    """Makes so many turns raise an exception; the event is set at the first good turn."""
    good = threading.Event()
    run_once = rig.producer._sender.run_once
    left = times

    def run(now_ms: int | None = None) -> None:
        nonlocal left
        if left:
            left -= 1
            raise error or RuntimeError("a bug")
        run_once(now_ms)
        good.set()

    rig.producer._sender.run_once = run  # type: ignore[method-assign]
    return good


def pauses_until_well(rig: ProducerRig, good: threading.Event) -> None:
    """Ends each pause once it has begun. A thread that spins would begin none, and this would hang."""
    failed = 0
    while not good.is_set():
        if rig.producer.io_thread.failed_turns > failed and rig.clock.waiters:
            failed += 1
            rig.clock.advance(1_000)


@contextmanager
def started(rig: ProducerRig) -> Iterator[None]:
    rig.producer.start()
    try:
        yield
    finally:
        rig.producer.close(1_000)


def poll_limit_ms(rig: ProducerRig) -> int:
    return rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms())


def test_results_of_a_turn_are_posted_together() -> None:
    rig = ProducerRig(topics={"orders": 1})
    for _ in range(3):
        rig.submit("orders", b"a")
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.posts.sizes == [3]


def test_a_failing_turn_is_logged_counted_and_followed_by_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 1)
    with started(rig):
        while not rig.clock.waiters:
            assert not good.is_set()
        assert rig.producer.status().state == "running"
        rig.clock.advance(100)  # the pause is over
        assert good.wait(PATIENCE_S)
        assert rig.producer.io_thread.failed_turns == 1
        assert "RuntimeError: a bug" in caplog.text


def test_a_forced_close_ends_the_pause_of_a_broken_thread() -> None:
    rig = ProducerRig(topics={"orders": 1})
    break_turns(rig, 10**9)
    rig.producer.start()
    while not rig.clock.waiters:
        pass
    rig.producer.close(0)
    assert rig.producer.status().state == "closed"


def test_an_exception_of_every_turn_is_logged_once_with_its_stack_and_each_turn_is_followed_by_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 5)
    with started(rig):
        pauses_until_well(rig, good)
        assert rig.producer.io_thread.failed_turns == 5
        assert caplog.text.count("RuntimeError: a bug") == 1
        assert caplog.text.count("Uncaught error in the I/O thread") == 1
    assert "Uncaught error in the I/O thread again: RuntimeError at " in caplog.text
    assert "4 times since it was last logged" in caplog.text


def test_repetitions_of_a_past_exception_are_logged_by_a_good_turn_when_the_minute_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 3)
    with started(rig):
        pauses_until_well(rig, good)
        rig.clock.advance(60_000)
        good.clear()
        rig.producer.wakeup()
        assert good.wait(PATIENCE_S)
        wait_until(lambda: "2 times since it was last logged" in caplog.text, what="the sum", every_s=0.001)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), GeneratorExit()], ids=repr)
def test_no_kind_of_error_in_a_turn_ends_the_thread(error: BaseException) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 1, error)
    with started(rig):
        pauses_until_well(rig, good)
        assert (rig.producer.status().state, rig.producer.io_thread.failed_turns) == ("running", 1)


def test_a_callback_that_exits_costs_the_others_nothing() -> None:
    for error in (asyncio.CancelledError(), SystemExit(1)):

        def leave(_: object, error: BaseException = error) -> None:
            raise error

        posted: list[Result] = []
        CallInline().post([(leave, NO_RESULT), (posted.append, NO_RESULT)])
        assert posted == [NO_RESULT], error
        reported: list[FutureRecordMetadata] = []
        future = FutureRecordMetadata(leave)
        future.add_done_callback(reported.append)
        future.fail(ProducerClosedError("over"))
        assert reported == [future], error


def test_an_interrupt_in_a_callback_reaches_the_user() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CallInline().post([(interrupt, NO_RESULT)])


def test_an_exception_at_the_end_keeps_no_caller_waiting(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    waiting = rig.submit("orders", b"a")

    def fail(error: object, now_ms: int) -> None:
        raise RuntimeError("a bug")

    rig.producer._lookup_requests._lookups.fail_all = fail  # type: ignore[method-assign]
    rig.producer.start()
    rig.producer.close(0)
    assert isinstance(waiting.failures[0].error, ProducerClosedError)
    assert "Failed to fail look-ups" in caplog.text


@pytest.mark.behaviour("BAT-01")
def test_a_thread_that_dies_logs_it_and_completes_pending_calls(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a")
    break_turns(rig, 10**9)

    def die(condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int) -> bool:
        raise SystemExit

    rig.clock.wait_for = die  # type: ignore[method-assign]  # in the pause, where no turn is around it
    rig.producer.start()
    assert rig.producer.io_thread.join(PATIENCE_S * 1_000)
    assert rig.producer.io_thread.life_cycle is LifeCycle.FAILED
    assert "The I/O thread has died" in caplog.text
    assert "SystemExit" in caplog.text
    assert isinstance(waiting.failures[0].error, ProducerClosedError)


def test_its_turns_are_counted_and_can_be_asked_for() -> None:
    rig = ProducerRig(topics={"orders": 1})
    before = rig.producer.status().loop_turns
    rig.clock.advance(30)
    rig.producer.wakeup()
    rig.turn()
    rig.clock.advance(70)
    status = rig.producer.status()
    assert (status.loop_turns, status.loop_age_ms) == (before + 1, 70)
    assert rig.client.wakeups


def test_the_caller_may_choose_the_moment_of_the_wakeup_for_its_request() -> None:
    given: list[Callable[[], None]] = []
    rig = ProducerRig(topics={"orders": 1}, wake_soon=given.append)
    rig.submit("orders", b"a")
    assert len(given) == 1
    before = rig.client.wakeups
    given[0]()
    assert rig.client.wakeups == before + 1


def test_a_request_wakes_a_sleeping_thread_only_for_a_batch_or_for_an_earlier_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    wakeups = rig.client.wakeups
    rig.submit("orders", b"a", timeout_ms=5_000)
    assert rig.client.wakeups == wakeups + 1, "a batch was begun"
    rig.turn()
    poll_limit_ms(rig)  # it sleeps until that deadline
    rig.submit("orders", b"b", timeout_ms=5_000)  # joins a batch that is not full
    assert rig.client.wakeups == wakeups + 1
    rig.turn()
    poll_limit_ms(rig)
    rig.submit("orders", b"c", timeout_ms=4_999)
    assert rig.client.wakeups == wakeups + 2


def test_a_command_and_the_wish_to_close_wake_the_thread() -> None:
    rig = ProducerRig()
    wakeups = rig.client.wakeups
    rig.producer.io_thread.do(lambda now_ms: None)
    assert rig.client.wakeups == wakeups + 1
    rig.producer.io_thread.initiate_close()
    assert rig.client.wakeups == wakeups + 2
    assert rig.producer.status().state == "closing"


def test_a_thread_that_never_began_is_joined_at_once_and_none_keeps_a_process_alive() -> None:
    rig = ProducerRig()
    assert repr(rig.producer.io_thread) == "<IoThread STARTING turns=0 failed_turns=0>"
    assert rig.producer.io_thread._thread.daemon
    assert rig.producer.io_thread.join(0)
    assert rig.producer.status().state == "closed"


class _NoPauses:
    """Pauses of no length, and after how many failures in a row each was asked for."""

    def __init__(self, rig: ProducerRig) -> None:
        self.asked: list[int] = []
        rig.producer.io_thread._pause_after_failure = self  # type: ignore[assignment]

    def backoff_ms(self, attempts: int) -> int:
        self.asked.append(attempts)
        return 0


def test_pauses_grow_with_the_failures_in_a_row_and_begin_anew_after_a_good_turn() -> None:
    rig = ProducerRig(topics={"orders": 1})
    pauses = _NoPauses(rig)
    for failures in (3, 2):
        break_turns(rig, failures)
        for _ in range(failures + 1):
            rig.producer.io_thread._guarded_turn()
    assert pauses.asked == [0, 1, 2, 0, 1]


def test_results_of_a_turn_are_posted_although_it_fails() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", block_ms=0)
    _NoPauses(rig)
    break_turns(rig, 1)
    rig.producer.io_thread._guarded_turn()
    assert len(waiting.failures) == 1


def test_a_request_after_the_end_is_failed_by_its_own_thread() -> None:
    rig = ProducerRig(topics={})
    rig.producer.start()
    rig.producer.io_thread.initiate_close()
    assert rig.producer.io_thread.join(PATIENCE_S * 1_000)
    waiting = rig.submit("orders", b"a")  # KafkaProducer itself has not been closed
    assert isinstance(waiting.failures[0].error, ProducerClosedError)
    look_up = rig.look_up("orders")
    assert isinstance(look_up.looked_up.error, ProducerClosedError)


def rig_that_used_up_its_epochs() -> tuple[ProducerRig, list[Waiting]]:
    """A request to two partitions was refused by both, by one in a way that needs a new epoch."""
    rig = ProducerRig(topics={"orders": 2}, enable_idempotence=True)
    rig.client.prepare_response(producer_id_given(1, epoch=2**15 - 1))
    rig.turn()
    waiting = [
        rig.submit("orders", ProducerRecord("orders", b"a", partition=partition)) for partition in (0, 1)
    ]
    rig.turn()
    assert rig.client.in_flight_request_count() == 1
    rig.respond(
        together(
            produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER),
            produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER),
        )
    )
    return rig, waiting


@pytest.mark.behaviour("SND-13")
@pytest.mark.java("SenderTest.CloseWithProducerIdReset")
def test_a_closing_producer_gets_the_new_id_that_its_records_need() -> None:
    rig, waiting = rig_that_used_up_its_epochs()
    rig.producer.io_thread.initiate_close()
    rig.turn()
    rig.client.prepare_response(producer_id_given(2))
    rig.turn()
    assert not any(one.reported for one in waiting)
    rig.turn_after(100)  # the backoff
    assert not rig.producer._accumulator.has_undrained
    rig.answer(together(produced(ORDERS_0, offset=0), produced(ORDERS_1, offset=0)))
    assert [one.offsets for one in waiting] == [[0], [0]]


@pytest.mark.behaviour("SND-13", "ACC-13")
@pytest.mark.java("SenderTest.ForceCloseWithProducerIdReset")
def test_a_forced_close_does_not_wait_for_a_new_id() -> None:
    rig, waiting = rig_that_used_up_its_epochs()
    rig.turn()
    rig.producer.io_thread.force_close()
    rig.turn()
    rig.producer.start()
    assert rig.producer.io_thread.join(PATIENCE_S * 1_000)
    assert not rig.producer._accumulator.has_undrained
    assert [type(one.failures[0].error) for one in waiting] == [ProducerClosedError] * 2
    assert rig.producer._pool.available_bytes == rig.producer._pool.total_bytes


def test_look_ups_are_failed_before_the_last_records_are_waited_for() -> None:
    rig = ProducerRig(topics={"orders": 1})
    record = rig.submit("orders", b"a")
    look_up = rig.look_up("unknown", settle=False)
    rig.turn()
    assert not look_up.reported
    failed_by_then: list[bool] = []
    run_once = rig.producer._sender.run_once

    def answer_and_run(now_ms: int | None = None) -> None:
        failed_by_then.append(bool(look_up.reported))
        rig.respond(produced(ORDERS_0, offset=0))
        run_once(now_ms)

    rig.producer._sender.run_once = answer_and_run  # type: ignore[method-assign]
    rig.producer.io_thread.initiate_close()
    rig.producer.io_thread._run()
    assert failed_by_then == [True]
    assert isinstance(look_up.looked_up.error, ProducerClosedError)
    assert record.offsets == [0]


def _a_queued_batch(rig: ProducerRig) -> None:
    rig.submit("orders", b"a")
    rig.producer.io_thread._requests.clear()


#: What may be there to do.
WORK: Final[dict[str, Callable[[ProducerRig], object]]] = {
    "nothing": lambda rig: rig.turn(),
    "a queued batch": _a_queued_batch,
    "a batch in flight": lambda rig: rig.submit("orders", b"a", turns=1),
    "a request without metadata": lambda rig: rig.submit("unknown", b"a", turns=1),
    "a new request": lambda rig: rig.submit("unknown", b"a"),
    "a new command": lambda rig: rig.producer.io_thread.do(lambda now_ms: None),
}


def test_each_kind_of_work_alone_keeps_a_closing_thread_running() -> None:
    has_work = {}
    for name, bring in WORK.items():
        rig = ProducerRig(topics={"orders": 1})
        rig.turn()
        bring(rig)
        has_work[name] = rig.producer.io_thread._has_work()
    assert has_work == {name: name != "nothing" for name in WORK}


def _list_topics(rig: ProducerRig, timeout_ms: int) -> None:
    rig.producer.list_topics(deadline_ms=rig.clock.now_ms() + timeout_ms, done=Waiting())


def _ask_for_configs(rig: ProducerRig, timeout_ms: int) -> None:
    deadline_ms = rig.clock.now_ms() + timeout_ms
    rig.producer.describe_topic_configs("orders", deadline_ms=deadline_ms, done=Waiting())


each_look_up = pytest.mark.parametrize("ask", [_list_topics, _ask_for_configs])


@each_look_up
def test_one_kind_of_look_up_alone_is_sent_and_bounds_the_sleep(
    ask: Callable[[ProducerRig, int], None],
) -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    rig.submit("orders", b"a", timeout_ms=50_000)
    ask(rig, 3_000)
    rig.turn()
    assert rig.client.in_flight_request_count() == 1
    assert poll_limit_ms(rig) == 2_000, "a second request is due"
    rig.turn_after(2_000)
    assert rig.client.in_flight_request_count() == 2
    assert poll_limit_ms(rig) == 1_000


@each_look_up
def test_a_look_up_that_no_node_can_take_yet_is_tried_again_until_it_is_over(
    ask: Callable[[ProducerRig, int], None],
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)
    ask(rig, 150)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert 0 < poll_limit_ms(rig) <= 100
    rig.turn_after(150, 2)  # its time is up
    io_thread = rig.producer.io_thread
    assert io_thread._lookups.count + io_thread._configs.count == 0
    assert poll_limit_ms(rig) > 1_000


def test_a_thread_that_is_awake_is_not_woken_for_an_earlier_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    rig.submit("orders", b"a", timeout_ms=50_000, turns=1)
    wakeups = rig.client.wakeups
    rig.submit("orders", b"b", timeout_ms=5_000)
    assert rig.client.wakeups == wakeups, "the turn is over, the next one has not slept yet"
    assert poll_limit_ms(rig) == 0
    rig.submit("orders", b"c", timeout_ms=4_000)
    assert rig.client.wakeups == wakeups, "the poll does not sleep"


def test_a_metadata_change_a_command_and_a_new_request_each_keep_the_poll_from_sleeping() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    for bring in (
        lambda: rig.know({"orders": 2}),
        lambda: rig.producer.io_thread.do(lambda now_ms: None),
        lambda: rig.submit("orders", b"a"),
    ):
        rig.turn()
        assert poll_limit_ms(rig) > 0
        bring()
        assert poll_limit_ms(rig) == 0


def test_an_append_that_found_the_accumulator_open_is_waited_for_and_sent() -> None:
    rig = ProducerRig(topics={"orders": 1})
    accumulator = rig.producer._accumulator
    let_finish = accumulator.let_appends_finish
    late: list[Waiting] = []

    def finish() -> None:
        if not late:
            accumulator.appender.closed = False  # as it was when the append looked
            late.append(rig.submit("orders", b"a"))
            accumulator.appender.closed = True
        let_finish()

    accumulator.let_appends_finish = finish  # type: ignore[method-assign]
    rig.client.prepare_response(produced(ORDERS_0, offset=1))
    rig.producer.io_thread.initiate_close()
    rig.producer.io_thread._run()
    assert late[0].offsets == [1]


def test_an_end_without_a_fault_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.start()
    rig.producer.close(PATIENCE_S * 1_000)
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


def test_an_exception_that_comes_again_after_a_minute_is_logged_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    _NoPauses(rig)
    for pause_ms in (0, 60_000, 1_000):
        rig.clock.advance(pause_ms)
        break_turns(rig, int(pause_ms != 60_000))
        rig.producer.io_thread._guarded_turn()
    assert "1 times since it was last logged" in caplog.text


def test_after_a_wait_for_the_end_there_is_no_thread_left() -> None:
    class Ended(threading.Thread):
        ident, joins = 1, 0

        def join(self, timeout: float | None = None) -> None:
            self.joins += 1

    io_thread = ProducerRig().producer.io_thread
    thread = io_thread._thread = Ended()
    io_thread._ended.set()
    assert io_thread.join(0)
    assert thread.joins == 1


# -- how long turns work -------------------------------------------------------------------------------------


def counts(rig: ProducerRig) -> dict[int | None, int]:
    """The number of turns below each bound, None for those above all bounds; zeros are left out."""
    work = rig.producer.loop_work()
    bounds: list[int | None] = [*work.bounds_ms, None]
    return {bound: count for bound, count in zip(bounds, work.counts, strict=True) if count}


def test_a_time_on_a_bound_is_counted_below_it_and_bounds_grow() -> None:
    times = TurnTimes()
    for worked_ms in (0, BOUNDS_MS[0], BOUNDS_MS[0] + 1, BOUNDS_MS[-1], BOUNDS_MS[-1] + 1):
        times.add(worked_ms)
    work = times.read(failed_turns=0)
    assert (work.counts[0], work.counts[1], work.counts[-2], work.counts[-1]) == (2, 1, 1, 1)
    assert work.total_ms == 3 * BOUNDS_MS[0] - BOUNDS_MS[0] + 1 + 2 * BOUNDS_MS[-1] + 1
    assert repr(times) == f"<TurnTimes turns=5 total_ms={work.total_ms}>"
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))


def test_a_turn_that_fails_is_counted_as_failed_and_nowhere_else() -> None:
    rig = ProducerRig(topics={"orders": 1})

    def fail(_: int) -> None:
        raise RuntimeError("a bug")

    rig.producer.io_thread.do(fail)
    with pytest.raises(RuntimeError):
        rig.turn()
    assert counts(rig) == {}


def test_a_selector_knows_how_long_it_has_waited() -> None:
    clock = MockClock(auto_tick_ms=1)  # each look at it takes a millisecond
    selector = Selector(NetworkConfig(), PlaintextChannelBuilder(), clock)
    try:
        selector.wakeup()
        selector.poll(1_000)
        assert selector.waited_ms == 1
        selector.poll(0)  # asks and does not wait
        assert selector.waited_ms == 1
    finally:
        selector.close()


def test_a_turn_is_counted_with_what_it_did_and_only_its_own_sleep_is_taken_from_its_time() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    rig.submit("orders", b"a")
    rig.client.advance_time_during_poll = True
    began_ms = rig.clock.now_ms()
    rig.turn()
    assert rig.clock.now_ms() - began_ms == rig.client.waited_ms == 1_000
    assert counts(rig) == {1: 1}
    assert rig.producer.loop_work().total_ms == 0
    rig.producer.io_thread.do(lambda _: rig.clock.advance(30))
    rig.turn()
    assert counts(rig) == {1: 1, 50: 1}
    assert rig.producer.loop_work().total_ms == 30
