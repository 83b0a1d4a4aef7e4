"""The judge finds each kind of broken promise, and nothing where none is broken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.history import Attempt, History, Told
from tests.chaos.judge import judge
from tests.support.kafka_admin import ReadRecord


def attempt(number: int, told: Told = Told.STORED, **changes: Any) -> Attempt:
    """Of one caller and key, in partition 0 at the offset of its number unless changed."""
    given: dict[str, Any] = {
        "caller": "a",
        "number": number,
        "key": b"k",
        "value": b"a-%d" % number,
        "asked_partition": None,
        "sent_ms": 1_000 + number,
        "ended_ms": 1_000 + number + 1,
        "told": told,
    }
    if told is Told.STORED:
        given |= {"partition": 0, "offset": number}
    return Attempt(**given | changes)


def stored(offset: int, value: bytes, *, partition: int = 0, key: bytes = b"k") -> ReadRecord:
    return ReadRecord(partition, offset, key, value, (), 0, "CreateTime")


def test_what_is_there_as_it_was_answered_breaks_no_promise() -> None:
    verdict = judge([attempt(0), attempt(1)], [stored(0, b"a-0"), stored(1, b"a-1")])
    assert (verdict.acknowledged, verdict.broken_promises, verdict.duplicated) == (2, 0, 0)
    assert verdict.sentences == ()


@pytest.mark.parametrize("told", [Told.STORED, Told.TAKEN])
def test_an_acknowledged_record_that_is_not_there_is_lost(told: Told) -> None:
    verdict = judge([attempt(0, told)], [])
    assert verdict.lost == verdict.broken_promises == 1
    assert "a-0" in verdict.sentences[0]


@pytest.mark.parametrize("told", [Told.UNKNOWN, Told.UNANSWERED])
def test_a_record_whose_end_nobody_knows_may_be_there_or_not(told: Told) -> None:
    assert judge([attempt(0, told)], []).broken_promises == 0
    assert judge([attempt(0, told)], [stored(0, b"a-0")]).broken_promises == 0


def test_a_record_that_was_said_not_to_be_written_must_not_be_there() -> None:
    assert judge([attempt(0, Told.NOT_WRITTEN)], []).broken_promises == 0
    assert judge([attempt(0, Told.NOT_WRITTEN)], [stored(0, b"a-0")]).denied == 1


def test_a_record_that_was_sent_again_may_be_there_by_its_other_attempt() -> None:
    again = [attempt(0, Told.NOT_WRITTEN), attempt(0)]
    assert judge(again, [stored(0, b"a-0")]).broken_promises == 0


def test_a_second_copy_is_a_duplicate_and_no_broken_promise_by_itself() -> None:
    verdict = judge([attempt(0)], [stored(0, b"a-0"), stored(7, b"a-0")])
    assert (verdict.duplicated, verdict.broken_promises) == (1, 0)


@pytest.mark.parametrize("place", [(0, 5), (1, 0)])
def test_an_answer_that_names_another_place_is_misplaced(place: tuple[int, int]) -> None:
    verdict = judge([attempt(0, partition=place[0], offset=place[1])], [stored(0, b"a-0")])
    assert verdict.misplaced == 1


def test_another_key_or_partition_than_asked_for_is_altered_even_where_the_answer_was_a_failure() -> None:
    assert judge([attempt(0, Told.UNKNOWN)], [stored(0, b"a-0", key=b"other")]).altered == 1
    asked = attempt(0, Told.UNKNOWN, asked_partition=2)
    assert judge([asked], [stored(0, b"a-0")]).altered == 1
    assert judge([asked], [stored(0, b"a-0", partition=2)]).altered == 0


def test_a_value_that_nobody_sent_is_a_stranger_unless_it_is_known_to_be_anothers() -> None:
    read = [stored(0, b"java-1")]
    assert judge([], read).strangers == 1
    assert judge([], read, is_foreign=lambda record: record.value == b"java-1").strangers == 0


def test_records_of_a_key_that_change_places_are_disordered() -> None:
    swapped = [attempt(0, offset=1), attempt(1, offset=0)]
    assert judge(swapped, [stored(0, b"a-1"), stored(1, b"a-0")]).disordered == 1


def test_order_is_not_asked_for_across_keys_callers_partitions_or_of_what_was_not_acknowledged() -> None:
    read = [stored(0, b"a-1"), stored(1, b"a-0")]
    by_key = [attempt(0, offset=1, key=b"x"), attempt(1, offset=0)]
    assert judge(by_key, [read[0], stored(1, b"a-0", key=b"x")]).broken_promises == 0
    assert judge([attempt(0, offset=1, caller="b"), attempt(1, offset=0)], read).broken_promises == 0
    assert judge([attempt(0, Told.UNKNOWN), attempt(1, offset=0)], read).broken_promises == 0
    apart = [attempt(0, offset=1), attempt(1, partition=1, offset=0)]
    assert judge(apart, [stored(0, b"a-1", partition=1), stored(1, b"a-0")]).broken_promises == 0


def test_order_is_that_of_first_copies() -> None:
    spooled = [attempt(0, Told.TAKEN), attempt(1, Told.TAKEN)]
    read = [stored(0, b"a-0"), stored(1, b"a-1"), stored(2, b"a-0"), stored(3, b"a-1")]
    verdict = judge(spooled, read)
    assert (verdict.disordered, verdict.duplicated) == (0, 2)


def test_of_a_topic_that_was_deleted_only_what_was_sent_since_is_asked_for() -> None:
    attempts = [attempt(0), attempt(1, offset=0)]
    verdict = judge(attempts, [stored(0, b"a-1")], kept_since_ms=1_001)
    assert verdict.broken_promises == 0
    assert judge(attempts, [], kept_since_ms=1_001).lost == 1


def test_a_history_counts_what_was_sent_and_acknowledged_since() -> None:
    history = History()
    history.add([attempt(0), attempt(1), attempt(2, Told.UNKNOWN), attempt(3, caller="b")])
    assert history.acknowledged_since(1_001) == {"a": 1, "b": 1}
