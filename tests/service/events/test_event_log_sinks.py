"""Events in files and in a topic: written lines, waiting lines, and lines that a sink does not take."""

from __future__ import annotations

import errno
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    InvalidRecordError,
    NetworkError,
    Phase,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.events.event_files import EventFiles, FileLimits
from service.events.event_topic import (
    CHUNK_BYTES,
    MOST_IN_FLIGHT_BYTES,
    PAUSE_MS,
    TOPIC_WAIT_MS,
    EventTopic,
    events_config,
)
from service.events.event_v1 import Origin
from service.events.outbox import Line, Outbox
from tests.support.crash_disk import SHORT, CrashDisk, State
from tests.support.fake_producer import FakeProducer, FakeResult
from tests.support.spooling import BadDisk

if TYPE_CHECKING:
    from pathlib import Path

    from client_core import KafkaError

ORIGIN = Origin("pod-1", "shop", 0xB007)
LIMITS = FileLimits(max_bytes=1_000, max_age_ms=60_000, files=100)
STEM = "events-pod-1-000000000000b007"


class Desk:
    """Files in a folder, and an outbox for them."""

    def __init__(self, folder: Path, origin: Origin = ORIGIN, **limits: int) -> None:
        self.folder = folder
        self.outbox = Outbox(100_000)
        self.files = EventFiles(str(folder), origin, LIMITS._replace(**limits))
        self.files.begin()

    def write(self, *texts: str, now_ms: int = 0) -> None:
        for text in texts:
            self.outbox.put(Line(text.encode()))
        self.files.turn(self.outbox, now_ms)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def lines(self) -> list[str]:
        return [line for name in self.names() for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_has_a_dot_while_it_is_written_and_none_at_the_end(desk: Desk) -> None:
    desk.write("one", "two")
    assert desk.names() == [f".{STEM}-000001.jsonl"]
    assert desk.lines() == ["one", "two"]  # they are in the system's hands at once
    desk.files.close(desk.outbox, 0)
    assert desk.names() == [f"{STEM}-000001.jsonl"]
    assert desk.lines() == ["one", "two"]
    assert desk.files.written == 2


def test_where_nothing_was_written_there_is_no_file(desk: Desk) -> None:
    desk.write()
    desk.files.close(desk.outbox, 0)
    assert desk.names() == []


def test_a_full_file_is_finished_and_the_next_begun(desk: Desk, tmp_path: Path) -> None:
    texts = [f"{n:03d}" + "." * 197 for n in range(12)]
    for text in texts:
        desk.write(text)
    assert desk.names() == [f".{STEM}-000003.jsonl", f"{STEM}-000001.jsonl", f"{STEM}-000002.jsonl"]
    assert all((desk.folder / name).stat().st_size <= 1_000 for name in desk.names())
    desk.files.close(desk.outbox, 0)
    assert desk.lines() == texts
    # And many lines at once go into files of the same size.
    desk, texts = Desk(tmp_path / "at once"), [f"{n:03d}" + "." * 97 for n in range(40)]
    desk.write(*texts)
    desk.files.close(desk.outbox, 0)
    assert desk.lines() == texts
    assert all((desk.folder / name).stat().st_size <= 1_010 for name in desk.names())


def test_a_file_that_is_old_is_finished_even_if_nothing_comes(desk: Desk) -> None:
    desk.write("one", now_ms=5_000)
    desk.write(now_ms=64_999)
    assert desk.names() == [f".{STEM}-000001.jsonl"]
    desk.write(now_ms=65_000)
    assert desk.names() == [f"{STEM}-000001.jsonl"]
    desk.write("two", now_ms=66_000)
    assert desk.names() == [f".{STEM}-000002.jsonl", f"{STEM}-000001.jsonl"]


def test_only_so_many_finished_files_are_kept_and_only_ours_are_deleted(tmp_path: Path) -> None:
    others = [
        "events-pod-1-x-000000000000b007-000001.jsonl",
        "events-pod-2-000000000000b007-000001.jsonl",
        "events-pod-1-000000000000b007-000001.jsonl.gz",
        "notes.txt",
    ]
    for name in (*others, "events-pod-1-000000000000a000-000009.jsonl"):
        (tmp_path / name).write_text("{}\n")
    desk = Desk(tmp_path, files=2)
    for n in range(3):
        desk.write("one", now_ms=n * 100_000)
    desk.files.close(desk.outbox, 0)
    assert set(desk.names()) == {*others, f"{STEM}-000002.jsonl", f"{STEM}-000003.jsonl"}


def test_files_of_a_boot_whose_clock_was_ahead_are_the_oldest(tmp_path: Path) -> None:
    boots = {"ahead": 0xB999, "before": 0xB006, "now": 0xB007}
    for text, boot_id in boots.items():
        desk = Desk(tmp_path, Origin("pod-1", "shop", boot_id), files=4)
        for n in range(2):
            desk.write(f"{text}-{n}", now_ms=n * 100_000)
        desk.files.close(desk.outbox, 0)
    assert desk.lines() == ["before-0", "before-1", "now-0", "now-1"]
    desk = Desk(tmp_path, Origin("pod-1", "shop", boots["now"] + 1), files=2)
    assert desk.lines() == ["now-0", "now-1"]


def test_the_millionth_file_is_younger_than_the_one_before_it(tmp_path: Path) -> None:
    for number in (999_999, 1_000_000):
        (tmp_path / f"{STEM}-{number}.jsonl").write_text("{}\n")
    assert Desk(tmp_path, files=1).names() == [f"{STEM}-1000000.jsonl"]


# -- files of an earlier start -------------------------------------------------------------------------------


def test_the_file_of_a_killed_sidecar_is_finished_without_its_half_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tmp_path / ".events-pod-1-000000000000a000-000003.jsonl"
    left.write_text('{"v":1}\n{"v":2}\n{"v":')
    desk = Desk(tmp_path)
    assert desk.names() == ["events-pod-1-000000000000a000-000003.jsonl"]
    assert [json.loads(line) for line in desk.lines()] == [{"v": 1}, {"v": 2}]
    assert "5 bytes cut off" in caplog.text
    for text, lines in (("", None), ('{"v":', None), ("whole\n" + "x" * 700_000, ["whole"])):
        for path in tmp_path.iterdir():
            path.unlink()
        left.write_text(text)
        desk = Desk(tmp_path)
        # Of one that holds no line nothing stays.
        assert (desk.lines() if lines else desk.names()) == (lines or [])


def test_files_of_other_sidecars_are_left_alone(tmp_path: Path) -> None:
    names = [
        ".events-pod-1-x-000000000000a000-000003.jsonl",
        ".events-pod-2-000000000000a000-000003.jsonl",
        ".hidden",
    ]
    for name in names:
        (tmp_path / name).write_text("one\n")
    assert Desk(tmp_path).names() == names


def test_a_file_that_another_process_is_writing_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Desk(tmp_path)
    first.write("one")
    second = Desk(tmp_path, ORIGIN._replace(boot_id=0xB008))
    assert first.names() == [f".{STEM}-000001.jsonl"]
    assert "two sidecars have the same sidecar_id" in caplog.text
    second.write("two")
    for desk in (first, second):
        desk.files.close(desk.outbox, 0)
    assert first.lines() == ["one", "two"]


# -- folders and disks ---------------------------------------------------------------------------------------


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "a" / "b")
    desk.write("one")
    assert desk.lines() == ["one"]


