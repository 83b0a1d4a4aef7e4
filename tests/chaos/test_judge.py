"""The judge finds each kind of broken promise, and nothing where none is broken."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.chaos.duplicates import Circumstances, Rule
from tests.chaos.history import Attempt, History, Lag, Outcome
from tests.chaos.judge import BROKEN, LATE_MS, gap_sentence, judge
from tests.chaos.trace import BatchId, WireTrace
from tests.support.kafka_admin import ReadRecord


def attempt(number: int, reported: Outcome = Outcome.STORED, **changes: Any) -> Attempt:
    """Of one caller and key, in partition 0 at the offset of its number unless changed."""
    given: dict[str, Any] = {
        "caller": "a",
        "number": number,
        "key": b"k",
        "value": b"#a/%d#" % number,
        "asked_partition": None,
        "sent_ms": 1_000 + number,
        "ended_ms": 1_000 + number + 1,
        "reported": reported,
    }
    if reported is Outcome.STORED:
        given |= {"partition": 0, "offset": number}
    return Attempt(**given | changes)


def stored(offset: int, number: int, **changes: Any) -> ReadRecord:
    given: dict[str, Any] = {"partition": 0, "key": b"k", "headers": (), "timestamp_ms": 0}
    return ReadRecord(offset=offset, value=b"#a/%d#" % number, timestamp_type="CreateTime", **given | changes)


def traced(*sends: tuple[BatchId, int | None]) -> WireTrace:
    """The record 0 in these batches, with the broker's error, or None without an answer."""
    trace = WireTrace()
    for batch, error in sends:
        sent = trace.sent(1, batch, b"#a/0#")
        assert sent is not None
        if error is not None:
            trace.answered(sent, error)
    return trace


BATCH: Final = BatchId(0, 7, 0, 5)
LATER: Final = BATCH._replace(sequence=9)
NEXT_EPOCH: Final = BATCH._replace(epoch=1)
NEXT_LIFE: Final = BATCH._replace(producer_id=8)
NO: Final = Outcome.NOT_WRITTEN
OPEN: Final = Outcome.UNKNOWN
H: Final = ("h", b"1")

