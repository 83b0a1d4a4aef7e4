"""The spool after a fault: kept records, counters, log lines, and the waits of its thread."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client_core import (
    IllegalArgumentError,
    InvalidRecordError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from service.base.disk import Disk
from service.spool import dead_letters as dead_letters_module
from service.spool.dead_letters import REASONS, DeadLetterFile, DeadLetterFolder, read_dead_letters
from service.spool.delivery import MARK_EVERY_MS, PAUSE_MS
from service.spool.delivery_outcome import DETAIL_CHARACTERS, delivery_outcome_of, delivery_outcome_of_refusal
from service.spool.entry import frame_of
from service.spool.folder import Mark, read_mark
from service.spool.lanes import memory_bytes_of
from service.spool.reader import Stored
from service.spool.requeue import Requeue, Requeued
from service.spool.segments import Segments
from service.spool.spool_metrics import SpoolMetrics
from service.spool.writer import QUEUE_BYTES, Spooled
from tests.support.crash_disk import CrashDisk
from tests.support.mock_clock import MockClock
from tests.support.spooling import (
    BadDisk,
    SpoolRig,
    dead_letters_of,
    fail_values,
    failure,
    record,
    records,
    salt_of,
    timed_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core import ProducerRecord
    from service.spool.writer import Completion
    from tests.support.fake_producer import Outcome


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


def damage(path: Path, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(value)] ^= 0xFF
    path.write_bytes(bytes(data))


def three_files(rig: SpoolRig) -> SpoolRig:
    """One record in each of three files; those of the first two are damaged."""
    for value in ("first", "second", "third"):
        rig.spool_in([record(value)])
        rig = rig.again()
    damage(rig.segments[0], b"first")
    damage(rig.segments[1], b"second")
    return rig


def bytes_of(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def gone(*_: object) -> Outcome:
    """Each record's topic is missing."""
    return timed_out(UnknownTopicOrPartitionError())


# -- damaged files -------------------------------------------------------------------------------------------


def test_each_damaged_file_is_counted_once_and_its_bytes_where_it_lies(rig: SpoolRig) -> None:
    rig = three_files(rig)
    held_bytes = bytes_of(rig.segments)
    rig.settle()
    assert rig.sent == ["third"]
    assert (rig.spool.delivery.lost, rig.spool.dead_letters.damaged_files) == (2, 2)
    moved = list((rig.folder / "aside").iterdir())
    assert (len(moved), len(rig.segments)) == (2, 1)
    assert rig.spool.dead_letters.total_bytes == bytes_of(moved)
    assert rig.spool.segments.total_bytes == bytes_of(rig.segments)
    assert rig.spool.writer.held_bytes == held_bytes


def test_a_damaged_file_is_kept_though_no_record_comes_before_the_next_start(rig: SpoolRig) -> None:
    rig.spool_in([record("lost"), record("sent")])
    damage(rig.segments[0], b"lost")
    rig = rig.again()
    rig.settle()
    assert (rig.sent, rig.spool.delivery.lost, rig.spool.entries) == (["sent"], 1, 0)
    assert rig.spool.dead_letters.damaged_files == 1
    rig = rig.again()
    assert rig.spool_in([record("next")]) == Spooled(3, 1)
    rig.settle()
    assert (rig.sent, rig.spool.dead_letters.damaged_files) == (["next"], 1)


def test_a_damaged_file_stays_until_the_mark_has_the_numbers_that_it_used(rig: SpoolRig) -> None:
    rig.spool_in([record("lost"), record("sent")])
    damage(rig.segments[0], b"lost")
    rig = rig.again()
    rig.deliver()
    rig.disk.room_bytes = 0
    rig.deliver_after(MARK_EVERY_MS)
    assert (read_mark(rig.folder, rig.disk), len(rig.segments)) == (Mark(), 1)
    rig = rig.again()
    rig.settle()
    assert (read_mark(rig.folder, rig.disk), len(rig.segments)) == (Mark(3), 0)


