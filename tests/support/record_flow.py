"""A producer that sends a record every few milliseconds, and the outcome of each.

    flow = RecordFlow(producer, topic)
    keep_sending(flow, until=flow.one_more(), what="a record")
    assert flow.all_acknowledged() == 17

One thread gives the records; the producer is a real one (live_producer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core import RecordFailure, RecordMetadata
from tests.support.live_producer import submit
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core import KafkaProducer
    from tests.support.live_producer import Outcome

#: The pace of a slow user of the library, so that some records are always in flight.
_EVERY_S: Final = 0.02


class RecordFlow:
    """One producer's records: their values are 0, 1, 2, ... of partition 0."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._reported: list[Outcome] = []

    def send(self) -> None:
        value = str(len(self._reported)).encode()
        self._reported.append(submit(self._producer, self._topic, [value], partition=0))

    def outcomes(self) -> list[RecordMetadata | RecordFailure]:
        """What became of every record, in the order in which they were sent; waits for all."""
        return [outcome for reported in self._reported for outcome in reported.outcomes()]

    def all_acknowledged(self) -> int:
        """How many records there were, none of which failed."""
        failed = [outcome.error for outcome in self.outcomes() if isinstance(outcome, RecordFailure)]
        assert failed == []
        return len(self._reported)

    def acknowledged(self) -> set[bytes]:
        """The values of those that were acknowledged."""
        return {
            str(number).encode()
            for number, outcome in enumerate(self.outcomes())
            if isinstance(outcome, RecordMetadata)
        }

    def one_more(self) -> Callable[[], bool]:
        """Whether a record that is sent from now on was acknowledged."""
        first = len(self._reported)
        return lambda: any(
            reported.is_reported and isinstance(reported.outcomes()[0], RecordMetadata)
            for reported in self._reported[first:]
        )


def keep_sending(*flows: RecordFlow, until: Callable[[], bool], what: str, at_most_s: float = 20.0) -> None:
    """Sends a record of each flow, again and again, until something is the case."""

    def one_turn() -> bool:
        for flow in flows:
            flow.send()
        return until()

    wait_until(one_turn, what=what, every_s=_EVERY_S, timeout_s=at_most_s)
