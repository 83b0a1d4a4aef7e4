"""What a process makes of the spool that another left: the mark, what a crash took, what a full disk kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import FOREVER_MS, TopicAuthorizationError
from service.spool.delivery import MARK_EVERY_MS
from service.spool.folder import Mark, read_mark
from tests.support.spooling import SpoolRig, aside, fail_values, failure, record, records, timed_out

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


def test_what_was_not_delivered_is_delivered_by_the_next_process(rig: SpoolRig) -> None:
    rig.producer.holds_records = True
    rig.spool_in(records(5))
    rig.deliver()
    rig = rig.again()
    assert rig.spool.entries == 5
    rig.deliver()
    assert rig.sent == [f"orders-{n}" for n in range(5)]


def test_what_was_delivered_is_not_sent_again_once_the_mark_is_written(rig: SpoolRig) -> None:
    rig.spool_in(records(5))
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(6)
    rig = rig.again()
    rig.deliver()
    assert (rig.sent, rig.spool.entries) == ([], 0)


def test_the_mark_is_kept_by_topic(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), "orders-0")
    rig.spool_in([*records(1), *records(3, "payments")])
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(5, {"orders": 1}, 1)
    rig = rig.again()
    rig.settle()
    assert rig.sent == ["orders-0"]
    assert read_mark(rig.folder, rig.disk) == Mark(5)


def test_a_mark_that_can_not_be_read_has_all_delivered_again(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.spool_in(records(2))
    rig.deliver_after(1_000)
    (rig.folder / "mark.json").write_text('{"done":')
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1"]
    assert "mark.json is damaged" in caplog.text


def test_numbers_that_were_delivered_are_never_given_again(rig: SpoolRig) -> None:
    """A crash of the machine took from the end of a file what the mark says is delivered."""
    rig.spool_in(records(2))
    rig.deliver_after(1_000)
    rig.segments[0].write_bytes(b"")
    rig = rig.again()
    rig.spool_in([record("new")])
    rig.deliver()
    assert rig.sent == ["new"]


def test_what_a_crash_took_is_no_damage_where_it_was_delivered_while_another_topic_lags(
    rig: SpoolRig,
) -> None:
    fail_values(rig, timed_out(), "orders-0", "orders-1")
    rig.spool_in(records(2))
    kept = rig.segments[0].stat().st_size
    rig.spool_in(records(3, "payments"))
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(6, {"orders": 1}, 2)
    with rig.segments[0].open("r+b") as file:
        file.truncate(kept)
    rig = rig.again()
    rig.spool_in([record("new")])
    rig.settle()
    assert rig.sent == ["orders-0", "orders-1", "new"]
    assert (rig.spool.delivery.lost, rig.spool.aside.damaged_files) == (0, 0)


def test_what_a_crash_took_is_lost_where_it_was_not_delivered(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), "orders-0", "orders-1")
    rig.spool_in(records(1))
    kept = rig.segments[0].stat().st_size
    rig.spool_in([*records(2)[1:], *records(3, "payments")])
    rig.settle()
    with rig.segments[0].open("r+b") as file:
        file.truncate(kept)
    rig = rig.again()
    rig.spool_in([record("new")])
    rig.settle()
    assert rig.sent == ["orders-0", "new"]
    assert (rig.spool.delivery.lost, rig.spool.aside.damaged_files) == (1, 1)


def test_files_go_when_all_in_them_is_delivered_and_the_mark_says_so(rig: SpoolRig) -> None:
    rig.spool_in(records(2))
    rig = rig.again()
    rig.spool_in([record("next")])
    rig.deliver()
    assert len(rig.segments) == 2
    rig.deliver_after(1_000)
    assert len(rig.segments) == 1


def test_a_mark_that_can_not_be_written_costs_nothing_and_is_logged(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.spool_in(records(2))
    rig.deliver()
    rig.disk.fails["create"] = 1
    rig.deliver_after(1_000)
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert "can't tidy up: no create here; records wait" in caplog.text
    rig.spool_in([record("next")])
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(4)
    assert rig.sent == ["orders-0", "orders-1", "next"]


def test_a_mark_whose_write_failed_is_written_when_the_delivery_wakes_by_itself(rig: SpoolRig) -> None:
    """Nothing else wakes it: all is delivered, and nobody sends anything."""
    rig.spool_in(records(2))
    rig.deliver()
    rig.disk.fails["create"] = 1
    rig.clock.advance(MARK_EVERY_MS)
    due_ms = rig.spool.delivery.turn(rig.clock.now_ms())
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert due_ms == rig.clock.now_ms() + MARK_EVERY_MS
    rig.clock.advance(due_ms - rig.clock.now_ms())
    assert rig.spool.delivery.turn(due_ms) == FOREVER_MS
    assert read_mark(rig.folder, rig.disk) == Mark(3)


def test_a_full_disk_gets_room_from_what_is_delivered_though_no_mark_can_be_written(rig: SpoolRig) -> None:
    for value in ("a", "b", "c"):
        rig.spool_in([record(value)])
        rig = rig.again()
    rig.deliver()
    rig.disk.room_bytes = 0
    rig.deliver_after(MARK_EVERY_MS)
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert len(rig.segments) == 1
    rig.disk.room_bytes = None
    rig = rig.again()
    rig.settle()
    assert rig.sent == ["c"]
    assert rig.spool.delivery.lost == 0
    assert read_mark(rig.folder, rig.disk) == Mark(4)


def test_nothing_that_is_to_be_delivered_goes_to_make_room(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), "b")
    for value in ("a", "b", "c"):
        rig.spool_in([record(value)])
        rig = rig.again()
    fail_values(rig, timed_out(), "b")
    rig.deliver()
    rig.disk.room_bytes = 0
    rig.deliver_after(MARK_EVERY_MS)
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["b", "c"]


def test_a_full_disk_keeps_a_record_from_being_set_aside_and_neither_loses_it_nor_stops_others(
    rig: SpoolRig,
) -> None:
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in([*records(1), *records(2, "payments")])
    rig.disk.room_bytes = 0
    rig.wait_out()
    assert (aside(rig), rig.spool.entries, rig.spool.delivery.delivered) == ([], 1, 2)
    assert list((rig.folder / "aside").iterdir()) == []
    rig.disk.room_bytes = None
    rig.deliver_after(1_000)
    assert (aside(rig), rig.spool.entries) == ([("orders-0", "forbidden")], 0)


def test_a_mark_whose_numbers_the_disk_changed_has_all_delivered_again(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.spool_in(records(2))
    rig.settle()
    rig.spool_in([record("next")])
    path = rig.folder / "mark.json"
    path.write_text(path.read_text().replace('"done":3', '"done":4'))
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1", "next"]
    assert "mark.json is damaged (its checksum is another)" in caplog.text


@pytest.mark.parametrize("junk", [b"", b"\xff", b'{"done":"\xff"}', b"[]", b'{"done":1e99}', b"{" * 100_000])
def test_a_mark_of_junk_is_as_good_as_none(rig: SpoolRig, junk: bytes) -> None:
    (rig.folder / "mark.json").write_bytes(junk)
    assert read_mark(rig.folder, rig.disk) == Mark()
