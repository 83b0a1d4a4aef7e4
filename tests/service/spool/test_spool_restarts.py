"""A restart while a topic lags: what was delivered stays delivered, and the counts are right at once."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from client_core import NotEnoughReplicasError, TopicAuthorizationError
from service.spool.delivery import MARK_EVERY_MS
from service.spool.folder import FolderInUseError, FolderTakenError, Mark, SpoolFolder, read_mark
from service.spool.writer import Spooled, SpoolFault
from tests.support.spooling import SpoolRig, dead_letters_of, failure, record, records

if TYPE_CHECKING:
    from pathlib import Path

    from client_core import ProducerRecord
    from tests.support.fake_producer import Outcome

#: One is read at once, and sixteen in one turn of the delivery.
LARGE = record("x" * 300_000)


def lag(rig: SpoolRig) -> None:
    """Only records of `orders` are acknowledged from now on."""

    def report(index: int, one: ProducerRecord) -> Outcome:
        is_stored = one.topic == "orders"
        return rig.producer.receipt(index, one) if is_stored else failure(NotEnoughReplicasError())

    rig.producer.outcome_of = report


def again(rig: SpoolRig) -> SpoolRig:
    """The next process, in which the same topics lag."""
    rig = rig.again()
    lag(rig)
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    """A spool with one record that waits, and fifty behind it that are delivered."""
    rig = SpoolRig(tmp_path / "spool")
    lag(rig)
    rig.spool_in([record("waits", "payments")])
    rig.spool_in(records(50))
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(52, {"payments": 1}, 1)
    return rig


def test_a_process_that_ends_at_once_leaves_the_mark_as_it_was(rig: SpoolRig) -> None:
    rig = again(rig)
    rig.spool.delivery.close(0)
    rig = again(rig)
    rig.settle()
    assert set(rig.sent) == {"waits"}
    assert read_mark(rig.folder, rig.disk) == Mark(52, {"payments": 1}, 1)


def test_a_process_that_is_killed_before_it_has_read_the_delivered_records_does_not_have_them_sent_again(
    tmp_path: Path,
) -> None:
    rig = SpoolRig(tmp_path / "spool")
    lag(rig)
    rig.spool_in([record("waits", "payments")])
    for _ in range(40):
        rig.spool_in([LARGE])
    rig.settle()
    rig = again(rig)
    rig.spool.delivery.turn(rig.clock.now_ms())
    rig.clock.advance(MARK_EVERY_MS)
    rig.spool.delivery.turn(rig.clock.now_ms())
    assert read_mark(rig.folder, rig.disk) == Mark(42, {"payments": 1}, 1)
    rig = again(rig)
    rig.spool_in([record("next")])
    rig.settle()
    assert set(rig.sent) == {"waits", "next"}


def test_a_topic_that_is_delivered_while_others_are_still_unread_is_not_delivered_again(
    rig: SpoolRig,
) -> None:
    """Its own later records may be unread, too: those are still to be delivered."""
    for _ in range(20):
        rig.spool_in([LARGE])
    rig.spool_in([record("later", "payments")])
    rig.settle()
    rig = rig.again()
    rig.spool.delivery.turn(rig.clock.now_ms())
    rig.spool.delivery.close(0)  # "waits" is acknowledged, and "later" was not read
    assert rig.sent == ["waits"]
    found = read_mark(rig.folder, rig.disk)
    assert (found.done, found.undone) == (73, 1)
    assert 1 < found.behind["payments"] < 72
    rig = rig.again()
    rig.settle()
    assert rig.sent == ["later"]
    assert read_mark(rig.folder, rig.disk) == Mark(73)


def test_what_waits_is_counted_right_before_anything_was_read(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = again(rig)
    assert rig.spool.entries == 1
    caplog.set_level(logging.INFO, "service.spool.spool")
    rig.spool.start(lambda function: function())
    rig.spool.close(10_000)
    assert f"spool: 1 records of {rig.folder} are to be delivered" in caplog.text


def test_without_its_files_it_waits_for_new_records_and_turns_no_more(rig: SpoolRig) -> None:
    """Somebody deleted them all to give up what waits, and left the mark."""
    for path in rig.segments:
        path.unlink()
    rig = again(rig)
    rig.settle()
    assert (rig.sent, rig.spool.entries) == ([], 0)
    rig.spool_in([record("next")])
    rig.settle()
    assert rig.sent == ["next"]


# -- a folder that somebody empties or moves while the sidecar runs ------------------------------------------


def test_records_that_come_after_the_folder_was_emptied_are_delivered(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in([record("before")])
    rig.settle()
    for path in rig.segments:
        path.unlink()
    assert rig.spool_in([record("after")]) == Spooled(2, 1)
    rig.deliver()
    assert (rig.sent, rig.spool.delivery.lost) == (["before", "after"], 0)


def test_while_the_folder_is_moved_away_records_are_refused_and_later_ones_delivered(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in([record("before")])
    rig.settle()
    rig.folder.rename(tmp_path / "moved")
    assert rig.spool_in([record("refused")]) == SpoolFault(
        "the spool could not store the records: begin a file: No such file or directory", "no"
    )
    rig.folder.mkdir()
    assert rig.spool_in([record("after")]) == Spooled(2, 1)
    rig.settle()
    assert (rig.sent, rig.spool.delivery.lost) == (["before", "after"], 0)
    assert read_mark(rig.folder, rig.disk) == Mark(3)


@pytest.mark.parametrize("deleted", ["lock", "*"])
def test_a_sidecar_that_has_lost_its_lock_to_another_accepts_and_delivers_nothing_more(
    tmp_path: Path, deleted: str
) -> None:
    """Else the mark of one would cover undelivered records of the other."""
    first = SpoolRig(tmp_path / "spool")
    first.spool_in(records(5))
    first.settle()
    first.spool_in([record("before")])
    for path in first.folder.glob(deleted):
        if path.is_file():
            path.unlink()
    second = SpoolRig(first.folder)
    assert isinstance(second.spool_in([record("second")]), Spooled)
    assert first.spool_in([record("refused")]) == SpoolFault(
        "the spool could not store the records: begin a file: another process uses the folder, because its "
        "file `lock` was replaced",
        "no",
    )
    with pytest.raises(FolderTakenError):
        first.deliver()
    first.spool.close(1_000)
    second = second.again()
    second.deliver()
    assert second.sent == (["before", "second"] if deleted == "lock" else ["second"])


def test_a_deleted_lock_is_made_again_before_the_next_record_is_written(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    (rig.folder / "lock").unlink()
    rig.spool_in([record("after")])
    with pytest.raises(FolderInUseError):
        SpoolFolder(rig.folder)
    rig.settle()
    assert rig.sent == ["after"]


def test_a_dead_letter_that_comes_after_the_folder_was_emptied_is_kept(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    for value in ("before", "after"):
        rig.spool_in([record(value)])
        rig.wait_out()
        rig.settle()
        assert dead_letters_of(rig) == [(value, "forbidden")]
        shutil.rmtree(rig.folder / "aside")


def test_a_dead_letter_is_kept_where_only_earlier_dead_letters_were_left_of_the_folder(
    tmp_path: Path,
) -> None:
    """Its number is none of theirs: a number that is there already is not stored again."""
    rig = SpoolRig(tmp_path / "spool")
    for value in ("before", "after"):
        rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
        rig.spool_in([record(value)])
        rig.wait_out()
        for path in (*rig.segments, rig.folder / "mark.json"):
            path.unlink(missing_ok=True)
        rig = rig.again()
    assert dead_letters_of(rig) == [("before", "forbidden"), ("after", "forbidden")]
