"""The event log as a whole: numbers, windows, heartbeats, sinks that hang or fail, its end, and the app."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import Errors, ProduceFinished, SystemClock
from client_core import events as e
from service.base.settings import Settings
from service.events.event_log import PAUSE_MS, EventLog, EventLogConfig, new_boot_id, sidecar_id
from service.events.event_metrics import EventMetrics
from service.events.event_v1 import bucket_of
from service.events.inbox import MOST_SNAPSHOTS
from service.events.produce_windows import MOST_ROWS, ProduceWindow
from service.process.app import FanOut
from tests.support.coroutine_tests import run
from tests.support.event_log_rig import HEARTBEAT_MS, ORIGIN, WINDOW_MS, EventLogRig, KeptLines, finished
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import NativeApp
from tests.support.metadata_responses import partition, topic
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from client_core import ClientStatus
    from service.events.outbox import Outbox

WINDOW = "produce.window"
HEARTBEAT = "heartbeat"
PARTITION = "metadata.partition"
CONNECTION = "connection"
PATIENCE_S = patient(20.0)


@pytest.fixture
def rig() -> EventLogRig:
    return EventLogRig()


def partitions(count: int, epoch: int = 0) -> list[object]:
    return [topic("orders", [partition(n, leader=1, epoch=epoch, replicas=(1, 2)) for n in range(count)])]


# -- heartbeats, windows, connections ------------------------------------------------------------------------


def test_the_first_event_of_a_boot_is_a_heartbeat_and_one_comes_each_minute(rig: EventLogRig) -> None:
    rig.settle()
    (heartbeat,) = rig.reported()
    assert heartbeat["type"] == HEARTBEAT
    assert (heartbeat["seq"], heartbeat["cluster_id"], heartbeat["uptime_ms"]) == (1, None, 0)
    assert (heartbeat["topics"], heartbeat["metadata_max_age_ms"]) == (0, 300_000)
    assert (heartbeat["version"], heartbeat["dropped"]) == ("1.2.3", 0)
    rig.producer.set_topics({"orders": 3})
    rig.settle()
    rig.producer.lower_metadata_max_age(10_000)
    rig.after(HEARTBEAT_MS - 1)
    assert len(rig.reported(HEARTBEAT)) == 1
    rig.after(1)
    heartbeat = rig.reported(HEARTBEAT)[1]
    assert (heartbeat["uptime_ms"], heartbeat["topics"], heartbeat["partitions"]) == (HEARTBEAT_MS, 1, 3)
    # It has the interval in force.
    assert (heartbeat["cluster_id"], heartbeat["metadata_max_age_ms"]) == ("cluster", 10_000)


def test_a_window_is_written_at_its_end_and_only_where_something_finished(rig: EventLogRig) -> None:
    rig.settle()
    rig.log.emit(finished(records=3))
    rig.after(WINDOW_MS - 1)
    assert rig.reported(WINDOW) == []
    rig.after(1)
    (reported,) = rig.reported(WINDOW)
    times = (reported["started_at"], reported["observed_at"])
    assert times == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:30.000000Z")
    assert reported["records"] == 3
    rig.after(WINDOW_MS)
    assert len(rig.reported(WINDOW)) == 1


def test_many_rows_of_a_window_are_written_in_pieces(rig: EventLogRig) -> None:
    for n in range(MOST_ROWS + 1):
        rig.log.emit(finished(partition=n))
    rig.settle()
    rig.clock.advance(WINDOW_MS)
    assert rig.settle() >= 20
    assert len(rig.reported(WINDOW)) == MOST_ROWS
    assert rig.log.left_out.batches == 1


def test_events_are_numbered_in_the_order_in_which_they_are_written(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 3})
    rig.log.emit(finished())
    rig.log.emit(e.NodeReady(2))
    rig.log.emit(e.NodeDisconnected(2, "closed", "it closed the connection", 50))
    rig.after(WINDOW_MS)
    written = rig.reported()
    assert [event["seq"] for event in written] == list(range(1, len(written) + 1))
    assert {(event["sidecar_id"], event["service"], event["boot_id"]) for event in written} == {ORIGIN}
    assert sum(rig.log.queued.values()) == len(written)
    connections = [(event["broker"], event["state"], event["reason"]) for event in rig.reported(CONNECTION)]
    assert connections == [(2, "ready", None), (2, "disconnected", "closed")]


def test_it_comes_round_each_second_sooner_where_something_is_due_and_at_once_where_there_is_more(
    rig: EventLogRig,
) -> None:
    now_ms = rig.clock.now_ms()
    assert rig.log.turn() == now_ms + 1_000
    rig.after(WINDOW_MS - 300)
    assert rig.log.turn() == now_ms + WINDOW_MS
    rig.producer.set_topics(partitions(1_000))
    assert rig.log.turn() == rig.clock.now_ms() + PAUSE_MS


# -- sinks that hang or fail ---------------------------------------------------------------------------------


def test_two_sinks_get_the_same_lines_and_one_that_hangs_costs_the_other_nothing() -> None:
    one, other = KeptLines("one"), KeptLines("other")
    rig = EventLogRig(one, other, max_waiting_bytes=4_000)
    rig.producer.set_topics({"orders": 3})
    rig.settle()
    assert one.lines == other.lines
    assert len(one.lines) == 6
    assert (one.begun, other.begun) == (1, 1)
    one.hangs = True
    rig.producer.set_topics(partitions(100))
    rig.settle()
    assert len(other.reported(PARTITION)) == 3 + 100
    assert rig.log.channels[0].outbox.dropped > 0
    assert rig.log.channels[1].outbox.dropped == 0


def test_dropped_lines_leave_a_gap_and_the_next_heartbeat_counts_them(rig: EventLogRig) -> None:
    rig = EventLogRig(max_waiting_bytes=2_000)
    rig.settle()
    rig.kept.hangs = True
    for n in range(20):
        rig.log.emit(finished(partition=n))
    rig.after(WINDOW_MS)
    rig.kept.hangs = False
    rig.after(1_000)
    rig.after(HEARTBEAT_MS)
    missing = set(range(1, rig.reported()[-1]["seq"])) - {event["seq"] for event in rig.reported()}
    assert missing
    assert rig.reported(HEARTBEAT)[-1]["dropped"] == len(missing) == rig.log.dropped


def test_while_no_sink_takes_lines_snapshots_wait_and_the_last_is_written_in_the_end(
    rig: EventLogRig,
) -> None:
    rig = EventLogRig(max_waiting_bytes=2_000)
    rig.kept.hangs = True
    for epoch in range(3 * MOST_SNAPSHOTS):
        rig.producer.set_topics(partitions(50, epoch))
        rig.after(1_000)
    assert rig.log.channels[0].outbox.waiting_bytes <= 2_000
    assert rig.log.left_out.snapshots > 0
    rig.kept.hangs = False
    for _ in range(2 * MOST_SNAPSHOTS):
        rig.after(1_000)
    rig.producer.set_topics(partitions(50, 3 * MOST_SNAPSHOTS - 1))
    rig.after(1_000)
    last = {event["partition"]: event["leader_epoch"] for event in rig.reported(PARTITION)}
    assert last == dict.fromkeys(range(50), 3 * MOST_SNAPSHOTS - 1)


def test_a_topic_of_which_lines_were_lost_is_written_again_and_no_other(rig: EventLogRig) -> None:
    rig = EventLogRig(max_waiting_bytes=6_000)
    rig.producer.set_topics({"refunds": 2})
    rig.settle()
    rig.kept.hangs = True
    rig.producer.set_topics({"refunds": 2, "orders": 4})
    rig.settle()
    for n in range(30):  # a window can't wait: it pushes the partitions out
        rig.log.emit(finished(partition=n))
    rig.after(WINDOW_MS)
    assert rig.reported(PARTITION)[2:] == []
    rig.kept.hangs = False
    rig.after(1_000)
    rig.producer.set_topics({"refunds": 2, "orders": 4})
    rig.settle()
    again = [(event["topic"], event["partition"]) for event in rig.reported(PARTITION)[2:]]
    assert again == [("orders", n) for n in range(4)]
    rig.producer.set_topics({"refunds": 2, "orders": 4})
    rig.settle()
    assert len(rig.reported(PARTITION)) == 6


def test_at_the_end_everything_is_written_and_a_heartbeat_is_the_last(rig: EventLogRig) -> None:
    rig.settle()
    rig.producer.set_topics(partitions(1_000))
    for _ in range(3_500):
        rig.log.emit(finished(records=2))
    rig.clock.advance(700)
    rig.log.end(rig.clock.now_ms() + 500)
    assert len(rig.reported(PARTITION)) == 1_000
    (window,) = rig.reported(WINDOW)
    assert (window["records"], window["observed_at"]) == (7_000, "2023-11-14T22:13:20.700000Z")
    assert (rig.reported()[-1]["type"], rig.reported()[-1]["uptime_ms"]) == (HEARTBEAT, 700)
    assert rig.kept.closed_by_ms == rig.clock.now_ms() + 500


def test_lines_that_no_sink_took_by_the_end_are_counted_as_lost(rig: EventLogRig) -> None:
    rig.kept.hangs = True
    rig.producer.set_topics({"orders": 3})
    rig.settle()
    rig.log.end(rig.clock.now_ms())
    assert rig.log.dropped == sum(rig.log.queued.values()) > 0


# -- its thread ----------------------------------------------------------------------------------------------


def on_thread(*sinks: KeptLines, producer: FakeProducer | None = None) -> tuple[EventLog, FakeProducer]:
    log = EventLog(ORIGIN, EventLogConfig(WINDOW_MS, HEARTBEAT_MS, 1 << 20, "1.2.3"), SystemClock())
    for sink in sinks:
        log.add_sink(sink)
    producer = producer or FakeProducer()
    log.follow(producer)
    producer.events = log
    log.start()
    return log, producer


def test_on_its_thread_it_writes_and_ends(rig: EventLogRig) -> None:
    log, producer = on_thread(rig.kept)
    producer.set_topics({"orders": 3})
    log.close(int(PATIENCE_S * 1_000))
    assert [event["type"] for event in rig.reported()][::6] == [HEARTBEAT, HEARTBEAT]
    assert len(rig.reported(PARTITION)) == 3
    log.close(0)  # once more does no harm


class Waiting(KeptLines):
    """A sink that waits for a file or a network that does not come back, until the test lets it go."""

    def __init__(self) -> None:
        super().__init__("waiting")
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        self.entered.set()
        assert self.let_go.wait(PATIENCE_S)


def test_a_sink_that_never_returns_holds_up_neither_the_client_nor_the_end() -> None:
    stuck = Waiting()
    log, producer = on_thread(stuck)
    assert stuck.entered.wait(PATIENCE_S)
    for _ in range(100_000):  # each of these would hang here, where it waited for anybody
        log.emit(finished())
    producer.set_topics({"orders": 3})
    log.close(1)
    assert log.left_out.batches > 0
    stuck.let_go.set()


class Buggy(KeptLines):
    """A sink with a bug that shows once."""

    faults = 1

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        self.faults -= 1
        if self.faults == 0:
            raise RuntimeError("a bug")
        super().turn(outbox, now_ms)


def test_a_bug_in_a_sink_is_counted_costs_the_other_nothing_and_the_next_turn_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buggy, well = Buggy("buggy"), KeptLines("well")
    log, producer = on_thread(buggy, well)
    wait_until(lambda: well.lines, what="the first turn", timeout_s=PATIENCE_S, every_s=0.01)
    assert log.failed_turns == 1
    producer.set_topics({"orders": 1})
    log.close(int(PATIENCE_S * 1_000))
    assert buggy.lines == well.lines
    assert len(well.reported(PARTITION)) == 1
    assert caplog.text.count("Uncaught error in the event log") == 1


class AlwaysBuggy(KeptLines):
    """A sink whose every turn fails."""

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        raise RuntimeError("a bug")

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Nothing is left to hand on."""