def test_a_damaged_file_stays_while_one_of_its_records_waits(rig: SpoolRig) -> None:
    rig.spool_in([record("lost"), record("waits")])
    damage(rig.segments[0], b"lost")
    rig = rig.again()
    fail_values(rig, timed_out(), "waits")
    rig.settle()
    assert (len(rig.segments), rig.spool.dead_letters.damaged_files) == (1, 0)
    rig.producer.outcome_of = None
    for _ in range(2):
        rig.deliver_after(1_000)
    assert (len(rig.segments), rig.spool.dead_letters.damaged_files) == (0, 1)


def test_of_what_two_damaged_files_held_only_what_was_not_delivered_is_lost(rig: SpoolRig) -> None:
    rig.spool_in([record("waits"), *records(1, "payments")])
    rig = rig.again()
    fail_values(rig, timed_out(), "waits")
    rig.spool_in([record("delivered", "payments"), record("kept", "payments")])
    rig.settle()
    damage(rig.segments[0], b"waits")
    damage(rig.segments[1], b"delivered")
    rig = rig.again()
    rig.settle()
    assert (rig.sent, rig.spool.delivery.lost) == ([], 1)


def test_a_damaged_file_that_is_deleted_before_it_is_moved_is_not_counted(rig: SpoolRig) -> None:
    rig = three_files(rig)
    rig.deliver()
    rig.segments[0].unlink()
    rig.deliver_after(1_000)
    assert (rig.spool.dead_letters.damaged_files, len(rig.segments)) == (1, 1)
    assert rig.spool.segments.total_bytes == bytes_of(rig.segments)


def test_a_damaged_record_before_what_a_failed_fsync_left_is_counted_once(rig: SpoolRig) -> None:
    for value in ("kept", "spoiled"):
        rig.spool_in([record(value)])
    rig.disk.fails.update(fsync=1, truncate=1)
    rig.spool_in([record("void")])
    rig.spool_in([record("next")])
    assert len(rig.segments) == 2
    damage(rig.segments[0], b"spoiled")
    rig = rig.again()
    rig.deliver()
    assert (rig.sent, rig.spool.delivery.lost) == (["kept", "next"], 1)


# -- dead letters --------------------------------------------------------------------------------------------


def test_dead_letters_are_not_written_to_a_file_whose_name_is_not_on_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    (folder / "aside").mkdir(parents=True)
    disk = CrashDisk(folder)
    rig = SpoolRig(folder, disk=disk)
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    rig.settle()
    disk.fails["sync_folder"] = 1
    rig.wait_out()
    assert (dead_letters_of(rig), rig.spool.entries) == ([], 1)
    rig.settle()
    rig.settle()
    assert (dead_letters_of(rig), rig.spool.entries) == ([("orders-0", "forbidden")], 0)
    rig.let_go()
    disk.cut_power()
    assert dead_letters_of(rig) == [("orders-0", "forbidden")]