#: What was planted: attempts, what is stored, and the one kind of finding; "" for none.
HISTORIES: Final[dict[str, tuple[list[Attempt], list[ReadRecord], str]]] = {
    "as answered": ([attempt(0), attempt(1)], [stored(0, 0), stored(1, 1)], ""),
    "lost": ([attempt(0)], [], "lost"),
    "lost by the spool": ([attempt(0, Outcome.TAKEN)], [], "lost"),
    "lost by Dapr": ([attempt(0, Outcome.PLACELESS)], [], "lost"),
    "nobody knows, not there": ([attempt(0, OPEN)], [], ""),
    "nobody knows, there": ([attempt(0, Outcome.UNANSWERED)], [stored(0, 0)], ""),
    "no, and not there": ([attempt(0, NO)], [], ""),
    "no, and there": ([attempt(0, NO)], [stored(0, 0)], "denied"),
    "no, then sent again": ([attempt(0, NO), attempt(0)], [stored(0, 0)], ""),
    "wrong offset": ([attempt(0, offset=5)], [stored(0, 0)], "misplaced"),
    "wrong partition": ([attempt(0, partition=1)], [stored(0, 0)], "misplaced"),
    "another's offset": (
        [attempt(0, offset=1, lane="x"), attempt(1, lane="y")],
        [stored(0, 0), stored(1, 1)],
        "misplaced",
    ),
    "wrong key": ([attempt(0, OPEN)], [stored(0, 0, key=b"other")], "altered"),
    "not the partition asked for": ([attempt(0, OPEN, asked_partition=2)], [stored(0, 0)], "altered"),
    "the partition asked for": ([attempt(0, OPEN, asked_partition=2)], [stored(0, 0, partition=2)], ""),
    "wrong header": ([attempt(0, headers=(H,))], [stored(0, 0, headers=(("h", b"2"),))], "altered"),
    "lost header": ([attempt(0, headers=(H,))], [stored(0, 0)], "altered"),
    "header twice": ([attempt(0, headers=(H,))], [stored(0, 0, headers=(H, H))], "altered"),
    "headers swapped": (
        [attempt(0, headers=(H, ("i", b"")))],
        [stored(0, 0, headers=(("i", b""), H))],
        "altered",
    ),
    "header nobody sent": ([attempt(0)], [stored(0, 0, headers=(H,))], "altered"),
    "a dialect's own header": ([attempt(0, has_more_headers=True)], [stored(0, 0, headers=(H,))], ""),
    "a dialect's header lost": ([attempt(0, headers=(H,), has_more_headers=True)], [stored(0, 0)], "altered"),
    "wrong timestamp": ([attempt(0, timestamp_ms=9)], [stored(0, 0, timestamp_ms=8)], "altered"),
    "right timestamp": ([attempt(0, timestamp_ms=9)], [stored(0, 0, timestamp_ms=9)], ""),
    "sent by nobody": ([], [stored(0, 0)], "strangers"),
    "swapped in a request": (
        [attempt(0, offset=1), attempt(1, offset=0)],
        [stored(0, 1), stored(1, 0)],
        "disordered",
    ),
    "overtook what was answered": (
        [attempt(0, offset=1, lane="x"), attempt(1, offset=0, lane="y", sent_ms=1_002)],
        [stored(0, 1), stored(1, 0)],
        "disordered",
    ),
    "both open at once": (
        [attempt(0, offset=1, lane="x", ended_ms=1_009), attempt(1, offset=0, lane="y")],
        [stored(0, 1), stored(1, 0)],
        "",
    ),
    "of two callers": (
        [attempt(0, offset=1, caller="b"), attempt(1, offset=0)],
        [stored(0, 1), stored(1, 0)],
        "",
    ),
    "of two keys": (
        [attempt(0, offset=1, key=b"x"), attempt(1, offset=0)],
        [stored(0, 1), stored(1, 0, key=b"x")],
        "",
    ),
    "of two partitions": (
        [attempt(0, offset=1), attempt(1, offset=0, partition=1)],
        [stored(0, 1, partition=1), stored(1, 0)],
        "",
    ),
    "not acknowledged": ([attempt(0, OPEN), attempt(1, offset=0)], [stored(0, 1), stored(1, 0)], ""),
    "sent again later": (
        [
            attempt(0, Outcome.UNANSWERED, has_idempotency_key=True),
            attempt(1, lane="y"),
            attempt(0, lane="z", sent_ms=2_000, ended_ms=2_001, has_idempotency_key=True),
        ],
        [stored(0, 0), stored(1, 1)],
        "",
    ),
    "order of first copies": (
        [attempt(n, Outcome.TAKEN, caller="spool") for n in (0, 1)],
        [stored(0, 0), stored(1, 1), stored(2, 0), stored(3, 1)],
        "unattributed",
    ),
    "there twice": ([attempt(0)], [stored(0, 0), stored(7, 0)], "unattributed"),
    "late": ([attempt(0, timeout_ms=100, ended_ms=1_101 + LATE_MS)], [stored(0, 0)], "late"),
    "never answered": ([attempt(0, Outcome.UNANSWERED, timeout_ms=100, ended_ms=9_000)], [], "late"),
    "in time": ([attempt(0, timeout_ms=100, ended_ms=1_100 + LATE_MS)], [stored(0, 0)], ""),
    "without a deadline": ([attempt(0, ended_ms=90_000)], [stored(0, 0)], ""),
    "cut by its caller": (
        [attempt(0, Outcome.UNANSWERED, timeout_ms=1, ended_ms=9_000, was_cut=True)],
        [],
        "",
    ),
    "answered twice": ([attempt(0, answers=2)], [stored(0, 0)], "answered_twice"),
}


@pytest.mark.parametrize("planted", HISTORIES)
def test_a_planted_violation_is_found_and_nothing_else(planted: str) -> None:
    attempts, read, kind = HISTORIES[planted]
    outcome = judge(attempts, read)
    assert {name for name, count in outcome.counts.items() if count} == ({kind} if kind else set())
    assert bool(outcome.sentences) == bool(outcome.broken_promises) == bool(kind)


def test_every_kind_of_finding_is_planted() -> None:
    assert {kind for _, _, kind in HISTORIES.values()} == {*BROKEN, ""}


TWICE: Final = [stored(0, 0), stored(7, 0)]
AGAIN: Final = [attempt(0, Outcome.UNANSWERED), attempt(0)]
KEYED: Final = [
    attempt(0, Outcome.UNANSWERED, has_idempotency_key=True),
    attempt(0, has_idempotency_key=True),
]
SPOOLED: Final = [attempt(0, Outcome.TAKEN)]


def killed(trace: WireTrace, **more: bool) -> Circumstances:
    return Circumstances(trace, **more)