def test_an_exception_of_every_turn_is_logged_once_with_its_stack_and_summed_up_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, _ = on_thread(AlwaysBuggy("buggy"))
    for turns in range(1, 4):
        wait_until(lambda least=turns: log.failed_turns >= least, what="a turn that fails", every_s=0.001)  # type: ignore[misc]
        log.call()
    log.close(int(PATIENCE_S * 1_000))
    assert caplog.text.count("Uncaught error in the event log\n") == 1
    assert caplog.text.count("Uncaught error in the event log again: RuntimeError at ") == 1


def test_a_bug_in_a_turn_is_counted_and_the_next_turn_comes() -> None:
    kept, producer = KeptLines(), FakeProducer()
    healthy = producer.status

    def status_once() -> ClientStatus:
        producer.status = healthy  # type: ignore[method-assign]
        raise RuntimeError("a bug")

    producer.status = status_once  # type: ignore[method-assign]
    log, _ = on_thread(kept, producer=producer)
    wait_until(lambda: log.failed_turns, what="a turn that fails", timeout_s=PATIENCE_S, every_s=0.01)
    producer.set_topics({"orders": 1})
    log.close(int(PATIENCE_S * 1_000))
    assert log.failed_turns == 1
    assert (len(kept.reported(PARTITION)), len(kept.reported(HEARTBEAT))) == (1, 1)


