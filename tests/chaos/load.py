"""The load of one fault: callers of every dialect at once, on an event loop in a thread, and their history.

with Load(sidecar, topic, partitions=6, spool=False, cluster_id=..., random=Random(7)) as load:
    load.wait_for_successes(since_ms, each=5)        # each caller; each partition has one of its own
load.history.attempts()
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Self

from tests.chaos import dialects
from tests.chaos.callers import ANSWER_TIMEOUT_S, Caller, Plan, StreamCaller, of_partition
from tests.chaos.history import History, Outcome
from tests.support.java_peer import longest_gap_ms, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from tests.support.sidecar import Sidecar

#: Twenty requests a second to each partition by a caller of its own.
_PARTITION_PAUSE_S: Final = 0.05
_LAG_EVERY_S: Final = 0.02


class Load:
    """All callers of a sidecar, who begin nothing more after `with`. `history` may be read by any thread."""

    def __init__(
        self, sidecar: Sidecar, topic: str, *, partitions: int, spool: bool, cluster_id: str, random: Random
    ) -> None:
        self.history = History()
        self._sidecar = sidecar
        self._partitions = partitions
        self.began_ms = 0
        plain = Plan("v1", dialects.V1, _PARTITION_PAUSE_S, is_plain=True, cuts=0)
        plans = [
            *(of_partition(plain, partition) for partition in range(partitions)),
            Plan("five", dialects.V1, count=5),
            # Several batches of a partition each time, as Stage has batches of 1 kB.
            Plan("batch", dialects.V1, pause_s=0.4, count=40),
            Plan("once", dialects.V1, cuts=0.3, has_keys=True),
            Plan("octets", dialects.OCTETS, sends_again=True),
            Plan("v2", dialects.V2, count=2),
            Plan("v3", dialects.v3(cluster_id), count=2),
            Plan("cloudevents", dialects.CLOUDEVENTS),
            Plan("dapr", dialects.DAPR),
        ]
        if spool:
            plans.append(Plan("spool", dialects.SPOOL, pause_s=0.1))
        stream = Plan("stream", dialects.V1, count=4, cuts=0.3)
        port = sidecar.api_port
        self._callers: list[Caller] = [
            *(Caller(plan, port, topic, self.history, Random(random.random())) for plan in plans),
            StreamCaller(stream, port, topic, self.history, Random(random.random())),
        ]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load", daemon=True)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(caller.name for caller in self._callers)

    @property
    def requests(self) -> int:
        return sum(caller.requests for caller in self._callers)

    def __enter__(self) -> Self:
        self.began_ms = now_ms()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for caller in self._callers:
            caller.stop()

    async def _run(self) -> None:
        lag = asyncio.create_task(self._watch_lag())
        await asyncio.gather(*(caller.run() for caller in self._callers))
        lag.cancel()

    async def _watch_lag(self) -> None:
        """What the machine takes from this loop, and from the sidecar's threads that could run."""
        lag, waited_ms = self.history.lag, _waited_ms(self._sidecar)
        while True:
            due_s = time.monotonic() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            before_ms, waited_ms = waited_ms, _waited_ms(self._sidecar)
            own_ms = 1_000 * (time.monotonic() - due_s)
            theirs_ms = max((ms - before_ms.get(thread, ms) for thread, ms in waited_ms.items()), default=0.0)
            lag.note(now_ms(), own_ms + theirs_ms)

    def join(self) -> None:
        """Waits for their ends. AssertionError for one that stays, or that met an impossible answer."""
        self._thread.join(ANSWER_TIMEOUT_S)
        assert not self._thread.is_alive(), f"not every caller was answered within {ANSWER_TIMEOUT_S:g} s"
        self.raise_failures()

    def raise_failures(self) -> None:
        for caller in self._callers:
            if caller.failure is not None:
                raise AssertionError(f"{caller.name}: {caller.failure!r}") from caller.failure

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
        reported = [a for a in self.history.attempts() if not a.reported.is_acknowledged]
        return [f"{a.caller} {a.status} {a.reported.name} {a.detail}" for a in reported[-5:]]

    def longest_gap_ms(self, since_ms: int, until_ms: int) -> int:
        """The longest time within the window in which the caller of some partition had no success."""
        successes = (
            (attempt.asked_partition, attempt.ended_ms)
            for attempt in self.history.attempts()
            if attempt.asked_partition is not None and attempt.reported is Outcome.STORED
        )
        return longest_gap_ms(successes, self._partitions, since_ms, until_ms)


def _waited_ms(sidecar: Sidecar) -> dict[Path, float]:
    """How long each of the sidecar's threads was ready to run and did not, since it began (schedstat)."""
    waited: dict[Path, float] = {}
    for task in Path(f"/proc/{sidecar.process.pid}/task").glob("*/schedstat"):
        try:
            waited[task] = int(task.read_text().split()[1]) / 1e6
        except (OSError, IndexError):  # a thread that ends
            continue
    return waited
