"""A caller's bytes are never taken for the spool's own, whatever of a file is damaged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from client_core import InvalidRecordError, ProducerRecord, TopicAuthorizationError
from service.spool.dead_letters import dead_letters_in
from service.spool.entry import SALT_BYTES, frame_at, frame_of, new_salt, next_frame, payload_of
from tests.support.spooling import SpoolRig, failure, record, salt_of

if TYPE_CHECKING:
    from pathlib import Path

STOLEN = payload_of(ProducerRecord("secrets", b"stolen"), 1)


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    rig = SpoolRig(tmp_path / "spool")
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    return rig


def holding(frame: bytes) -> ProducerRecord:
    """A record that its sender may send, with a frame in its value."""
    return ProducerRecord("orders", b"before" + frame + b"after")


def damage_before(path: Path, frame: bytes) -> None:
    """Spoils the bytes around a frame that stands in a record's value, but not the frame."""
    data = bytearray(path.read_bytes())
    at = data.index(frame)
    data[at - 3] ^= 0xFF
    path.write_bytes(bytes(data))


def spoiled(rig: SpoolRig, frame: bytes) -> SpoolRig:
    """The next process over a file of three records, of which the second, with this frame, is damaged."""
    for one in (holding(frame), record("last")):
        rig.spool_in([one])
    damage_before(rig.segments[0], frame)
    rig = rig.again()
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    rig.deliver()
    return rig


def test_a_frame_in_a_value_is_not_delivered_where_the_bytes_before_it_are_damaged(rig: SpoolRig) -> None:
    rig.spool_in([record("first")])
    # All that a caller can know: the format, and which number comes next.
    rig = spoiled(rig, frame_of(bytes(SALT_BYTES), 2, STOLEN))
    assert rig.sent == ["first", "last"]
    assert rig.spool.delivery.lost == 1


def test_nor_is_one_that_was_made_for_an_earlier_file(rig: SpoolRig) -> None:
    rig.spool_in([record("first")])
    frame = frame_of(salt_of(rig.segments[0]), 2, STOLEN)
    rig = rig.again()
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    rig.spool_in([holding(frame), record("last")])
    damage_before(rig.segments[1], frame)
    rig.deliver()
    assert rig.sent == ["first", "last"]
    assert rig.spool.delivery.lost == 1


def test_only_with_the_salt_of_its_file_it_would_be_one(rig: SpoolRig) -> None:
    """What the two tests above rest upon: all else of the frame is as it has to be."""
    rig.spool_in([record("first")])
    rig = spoiled(rig, frame_of(salt_of(rig.segments[0]), 2, STOLEN))
    assert rig.sent.count("stolen") == 1


def test_a_frame_of_one_file_is_none_in_another(rig: SpoolRig) -> None:
    rig.spool_in([record("a")])
    rig = rig.again()
    rig.spool_in([record("b")])
    first, second = rig.segments
    assert salt_of(first) != salt_of(second)
    assert frame_at(salt_of(first), first.read_bytes(), 0) is not None
    assert frame_at(salt_of(second), first.read_bytes(), 0) is None
    assert next_frame(salt_of(second), first.read_bytes() + second.read_bytes(), 0) is not None
    assert next_frame(salt_of(second), first.read_bytes() * 2, 0) is None


def test_both_halves_of_the_salt_are_looked_at() -> None:
    salt = new_salt()
    frame = frame_of(salt, 1, STOLEN)
    for half in (0, SALT_BYTES // 2):
        other = bytearray(salt)
        other[half] ^= 1
        assert frame_at(bytes(other), frame, 0) is None


def test_a_frame_in_a_value_is_not_put_back_from_what_was_set_aside(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    frame = frame_of(bytes(SALT_BYTES), 1, STOLEN)
    rig.spool_in([holding(frame), record("second")])
    rig.wait_out()
    (path,) = (rig.folder / "aside").glob("*.records")
    damage_before(path, frame)
    ((left,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert left.sequence == 2


def test_a_value_holds_no_heads_of_frames(rig: SpoolRig) -> None:
    """Behind damage each head has all summed up that it promises: many that promise much would take hours."""
    rig.spool_in([record("first")])
    heads = b"\xf5PFS\x00\x0f\x00\x00" * 10_000
    rig.spool_in([ProducerRecord("orders", heads)])
    data = rig.segments[0].read_bytes()
    assert data.count(salt_of(rig.segments[0])[: SALT_BYTES // 2]) == 2


def test_no_log_tells_the_salt(rig: SpoolRig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        rig.spool_in([record("first")])
        salt = salt_of(rig.segments[0])
        rig = spoiled(rig, frame_of(bytes(SALT_BYTES), 2, STOLEN))
        path = rig.segments[0]
        path.write_bytes(path.read_bytes() + b"torn")
        rig.again().let_go()
    assert "is damaged" in caplog.text
    assert "bytes cut off" in caplog.text
    assert salt.hex() not in caplog.text


# -- what was set aside lies in few files --------------------------------------------------------------------


def test_however_many_records_and_topics_are_set_aside_they_lie_in_few_files(rig: SpoolRig) -> None:
    topics = {f"topic-{number}": 1 for number in range(300)}
    rig.producer.set_topics(topics)
    rig.producer.outcome_of = lambda *_: failure(InvalidRecordError())
    rig.spool_in([record("x", topic) for topic in topics])
    rig.wait_out()
    assert rig.spool.aside.records == 300
    assert len(list((rig.folder / "aside").iterdir())) == 1


def test_what_a_broker_says_is_kept_in_short(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError("no" * 5_000))
    rig.spool_in([record(f"{n}") for n in range(3)])
    rig.wait_out()
    assert rig.spool.aside.total_bytes < 1_500


def test_a_file_that_was_taken_away_meanwhile_is_begun_anew(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in([record("a")])
    rig.wait_out()
    (path,) = (rig.folder / "aside").iterdir()
    path.unlink()
    rig.spool_in([record("b")])
    rig.wait_out()
    ((left,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert left.sequence == 2