def test_the_bytes_of_a_file_of_dead_letters_that_are_not_sound_are_counted(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    fail_values(rig, timed_out(UnknownTopicOrPartitionError()), "orders-0", "orders-1", "orders-2")
    rig.spool_in(records(3))
    rig.deliver()
    (path,) = (rig.folder / "aside").iterdir()
    assert read_dead_letters(path, rig.disk).unsound_bytes == 0
    sound = path.read_bytes()
    frames = [frame_of(salt_of(path), 9, payload) for payload in (b"\xc1", b"\x95\xa1\xff\xa0\0\0\xc4\0")]
    for noise in (*frames, b"noise"):
        path.write_bytes(sound + noise)
        found = read_dead_letters(path, rig.disk)
        assert (len(found.records), found.unsound_bytes) == (3, len(noise)), noise
    rig.again().let_go()
    assert "5 bytes of it are skipped" in caplog.text


def test_only_an_unreadable_disk_makes_dead_letters_be_lost(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(UnknownTopicOrPartitionError()), "orders-0")
    rig.spool_in(records(1))
    rig.deliver()
    (path,) = (rig.folder / "aside").iterdir()
    rig.disk.fails["read_whole"] = 2
    assert read_dead_letters(path, rig.disk) == DeadLetterFile(path, [], path.stat().st_size)
    rig.disk.errno = errno.EMFILE
    with pytest.raises(OSError, match="no read_whole here"):
        read_dead_letters(path, rig.disk)
    assert len(read_dead_letters(path, rig.disk).records) == 1


def test_a_file_of_dead_letters_is_followed_by_another_when_it_has_a_mebibyte(tmp_path: Path) -> None:
    def sizes_with(value_bytes: int) -> list[int]:
        rig = SpoolRig(tmp_path / f"{value_bytes}")
        rig.producer.outcome_of = gone
        for value in ("v" * value_bytes, "next"):
            rig.spool_in([record(value)])
            rig.deliver()
        return [path.stat().st_size for path in sorted((rig.folder / "aside").iterdir())]

    next_bytes = sizes_with(2 * 1024 * 1024)[1]
    (both,) = sizes_with(512 * 1024)
    largest = 1024 * 1024 - (both - next_bytes - 512 * 1024)
    assert sizes_with(largest) == [1024 * 1024, next_bytes]
    assert sizes_with(largest - 1) == [1024 * 1024 - 1 + next_bytes]


def test_a_dead_letter_of_a_topic_that_lags_is_written_once_though_the_mark_is_beyond(
    rig: SpoolRig,
) -> None:
    def refuse(rig: SpoolRig) -> None:
        gone = timed_out(UnknownTopicOrPartitionError())
        rig.producer.outcome_of = lambda _, one: (
            gone if one.value == b"orders-1" else failure(NotEnoughReplicasError())
        )

    refuse(rig)
    rig.spool_in(records(2))
    rig.settle()
    rig = rig.again()
    refuse(rig)
    rig.settle()
    assert rig.sent[:2] == ["orders-0", "orders-1"]
    assert dead_letters_of(rig) == [("orders-1", "topic_gone")]


def test_the_known_numbers_of_dead_letters_are_bounded(
    rig: SpoolRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two dead letters are written, the mark is not, and the next process writes both again."""
    monkeypatch.setattr(dead_letters_module, "_MOST_KNOWN", 1)
    rig.spool_in(records(2))
    for values in (["orders-0", "orders-1"], ["orders-0", "orders-1", "orders-1"]):
        rig.producer.outcome_of = gone
        rig.deliver()
        assert [value for value, _ in dead_letters_of(rig)] == values
        rig = rig.again()


def test_a_hundred_thousand_numbers_are_known(tmp_path: Path) -> None:
    most = 100_000
    stored = [Stored(number, 9, b"", None) for number in range(1, most + 2)]
    for added, held in ((stored, most + 1), (stored[-2:], most + 2)):
        folder = DeadLetterFolder(tmp_path, Disk(), Mark())
        folder.add([(one, "invalid", "") for one in added], 0)
        folder.close()
        assert folder.records == held


def test_a_dead_letter_that_the_mark_covers_takes_no_place_among_those_known(
    rig: SpoolRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_module, "_MOST_KNOWN", 1)
    rig.producer.outcome_of = gone
    rig.spool_in([record("covered")])
    rig.settle()
    rig.spool_in([record("known")])
    rig.deliver()
    rig = rig.again()
    rig.producer.outcome_of = gone
    rig.deliver()
    assert rig.sent == ["known"]
    assert [value for value, _ in dead_letters_of(rig)] == ["covered", "known"]


# -- delivery ------------------------------------------------------------------------------------------------


def test_the_rest_of_a_failed_write_of_dead_letters_is_cut_off(tmp_path: Path) -> None:
    for operation in ("write", "fsync"):
        rig = SpoolRig(tmp_path / operation)
        rig.producer.outcome_of = gone
        rig.spool_in([record("kept")])
        rig.deliver()
        (path,) = (rig.folder / "aside").iterdir()
        size = path.stat().st_size
        rig.spool_in([record("late")])
        if operation == "write":
            rig.disk.room_bytes = 10
        else:
            rig.disk.fails["fsync"] = 1
        rig.deliver()
        assert path.stat().st_size == size, operation
        rig.disk.room_bytes = None
        rig.deliver_after(PAUSE_MS)
        assert dead_letters_of(rig) == [("kept", "topic_gone"), ("late", "topic_gone")]


def test_a_lane_counts_the_memory_of_records_that_came_back(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), *(f"orders-{n}" for n in range(3)))
    rig.spool_in(records(3))
    rig.deliver()
    (lane,) = rig.spool.delivery.lanes
    assert len(lane.waiting) == 3
    assert lane.waiting_bytes == memory_bytes_of(lane.waiting)


def test_the_next_turn_is_due_when_the_first_of_the_topics_resumes(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(NotEnoughReplicasError())
    rig.spool_in(records(1))
    rig.deliver()
    rig.clock.advance(300)
    rig.spool_in(records(1, "payments"))
    rig.deliver()
    for _ in range(3):  # and the mark is written, so that no turn is due for it
        rig.deliver_after(700)
        rig.deliver_after(300)
    now_ms = rig.clock.now_ms()
    assert rig.spool.delivery.turn(now_ms) == now_ms + PAUSE_MS - 300


def test_that_records_are_delivered_again_is_logged_once_and_only_after_a_fault(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service.spool.delivery")

    def logged() -> list[str]:
        return [r.message.rpartition("; ")[2] for r in caplog.records if r.name == "service.spool.delivery"]

    rig.spool_in(records(1))
    rig.deliver()
    assert logged() == []
    for times in (1, 2):
        fail_values(rig, failure(NotEnoughReplicasError()), "late")
        rig.spool_in([record("late")])
        for _ in range(3):
            rig.deliver_after(1_000)
        assert logged()[2 * times - 2 :] == ["records wait"]
        rig.producer.outcome_of = None
        for _ in range(3):
            rig.spool_in(records(1))
            rig.deliver_after(1_000)
        assert logged() == ["records wait", "spool: records are delivered again"] * times


class NotedClock(MockClock):
    """Notes until when a thread waits first."""

    def __init__(self) -> None:
        super().__init__(now_ms=1_000_000)
        self.first_deadline_ms: int | None = None
        self.waited = threading.Event()
        #: It waits, and not for what has come already.
        self.idle = threading.Event()

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        if self.first_deadline_ms is None:
            self.first_deadline_ms = deadline_ms
        if not predicate():
            self.idle.set()
        self.waited.set()
        return super().wait_for(condition, predicate, deadline_ms)


def broken(index: int, one: ProducerRecord) -> Outcome:
    raise ZeroDivisionError(index)


def test_after_a_turn_that_failed_the_thread_pauses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for fault in ("disk", "bug"):
        clock = NotedClock()
        rig = SpoolRig(tmp_path / fault, clock=clock)
        rig.spool_in(records(1))
        if fault == "disk":
            rig.disk.fails["read"] = 1
            rig.disk.errno = 24  # EMFILE
        else:
            rig.producer.outcome_of = broken
        rig.spool.delivery.start()
        waited = clock.waited.wait(20)
        rig.producer.outcome_of = None
        rig.spool.delivery.close(10_000)
        assert waited, fault
        assert clock.first_deadline_ms == clock.now_ms() + PAUSE_MS
        assert rig.spool.delivery.failed_turns == (fault == "bug")
        assert "spool: no read here; records wait" in caplog.text
        assert "the disk did not answer" not in caplog.text  # the thread has ended


def test_an_exception_of_one_topics_records_delays_them_and_holds_no_other_topic_up(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_for_orders(index: int, one: ProducerRecord) -> Outcome:
        return broken(index, one) if one.topic == "orders" else rig.producer.receipt(index, one)

    rig.producer.outcome_of = broken_for_orders
    rig.spool_in([record("first"), record("other", "payments"), record("second")])
    rig.deliver()
    assert (rig.spool.delivery.delivered, rig.spool.delivery.failed_turns) == (1, 1)
    assert [one.exc_info is not None for one in caplog.records] == [True, False]
    rig.producer.outcome_of = None
    (took_them_although_it_raised,) = rig.producer.waiting
    rig.deliver_after(PAUSE_MS - 1)
    assert rig.spool.entries == 2
    rig.producer.holds_records = True
    rig.spool_in([record("third")])
    rig.deliver_after(1)
    rig.producer.acknowledge(took_them_although_it_raised)
    rig.deliver()
    assert rig.spool.entries == 3
    rig.producer.holds_records = False
    rig.producer.acknowledge(rig.producer.waiting[0])
    rig.settle()
    assert (rig.sent[-3:], rig.spool.entries) == (["first", "second", "third"], 0)


def test_records_whose_result_does_not_fit_into_memory_are_sent_again(rig: SpoolRig) -> None:
    class NoMemoryForIt:
        error = None
        any_acknowledged = True

        @property
        def outcomes(self) -> Sequence[Outcome]:
            raise MemoryError

    rig.producer.holds_records = True
    rig.spool_in(records(2))
    rig.deliver()
    rig.producer.finish(rig.producer.waiting[0], NoMemoryForIt())
    rig.deliver()
    assert (rig.spool.delivery.failed_turns, rig.spool.entries) == (1, 2)
    rig.producer.holds_records = False
    rig.deliver_after(PAUSE_MS)
    assert (rig.sent[2:], rig.spool.entries) == (rig.sent[:2], 0)


def test_a_record_that_is_committed_wakes_the_thread_once(tmp_path: Path) -> None:
    clock = NotedClock()
    rig = SpoolRig(tmp_path / "spool", clock=clock)
    sent = threading.Event()

    def noted(index: int, one: ProducerRecord) -> Outcome:
        sent.set()
        return rig.producer.receipt(index, one)

    rig.producer.outcome_of = noted
    rig.spool.delivery.start()
    assert clock.waited.wait(20)
    clock.idle.clear()
    rig.spool_in(records(1))
    woken, idle = sent.wait(20), clock.idle.wait(20)
    rig.spool.delivery.close(10_000)
    assert (woken, idle) == (True, True)


# -- writer, segments, requeue -------------------------------------------------------------------------------


class SlowDisk(BadDisk):
    """Takes 250 ms for each fsync."""

    def __init__(self, clock: MockClock) -> None:
        super().__init__()
        self._clock = clock

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self._clock.advance(250)


def test_the_duration_of_each_fsync_is_observed_in_seconds(tmp_path: Path) -> None:
    clock = MockClock(now_ms=1_000_000)
    rig = SpoolRig(tmp_path / "spool", clock=clock, disk=SlowDisk(clock))
    rig.spool_in(records(1))
    rig.spool_in(records(1))
    assert (rig.spool.writer.fsync_seconds.count, rig.spool.writer.fsync_seconds.sum) == (2, 0.5)


def test_the_limit_of_records_that_wait_for_the_disk_is_the_documented_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "spool.md"
    (said,) = re.findall(r"Up to (\d+) MiB wait for a disk", page.read_text())
    assert int(said) * 1024 * 1024 == QUEUE_BYTES


def test_a_file_that_is_gone_does_not_count_again_by_what_was_written_to_it(tmp_path: Path) -> None:
    segments = Segments(tmp_path, Disk())
    segment, descriptor = segments.begin(1)
    os.close(descriptor)
    segments.has_size(segment, 100)
    assert segments.total_bytes == 100
    segments.forget(segment)
    segments.has_size(segment, 200)
    assert segments.total_bytes == 0


class HangingDisk(BadDisk):
    """Answers no fsync before `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def fsync(self, descriptor: int) -> None:
        self.hangs.set()
        self.goes_on.wait(20)
        super().fsync(descriptor)


def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = HangingDisk()
    rig = SpoolRig(tmp_path / "spool", disk=disk)
    rig.spool.start(lambda function: function())
    reported = rig.submit(records(1))
    assert disk.hangs.wait(20)
    assert not rig.spool.writer.close(10)
    assert reported == []
    disk.goes_on.set()
    assert rig.spool.writer.close(20_000)
    assert reported == [Spooled(1, 1)]
    rig.spool.close(20_000)
    assert "the disk did not answer" not in caplog.text


def test_between_two_files_a_requeue_goes_on_at_once_and_waits_only_for_the_disk(rig: SpoolRig) -> None:
    rig.producer.outcome_of = gone
    rig.spool_in(records(2))
    rig.settle()
    rig.producer.outcome_of = None
    ends: list[Requeued] = []
    assert rig.spool.requeue(lambda _: True, ends.append)
    now_ms = rig.clock.now_ms()
    assert rig.spool.delivery.turn(now_ms) > now_ms  # the disk has not answered
    rig.spool.writer.turn()
    assert rig.spool.delivery.turn(now_ms) == now_ms
    assert ends == []
    rig.spool.delivery.turn(now_ms)
    assert ends == [Requeued(2)]


def test_a_requeue_waits_for_the_disk_only_while_it_has_not_answered(rig: SpoolRig) -> None:
    reported: list[Completion] = []
    wakes: list[bool] = []
    rig.producer.outcome_of = gone
    rig.spool_in(records(2))
    rig.settle()
    requeue = Requeue(
        rig.spool.dead_letters,
        lambda _, report: reported.append(report),
        lambda _: True,
        wake=lambda: wakes.append(True),
        ended=lambda _: None,
    )
    waits = [requeue.waits]
    requeue.go_on()
    waits.append(requeue.waits)
    assert wakes == []
    reported[0](Spooled(3, 2))
    assert wakes == [True]
    for _ in range(2):
        waits.append(requeue.waits)
        requeue.go_on()
    assert waits == [False, True, False, False]
    assert requeue.is_over


def test_the_age_of_the_oldest_record_is_zero_without_one_and_never_negative(rig: SpoolRig) -> None:
    fail_values(rig, failure(NotEnoughReplicasError()), "orders-0")

    def age_in_metrics() -> float:
        (family,) = (f for f in SpoolMetrics(rig.spool).collect() if f.name.endswith("_age_seconds"))
        (sample,) = family.samples
        return sample.value

    assert (rig.spool.oldest_age_ms, age_in_metrics()) == (None, 0)
    rig.spool_in(records(1))
    rig.deliver()
    for passed_ms, age_ms in ((0, 0), (7, 7), (-9, 0)):  # the machine's time is set back
        rig.clock.advance(passed_ms)
        assert (rig.spool.oldest_age_ms, age_in_metrics()) == (age_ms, age_ms / 1000)


def test_each_number_of_the_spool_is_a_metric(rig: SpoolRig) -> None:
    rig = three_files(rig)
    rig.settle()
    rig.disk.fails["write"] = 1
    rig.spool_in(records(1))
    rig.clock.advance(2_000)
    gone, forbidden = timed_out(UnknownTopicOrPartitionError()), failure(TopicAuthorizationError())
    rig.producer.outcome_of = lambda index, one: (
        forbidden if one.topic == "payments" else gone if index else rig.producer.receipt(index, one)
    )
    rig.spool_in([*records(4), *records(6, "payments")])
    rig.deliver()
    rig.clock.advance(5_500)
    fsyncs = rig.spool.writer.fsync_seconds
    families = list(SpoolMetrics(rig.spool).collect())
    samples = {
        (sample.name.removeprefix("pilotfish_spool_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.value and not sample.name.endswith("_bucket")
    }
    assert samples == {
        ("records",): 6,
        ("bytes",): bytes_of([*rig.segments, *(rig.folder / "aside").iterdir()]),
        ("max_bytes",): rig.settings.spool_max_bytes,
        ("oldest_record_age_seconds",): 5.5,
        ("aside_records",): 3,
        ("refused_topics", "forbidden"): 1,
        ("damaged_files",): 2,
        ("spooled_records_total",): 10,
        ("delivered_records_total",): 2,
        ("set_aside_records_total", "topic_gone"): 3,
        ("lost_records_total",): 2,
        ("disk_failing_seconds",): 7.5,
        ("fsync_duration_seconds_count",): fsyncs.count,
    }
    without = list(SpoolMetrics(None).collect())
    assert [family.samples for family in without] == [[]] * len(families)
    for family, same in zip(families, without, strict=True):
        assert (family.name, family.type) == (same.name, same.type)
        assert family.documentation, family.name
    for family in (families[8], families[-1]):
        assert {sample.labels["reason"] for sample in family.samples} == {*REASONS}, family.name


def test_the_detail_of_a_refusal_is_one_bounded_line_that_names_the_error_and_its_message() -> None:
    argument = delivery_outcome_of_refusal(IllegalArgumentError("no such partition"))
    assert (argument.reason, argument.detail) == ("invalid", "IllegalArgumentError: no such partition")
    large = delivery_outcome_of_refusal(RecordTooLargeError("9 bytes"))
    assert (large.reason, large.detail) == ("too_large", "RecordTooLargeError: 9 bytes")
    escape, long = (failure(InvalidRecordError(text)) for text in ("a\x1b[31m\nb", "n" * 5_000))
    assert delivery_outcome_of(escape, 1, lacks_partition=False).detail == "InvalidRecordError: a [31m b"
    assert len(delivery_outcome_of(long, 1, lacks_partition=False).detail) == DETAIL_CHARACTERS
