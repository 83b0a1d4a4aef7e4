"""How often a record may be stored, and what explains each copy beyond that.

A client may write a record once for each time that it was asked to. A further copy is explained by what was
on the wire between the two: the client had no acknowledgement of the first, and

    D   a broker answered that it did not know the producer or its sequence, soon after it was killed,
        truncated or emptied: the batch was numbered again
    E   the producer is not idempotent
    F   a broker refused a batch as too large that it had stored: its parts are other batches, and those
        behind it are numbered again
    G   a leader that was cut off had stored it alone, and dropped it later: the next leader did not know
        the sequence of the batch before it, which had failed
    H   an attempt without an answer was still on its way when another broker refused the batch, or one that
        it had to follow, as out of order, because an earlier one had failed: it was stored after the batch
        was numbered again
    I   a leader that was cut off refused the batch, or one that it had to follow, as out of order: it had
        not what the next leader had stored, and the batch was numbered again

Another write under the same sequence is explained where the broker forgot the first one, or lost it.
A and B of docs/reliability.md are requests of a caller, and C those of a spool: they count as asked for.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from client_core import Written
from client_core.error_codes import Errors
from tests.simulation.brokers import shown
from tests.simulation.world import SimulationError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tests.simulation.callers import Attempt, Outcome
    from tests.simulation.run import Run
    from tests.simulation.wire import Append, Refusal

    #: The tries of a record.
    Tries = list[tuple[Attempt, Outcome]]

#: How long a client may send on after an answer has arrived: its thread is busy.
_SLACK_MS: Final = 50


def judge_copies(run: Run, value: bytes, tries: Tries) -> None:
    """Compares how often each client stored a record with how often it may have. Raises SimulationError."""
    by_client: dict[str, list[Append]] = defaultdict(list)
    for append in run.brokers.wire.appends.get(value, ()):
        by_client[append.client].append(append)
    for client, appends in by_client.items():
        allowed = _allowed(run, client, value, tries)
        if not allowed:
            raise SimulationError("written no", f"{shown(value)} was stored by {client}")
        # By when they were sent: a leader that is cut off may store an early request late.
        writes = sorted(_writes(run, value, appends), key=attrgetter("sent_ms"))
        if len(writes) <= allowed:
            continue
        reasons = _reasons(run, value, writes)
        if len(writes) > allowed + len(reasons):
            raise SimulationError(
                "stored twice",
                f"{shown(value)} was stored {len(writes)} times by {client}, asked for {allowed} times; "
                f"explained: {', '.join(reasons) or 'none'}",
            )
        for reason in reasons:
            run.world.reach(f"stored twice, {reason}")


def _reasons(run: Run, value: bytes, writes: Sequence[Append]) -> list[str]:
    """Returns why there are copies. Each write explains one later one: several are numbered again at once."""
    reasons: list[str] = []
    unused: list[Append] = []
    for again in writes:
        for one in unused:
            if reason := reason_of(run, value, one, again):
                unused.remove(one)
                reasons.append(reason)
                break
        unused.append(again)
    return reasons


def _allowed(run: Run, client: str, value: bytes, tries: Tries) -> int:
    kind, _, number = client.partition(" ")
    if kind != "spool":
        return may_write(tries, (int(number),))
    submitted, failures = _of_spool(run, value, tries, int(number))
    return submitted - failures.count(Written.NO)


def _writes(run: Run, value: bytes, appends: list[Append]) -> list[Append]:
    """Returns the first append of each write; each other one must have been forgotten, or lost."""
    if not run.plan.is_idempotent:
        return appends
    first: dict[object, Append] = {}
    for append in appends:
        known = first.setdefault(append.write, append)
        if known is append:
            continue
        # A leader that is cut off has stored it alone, and drops it later, unless it is the same there.
        is_lost = append.offset == known.offset or value in run.brokers.truncated
        if not is_lost and not forgot(run, known, append):
            raise SimulationError("stored twice", f"{shown(value)} under one sequence: brokers are wrong")
        run.world.reach("stored twice, D: the same sequence, which a broker had forgotten")
    return list(first.values())


def forgot(run: Run, first: Append, again: Append) -> bool:
    """Returns whether brokers forgot something of the partition, while the first write could matter."""
    since_ms = first.at_ms - int(run.plan.kafka["delivery.timeout.ms"])
    return any(since_ms <= at_ms <= again.at_ms for at_ms in run.brokers.forgot.get(first.place, ()))


def reason_of(run: Run, value: bytes, first: Append, again: Append) -> str:
    """Returns what explains that a client wrote a record again; nothing if nothing does."""
    wire = run.brokers.wire
    if _was_acked(run, first, before_ms=again.sent_ms):
        return ""
    if not run.plan.is_idempotent:
        return "E: not idempotent"
    since_ms = first.at_ms - int(run.plan.kafka["delivery.timeout.ms"])
    refusals = [
        refusal
        for refusal in wire.refusals
        if refusal.client == first.client
        and refusal.place == first.place
        and since_ms <= refusal.at_ms <= again.sent_ms
    ]
    # By when it was sent: it may have waited in the broker while the batch before it was refused.
    if not any(first.sent_ms <= refusal.at_ms for refusal in refusals):
        return ""
    if forgot(run, first, again):
        return "D: a broker knew the producer no more"
    for refusal in refusals:
        stored = (append for value in refusal.values for append in wire.appends.get(value, ()))
        if refusal.error is Errors.MESSAGE_TOO_LARGE and any(
            append.client == first.client and append.at_ms < refusal.at_ms for append in stored
        ):
            return "F: a batch was too large when it came again"
    if value in run.brokers.truncated and not is_in_a_log(run, value, first):
        return "G: a leader that was cut off dropped the first"
    if any(refusal.was_cut_off and _numbers_again(run, refusal, first) for refusal in refusals):
        return "I: a leader that was cut off refused it as out of order"
    if any(
        first.sent_ms < refusal.at_ms < first.at_ms and _numbers_again(run, refusal, first)
        for refusal in refusals
    ):
        return "H: an earlier attempt came after the batch was refused as out of order"
    return ""


def _numbers_again(run: Run, refusal: Refusal, append: Append) -> bool:
    """Returns whether the batch of an append was refused, or one that it had to follow."""
    sent = {sent.batch: sent for sent in run.brokers.wire.sends(append.client)}
    refused, mine = sent[refusal.batch], sent[append.batch]
    return refused.lane == mine.lane and refused.sequence <= mine.sequence


def is_in_a_log(run: Run, value: bytes, append: Append) -> bool:
    """Returns whether the record is still there where it was stored, now that the run is over."""
    where = run.brokers.committed().get(value, ())
    return any((place, record.offset) == (append.place, append.offset) for place, record in where)


def _was_acked(run: Run, first: Append, *, before_ms: int) -> bool:
    """Returns whether the client had the answer that a record was stored, well before it sent it again."""
    acked_ms = run.brokers.wire.acked_ms.get((first.client, first.place, first.batch))
    return acked_ms is not None and acked_ms < before_ms - _SLACK_MS


def _of_spool(run: Run, value: bytes, tries: Tries, life: int) -> tuple[int, list[Written]]:
    """Returns how often the spool of a process submitted a record, and how often it failed.

    It submits each entry once, and once more after each failure. Dead letters that are put back are entries.
    """
    producer = run.lives[life].spool_producer
    submitted, failures = producer.submitted.count(value), producer.failures.get(value, [])
    entries = may_write(tries, range(1, life + 1)) + run.brokers.wire.requeued[value]
    if submitted > entries + len(failures):
        raise SimulationError(
            "stored twice",
            f"{shown(value)} was submitted {submitted} times by spool {life}; it has {entries} entries "
            f"and {len(failures)} failures",
        )
    if failures and Written.UNKNOWN in failures:
        run.world.reach("stored twice, C: the spool did not know")
    return submitted, failures


def may_write(tries: Tries, lives: Container[int]) -> int:
    """Returns how often these tries may write in these lives: with a key once in each."""
    mine = [attempt for attempt, outcome in tries if attempt.process.number in lives and outcome.what != "no"]
    with_key = {attempt.process.number for attempt in mine if attempt.request.has_key}
    return len(with_key) + sum(not attempt.request.has_key for attempt in mine)