WALL_MS = 1_795_255_200_000


def window(*batches: ProduceFinished) -> ProduceWindow:
    made = ProduceWindow(1_000)
    made.add(batches)
    return made


def test_acknowledged_batches_are_added_up_with_their_latencies_and_of_failed_ones_only_errors() -> None:
    (row,) = window(
        finished(records=2, batch_bytes=100, produce_ms=5, retries=1),
        finished(records=3, batch_bytes=50, produce_ms=5),
        finished(records=4, batch_bytes=50, produce_ms=40),
    ).close(11_000, WALL_MS)
    assert (row.topic, row.partition, row.broker) == ("orders", 0, 1)
    assert (row.records, row.batches, row.bytes, row.retries) == (9, 3, 200, 1)
    assert row.latency_us == {str(bucket_of(5_000)): 5, str(bucket_of(40_000)): 4}
    assert row.errors == {}
    (row,) = window(
        finished(records=7, error=Errors.REQUEST_TIMED_OUT, retries=3),
        finished(records=1, error=Errors.REQUEST_TIMED_OUT),
        finished(records=2, error=Errors.MESSAGE_TOO_LARGE),
    ).close(11_000, WALL_MS)
    assert (row.records, row.batches, row.bytes, row.retries) == (0, 3, 0, 3)
    assert row.errors == {"REQUEST_TIMED_OUT": 8, "MESSAGE_TOO_LARGE": 2}
    assert row.latency_us == {}


