"""Compares the answers to callers with the stored records. Pure, so that it has tests of its own.

A record's identity is its value: no two records of a run have the same. `read` is what another client finds
in the topic afterwards. `BROKEN` has all kinds of findings.

Order is judged by first copies: a record that was sent twice on purpose counts where it is first. Order is
promised among acknowledged records of one caller, key and partition. Those of one request or stream are
ordered by their numbers. Those of two requests are ordered if one was answered before the other was sent.

A deadline is judged by the caller's clock. Delays of the caller's loop or of the sidecar's threads, by the
machine or by the fault, are subtracted (`Lag`), and `LATE_MS` for the rest of the way. Only lag just after
the request and just after the deadline counts. In between the sidecar waits, so a busy machine is no excuse.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.duplicates import Circumstances, rule_of
from tests.chaos.history import Lag, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.chaos.duplicates import Rule
    from tests.chaos.history import Attempt
    from tests.support.kafka_admin import ReadRecord

    Copies = Mapping[bytes, list[ReadRecord]]

BROKEN: Final = {
    "lost": "acknowledged, and not there",
    "misplaced": "acknowledged at an offset or partition where something else is",
    "altered": "there with another key, header, timestamp or partition than was asked for",
    "disordered": "there before an acknowledged record that its caller sent earlier",
    "denied": "said not to be written, and there",
    "strangers": "there, and sent by nobody",
    "unattributed": "there more than once, and no rule allows it",
    "late": "answered after its deadline, or not at all by then",
    "answered_twice": "answered more than once",
}
#: How late an answer may be, beyond the lag: for the way through kernel, sidecar and caller.
LATE_MS: Final = 500
#: The longest time without success may be so much of Java's, and so many milliseconds.
GAP_FACTOR: Final = 1.5
GAP_SLACK_MS: Final = 2_000
#: How many examples of each kind the outcome shows.
_SHOWN: Final = 5


@dataclass(slots=True)
class DeliveryOutcome:
    """Counts, a sentence for the first few of each kind that must not be, and the rules of duplicates."""

    attempts: Sequence[Attempt]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKEN, 0))
    duplicated: int = 0
    rules: dict[Rule, int] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return sum(attempt.reported.is_acknowledged for attempt in self.attempts)

    @property
    def failed(self) -> int:
        return sum(attempt.reported in {Outcome.NOT_WRITTEN, Outcome.UNKNOWN} for attempt in self.attempts)

    @property
    def unanswered(self) -> int:
        return sum(attempt.reported is Outcome.UNANSWERED for attempt in self.attempts)

    @property
    def broken_promises(self) -> int:
        """All that must never be, under any fault."""
        return sum(self.counts.values())

    def add(self, kind: str, sentence: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN:
            self.sentences.append(f"{kind}: {sentence}")


def judge(
    attempts: Sequence[Attempt],
    read: Iterable[ReadRecord],
    *,
    is_foreign: Callable[[ReadRecord], bool] = lambda _: False,
    kept_since_ms: int | None = None,
    seen: Circumstances | None = None,
    lag: Lag | None = None,
) -> DeliveryOutcome:
    """The delivery outcome of one topic.

    `is_foreign` knows the records of others who write to it. Of a topic that was deleted meanwhile only what
    was sent since `kept_since_ms` is expected: records that were acknowledged before are gone with the topic.
    """
    stored = [record for record in read if not is_foreign(record)]
    copies: dict[bytes, list[ReadRecord]] = defaultdict(list)
    for record in stored:
        copies[record.value or b""].append(record)
    of_value: dict[bytes, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        of_value[attempt.value].append(attempt)
    by_place = {(record.partition, record.offset): record for record in stored}
    outcome = DeliveryOutcome(attempts)
    asked_for = [a for a in attempts if kept_since_ms is None or a.sent_ms >= kept_since_ms]
    for attempt in asked_for:
        _judge_place(attempt, copies, by_place, outcome)
    for attempt in attempts:
        _judge_answer(attempt, lag or Lag(), outcome)
    for value, records in copies.items():
        _judge_copies(value, records, of_value.get(value), seen or Circumstances(), outcome)
    _judge_order(asked_for, copies, outcome)
    return outcome


def gap_sentence(gap_ms: int | None, javas_ms: int | None) -> str | None:
    """The fault of the longest time without success, compared with Java's under the same load."""
    if gap_ms is None or javas_ms is None or gap_ms <= GAP_FACTOR * javas_ms + GAP_SLACK_MS:
        return None
    return f"gap: {gap_ms} ms without a success, where Java's client had {javas_ms}"


def _named(attempt: Attempt) -> str:
    return f"{attempt.value[:40]!r} of {attempt.caller}"


