"""The load of one fault: callers of every kind at once, and what they were told.

with Load(port, topic, partitions=6) as load:
    load.wait_for_successes(since_ms, each=5)        # each caller; each partition has one of its own
load.history.attempts()
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from tests.chaos.callers import ANSWER_TIMEOUT_S, OnceCaller, SpoolCaller, StreamCaller, V1Caller, V2Caller
from tests.chaos.history import History, Told
from tests.support.java_peer import longest_gap_ms, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from tests.chaos.callers import Caller

#: Twenty requests a second to each partition by a caller of its own; ten by each of the others.
PARTITION_PAUSE_S: Final = 0.05
_OTHERS_PAUSE_S: Final = 0.1


class Load:
    """All callers of a sidecar, who begin nothing more after `with`. `history` may be read by any thread."""

    def __init__(self, port: int, topic: str, *, partitions: int, spool: bool) -> None:
        self.history = History()
        self._partitions = partitions
        self.began_ms = 0
        of_partitions = [
            V1Caller(f"v1-p{n}", port, topic, self.history, pause_s=PARTITION_PAUSE_S, partition=n)
            for n in range(partitions)
        ]
        self._callers: list[Caller] = [
            *of_partitions,
            V1Caller("v1-five", port, topic, self.history, pause_s=_OTHERS_PAUSE_S, count=5),
            OnceCaller("once", port, topic, self.history, pause_s=_OTHERS_PAUSE_S),
            V2Caller("v2", port, topic, self.history, pause_s=_OTHERS_PAUSE_S),
            StreamCaller("stream", port, topic, self.history, pause_s=_OTHERS_PAUSE_S),
        ]
        if spool:
            self._callers.append(SpoolCaller("spool", port, topic, self.history, pause_s=_OTHERS_PAUSE_S))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(caller.name for caller in self._callers)

    @property
    def requests(self) -> int:
        return sum(caller.requests for caller in self._callers)

    def __enter__(self) -> Self:
        self.began_ms = now_ms()
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for caller in self._callers:
            caller.ask_to_stop()

    def join(self) -> None:
        """Waits for their ends. AssertionError for one that stays, or that met an impossible answer."""
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        for caller in self._callers:
            ended = caller.join(max(0.0, deadline_s - time.monotonic()))
            assert ended, f"{caller.name} was not answered within {ANSWER_TIMEOUT_S:g} s"
        self.raise_failures()

    def raise_failures(self) -> None:
        for caller in self._callers:
            if caller.failure is not None:
                raise AssertionError(f"{caller.name}: {caller.failure}") from caller.failure

    def wait_for_successes(self, since_ms: int, *, each: int, timeout_s: float = 60.0) -> None:
        """Until every caller has had so many records acknowledged that it sent since then."""

        def all_have() -> bool:
            self.raise_failures()
            counts = self.history.acknowledged_since(since_ms)
            return all(counts.get(name, 0) >= each for name in self.names)

        wait_until(
            all_have, what=f"{each} successes of each caller", timeout_s=timeout_s, last_seen=self.failed
        )

    def failed(self) -> list[str]:
        """The last few failures, for a message."""
        told = [a for a in self.history.attempts() if not a.told.is_acknowledged]
        return [f"{a.caller} {a.status} {a.told.name} {a.detail}" for a in told[-5:]]

    def longest_gap_ms(self, since_ms: int, until_ms: int) -> int:
        """The longest time within the window in which the caller of some partition had no success."""
        successes = (
            (attempt.asked_partition, attempt.ended_ms)
            for attempt in self.history.attempts()
            if attempt.asked_partition is not None and attempt.told is Told.STORED
        )
        return longest_gap_ms(successes, self._partitions, since_ms, until_ms)