def test_a_folder_that_can_not_be_used_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SettingsError, match=r"^events_folder: can't write files into .*file.*; name a folder"
    ):
        Desk(tmp_path / "file")


def small_disk(room_bytes: int) -> BadDisk:
    """A disk that takes only so many bytes more: a write is cut short, the next one fails."""
    disk = BadDisk()
    disk.room_bytes = room_bytes
    return disk


def test_on_a_full_disk_events_wait_and_no_half_line_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = small_disk(10)
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, disk)
    outbox = Outbox(100)
    for text in ("first", "second", "third"):
        outbox.put(Line(text.encode()))
        files.turn(outbox, 0)
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "first\n"
    assert (len(outbox), files.written) == (2, 1)
    assert caplog.text.count("No space left on device; events wait") == 1
    disk.room_bytes = 1_000
    files.turn(outbox, 0)
    assert path.read_text() == "first\nsecond\nthird\n"
    for room_bytes in (1_000, 0, 0, 1_000, 1_000):  # each time once, and again when it happens again
        disk.room_bytes = room_bytes
        outbox.put(Line(b"next"))
        files.turn(outbox, 0)
    assert caplog.text.count("No space left on device; events wait") == 2
    assert caplog.text.count("can be written to again") == 2
    files.close(outbox, 0)


