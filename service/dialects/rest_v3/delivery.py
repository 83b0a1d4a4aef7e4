"""Records of one request handed to the client together, and what became of each. Event loop only."""

from __future__ import annotations

from collections.abc import Sequence

from client_core import ProducerRecord, RecordTooLargeError
from service.admission.admission_control import Place
from service.produce.producing import Told
from service.produce.record_stream import Item
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError


async def deliver(
    sidecar: Sidecar, topic: str, items: Sequence[Item], *, since_ms: int, place: Place, receive: Receive
) -> list[Told]:
    """The outcome of each item, in order; what is no record keeps its place as the Problem that it is.

    All records are one submit, which one that is too large is left out of; where the client takes none, each
    has that for its outcome. Raises CallerGoneError where the caller left.
    """
    told: list[Told | None] = [item if isinstance(item, Problem) else None for item in items]
    records = {index: item for index, item in enumerate(items) if isinstance(item, ProducerRecord)}
    partitions = (record.partition for record in records.values() if record.partition is not None)
    times = sidecar.producing.dialect_times(topic, max(partitions, default=None), since_ms=since_ms)
    while records:
        submitted = list(records.values())
        try:
            result = await sidecar.producing.deliver(
                topic, submitted, times, since_ms=since_ms, place=place, receive=receive
            )
        except ProblemError as e:
            for index in _concerned(e, list(records)):
                told[index] = e.problem
                del records[index]
        else:
            outcomes = await sidecar.producing.answered(submitted, result, lambda outcomes: outcomes)
            for index, outcome in zip(records, outcomes, strict=True):
                told[index] = outcome
            break
    return [outcome for outcome in told if outcome is not None]


def _concerned(error: ProblemError, indices: Sequence[int]) -> Sequence[int]:
    """The items that a refusal of the client is about: the one that is too large, or all of them."""
    cause = error.__cause__
    if isinstance(cause, RecordTooLargeError) and cause.record_index is not None:
        return [indices[cause.record_index]]
    return indices
