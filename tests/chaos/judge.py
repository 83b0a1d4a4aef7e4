"""What callers were told, against what is stored: pure, so that the judge is judged by tests of its own.

A record's identity is its value: no two records of a run have one in common. `read` is what another client
than ours finds in the topic afterwards.

    lost        acknowledged, and not there
    duplicated  there more than once
    misplaced   acknowledged at an offset or partition where something else is
    altered     there under another key than was sent, or in another partition than was asked for
    disordered  acknowledged after a record of its key and partition that its caller sent later
    denied      said not to be written, and there
    strangers   there, and sent by nobody

Order is that of first copies: a record that is sent twice on purpose stands where it stood first. It is
promised among the records of one caller, key and partition that were acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.history import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.chaos.history import Attempt
    from tests.support.kafka_admin import ReadRecord

#: How many examples of each kind a verdict shows.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts, and a sentence for the first few of each kind that must not be."""

    requests: int
    acknowledged: int
    failed: int
    unanswered: int
    lost: int
    duplicated: int
    misplaced: int
    altered: int
    disordered: int
    denied: int
    strangers: int
    sentences: tuple[str, ...]

    @property
    def broken_promises(self) -> int:
        """All that must never be, under any fault. Duplicates are judged by who knows the fault."""
        return self.lost + self.misplaced + self.altered + self.disordered + self.denied + self.strangers


@dataclass(slots=True)
class _Findings:
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sentences: list[str] = field(default_factory=list)

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
    requests: int | None = None,
) -> Verdict:
    """The verdict over one topic.

    `is_foreign` knows the records of others who write to it. Of a topic that was deleted meanwhile only what
    was sent since `kept_since_ms` can be asked for: what was acknowledged before is gone with it.
    """
    stored = [record for record in read if not is_foreign(record)]
    copies: dict[bytes | None, list[ReadRecord]] = defaultdict(list)
    for record in stored:
        copies[record.value].append(record)
    by_place = {(record.partition, record.offset): record for record in stored}
    findings = _Findings()
    asked_for = [a for a in attempts if kept_since_ms is None or a.sent_ms >= kept_since_ms]
    for attempt in asked_for:
        _judge_place(attempt, copies, by_place, findings)
    _judge_denied(attempts, copies, findings)
    _judge_copies(attempts, copies, findings)
    _judge_order(asked_for, copies, findings)
    counts = findings.counts
    return Verdict(
        requests=len(attempts) if requests is None else requests,
        acknowledged=sum(a.told.is_acknowledged for a in attempts),
        failed=sum(a.told in {Told.NOT_WRITTEN, Told.UNKNOWN} for a in attempts),
        unanswered=sum(a.told is Told.UNANSWERED for a in attempts),
        lost=counts["lost"],
        duplicated=counts["duplicated"],
        misplaced=counts["misplaced"],
        altered=counts["altered"],
        disordered=counts["disordered"],
        denied=counts["denied"],
        strangers=counts["strangers"],
        sentences=tuple(findings.sentences),
    )


def _named(attempt: Attempt) -> str:
    return f"{attempt.value!r} of {attempt.caller}"


def _judge_place(
    attempt: Attempt,
    copies: dict[bytes | None, list[ReadRecord]],
    by_place: dict[tuple[int, int], ReadRecord],
    findings: _Findings,
) -> None:
    if not attempt.told.is_acknowledged:
        return
    if attempt.value not in copies:
        findings.add("lost", f"{_named(attempt)} was acknowledged ({attempt.told.value}), and is not there")
    elif attempt.told is Told.STORED:
        assert attempt.partition is not None
        assert attempt.offset is not None
        found = by_place.get((attempt.partition, attempt.offset))
        if found is None or found.value != attempt.value:
            place = f"partition {attempt.partition}, offset {attempt.offset}"
            there = "nothing" if found is None else repr(found.value)
            findings.add("misplaced", f"{_named(attempt)} was answered with {place}, where {there} is")


def _judge_denied(
    attempts: Sequence[Attempt], copies: dict[bytes | None, list[ReadRecord]], findings: _Findings
) -> None:
    """What is sent again under a key of idempotency may be there by one of its other attempts."""
    told: dict[bytes, set[Told]] = defaultdict(set)
    for attempt in attempts:
        told[attempt.value].add(attempt.told)
    for value, answers in told.items():
        if answers == {Told.NOT_WRITTEN} and value in copies:
            findings.add("denied", f"{value!r} was said not to be written, and is there")


def _judge_copies(
    attempts: Sequence[Attempt], copies: dict[bytes | None, list[ReadRecord]], findings: _Findings
) -> None:
    sent = {attempt.value: attempt for attempt in attempts}
    for value, records in copies.items():
        attempt = sent.get(value) if value is not None else None
        if attempt is None:
            findings.add("strangers", f"{value!r} in partition {records[0].partition} was sent by nobody")
            continue
        if len(records) > 1:
            places = ", ".join(f"{r.partition}:{r.offset}" for r in records)
            findings.add("duplicated", f"{_named(attempt)} is at {places}")
        for record in records:
            if record.key != attempt.key:
                findings.add("altered", f"{_named(attempt)} has the key {record.key!r} for {attempt.key!r}")
            elif attempt.asked_partition not in {None, record.partition}:
                findings.add(
                    "altered",
                    f"{_named(attempt)} is in partition {record.partition} for {attempt.asked_partition}",
                )


def _judge_order(
    attempts: Sequence[Attempt], copies: dict[bytes | None, list[ReadRecord]], findings: _Findings
) -> None:
    first_of: dict[tuple[str, bytes, int], list[tuple[int, int, Attempt]]] = defaultdict(list)
    seen: set[bytes] = set()
    for attempt in attempts:
        if attempt.told.is_acknowledged and attempt.value in copies and attempt.value not in seen:
            seen.add(attempt.value)
            # Read in the order of offsets, so that the first is the earliest of its partition.
            record = copies[attempt.value][0]
            first_of[attempt.caller, attempt.key, record.partition].append(
                (attempt.number, record.offset, attempt)
            )
    for line in first_of.values():
        line.sort(key=lambda entry: entry[:2])
        highest = -1
        for _, offset, attempt in line:
            if offset < highest:
                findings.add("disordered", f"{_named(attempt)} is at {offset}, before what was sent earlier")
            highest = max(highest, offset)