def test_a_disk_that_stays_full_costs_the_oldest_events_only(tmp_path: Path) -> None:
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, small_disk(0))
    outbox = Outbox(10)
    for n in range(20):
        outbox.put(Line(b"%03d" % n))
        files.turn(outbox, 0)
    assert (len(outbox), outbox.dropped) == (3, 17)
    files.close(outbox, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken_away_is_logged_and_costs_no_turn(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.write("one")
    for path in desk.folder.iterdir():
        path.unlink()
    desk.folder.rmdir()
    desk.files.close(desk.outbox, 0)
    assert "No such file or directory" in caplog.text


def test_lines_that_come_after_the_folder_was_emptied_are_kept(desk: Desk) -> None:
    desk.write("deleted")
    for path in desk.folder.iterdir():
        path.unlink()
    desk.write("one")
    desk.folder.rename(desk.folder.with_name("moved"))
    desk.write("two")
    desk.write("three")
    assert len(desk.outbox) == 2
    desk.folder.mkdir()
    desk.files.close(desk.outbox, 0)
    assert desk.lines() == ["two", "three"]
    assert [path.read_text() for path in desk.folder.with_name("moved").iterdir()] == ["one\n"]


# -- every call to the disk fails once -----------------------------------------------------------------------


def play(folder: Path, disk: CrashDisk) -> list[str]:
    """A file that was left is finished, three are written, and the next start finishes what is left."""
    folder.mkdir(exist_ok=True)
    disk.append_new(folder / ".events-pod-1-000000000000a000-000001.jsonl", b"left\nhalf")
    outbox = Outbox(100_000)
    texts = [f"{n}" + "." * 400 for n in range(6)]
    files = EventFiles(str(folder), ORIGIN, LIMITS, disk)
    files.begin()
    for n, text in enumerate(texts):
        outbox.put(Line(text.encode()))
        files.turn(outbox, n)
    files.turn(outbox, 10)
    files.close(outbox, 20)
    assert len(outbox) == 0
    EventFiles(str(folder), ORIGIN._replace(boot_id=0xB009), LIMITS).begin()
    return ["left", *texts]


def test_any_call_to_the_disk_may_fail_once_and_no_line_is_lost_or_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = CrashDisk(tmp_path)
    play(tmp_path / "plain", plain)
    assert {"create", "write", "fsync", "rename", "truncate", "reopen"} <= set(plain.calls)
    found = []
    for call, operation in enumerate(plain.calls):
        for error in (errno.EIO, errno.ENOSPC, errno.EINTR, *([SHORT] if operation == "write" else [])):
            folder = tmp_path / f"{call}-{error}"
            folder.mkdir()
            disk = CrashDisk(folder)
            disk.fails_at = call, error
            caplog.clear()
            wanted = play(folder, disk)
            lines = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
            name = f"call {call} ({operation}) fails with {error}"
            if sorted(lines) != sorted(wanted):
                found.append(f"{name}: {[line[:5] for line in lines]}")
            if [path.name for path in folder.iterdir() if path.name[0] == "."]:
                found.append(f"{name}: a file is not finished")
            if error != SHORT and not caplog.records:
                found.append(f"{name}: nobody said so")
    assert found == [], "\n" + "\n".join(found)


def test_after_a_power_cut_at_any_call_finished_files_are_whole_and_the_next_start_finishes_the_others(
    tmp_path: Path,
) -> None:
    """Bytes that were not on the disk yet may be missing or zeros, which no event has; no others appear."""
    folder = tmp_path / "events"
    folder.mkdir()
    disk = CrashDisk(folder)
    states: dict[object, tuple[str, State]] = {}

    def note() -> None:
        for state in disk.states():
            states.setdefault((state.folders, frozenset(state.files.items())), (disk.calls[-1], state))

    disk.before = note
    reported = play(folder, disk)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(states) > 30
    found = []
    for operation, state in states.values():
        state.leave()
        finished = {path.name: path.read_bytes() for path in folder.glob("events-*")}
        found += [f"{operation}: {name} is not whole" for name in finished if finished[name] != whole[name]]
        EventFiles(str(folder), ORIGIN._replace(boot_id=0xB009), LIMITS).begin()
        found += [f"{operation}: {path.name} is not finished" for path in folder.glob(".events-*")]
        lines = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
        sound = [line for line in lines if "\0" not in line]
        if sound != [line for line in reported if line in sound]:
            found.append(f"{operation}: {[line[:5] for line in lines]}")
    assert found == [], "\n" + "\n".join(found)


def test_a_write_that_can_not_be_taken_back_leaves_no_half_line(tmp_path: Path) -> None:
    disk = small_disk(10)
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, disk)
    outbox = Outbox(1_000)
    outbox.put(Line(b"first"))
    files.turn(outbox, 0)
    outbox.put(Line(b"second"))
    disk.fails["truncate"] = 1
    files.turn(outbox, 0)
    disk.room_bytes = 1_000
    files.close(outbox, 0)
    assert Desk(tmp_path, ORIGIN._replace(boot_id=0xB009)).lines() == ["first", "second"]


TOPIC = "pilotfish.events"


class TopicDesk:
    """A sink over a fake producer, and an outbox for it."""

    def __init__(self, *, holds: bool = False, max_bytes: int = 100_000_000) -> None:
        self.calls = 0
        self.producer = FakeProducer(holds_records=holds)
        self.outbox = Outbox(max_bytes)
        self.topic = EventTopic(
            self.producer, TOPIC, "pod-1", delivery_timeout_ms=120_000, create=False, call=self._call
        )
        self.topic.begin()

    def _call(self) -> None:
        self.calls += 1

    def send(self, *texts: str) -> None:
        for text in texts:
            self.outbox.put(Line(text.encode()))
        self.turn()

    def turn(self) -> None:
        self.topic.turn(self.outbox, self.producer.clock.now_ms())

    def values(self) -> list[str]:
        return [(record.value or b"").decode() for records in self.producer.submitted for record in records]


def failing(error: KafkaError) -> Any:
    return lambda *_: RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 5)