def _judge_place(
    attempt: Attempt, copies: Copies, by_place: Mapping[tuple[int, int], ReadRecord], outcome: DeliveryOutcome
) -> None:
    if not attempt.reported.is_acknowledged:
        return
    if attempt.value not in copies:
        outcome.add(
            "lost", f"{_named(attempt)} was acknowledged ({attempt.reported.value}), and is not there"
        )
    elif attempt.reported is Outcome.STORED:
        place = (attempt.partition or 0, attempt.offset or 0)
        found = by_place.get(place)
        if found is None or found.value != attempt.value:
            there = "nothing" if found is None else repr(found.value)
            outcome.add("misplaced", f"{_named(attempt)} was answered with {place}, where {there} is")


def _judge_answer(attempt: Attempt, lag: Lag, outcome: DeliveryOutcome) -> None:
    if attempt.answers > 1:
        outcome.add("answered_twice", f"{_named(attempt)} was answered {attempt.answers} times")
    if attempt.timeout_ms is None or attempt.was_cut:
        return
    over_ms: float = attempt.ended_ms - attempt.sent_ms - attempt.timeout_ms - LATE_MS
    if over_ms > 0:
        due_ms = attempt.sent_ms + attempt.timeout_ms
        over_ms -= lag.within(max(due_ms, attempt.sent_ms + LATE_MS), due_ms + LATE_MS)
        over_ms -= lag.within(attempt.sent_ms, attempt.sent_ms + LATE_MS)
    if over_ms > 0:
        outcome.add(
            "late",
            f"{_named(attempt)} ended {attempt.ended_ms - attempt.sent_ms} ms after it was sent "
            f"({attempt.reported.name} {attempt.status}), with timeout_ms={attempt.timeout_ms}",
        )


def _judge_copies(
    value: bytes,
    records: Sequence[ReadRecord],
    attempts: Sequence[Attempt] | None,
    seen: Circumstances,
    outcome: DeliveryOutcome,
) -> None:
    if not attempts:
        outcome.add("strangers", f"{value[:40]!r} in partition {records[0].partition} was sent by nobody")
        return
    attempt = attempts[0]
    # What was sent again may be there by one of its other attempts.
    if all(each.reported is Outcome.NOT_WRITTEN for each in attempts):
        outcome.add("denied", f"{_named(attempt)} was said not to be written, and is there: {attempt.detail}")
    if len(records) > 1:
        outcome.duplicated += 1
        rule = rule_of(attempts, len(records), seen)
        if rule is None:
            places = ", ".join(f"{r.partition}:{r.offset}" for r in records)
            sends = [(sent.broker, *sent.batch, sent.error) for sent in seen.trace.of_value(value)]
            reported = [each.reported.name for each in attempts]
            outcome.add("unattributed", f"{_named(attempt)} {reported} is at {places}; on the wire: {sends}")
        else:
            outcome.rules[rule] = outcome.rules.get(rule, 0) + 1
    for record in records:
        for what, wanted, found in _differences(attempt, record):
            outcome.add("altered", f"{_named(attempt)} has the {what} {found!r} for {wanted!r}")


def _differences(attempt: Attempt, record: ReadRecord) -> Iterable[tuple[str, object, object]]:
    if record.key != attempt.key:
        yield "key", attempt.key, record.key
    if attempt.asked_partition not in {None, record.partition}:
        yield "partition", attempt.asked_partition, record.partition
    if attempt.timestamp_ms not in {None, record.timestamp_ms}:
        yield "timestamp", attempt.timestamp_ms, record.timestamp_ms
    wanted, found = attempt.headers, tuple(record.headers)
    if attempt.has_more_headers:
        found = tuple(header for header in found if header in wanted)
        wanted, found = tuple(sorted(wanted, key=str)), tuple(sorted(found, key=str))
    if wanted != found:
        yield "headers", attempt.headers, record.headers


def _judge_order(attempts: Sequence[Attempt], copies: Copies, outcome: DeliveryOutcome) -> None:
    groups: dict[tuple[str, bytes, int], list[tuple[int, Attempt]]] = defaultdict(list)
    seen: set[bytes] = set()
    first_sent_ms: dict[bytes, int] = {}
    for attempt in attempts:
        first_sent_ms.setdefault(attempt.value, attempt.sent_ms)
        if attempt.reported.is_acknowledged and attempt.value in copies and attempt.value not in seen:
            seen.add(attempt.value)
            # Read in the order of offsets, so that the first is the earliest of its partition.
            record = copies[attempt.value][0]
            groups[attempt.caller, attempt.key, record.partition].append((record.offset, attempt))
    for group in groups.values():
        group.sort(key=lambda entry: entry[0], reverse=True)
        lowest: dict[str, int] = {}
        first_ended_ms: float = float("inf")
        # From the last offset on: what is stored later must not have a lower number, nor have ended before.
        for offset, attempt in group:
            overtaken = first_ended_ms < first_sent_ms[attempt.value]
            if overtaken or lowest.get(attempt.lane, attempt.number) < attempt.number:
                outcome.add("disordered", f"{_named(attempt)} is at {offset}, before what was sent earlier")
            lowest[attempt.lane] = min(lowest.get(attempt.lane, attempt.number), attempt.number)
            first_ended_ms = min(first_ended_ms, attempt.ended_ms)
