"""What probes ask: is it alive, is it ready, has it started. Answers are None for yes, or the reason for no.

    livez     the poll loop turns when it is woken (an idle one sleeps for long), and the event loop turns.
              Never whether Kafka is reachable: restarting the sidecar mends no broker. Whoever finds one of
              them standing still first, a probe or the sidecar's own look every ten seconds, has all stacks
              logged (`loop_watchdog.py`)
    readyz    metadata is there, a broker is within reach, nobody is shutting down
    startupz  the API listens, and the first metadata came or startup_require_metadata does without

Admin thread only; it reads `status()`, which waits for nobody.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final, Never

from client_core import ClientStatus, UncaughtErrors
from service.process.loop_watchdog import EVENT_LOOP, POLL_LOOP, LoopWatchdog
from service.sidecar.sidecar import Sidecar

_log: Final = logging.getLogger(__name__)

#: Between two looks at whether a loop has turned.
_LOOK_S: Final = 0.005
#: Between two looks of the sidecar's own, for where nobody probes. A probe's usual interval.
_WATCH_S: Final = 10.0


class Health:
    """Judges one sidecar. `listening` says whether the API's socket is open; `api_loop` is its event loop."""

    def __init__(
        self,
        sidecar: Sidecar,
        api_loop: asyncio.AbstractEventLoop,
        listening: Callable[[], bool],
        loop_watchdog: LoopWatchdog | None = None,
    ) -> None:
        self._sidecar = sidecar
        self._producer = sidecar.producer
        self._clock = sidecar.producer.clock
        self._api_loop = api_loop
        self._listening = listening
        self.loop_watchdog = loop_watchdog or LoopWatchdog()
        self._made_ms = self._clock.now_ms()
        self._uncaught = UncaughtErrors(_log, "the watch over both loops")

    async def fault_of_life(self) -> str | None:
        """Wakes both loops and gives each liveness_timeout_ms for a turn."""
        status = self._producer.status()
        if status.state == "failed":
            return "the client has failed"
        turned = threading.Event()
        try:
            self._api_loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return "the event loop has ended"
        # While the client closes, its loop comes to its end; that is no reason to be killed.
        polls = not self._sidecar.drain.begun
        if polls:
            self._producer.wakeup()
        within_ms = self._sidecar.settings.liveness_timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_ms / 1000
        while True:
            polled = not polls or self._producer.status().loop_turns != status.loop_turns
            stand = [name for name, well in ((POLL_LOOP, polled), (EVENT_LOOP, turned.is_set())) if not well]
            is_late = loop.time() >= deadline
            if is_late or not stand:
                asked = {POLL_LOOP, EVENT_LOOP} if polls else {EVENT_LOOP}
                self.loop_watchdog.judged(turned=asked.difference(stand), stand=stand, after_ms=within_ms)
            if not stand:
                return None
            if is_late:
                return f"the {' and the '.join(stand)} did not turn within {within_ms} ms"
            await asyncio.sleep(_LOOK_S)

    async def watch(self, every_s: float = _WATCH_S) -> Never:
        """Looks after both loops without being asked, until it is cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.fault_of_life()
            except Exception as error:  # noqa: BLE001 -- without the watch nobody may ever notice a standstill
                self._uncaught.report(error, self._clock.now_ms())

    def fault_of_readiness(self) -> str | None:
        if self._sidecar.drain.announced or self._sidecar.drain.begun:
            return "shutting down"
        status = self._producer.status()
        if status.metadata.age_ms is None:
            return "no metadata yet"
        if not _within_reach(status):
            return "no broker can be reached; metadata is still served"
        return None

    def fault_of_startup(self) -> str | None:
        if not self._listening():
            return "the API does not listen yet"
        settings = self._sidecar.settings
        if settings.startup_require_metadata == "none" or self._producer.status().metadata.age_ms is not None:
            return None
        waited_ms = self._clock.now_ms() - self._made_ms
        if settings.startup_require_metadata == "wait" and waited_ms >= settings.startup_max_wait_ms:
            return None
        return f"no metadata after {waited_ms} ms"


def _within_reach(status: ClientStatus) -> bool:
    """Whether a connection is ready, or none is needed: the last thing that happened was no failure."""
    if any(node.state == "ready" for node in status.nodes):
        return True
    ages_ms = [node.last_error_age_ms for node in status.nodes] + [status.metadata.last_error_age_ms]
    failed_ms = [age_ms for age_ms in ages_ms if age_ms is not None]
    return not failed_ms or status.metadata.age_ms is None or min(failed_ms) > status.metadata.age_ms