def missing() -> KafkaError:
    error = TimeoutError(f"Topic {TOPIC} not present in metadata after {TOPIC_WAIT_MS} ms.")
    error.__cause__ = UnknownTopicOrPartitionError()
    return error


def test_lines_become_records_keyed_by_the_sidecar_and_are_written_when_they_are_acknowledged() -> None:
    desk = TopicDesk()
    assert desk.producer.state == "running"
    desk.send("one", "two")
    (records,) = desk.producer.submitted
    assert [(record.topic, record.key, record.value) for record in records] == [
        (TOPIC, b"pod-1", b"one"),
        (TOPIC, b"pod-1", b"two"),
    ]
    ((_, asked),) = desk.producer.calls
    assert asked["block_deadline_ms"] == desk.producer.clock.now_ms() + TOPIC_WAIT_MS
    assert asked["create"] is False
    assert desk.calls == 1  # the log is called: it may have more
    desk.turn()
    assert (desk.topic.written, desk.topic.in_flight_bytes) == (2, 0)


def test_only_so_much_is_on_its_way_and_the_rest_waits() -> None:
    desk = TopicDesk(holds=True)
    text = "x" * (CHUNK_BYTES // 4)
    desk.send(*[text] * 100)
    assert desk.topic.in_flight_bytes == MOST_IN_FLIGHT_BYTES
    assert len(desk.outbox) == 100 - 4 * 8
    desk.producer.acknowledge(desk.producer.waiting[0])
    desk.turn()
    assert desk.topic.in_flight_bytes == MOST_IN_FLIGHT_BYTES
    assert desk.topic.written == 4


def test_lines_that_could_not_be_sent_go_back_as_the_oldest_and_are_tried_again_after_a_pause() -> None:
    desk = TopicDesk()
    desk.producer.outcome_of = failing(NetworkError("the connection broke"))
    desk.send("one", "two")
    desk.send("three")  # hears of the failure
    assert desk.outbox.take(1_000) == [Line(b"one"), Line(b"two"), Line(b"three")]
    desk.outbox.put_back([Line(b"one"), Line(b"two"), Line(b"three")])
    desk.producer.outcome_of = None
    desk.producer.clock.advance(PAUSE_MS - 1)
    desk.turn()
    assert desk.values() == ["one", "two"]
    desk.producer.clock.advance(1)
    desk.turn()
    assert desk.values() == ["one", "two", "one", "two", "three"]


def test_a_missing_topic_is_logged_once_with_its_remedy_and_once_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    desk = TopicDesk()
    desk.producer.outcome_of = failing(missing())
    desk.send("one")
    for _ in range(3):
        desk.producer.clock.advance(PAUSE_MS)
        desk.turn()
    assert caplog.text.count("it does not exist: create it (docs/events.md); events wait") == 1
    desk.producer.outcome_of = None
    desk.producer.clock.advance(PAUSE_MS)
    desk.turn()
    desk.turn()
    assert desk.topic.written == 1
    desk.send("two", "three")
    desk.turn()
    assert caplog.text.count("events are acknowledged again") == 1
    desk.producer.outcome_of = failing(missing())
    desk.send("four")
    desk.turn()
    assert caplog.text.count("it does not exist: create it (docs/events.md); events wait") == 2


def test_while_the_topic_takes_nothing_the_oldest_lines_are_given_up() -> None:
    desk = TopicDesk(max_bytes=10)
    desk.producer.outcome_of = failing(NetworkError("the connection broke"))
    for n in range(20):
        desk.send(f"{n:03d}")
    assert desk.outbox.waiting_bytes <= 10
    assert desk.outbox.dropped == 17
    assert desk.topic.in_flight_bytes == 0


def only_the_second_fails(error: KafkaError) -> Any:
    return lambda index, record: failing(error)() if index == 1 else FakeProducer.receipt(index, record)


def test_of_a_submit_only_what_failed_is_sent_again() -> None:
    desk = TopicDesk()
    desk.producer.outcome_of = only_the_second_fails(NetworkError("the connection broke"))
    desk.send("one", "two", "three")
    desk.turn()
    assert (desk.outbox.take(1_000), desk.topic.written) == ([Line(b"two")], 2)


@pytest.mark.parametrize("error", [RecordTooLargeError("too large"), InvalidRecordError("no key")])
def test_a_line_that_no_broker_takes_is_lost_alone(
    caplog: pytest.LogCaptureFixture, error: KafkaError
) -> None:
    desk = TopicDesk()
    desk.producer.outcome_of = only_the_second_fails(error)
    desk.send("one", "two", "three")
    desk.turn()
    assert (desk.topic.written, len(desk.outbox), desk.outbox.dropped) == (2, 0, 1)
    assert "an event was refused and is lost" in caplog.text


class Narrow(FakeProducer):
    """Takes no record of more than five bytes, as with a small max.request.size."""

    def submit(self, topic: str, records: Any, **asked: Any) -> Any:
        if any(len(record.value) > 5 for record in records):
            raise RecordTooLargeError("too large")
        return super().submit(topic, records, **asked)


def test_a_line_that_is_too_large_for_a_request_does_not_take_others_along() -> None:
    producer, outbox = Narrow(), Outbox(1_000)
    topic = EventTopic(producer, TOPIC, "pod-1", delivery_timeout_ms=1, create=False, call=lambda: None)
    for text in (b"one", b"too large", b"three"):
        outbox.put(Line(text))
    topic.turn(outbox, 0)
    topic.turn(outbox, 0)
    assert [record.value for records in producer.submitted for record in records] == [b"one", b"three"]
    assert (topic.written, topic.in_flight_bytes, outbox.dropped) == (2, 0, 1)


def test_an_exception_after_a_line_that_was_too_large_loses_no_other_line() -> None:
    class Short(FakeProducer):
        """Takes one line at a time, and has no memory for the second one."""

        lacks = True

        def submit(self, topic: str, records: Any, **asked: Any) -> Any:
            if len(records) > 1:
                raise RecordTooLargeError("too large")
            if self.lacks and records[0].value == b"two":
                raise MemoryError
            return super().submit(topic, records, **asked)

    producer, outbox = Short(), Outbox(1_000)
    topic = EventTopic(producer, TOPIC, "pod-1", delivery_timeout_ms=1, create=False, call=lambda: None)
    for text in (b"one", b"two", b"three"):
        outbox.put(Line(text))
    with pytest.raises(MemoryError):
        topic.turn(outbox, 0)
    assert len(outbox) == 2
    producer.lacks = False
    topic.turn(outbox, 0)
    topic.turn(outbox, 0)
    values = [record.value for records in producer.submitted for record in records]
    assert (values, topic.in_flight_bytes, len(outbox)) == ([b"one", b"two", b"three"], 0, 0)


def test_lines_that_an_exception_keeps_from_being_submitted_are_submitted_in_the_next_turn() -> None:
    desk = TopicDesk()
    desk.producer.refuses = MemoryError()
    with pytest.raises(MemoryError):
        desk.send("one", "two")
    assert (desk.topic.in_flight_bytes, len(desk.outbox)) == (0, 2)
    desk.producer.refuses = None
    desk.send("three")
    assert (desk.values(), len(desk.outbox)) == (["one", "two", "three"], 0)


def test_results_that_memory_was_lacking_for_are_read_in_the_next_turn() -> None:
    class NotAtOnce:
        """A result whose outcomes do not fit into memory at the first time."""

        error = None
        any_acknowledged = True

        def __init__(self) -> None:
            self.reads = 0

        @property
        def outcomes(self) -> list[Any]:
            self.reads += 1
            if self.reads == 1:
                raise MemoryError
            return [RecordMetadata(TOPIC, 0, 7, 17)]

    desk = TopicDesk(holds=True)
    for text in ("one", "two"):
        desk.send(text)
    first, second = desk.producer.waiting
    error = NetworkError("the connection broke")
    desk.producer.finish(first, FakeResult([RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 5)]))
    desk.producer.finish(second, NotAtOnce())
    with pytest.raises(MemoryError):
        desk.turn()
    assert len(desk.outbox) == 1
    desk.turn()
    assert (desk.topic.written, desk.topic.in_flight_bytes) == (1, 0)
    desk.producer.holds_records = False
    desk.producer.clock.advance(PAUSE_MS)
    desk.turn()
    assert desk.values() == ["one", "two", "one"]