def test_each_partition_and_each_broker_has_a_row() -> None:
    rows = window(
        finished(partition=0, node_id=1),
        finished(partition=0, node_id=2),
        finished(partition=1, node_id=1),
        finished(partition=0, node_id=None, error=Errors.REQUEST_TIMED_OUT),
        finished("refunds"),
    ).close(11_000, WALL_MS)
    assert {(row.topic, row.partition, row.broker) for row in rows} == {
        ("orders", 0, 1),
        ("orders", 0, 2),
        ("orders", 1, 1),
        ("orders", 0, None),
        ("refunds", 0, 1),
    }


def test_it_is_as_long_by_the_calendar_as_by_the_clock_and_the_next_begins_at_its_end() -> None:
    open_window = window(finished())
    (row,) = open_window.close(11_500, WALL_MS)
    assert (row.started_at, row.observed_at) == ("2026-11-21T09:59:49.500000Z", "2026-11-21T10:00:00.000000Z")
    open_window.add([finished()])
    (row,) = open_window.close(12_500, WALL_MS + 1_000)
    assert row.started_at == "2026-11-21T10:00:00.000000Z"
    assert open_window.close(21_000, WALL_MS) == [], "nothing finished"


def test_it_has_so_many_rows_and_counts_what_found_none() -> None:
    open_window = window(*(finished(partition=n) for n in range(MOST_ROWS + 3)), finished(partition=0))
    rows = open_window.close(11_000, WALL_MS)
    assert len(rows) == MOST_ROWS
    assert sum(row.batches for row in rows) == MOST_ROWS + 1
    assert open_window.left_out == 3


batches = st.lists(
    st.builds(
        finished,
        st.sampled_from(["orders", "refunds"]),
        st.integers(0, 2),
        records=st.integers(1, 100),
        batch_bytes=st.integers(1, 1_000),
        produce_ms=st.integers(0, 120_000),
        retries=st.integers(0, 3),
        error=st.sampled_from([Errors.NONE, Errors.NONE, Errors.NETWORK_EXCEPTION]),
    ),
    max_size=30,
)


@given(batches, batches)
def test_windows_add_up_to_the_window_of_all(
    some: list[ProduceFinished], others: list[ProduceFinished]
) -> None:
    def sums(*windows: ProduceWindow) -> Counter[tuple[object, ...]]:
        found: Counter[tuple[object, ...]] = Counter()
        for row in (row for one in windows for row in one.close(11_000, WALL_MS)):
            key = (row.topic, row.partition)
            for name in ("records", "batches", "bytes", "retries"):
                found[(*key, name)] += getattr(row, name)
            for name, counts in (("errors", row.errors), ("latency", row.latency_us)):
                for what, records in counts.items():
                    found[(*key, name, what)] += records
        return found

    assert sums(window(*some), window(*others)) == sums(window(*some, *others))


@given(batches)
def test_every_record_is_in_the_histogram_or_among_the_errors(done: list[ProduceFinished]) -> None:
    rows = window(*done).close(11_000, WALL_MS)
    assert all(sum(row.latency_us.values()) == row.records for row in rows)
    failed = sum(batch.records for batch in done if batch.error is not Errors.NONE)
    assert sum(sum(row.errors.values()) for row in rows) == failed
    assert sum(row.batches for row in rows) == len(done)


