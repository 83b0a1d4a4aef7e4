"""Which rule allows a record to be stored twice: pure. A duplicate without such a rule is a broken promise.

Each rule needs evidence from the caller's attempts or from the wire. The fault itself is evidence too: only a
killed broker can have forgotten a producer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.history import Outcome
from tests.chaos.trace import WireTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.history import Attempt
    from tests.chaos.trace import SentBatch

#: OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID: the producer must begin a new epoch.
_FORGOTTEN: Final = frozenset({45, 59})
_OPEN_ENDED: Final = frozenset({Outcome.UNKNOWN, Outcome.UNANSWERED})


class Rule(enum.Enum):
    """Why a record may be there twice."""

    SIDECAR_ENDED = "the sidecar was killed during the request and lost its idempotency key"
    RETRIED = "its caller sent it again without an idempotency key, after an unknown outcome"
    SPOOL = "the spool sent it again, after a restart or an unknown outcome"
    BROKERS_FORGET = "a broker that was killed knows the last batch of a producer only"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the fault did, and what was heard on the wire."""

    trace: WireTrace = field(default_factory=WireTrace)
    kills_brokers: bool = False
    kills_sidecar: bool = False
    #: Clients reached the brokers by no proxy: a killed broker needs no other evidence.
    is_untraced: bool = False


def rule_of(attempts: Sequence[Attempt], copies: int, seen: Circumstances) -> Rule | None:
    """The rule that allows the record of these attempts to be stored so many times, more than once."""
    sends = seen.trace.of_value(attempts[0].value)
    batches = {sent.batch for sent in sends}
    has_more_producers = len({batch.producer_id for batch in batches}) > 1
    *earlier, last = attempts
    again = any(attempt.reported in _OPEN_ENDED for attempt in earlier)
    # Each attempt explains one copy, but for one that was said not to be written.
    explained = sum(attempt.reported is not Outcome.NOT_WRITTEN for attempt in attempts) >= copies
    if again and explained and not last.has_idempotency_key:
        return Rule.RETRIED
    if again and explained and seen.kills_sidecar and has_more_producers:
        return Rule.SIDECAR_ENDED
    spooled = any(a.reported is Outcome.TAKEN or a.caller == "spool" for a in attempts)
    if spooled and len(batches) >= copies and (has_more_producers or _sent_after_no_answer(sends)):
        return Rule.SPOOL
    if seen.kills_brokers and (seen.is_untraced or _forgotten(sends, seen.trace)):
        return Rule.BROKERS_FORGET
    return None


def _sent_after_no_answer(sends: Sequence[SentBatch]) -> bool:
    """Under another sequence, while the outcome of the first was not known to be good."""
    return any(sent.error != 0 and sent.batch != sends[-1].batch for sent in sends)


def _forgotten(sends: Sequence[SentBatch], trace: WireTrace) -> bool:
    """The same batch was sent twice as it must be, or in a new epoch after the broker had forgotten it."""
    batches = [sent.batch for sent in sends]
    if len(set(batches)) < len(batches):
        return True
    epochs = {(batch.producer_id, batch.epoch) for batch in batches}
    return len(epochs) > 1 and any(trace.has_error(batch.producer_id, _FORGOTTEN) for batch in batches)
