"""Fetches a partition's offsets from its leader. They are never kept: each answer is the leader's own.

One deadline for all of it: first the topic becomes known, then the leader is asked, again after it has moved.
Event loop only.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from client_core import OffsetsResult, Phase, Result
from service.admission.admission_control import AdmissionControl
from service.admission.caller import Caller
from service.base.producer_protocol import Producer
from service.lookup.lookups import Demands, Lookups
from service.wire.asgi import Receive
from service.wire.errors import ProblemError, problem_of
from service.wire.waiting import wait_for_result


class Offsets(NamedTuple):
    """The offset of the first record that is kept, and the one that the next record will get."""

    beginning_offset: int
    end_offset: int


class OffsetsOfPartitions:
    """Asks for offsets on behalf of requests. `wait_ms` is the wait of those that set none."""

    def __init__(
        self, producer: Producer, lookups: Lookups, admission: AdmissionControl, *, wait_ms: int
    ) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._lookups = lookups
        self._admission = admission
        self._wait_ms = wait_ms

    async def of(
        self, topic: str, partition: int, receive: Receive, caller: Caller, max_block_ms: int | None = None
    ) -> Offsets:
        """Returns the offsets. Raises ProblemError, or CallerGoneError if the caller leaves."""
        since_ms = self._clock.now_ms()
        _, table = await self._lookups.known(topic, Demands(max_block_ms), receive, caller)
        if partition >= table.partition_count:
            raise ProblemError(problem_of(self._lookups.missing(topic, partition)))
        deadline_ms = since_ms + (self._wait_ms if max_block_ms is None else max_block_ms)
        with self._admission.acquire(0, caller):
            result: Result = await wait_for_result(
                lambda done: self._producer.list_offsets(
                    topic, partition, deadline_ms=deadline_ms, done=done
                ),
                receive,
            )
        found = cast("OffsetsResult", result)
        if found.beginning_offset is None or found.end_offset is None:
            assert found.error is not None
            waited_ms = self._clock.now_ms() - since_ms
            raise ProblemError(problem_of(found.error, phase=Phase.METADATA, waited_ms=waited_ms))
        return Offsets(found.beginning_offset, found.end_offset)
