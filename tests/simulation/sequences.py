"""Whether a client sent a batch at a time when it had to know that brokers would refuse it as out of order.

No guarantee breaks by it: the batch is numbered again. But it costs a request and an epoch, so a refusal is
looked at in the wire trace. Under one producer id and epoch, in one partition,

    first       nothing is sent behind the first batch until it is acknowledged
    given up    nothing new is sent while it is open whether a batch is stored that was given up

A batch that was under way when the one before it was given up is refused with a reason, and so is one that a
broker has forgotten the batches before. A batch that was numbered again, or is a part of one that was too
large, is sent to learn whether there is a gap.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from tests.simulation.world import SimulationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.copies import Tries
    from tests.simulation.run import Run
    from tests.simulation.wire import Refusal, Sent

#: How long a client may send on after it has given a batch up: its answers come in the same turn.
_SLACK_MS: Final = 50
#: How the failure of a batch that was given up begins.
_GIVEN_UP: Final = "Expiring "


def judge_sequences(run: Run, tries: Mapping[bytes, Tries]) -> None:
    """Looks at each batch that was refused as out of order. Raises SimulationError.

    `tries`: those of each record, by its value.
    """
    for refusal in run.brokers.wire.refusals:
        if refusal.error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER and not run.brokers.forgot.get(refusal.place):
            _judge(run, refusal, tries)


def _judge(run: Run, refusal: Refusal, tries: Mapping[bytes, Tries]) -> None:
    sends = run.brokers.wire.sends(refusal.client)
    refused = next(one for one in sends if not refusal.values.isdisjoint(one.values))
    if refused.batch != refusal.batch:
        return
    before = {
        one.batch: one
        for one in sends
        if one.lane == refused.lane and one.at_ms <= refused.at_ms and one.sequence < refused.sequence
    }
    where = f"{refusal.client} sends sequence {refused.sequence} of {refusal.place} at {refused.at_ms}"

    def acked_ms(sent: Sent) -> float:
        known = run.brokers.wire.acked_ms
        return known.get((refusal.client, refusal.place, sent.batch), math.inf)

    if refused.sequence and not any(acked_ms(one) <= refused.at_ms for one in before.values()):
        raise SimulationError("sequence", f"{where}, before any other batch of its epoch is acknowledged")
    for one in before.values():
        behind = (other for other in before.values() if other.sequence > one.sequence)
        if _given_up_ms(one, refusal.client, tries) + _SLACK_MS < refused.at_ms and not any(
            acked_ms(other) <= refused.at_ms for other in behind
        ):
            raise SimulationError(
                "sequence", f"{where}; it had given up {one.sequence}, and nothing behind it"
            )


def _given_up_ms(sent: Sent, client: str, tries: Mapping[bytes, Tries]) -> float:
    return min(
        (
            attempt.answered_ms
            for value in sent.values
            for attempt, outcome in tries.get(value, ())
            if attempt.answered_ms is not None
            and client == f"sidecar {attempt.process.number}"
            and outcome.detail.startswith(_GIVEN_UP)
        ),
        default=math.inf,
    )
