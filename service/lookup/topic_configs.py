"""Fetches topic configs on demand, keeps them a while, and never fails a request.

    kept and young enough     returned at once
    otherwise                 one request shared by all callers, who wait for at most wait_ms
    not available             the old ones, however old; an empty object if there are none

A request goes on when its callers have left, and its answer is kept for the next one.

Configs only complete an answer. So brokers that are unreachable, or deny access (DescribeConfigs has its own
ACL), fail no request. After a failure, the next request is sent some seconds later. A recreated topic has
another id, so it does not get the old topic's configs. If too many topics are kept, the least recently used
one is dropped. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast
from uuid import UUID

from client_core import IllegalStateError, KafkaError, Result, TimeoutError, TopicConfigsResult, TopicTable
from service.base.producer_protocol import Producer

_log: Final = logging.getLogger(__name__)

Configs = Mapping[str, str | None]
NO_CONFIGS: Final[Configs] = MappingProxyType({})

#: After a refusal or a time-out. Long enough to spare a broker that refuses, short enough for one that was
#: unreachable for a moment.
_PAUSE_AFTER_FAILURE_MS: Final = 5_000

#: The time for a request, however briefly its callers wait: that of request.timeout.ms.
_REQUEST_MS: Final = 30_000

#: Topics whose configs are kept; about 4 kB each.
_MAX_TOPICS: Final = 1_000

#: Topics that are asked for at the same time. Callers of others get what is kept.
_MAX_REQUESTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """One topic's configs, and until when they need no refresh."""

    topic_id: UUID | None
    configs: Configs
    until_ms: int


class ConfigsOfTopics:
    """The configs of recently requested topics."""

    def __init__(self, producer: Producer, *, max_age_ms: int, wait_ms: int) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._max_age_ms = max_age_ms
        self._wait_ms = wait_ms
        #: The least recently used first.
        self._kept: dict[str, _Kept] = {}
        self._asked: dict[str, asyncio.Future[None]] = {}

    async def of(self, topic: TopicTable) -> Configs:
        """Returns the configs by name; a sensitive value is None. Never raises; waits at most wait_ms."""
        kept = self._of_this(topic)
        if kept is None or kept.until_ms <= self._clock.now_ms():
            await self._ask(topic)
            kept = self._of_this(topic)
        if kept is None:
            return NO_CONFIGS
        self._kept[topic.name] = self._kept.pop(topic.name)
        return kept.configs

    def _of_this(self, topic: TopicTable) -> _Kept | None:
        kept = self._kept.get(topic.name)
        return kept if kept is not None and kept.topic_id == topic.topic_id else None

    async def _ask(self, topic: TopicTable) -> None:
        """Waits for the pending request, or sends one. A caller that leaves does not cancel it."""
        asked = self._asked.get(topic.name)
        if asked is None:
            if len(self._asked) >= _MAX_REQUESTS:
                return
            asked = self._request(topic)
        done, _ = await asyncio.wait([asked], timeout=self._wait_ms / 1000)
        if not done:
            self._keep(topic, TopicConfigsResult(None, error=TimeoutError(f"none in {self._wait_ms} ms")))

    def _request(self, topic: TopicTable) -> asyncio.Future[None]:
        reported: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[topic.name] = reported

        def done(result: Result) -> None:
            del self._asked[topic.name]
            self._keep(topic, cast("TopicConfigsResult", result))
            reported.set_result(None)

        deadline_ms = self._clock.now_ms() + _REQUEST_MS
        try:
            self._producer.describe_topic_configs(topic.name, deadline_ms=deadline_ms, done=done)
        except (KafkaError, IllegalStateError) as e:
            # The producer is closed.
            done(TopicConfigsResult(None, error=KafkaError(str(e))))
        except BaseException:  # a bug, or a lack of memory: later look-ups must not wait for it
            del self._asked[topic.name]
            raise
        return reported

    def _keep(self, topic: TopicTable, result: TopicConfigsResult) -> None:
        if result.configs is None:
            _log.debug("the configs of topic %s could not be fetched: %s", topic.name, result.error)
            old = self._of_this(topic)
            configs = NO_CONFIGS if old is None else old.configs
            good_for_ms = min(_PAUSE_AFTER_FAILURE_MS, self._max_age_ms)
        else:
            configs = MappingProxyType({name: config.value for name, config in result.configs.items()})
            good_for_ms = self._max_age_ms
        self._kept[topic.name] = _Kept(topic.topic_id, configs, self._clock.now_ms() + good_for_ms)
        if len(self._kept) > _MAX_TOPICS:
            del self._kept[next(iter(self._kept))]
