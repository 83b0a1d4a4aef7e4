"""The I/O thread: its turns, how others reach it, what a bug does to it, and its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from client_core.error_codes import Errors
from client_core.errors import ProducerClosedError
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.results import ProduceResult
from client_core.producer.results.ticket import CallInline
from client_core.producer.sender.io_thread import LifeCycle
from tests.support.producer_rig import ProducerRig, Waiting
from tests.support.sender_rig import ORDERS_0, ORDERS_1, produced, producer_id_given, together
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.producer.results.ticket import Result

PATIENCE_S = patient(30)
NO_RESULT = ProduceResult(0, (), 0)


def break_turns(rig: ProducerRig, times: int, error: BaseException | None = None) -> threading.Event:
    """Makes so many turns fail as a bug would; set when the first good one comes."""
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
    """Lets each pause pass, once it has begun: a thread that spins would wait for nothing, and hang this."""
    failed = 0
    while not good.is_set():
        if rig.producer.io_thread.failed_turns > failed and rig.clock.waiters:
            failed += 1
            rig.clock.advance(1_000)


def test_what_a_turn_finished_is_posted_together() -> None:
    rig = ProducerRig(topics={"orders": 1})
    for _ in range(3):
        rig.submit("orders", b"a")
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.posts.sizes == [3]


def test_it_does_not_sleep_while_something_waits_to_be_posted_or_done() -> None:
    rig = ProducerRig(topics={"orders": 1})
    io_thread = rig.producer.io_thread
    rig.turn()
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) > 0
    io_thread.do(lambda now_ms: None)
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) == 0


def test_a_failing_turn_is_logged_counted_and_followed_by_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 1)
    rig.producer.start()
    try:
        while not rig.clock.waiters:
            assert not good.is_set()
        assert rig.producer.status().state == "running"
        rig.clock.advance(100)  # the pause is over
        assert good.wait(PATIENCE_S)
        assert rig.producer.io_thread.failed_turns == 1
        assert "RuntimeError: a bug" in caplog.text
    finally:
        rig.producer.close(1_000)


def test_a_forced_close_ends_the_pause_of_a_broken_thread() -> None:
    rig = ProducerRig(topics={"orders": 1})
    break_turns(rig, 10**9)
    rig.producer.start()
    while not rig.clock.waiters:
        pass
    rig.producer.close(0)
    assert rig.producer.status().state == "closed"


def test_a_bug_of_every_turn_is_told_once_with_its_stack_and_each_turn_is_followed_by_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 5)
    rig.producer.start()
    try:
        pauses_until_well(rig, good)
        assert rig.producer.io_thread.failed_turns == 5
        assert caplog.text.count("RuntimeError: a bug") == 1
        assert caplog.text.count("Uncaught error in the I/O thread") == 1
    finally:
        rig.producer.close(1_000)
    assert "Uncaught error in the I/O thread again: RuntimeError at " in caplog.text
    assert "4 times since it was last logged" in caplog.text


def test_repetitions_of_a_bug_that_is_over_are_told_by_a_good_turn_when_the_minute_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 3)
    rig.producer.start()
    try:
        pauses_until_well(rig, good)
        rig.clock.advance(60_000)
        good.clear()
        rig.producer.wakeup()
        assert good.wait(PATIENCE_S)
        wait_until(lambda: "2 times since it was last logged" in caplog.text, what="the sum")
    finally:
        rig.producer.close(1_000)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), GeneratorExit()], ids=repr)
def test_no_kind_of_error_in_a_turn_ends_the_thread(error: BaseException) -> None:
    rig = ProducerRig(topics={"orders": 1})
    good = break_turns(rig, 1, error)
    rig.producer.start()
    try:
        pauses_until_well(rig, good)
        assert (rig.producer.status().state, rig.producer.io_thread.failed_turns) == ("running", 1)
    finally:
        rig.producer.close(1_000)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1)], ids=repr)
def test_a_callback_that_exits_costs_the_others_nothing(error: BaseException) -> None:
    def leave(_: object) -> None:
        raise error

    posted: list[Result] = []
    CallInline().post([(leave, NO_RESULT), (posted.append, NO_RESULT)])
    assert posted == [NO_RESULT]
    reported: list[FutureRecordMetadata] = []
    future = FutureRecordMetadata(leave)
    future.add_done_callback(reported.append)
    future.fail(ProducerClosedError("over"))
    assert reported == [future]


def test_an_interrupt_in_a_callback_reaches_who_pressed_the_key() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CallInline().post([(interrupt, NO_RESULT)])


def test_a_bug_at_the_end_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    waiting = rig.submit("orders", b"a")

    def fail(error: object, now_ms: int) -> None:
        raise RuntimeError("a bug")

    rig.producer._lookups.fail_all = fail  # type: ignore[method-assign]
    rig.producer.start()
    rig.producer.close(0)
    assert isinstance(waiting.failures[0].error, ProducerClosedError)
    assert "Failed to fail look-ups" in caplog.text


@pytest.mark.behaviour("BAT-01")
def test_a_thread_that_dies_says_so_and_tells_who_waits(caplog: pytest.LogCaptureFixture) -> None:
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


def test_the_wakeup_for_a_request_is_given_to_who_wants_to_choose_its_moment() -> None:
    given: list[Callable[[], None]] = []
    rig = ProducerRig(topics={"orders": 1}, wake_soon=given.append)
    rig.submit("orders", b"a")
    assert len(given) == 1
    before = rig.client.wakeups
    given[0]()
    assert rig.client.wakeups == before + 1


def test_a_request_that_changes_nothing_for_a_sleeping_thread_does_not_wake_it() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    rig.submit("orders", b"a", timeout_ms=5_000, turns=1)
    before = rig.client.wakeups
    rig.submit("orders", b"b", timeout_ms=5_000)  # joins a batch that is not full
    assert rig.client.wakeups == before


def test_a_request_wakes_a_sleeping_thread_only_for_a_batch_or_for_an_earlier_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    wakeups = rig.client.wakeups
    rig.submit("orders", b"a", timeout_ms=5_000)
    assert rig.client.wakeups == wakeups + 1, "a batch was begun"
    rig.turn()
    rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms())  # it sleeps until that deadline
    rig.submit("orders", b"b", timeout_ms=5_000)
    assert rig.client.wakeups == wakeups + 1
    rig.turn()
    rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms())
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


def test_the_thread_keeps_no_process_alive() -> None:
    assert ProducerRig().producer.io_thread._thread.daemon


def test_a_thread_that_never_began_is_joined_at_once() -> None:
    rig = ProducerRig()
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


def test_what_a_turn_has_finished_is_posted_although_it_fails() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", block_ms=0)
    _NoPauses(rig)
    break_turns(rig, 1)
    rig.producer.io_thread._guarded_turn()
    assert len(waiting.failures) == 1


def test_what_comes_after_the_end_is_failed_by_who_brings_it() -> None:
    rig = ProducerRig(topics={})
    rig.producer.start()
    rig.producer.io_thread.initiate_close()
    assert rig.producer.io_thread.join(PATIENCE_S * 1_000)
    waiting = rig.submit("orders", b"a")  # KafkaProducer itself has not been closed
    assert isinstance(waiting.failures[0].error, ProducerClosedError)
    look_up = rig.look_up("orders")
    assert isinstance(look_up.looked_up.error, ProducerClosedError)


def test_the_repr_tells_its_state() -> None:
    rig = ProducerRig()
    assert repr(rig.producer.io_thread) == "<IoThread STARTING turns=0 failed_turns=0>"


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


def _nothing(rig: ProducerRig) -> None:
    rig.turn()


def _a_queued_batch(rig: ProducerRig) -> None:
    rig.submit("orders", b"a")
    rig.producer.io_thread._requests.clear()


def _a_batch_in_flight(rig: ProducerRig) -> None:
    rig.submit("orders", b"a", turns=1)


def _a_request_without_metadata(rig: ProducerRig) -> None:
    rig.submit("unknown", b"a", turns=1)


def _a_new_request(rig: ProducerRig) -> None:
    rig.submit("unknown", b"a")


def _a_new_command(rig: ProducerRig) -> None:
    rig.producer.io_thread.do(lambda now_ms: None)


@pytest.mark.parametrize(
    ("bring", "has_work"),
    [
        (_nothing, False),
        (_a_queued_batch, True),
        (_a_batch_in_flight, True),
        (_a_request_without_metadata, True),
        (_a_new_request, True),
        (_a_new_command, True),
    ],
)
def test_each_kind_of_work_alone_keeps_a_closing_thread_running(
    bring: Callable[[ProducerRig], None], has_work: bool
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    bring(rig)
    assert rig.producer.io_thread._has_work() is has_work


def _list_topics(rig: ProducerRig, deadline_ms: int) -> None:
    rig.producer.list_topics(deadline_ms=deadline_ms, done=Waiting())


def _ask_for_configs(rig: ProducerRig, deadline_ms: int) -> None:
    rig.producer.describe_topic_configs("orders", deadline_ms=deadline_ms, done=Waiting())


@pytest.mark.parametrize("ask", [_list_topics, _ask_for_configs])
def test_one_kind_of_look_up_alone_is_sent_and_bounds_the_sleep(
    ask: Callable[[ProducerRig, int], None],
) -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    rig.submit("orders", b"a", timeout_ms=50_000)
    ask(rig, rig.clock.now_ms() + 3_000)
    rig.turn()
    assert rig.client.in_flight_request_count() == 1
    assert rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) == 3_000


@pytest.mark.parametrize("ask", [_list_topics, _ask_for_configs])
def test_a_look_up_that_no_node_can_take_yet_is_tried_again_before_its_deadline(
    ask: Callable[[ProducerRig, int], None],
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.turn()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)
    ask(rig, rig.clock.now_ms() + 3_000)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert 0 < rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) <= 100


def test_a_thread_that_is_awake_is_not_woken_for_an_earlier_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    io_thread = rig.producer.io_thread
    rig.submit("orders", b"a", timeout_ms=50_000, turns=1)
    wakeups = rig.client.wakeups
    rig.submit("orders", b"b", timeout_ms=5_000)
    assert rig.client.wakeups == wakeups, "the turn is over, the next one has not slept yet"
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) == 0
    rig.submit("orders", b"c", timeout_ms=4_000)
    assert rig.client.wakeups == wakeups, "the poll does not sleep"


def test_a_metadata_change_and_a_new_request_each_keep_the_poll_from_sleeping() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=100_000)
    io_thread = rig.producer.io_thread
    rig.turn()
    rig.know({"orders": 2})
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) == 0
    rig.turn()
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) > 0
    rig.submit("orders", b"a")
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) == 0


@pytest.mark.parametrize("ask", [_list_topics, _ask_for_configs])
def test_when_a_look_up_is_over_its_next_try_no_longer_keeps_the_poll_from_sleeping(
    ask: Callable[[ProducerRig, int], None],
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    io_thread = rig.producer.io_thread
    rig.turn()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)
    ask(rig, rig.clock.now_ms() + 150)
    rig.turn()
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) <= 100
    rig.turn_after(150, 2)  # its time is up
    assert io_thread._lookups.count + io_thread._configs.count == 0
    assert io_thread.poll_limit_ms(rig.clock.now_ms()) > 1_000


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


def test_a_bug_that_comes_again_after_a_minute_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    _NoPauses(rig)
    for pause_ms in (0, 60_000, 1_000):
        rig.clock.advance(pause_ms)
        break_turns(rig, int(pause_ms != 60_000))
        rig.producer.io_thread._guarded_turn()
    assert "1 times since it was last logged" in caplog.text


def test_who_waits_for_the_end_has_no_thread_left() -> None:
    class Ended(threading.Thread):
        ident, joins = 1, 0

        def join(self, timeout: float | None = None) -> None:
            self.joins += 1

    io_thread = ProducerRig().producer.io_thread
    thread = io_thread._thread = Ended()
    io_thread._ended.set()
    assert io_thread.join(0)
    assert thread.joins == 1