@pytest.mark.parametrize(
    ("attempts", "seen", "rule"),
    [
        (AGAIN, killed(traced((BATCH, 0), (LATER, 0))), Rule.RETRIED),
        ([attempt(0, NO), attempt(0)], killed(traced((BATCH, 0), (LATER, 0))), None),
        (KEYED, killed(traced((BATCH, 0), (LATER, 0))), None),
        (KEYED, killed(traced((BATCH, 0), (LATER, 0)), kills_sidecar=True), None),
        (KEYED, killed(traced((BATCH, 0), (NEXT_LIFE, 0))), None),
        (KEYED, killed(traced((BATCH, 0), (NEXT_LIFE, 0)), kills_sidecar=True), Rule.SIDECAR_ENDED),
        (SPOOLED, killed(traced((BATCH, 0), (NEXT_LIFE, 0))), Rule.SPOOL),
        (SPOOLED, killed(traced((BATCH, None), (LATER, 0))), Rule.SPOOL),
        (SPOOLED, killed(traced((BATCH, 0), (LATER, 0))), None),
        ([attempt(0)], killed(traced((BATCH, None), (BATCH, 0))), None),
        ([attempt(0)], killed(traced((BATCH, None), (BATCH, 0)), kills_brokers=True), Rule.BROKERS_FORGET),
        ([attempt(0)], killed(traced((BATCH, 45), (NEXT_EPOCH, 0)), kills_brokers=True), Rule.BROKERS_FORGET),
        ([attempt(0)], killed(traced((BATCH, 7), (NEXT_EPOCH, 0)), kills_brokers=True), None),
        ([attempt(0)], killed(traced((BATCH, 0), (LATER, 0)), kills_brokers=True), None),
        ([attempt(0)], killed(WireTrace(), kills_brokers=True), None),
        ([attempt(0)], killed(WireTrace(), kills_brokers=True, is_untraced=True), Rule.BROKERS_FORGET),
    ],
)
def test_a_duplicate_is_attributed_by_evidence_or_not_at_all(
    attempts: list[Attempt], seen: Circumstances, rule: Rule | None
) -> None:
    outcome = judge(attempts, TWICE, seen=seen)
    assert outcome.duplicated == 1
    assert outcome.rules == ({} if rule is None else {rule: 1})
    assert outcome.counts["unattributed"] == (rule is None)


@pytest.mark.parametrize(
    ("attempts", "seen"),
    [
        (AGAIN, killed(traced((BATCH, 0), (LATER, 0)))),
        (KEYED, killed(traced((BATCH, 0), (NEXT_LIFE, 0)), kills_sidecar=True)),
        (SPOOLED, killed(traced((BATCH, None), (LATER, 0)))),
    ],
)
def test_a_copy_more_than_was_sent_is_explained_by_no_rule(
    attempts: list[Attempt], seen: Circumstances
) -> None:
    assert judge(attempts, [*TWICE, stored(9, 0)], seen=seen).counts["unattributed"] == 1


def test_a_held_up_loop_and_a_stopped_sidecar_excuse_as_much_and_no_more() -> None:
    late = attempt(0, timeout_ms=100, ended_ms=1_100 + LATE_MS + 50)
    for excused_ms, found in ((49, 1), (50, 0)):
        lag = Lag()
        lag.note(900, 1_000)  # before it was sent
        lag.note(1_050, excused_ms)
        assert judge([late], [stored(0, 0)], lag=lag).counts["late"] == found
    stopped = Lag()
    stopped.excuse(1_000, 1_060)
    assert judge([late], [stored(0, 0)], lag=stopped).counts["late"] == 0


def test_lag_between_request_and_deadline_excuses_nothing() -> None:
    late = attempt(0, timeout_ms=3_000, ended_ms=9_000)
    lag = Lag()
    for at_ms in range(1_600, 3_900, 100):
        lag.note(at_ms, 99)
    assert judge([late], [stored(0, 0)], lag=lag).counts["late"] == 1


def test_a_gap_is_compared_with_javas() -> None:
    assert gap_sentence(8_000, 4_000) is None
    assert "8001 ms" in (gap_sentence(8_001, 4_000) or "")
    assert gap_sentence(8_001, None) is None


def test_anothers_record_is_no_stranger() -> None:
    assert judge([], [stored(0, 0)], is_foreign=lambda record: record.value == b"#a/0#").broken_promises == 0


def test_of_a_topic_that_was_deleted_only_what_was_sent_since_is_asked_for() -> None:
    attempts = [attempt(0), attempt(1, offset=0)]
    assert judge(attempts, [stored(0, 1)], kept_since_ms=1_001).broken_promises == 0
    assert judge(attempts, [], kept_since_ms=1_001).counts["lost"] == 1


def test_a_history_counts_what_was_sent_and_acknowledged_since() -> None:
    history = History()
    history.add([attempt(0), attempt(1), attempt(2, Outcome.UNKNOWN), attempt(3, caller="b")])
    assert history.acknowledged_since(1_001) == {"a": 1, "b": 1}
