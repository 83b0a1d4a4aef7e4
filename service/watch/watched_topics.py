"""Topics that are watched by name: kept alive while they are there, asked for while they are not.

The client forgets topics that nobody asks for, so each is marked as used whenever a snapshot came. One that
the brokers do not know is looked up again every `look_up_ms`, all watchers' together, as any look-up does it:
it is not created, and it counts against the limit of unknown names. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from service.base.producer_protocol import Producer
from service.base.topic_names import fault_of_topic_name
from service.lookup.lookups import NO_DEMANDS, Lookups
from service.wire.asgi import Message
from service.wire.errors import ProblemError

_log: Final = logging.getLogger(__name__)


class WatchedTopics:
    """The names, and how many watch each."""

    def __init__(self, producer: Producer, lookups: Lookups, look_up_ms: int) -> None:
        self._producer = producer
        self._lookups = lookups
        self._look_up_ms = look_up_ms
        self._watchers: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, names: Iterable[str]) -> None:
        """One more watches these."""
        self._watchers.update(name for name in names if fault_of_topic_name(name) is None)
        self.touch()
        self._ask_later()

    def remove(self, names: Iterable[str]) -> None:
        """One fewer does."""
        self._watchers.subtract(name for name in names if name in self._watchers)
        self._watchers = +self._watchers

    def touch(self) -> None:
        """A snapshot came, or a watcher: their topics are in use."""
        topics = self._producer.cache.topics
        for name in self._watchers:
            table = topics.get(name)
            if table is not None:
                table.use.touched = True

    def begin_anew(self) -> None:
        """On another event loop: what was to come on the old one does not come any more."""
        self._watchers.clear()
        self._timer = self._asking = None

    # -- asking ----------------------------------------------------------------------------------------------

    def _ask_later(self) -> None:
        if self._timer is None and self._asking is None and self._watchers:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._look_up_ms / 1000, self._begin_to_ask)

    def _begin_to_ask(self) -> None:
        self._timer = None
        topics = self._producer.cache.topics
        missing = [name for name in self._watchers if name not in topics]
        if missing:
            self._asking = asyncio.get_running_loop().create_task(self._ask(missing))
        else:
            self._ask_later()

    async def _ask(self, missing: list[str]) -> None:
        try:
            await self._lookups.know(missing, NO_DEMANDS, _nobody_leaves)
        except ProblemError as e:
            _log.debug("topics that are watched could not be looked up: %s", e.problem.detail)
        finally:
            self._asking = None
            self._ask_later()  # whatever failed: nobody else would ask again


async def _nobody_leaves() -> Message:
    """A caller who stays: the watchers come and go, and the look-up is for all of them."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets that future")