# -- the end -------------------------------------------------------------------------------------------------


def test_at_the_end_all_is_submitted_and_the_producer_closed_within_what_is_left() -> None:
    desk = TopicDesk()
    for n in range(100):
        desk.outbox.put(Line(b"%0100d" % n))
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 700)
    assert len(desk.values()) == desk.topic.written == 100
    assert desk.producer.closed_after_ms == 700


def test_at_the_end_lines_that_wait_for_the_end_of_a_pause_are_submitted_once_more() -> None:
    desk = TopicDesk()
    desk.producer.outcome_of = failing(NetworkError("the connection broke"))
    desk.send("one")
    desk.turn()
    desk.producer.outcome_of = None
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 700)
    assert (len(desk.outbox), desk.topic.written) == (0, 1)


def test_lines_that_close_gives_up_are_in_the_outbox_again() -> None:
    desk = TopicDesk(holds=True)
    desk.producer.outcome_of = failing(NetworkError("closed"))
    desk.send("one", "two")
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 700)
    assert (len(desk.outbox), desk.topic.in_flight_bytes) == (2, 0)


def test_a_topic_that_took_nothing_before_gets_a_second_at_the_end_and_no_more() -> None:
    desk = TopicDesk()
    desk.producer.outcome_of = failing(missing())
    desk.send("one")
    desk.turn()
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 20_000)
    assert desk.producer.closed_after_ms == 1_000


def of(**kafka: str) -> Any:
    given = {name.replace("_", "."): value for name, value in kafka.items()}
    return events_config(Settings(kafka={"bootstrap.servers": "broker:9092", **given}))


def test_its_settings_are_the_sidecars_but_for_how_batches_are_made() -> None:
    config = of(acks="1", request_timeout_ms="4000", compression_type="lz4", partitioner_ignore_keys="true")
    assert (config.acks, config.request_timeout_ms) == ("1", 4_000)
    assert (config.compression_type, config.linger_ms) == ("zstd", 1_000)
    assert config.buffer_memory == 4 * MOST_IN_FLIGHT_BYTES
    assert config.client_id == "producer-1-events"
    assert not config.partitioner_ignore_keys
    assert of(client_id="checkout").client_id == "checkout-events"
    # Where the delivery timeout leaves no second, it lingers less.
    config = of(delivery_timeout_ms="2500", request_timeout_ms="2000")
    assert (config.linger_ms, config.delivery_timeout_ms) == (500, 2_500)