def values(metrics: EventMetrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("pilotfish_events_"), *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_without_a_topic_and_a_folder_there_is_none_and_its_metrics_are_empty() -> None:
    web = NativeApp()
    assert (web.app.event_log, values(web.app.event_metrics)) == (None, {})


def test_with_a_folder_what_the_app_does_is_in_it_when_it_has_ended(tmp_path: Path) -> None:
    web = NativeApp(events_folder=str(tmp_path), sidecar_id="pod-1")

    async def live() -> None:
        async with web.app.api.router.lifespan_context(web.app.api):
            web.producer.set_topics({"orders": 3})
            web.producer.clock.advance(1_000)

    run(live())
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("events-pod-1-")
    assert path.read_text().count('"metadata.partition"') == 3
    assert values(web.app.event_metrics)["written_total", "files"] == 7


def test_the_metrics_tell_what_was_queued_lost_and_left_out() -> None:
    rig = EventLogRig(max_waiting_bytes=600)
    rig.producer.set_topics({"orders": 3})
    rig.kept.hangs = True
    rig.settle()
    seen = values(EventMetrics(rig.log))
    assert seen["total", "heartbeat"] == 1
    assert seen["waiting_bytes", "kept"] == rig.log.channels[0].outbox.waiting_bytes > 0
    rig.kept.hangs = False
    rig.settle()
    seen = values(EventMetrics(rig.log))
    assert seen["written_total", "kept"] + seen["dropped_total", "kept"] == sum(rig.log.queued.values())
    left_out = {labels for name, *labels_of in seen if name == "left_out_total" for labels in labels_of}
    assert left_out == {"batches", "snapshots", "notices"}


def test_a_sidecar_is_its_host_unless_named_and_a_boots_id_is_greater_than_that_of_an_earlier_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "pod 7/x")
    assert (sidecar_id(Settings()), sidecar_id(Settings(sidecar_id="me"))) == ("pod-7-x", "me")
    wall_ms = 1_795_255_200_000
    ids = [new_boot_id(wall_ms + 1_000 * n, Random(n)) for n in range(100)]
    assert ids == sorted({*ids})
    assert len(ids) == len({*ids})
    assert new_boot_id((1 << 32) * 1_000 - 1, Random(0)) < 1 << 53, "it fits a double"


class Wanting(RecordedEvents):
    """Records, and wants only these kinds."""

    def __init__(self, *kinds: type) -> None:
        super().__init__()
        self.kinds = kinds
        self.asked: list[type] = []

    def wants(self, kind: type) -> bool:
        self.asked.append(kind)
        return kind in self.kinds


def test_every_sink_gets_the_events_that_it_wants_in_order() -> None:
    both, one, none = Wanting(e.NodeReady, e.NodeConnecting), Wanting(e.NodeReady), Wanting()
    sink = FanOut(both, one, none)
    reported: list[e.Event] = [e.NodeReady(1), e.NodeConnecting(1), e.NodeReady(2)]
    for event in reported:
        sink.emit(event)
    assert both.events == reported
    assert one.events == [e.NodeReady(1), e.NodeReady(2)]
    assert none.events == []
    assert none.asked == [e.NodeReady, e.NodeConnecting], "once for each kind"


def test_a_sink_that_raises_costs_no_other_sink_its_event() -> None:
    class Broken(Wanting):
        def emit(self, event: e.Event, /) -> None:
            raise MemoryError

    other = Wanting(e.NodeReady)
    with pytest.raises(MemoryError):
        FanOut(Broken(e.NodeReady), other).emit(e.NodeReady(1))
    assert other.events == [e.NodeReady(1)]


def test_all_the_exceptions_of_two_sinks_are_raised() -> None:
    class Broken(Wanting):
        def __init__(self, error: Exception) -> None:
            super().__init__(e.NodeReady)
            self.error = error

        def emit(self, event: e.Event, /) -> None:
            raise self.error

    first, second, other = KeyError("first"), ValueError("second"), Wanting(e.NodeReady)
    with pytest.raises(ExceptionGroup) as raised:
        FanOut(Broken(first), other, Broken(second)).emit(e.NodeReady(1))
    assert raised.value.exceptions == (first, second)
    assert other.events == [e.NodeReady(1)]


def test_an_event_of_the_client_is_counted_and_explains_slowness() -> None:
    web = NativeApp()
    web.app.events.emit(e.ProduceFinished("orders", 0, 1, 7, 100, 5, 0, Errors.NONE))
    assert web.get("/v1/status").json()["produce"]["records"] == 7
    (family,) = [f for f in web.app.client_metrics.collect() if f.name == "pilotfish_records_sent"]
    assert family.samples[0].value == 7
