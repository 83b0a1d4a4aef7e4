"""Bounds the age of look-up answers: refreshes what is looked up, behind the answer or before it.

    age up to revalidate_after_ms   served
    up to max_stale_ms              served, and refreshed behind it (stale-while-revalidate, RFC 5861)
    older                           refreshed first, for at most wait_ms; then served, with its age
    a refresh has failed            served at once, while one refresh a second goes on behind it

An age is that of the last response with the topic, or with the brokers (None in place of a topic). A refresh
asks for topics that were looked up within max_stale_ms - wait_ms. All look-ups wait for the same refresh.
Without look-ups nothing is sent: there are no timers, each look-up checks what is due.

Refreshes cost tokens, of which there is one more each second, and BURST at most. One costs a token, or more
if it asks for more than PARTITIONS_PER_TOKEN. So a sidecar refreshes at most once a second on average, less
often if answers are large. Those behind an answer are a second apart. The rest of the burst is for look-ups
that wait. When tokens become scarce, a refresh also asks for topics that were not looked up lately, as far as
its token pays for them: a caller that looks up many topics after a pause would otherwise need a refresh for
each. If no token is left, the old answer is served at once. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from itertools import chain, islice
from sys import maxsize
from typing import Final, NamedTuple

from client_core import IllegalStateError, KafkaError, MetadataCache, Result
from service.base.producer_protocol import Producer

#: Refreshes that look-ups may wait for one after the other, without a pause.
BURST: Final = 5
#: With so many tokens or fewer, a refresh asks for topics that were not looked up lately, too.
_SCARCE: Final = 3
#: Partitions, with one per topic, whose response takes some 25 kB. A thousand busy sidecars that know many
#: partitions read 25 MB a second from all brokers.
PARTITIONS_PER_TOKEN: Final = 500
#: Topics in one refresh. Others are in the next one. So many are remembered that were looked up earlier.
MOST_TOPICS: Final = 1_000

_SECOND_MS: Final = 1_000
#: Later than any clock.
NEVER_MS: Final = maxsize


class Due(NamedTuple):
    """What is due for an answer: to refresh it behind, or before it is served; and when to check it again."""

    at_ms: int
    behind: bool
    before: bool


_NOTHING: Final = Due(NEVER_MS, behind=False, before=False)


class _Refresh:
    """A refresh that has not ended. `ended` is created only if a look-up waits."""

    __slots__ = ("ended", "names", "sent_ms")

    def __init__(self, names: Collection[str | None], sent_ms: int) -> None:
        self.names = names
        self.sent_ms = sent_ms
        self.ended: asyncio.Event | None = None

    async def wait(self, timeout_ms: int | None) -> None:
        """Waits for its end, at most for so long. The client ends it at its deadline."""
        if self.ended is None:
            self.ended = asyncio.Event()
        with contextlib.suppress(TimeoutError):  # the old answer is served
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.ended.wait()


class Ages:
    """When each topic was looked up, and the refreshes for them. The defaults set no bound."""

    def __init__(
        self,
        producer: Producer,
        *,
        revalidate_after_ms: int = NEVER_MS,
        max_stale_ms: int = NEVER_MS,
        wait_ms: int = 0,
    ) -> None:
        self._producer = producer
        self._clock = producer.clock
        self._max_stale_ms = max_stale_ms
        self._revalidate_after_ms = min(revalidate_after_ms, max_stale_ms)
        self._wait_ms = wait_ms
        #: How long after its last look-up a topic is still refreshed with others. A caller that looks up once
        #: in twice max_stale_ms, or less often, then always waits for a refresh, and sees what is new.
        self._shared_ms = max(max_stale_ms - wait_ms, max_stale_ms // 2)
        #: The last look-up of each topic; None for the brokers. In the order in which they will be refreshed.
        self._looked_up: dict[str | None, int] = {}
        #: Topics whose last look-up is too long ago to be in `_looked_up`, the longest ago first.
        self._earlier: dict[str, None] = {}
        self._running: list[_Refresh] = []
        #: Thousandths of tokens: one comes each millisecond.
        self._tokens_ms = BURST * _SECOND_MS
        self._counted_ms = self._sent_ms = 0
        #: When the last refresh was sent that no broker answered, and those that did not refresh a topic.
        self._silent_since_ms: int | None = None
        self._failed: dict[str | None, int] = {}

    def look(self, topic: str | None, now_ms: int) -> Due:
        """Notes a look-up, and refreshes behind it if that is due. Ignores an unknown topic."""
        due = self._noted(topic, now_ms)
        if due.behind:
            self._send_behind(now_ms)
        return due

    def waits_for(self, topic: str) -> bool:
        """Returns whether a look-up of the topic would have to wait for a refresh now."""
        return self._due(topic, self._clock.now_ms()).before

    def unconfirmed_ms(self, topic: str | None) -> int | None:
        """Returns the age of what is known of a topic if it is above the bound, else None.

        A refresh of the last `wait_ms` counts as young: with a bound of 0 nothing would be.
        """
        refreshed_ms = refreshed_ms_of(self._producer.cache, topic)
        age_ms = 0 if refreshed_ms is None else self._clock.now_ms() - refreshed_ms
        return age_ms if age_ms > max(self._max_stale_ms, self._wait_ms) else None

    async def freshen(self, topics: Iterable[str | None], max_wait_ms: int | None = None) -> None:
        """Notes look-ups. Refreshes topics that are too old, and waits, for at most `max_wait_ms`."""
        now_ms = self._clock.now_ms()
        dues = {topic: self._noted(topic, now_ms) for topic in topics}
        old = [topic for topic, due in dues.items() if due.before]
        if not old:
            if any(due.behind for due in dues.values()):
                self._send_behind(now_ms)
            return
        refresh = self._refresh_of(old)
        if refresh is None:
            if not self._has_token(now_ms):
                return
            refresh = self._send(now_ms, first=old)
        if refresh in self._running:
            await refresh.wait(max_wait_ms)

    def _noted(self, topic: str | None, now_ms: int) -> Due:
        """Notes a look-up, unless the topic is unknown; returns what is due for it."""
        due = self._due(topic, now_ms)
        if due is not _NOTHING:
            self._looked_up[topic] = now_ms
        return due

    def _due(self, topic: str | None, now_ms: int) -> Due:
        cache = self._producer.cache
        refreshed_ms = refreshed_ms_of(cache, topic)
        if refreshed_ms is None:
            return _NOTHING
        age_ms = now_ms - refreshed_ms
        if age_ms <= self._revalidate_after_ms:
            return Due(refreshed_ms + self._revalidate_after_ms + 1, behind=False, before=False)
        if age_ms <= self._max_stale_ms:
            return Due(refreshed_ms + self._max_stale_ms + 1, behind=True, before=False)
        if self._has_failed(cache, topic, refreshed_ms):
            return Due(NEVER_MS, behind=True, before=False)
        if self._has_token(now_ms) or self._refresh_of([topic]) is not None:
            return Due(NEVER_MS, behind=True, before=True)
        # Until there is a token, the prepared answer is served, however old it is.
        return Due(now_ms + _SECOND_MS - self._tokens_ms, behind=False, before=False)

    # -- refreshes -------------------------------------------------------------------------------------------

    def _send_behind(self, now_ms: int) -> None:
        if now_ms - self._sent_ms >= _SECOND_MS and self._has_token(now_ms):
            self._send(now_ms)

    def _refresh_of(self, topics: Collection[str | None]) -> _Refresh | None:
        """Returns the running refresh that asks for all these topics, if there is one."""
        return next((r for r in self._running if all(topic in r.names for topic in topics)), None)

    def _has_token(self, now_ms: int) -> bool:
        self._tokens_ms = min(self._tokens_ms + now_ms - self._counted_ms, BURST * _SECOND_MS)
        self._counted_ms = now_ms
        return self._tokens_ms >= _SECOND_MS

    def _send(self, now_ms: int, first: Iterable[str | None] = ()) -> _Refresh:
        """Asks for `first`, and for what else was looked up and is no longer fresh."""
        cache = self._producer.cache
        names: dict[str | None, None] = dict.fromkeys([None, *first])  # each response has the brokers
        for topic in list(islice(self._looked_up, MOST_TOPICS)):
            looked_up_ms, refreshed_ms = self._looked_up.pop(topic), refreshed_ms_of(cache, topic)
            if refreshed_ms is None:
                self._failed.pop(topic, None)
                continue
            if now_ms - looked_up_ms > self._shared_ms:
                self._remember(topic)
                continue
            if now_ms - refreshed_ms > self._revalidate_after_ms // 2:
                # Also what is not due yet: topics that are looked up all the time then share their refreshes.
                names[topic] = None
            self._looked_up[topic] = looked_up_ms
        topics = [topic for topic in names if topic is not None]
        size = sum(_size(cache, topic) for topic in topics)
        if self._tokens_ms <= _SCARCE * _SECOND_MS:
            earlier = self._not_looked_up_lately(names, PARTITIONS_PER_TOKEN - size, now_ms)
            names |= dict.fromkeys(earlier)
            topics += earlier
        size = max(size, PARTITIONS_PER_TOKEN)
        self._tokens_ms -= _SECOND_MS * size // PARTITIONS_PER_TOKEN
        self._sent_ms = now_ms
        refresh = _Refresh(names, now_ms)
        self._running.append(refresh)

        def done(result: Result) -> None:
            self._ended(refresh, result.error)

        try:
            self._producer.refresh_topics(topics, deadline_ms=now_ms + self._wait_ms, done=done)
        except IllegalStateError:  # the producer is closed, and its last answers are served
            self._ended(refresh, KafkaError("closed"))
        except BaseException:  # a bug, or a lack of memory: later look-ups must not wait for it
            self._running.remove(refresh)
            raise
        return refresh

    def _remember(self, topic: str | None) -> None:
        """Remembers a topic that was looked up earlier, for a time when tokens are scarce."""
        if topic is None:
            return  # each response has the brokers
        self._earlier.pop(topic, None)
        self._earlier[topic] = None
        if len(self._earlier) > MOST_TOPICS:
            forgotten = next(iter(self._earlier))
            del self._earlier[forgotten]
            self._failed.pop(forgotten, None)

    def _not_looked_up_lately(self, others: Collection[str | None], room: int, now_ms: int) -> list[str]:
        """Returns topics of an old age beside `others`, with `room` partitions at most.

        First those whose last look-up is the longest ago: who looks up topics in turn will look them up next.
        Then those that nobody has looked up, as after a start.
        """
        cache = self._producer.cache
        found: dict[str, None] = {}
        for topic in chain(tuple(self._earlier), islice(cache.topics, MOST_TOPICS)):
            refreshed_ms = refreshed_ms_of(cache, topic)
            if refreshed_ms is None:
                self._earlier.pop(topic, None)
                self._failed.pop(topic, None)
                continue
            if now_ms - refreshed_ms <= self._revalidate_after_ms or topic in others or topic in found:
                continue
            size = _size(cache, topic)
            if size <= room:
                room -= size
                found[topic] = None
        for topic in found:
            if topic in self._earlier:
                self._remember(topic)
        return list(found)

    def _ended(self, refresh: _Refresh, error: KafkaError | None) -> None:
        self._running.remove(refresh)
        cache, sent_ms = self._producer.cache, refresh.sent_ms
        if error is not None:
            self._silent_since_ms = sent_ms
        else:
            for topic in refresh.names:
                refreshed_ms = refreshed_ms_of(cache, topic)
                if refreshed_ms is not None and refreshed_ms < sent_ms:
                    self._failed[topic] = sent_ms
        if refresh.ended is not None:
            refresh.ended.set()

    def _has_failed(self, cache: MetadataCache, topic: str | None, refreshed_ms: int) -> bool:
        """Returns whether a refresh of the topic has failed, and none has succeeded since."""
        if self._silent_since_ms is not None:
            answered_ms = refreshed_ms_of(cache, None)
            if answered_ms is None or answered_ms <= self._silent_since_ms:
                return True
            self._silent_since_ms = None
        failed_ms = self._failed.get(topic)
        if failed_ms is None:
            return False
        if refreshed_ms < failed_ms:
            return True
        del self._failed[topic]
        return False


def _size(cache: MetadataCache, topic: str) -> int:
    return 1 + cache.topics[topic].partition_count


def refreshed_ms_of(cache: MetadataCache, topic: str | None) -> int | None:
    """Returns when a response last contained the topic; None: when one last contained the brokers."""
    if topic is not None:
        return cache.refreshed_ms(topic)
    return None if cache.answered is None else cache.answered.now_ms
