"""Answers probes: is the sidecar alive, ready, started? Returns None for yes, or the reason for no.

    livez     the poll loop turns when it is woken (an idle one sleeps for long), and the event loop turns.
              It does not check whether Kafka is reachable: restarting cannot fix a broker. If a probe, or the
              sidecar's own check every ten seconds, finds a stalled loop, all stacks are logged
              (`loop_watchdog.py`)
    readyz    metadata is known, a broker is reachable and answers, and the sidecar is not shutting down. It
              fails if requests are in flight for readiness_unanswered_ms and no broker has answered any, nor
              a request that the probe sends then: maybe one broker hangs, and no other was asked. A
              sidecar that asks nothing stays ready
    startupz  the API listens, and the first metadata has come or startup_require_metadata allows a start
              without it

Admin thread only. It reads `status()`, which does not block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final, Never

from client_core import ClientStatus, IllegalStateError, UncaughtErrors
from service.process.loop_watchdog import EVENT_LOOP, POLL_LOOP, LoopWatchdog
from service.sidecar.sidecar import Sidecar

_log: Final = logging.getLogger(__name__)

#: Pause between two checks of whether a loop has turned.
_LOOK_S: Final = 0.005
#: Interval of the sidecar's own check, for deployments without probes. A usual interval of probes.
_WATCH_S: Final = 10.0


class Health:
    """The health of one sidecar. `listening` returns whether the API listens, on `api_loop`."""

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
        """Wakes both loops, and returns a fault unless each turns within liveness_timeout_ms."""
        status = self._producer.status()
        if status.state == "failed":
            return "the client has failed"
        turned = threading.Event()
        try:
            self._api_loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return "the event loop has ended"
        # The loop of a closing client ends, which is no fault.
        polls = not self._sidecar.drain.begun
        if polls:
            self._producer.wakeup()
        within_ms = self._sidecar.settings.liveness_timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_ms / 1000
        while True:
            polled = not polls or self._producer.status().loop_turns != status.loop_turns
            stalled = [name for name, ok in ((POLL_LOOP, polled), (EVENT_LOOP, turned.is_set())) if not ok]
            is_late = loop.time() >= deadline
            if is_late or not stalled:
                asked = {POLL_LOOP, EVENT_LOOP} if polls else {EVENT_LOOP}
                self.loop_watchdog.judged(
                    turned=asked.difference(stalled), stalled=stalled, after_ms=within_ms
                )
            if not stalled:
                return None
            if is_late:
                return f"the {' and the '.join(stalled)} did not complete a turn within {within_ms} ms"
            await asyncio.sleep(_LOOK_S)

    async def watch(self, every_s: float = _WATCH_S) -> Never:
        """Checks both loops periodically, until it is cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.fault_of_life()
            except Exception as error:  # noqa: BLE001 -- without the watch a stall may go unnoticed
                self._uncaught.report(error, self._clock.now_ms())

    async def fault_of_readiness(self) -> str | None:
        if self._sidecar.drain.announced or self._sidecar.drain.begun:
            return "shutting down"
        status = self._producer.status()
        if status.metadata.age_ms is None:
            return "no metadata yet"
        if not _within_reach(status):
            return "no broker can be reached; metadata is still served"
        if not await self._is_answered(status):
            return f"no broker has answered for {status.unanswered_ms} ms; metadata is still served"
        return None

    async def _is_answered(self, status: ClientStatus) -> bool:
        """Returns whether brokers answer. If they have left requests unanswered for long, asks one more."""
        limits = self._sidecar.settings.internal
        limit_ms, wait_ms = limits.readiness_unanswered_ms, limits.lookup_refresh_wait_ms
        if status.unanswered_ms < limit_ms:
            return True
        with contextlib.suppress(IllegalStateError):  # it closes
            self._producer.refresh_topics((), deadline_ms=self._clock.now_ms() + wait_ms, done=lambda _: None)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while self._producer.status().unanswered_ms >= limit_ms:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

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
    """Returns whether a connection is ready, or none is needed: the last event was not a failure."""
    if any(node.state == "ready" for node in status.nodes):
        return True
    ages_ms = [node.last_error_age_ms for node in status.nodes] + [status.metadata.last_error_age_ms]
    failed_ms = [age_ms for age_ms in ages_ms if age_ms is not None]
    answered_ms = status.last_answer_age_ms
    return not failed_ms or answered_ms is None or min(failed_ms) > answered_ms
