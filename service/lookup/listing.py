"""Fetches and keeps the list of all topics, apart from the producer's metadata.

If the last list is too old, a request fetches a new one; other callers share it. It goes on when they have
left: the list of a large cluster may take longer than any of them waits, and the next caller gets it. While
the brokers are unreachable, the old list is served with its age: the first caller waits in vain, the others
do not wait. A list is dropped after KEEP_S without a request. Event loop only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, cast

import msgspec

from client_core import (
    Errors,
    IllegalStateError,
    KafkaError,
    ListedTopic,
    ListingResult,
    NoBrokersError,
    Phase,
    ProducerClosedError,
    RefreshTime,
    TimeoutError,
    TopicListing,
)
from service.admission.caller import ALL_TOPICS, TopicRules
from service.base.producer_protocol import Producer
from service.lookup.ages import refreshed_ms_of
from service.lookup.answers import topic_id_text
from service.lookup.lookups import Demands
from service.lookup.paging import Page
from service.wire.errors import ProblemError, problem_of
from service.wire.long_answers import LongBody, Slices, joined

#: An unused list is dropped after this time.
KEEP_S: Final = 300.0

#: The time for a fetch, however briefly its callers wait: that of two requests (request.timeout.ms).
FETCH_MS: Final = 60_000

#: A wait in vain that is shorter does not show that the brokers are silent.
LATE_MS: Final = 250

#: Bodies kept with one list; each has its own prefix and topic rules. Their bytes in all, the first aside.
_MAX_BODIES: Final = 64
MAX_BODY_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class Listed:
    """One list, its time, and the answers built from it."""

    listing: TopicListing
    refreshed: RefreshTime
    #: When it was requested: it may lack a topic that was created later.
    asked_ms: int
    slices: Slices
    _names: list[str] | None = None
    _bodies: dict[tuple[str, bool, TopicRules], LongBody] = field(default_factory=dict)
    _body_bytes: int = 0

    async def names(self) -> list[str]:
        """Returns the names of all topics, sorted."""
        if self._names is None:
            self._names = await self.slices.sorted(self.listing.topics)
        return self._names

    async def body(self, prefix: str, *, internal: bool, rules: TopicRules = ALL_TOPICS) -> LongBody:
        """Returns the JSON of the allowed topics with this prefix, sorted; internal ones if requested."""
        found = self._bodies.get((prefix, internal, rules))
        if found is None:
            found = await self.slices.body(self._pieces(await self.names(), prefix, internal, rules))
            self._keep((prefix, internal, rules), found)
        return found

    def _keep(self, key: tuple[str, bool, TopicRules], body: LongBody) -> None:
        fits = self._body_bytes + body.length <= MAX_BODY_BYTES or not self._bodies
        if fits and len(self._bodies) < _MAX_BODIES and key not in self._bodies:
            self._bodies[key] = body
            self._body_bytes += body.length

    async def page(
        self, prefix: str, page: Page, *, internal: bool, rules: TopicRules = ALL_TOPICS
    ) -> LongBody:
        """Returns the same of one page, with the token of the next page, or null."""
        found, last = await self.names_of(
            page, lambda topic: internal or not topic.is_internal, rules, prefix=prefix
        )
        token = msgspec.json.encode(None if last is None else page.token(last))
        return await self.slices.body(
            chain(
                [b'{"topics":['],
                joined(_topic_json(self.listing.topics[name]) for name in found),
                [b'],"next_page_token":%s}' % token],
            )
        )

    async def names_of(
        self, page: Page, wanted: Callable[[ListedTopic], bool], rules: TopicRules, prefix: str = ""
    ) -> tuple[list[str], str | None]:
        """Returns the names of a page, and the last of them if there is a next page."""
        names = await self.names()
        begin = max(bisect_right(names, page.after or ""), bisect_left(names, prefix))
        found: list[str] = []

        def looked_at() -> Iterator[None]:
            for name in islice(names, begin, None):
                if len(found) > page.size or not name.startswith(prefix):
                    return
                if wanted(self.listing.topics[name]) and rules.allow(name):
                    found.append(name)
                yield

        await self.slices.each(looked_at(), bool)
        return found, page.cut(found)

    def _pieces(self, names: list[str], prefix: str, internal: bool, rules: TopicRules) -> Iterator[bytes]:
        yield b'{"topics":['
        yield from joined(
            _topic_json(self.listing.topics[name])
            if name.startswith(prefix)
            and (internal or not self.listing.topics[name].is_internal)
            and rules.allow(name)
            else b""
            for name in names
        )
        yield b"]}"


def _topic_json(topic: ListedTopic) -> bytes:
    return msgspec.json.encode(
        {
            "name": topic.name,
            "id": topic_id_text(topic.topic_id),
            "internal": topic.is_internal,
            "partition_count": topic.partition_count,
            "error": Errors.of(topic.error_code).name if topic.error_code else None,
        }
    )


class Listing:
    """The last list, and at most one pending request for the next."""

    def __init__(
        self, producer: Producer, *, max_age_ms: int, wait_ms: int, slices: Slices | None = None
    ) -> None:
        self._producer = producer
        self._slices = Slices() if slices is None else slices
        self._clock = producer.clock
        self._max_age_ms = max_age_ms
        self._wait_ms = wait_ms
        self._last: Listed | None = None
        self._fetch: asyncio.Task[KafkaError | None] | None = None
        self._drop: asyncio.TimerHandle | None = None
        #: When a caller began to wait in vain.
        self._silent_since_ms: int | None = None

    async def current(self, demands: Demands) -> Listed:
        """Returns a list no older than demanded (default max_age_ms); fetches a new one if necessary.

        Without a demand, returns the old list if the fetch fails. Raises ProblemError if no list will do.
        """
        self._keep_for_a_while()
        now_ms = self._clock.now_ms()
        loop = asyncio.get_running_loop()
        wait_ms = self._wait_ms if demands.max_block_ms is None else demands.max_block_ms
        may_be_old = self._last is not None and demands.max_age_ms is None
        if may_be_old and self._is_silent():
            wait_ms = 0
        deadline_s = loop.time() + wait_ms / 1000
        young, error = self._young(demands, now_ms), None
        while young is None and error is None:
            error = await self._join_fetch(deadline_s - loop.time())
            young = self._young(demands, now_ms)
            if loop.time() >= deadline_s:
                break
        if young is not None:
            return young
        if error is not None or wait_ms >= LATE_MS:
            self._silent_since_ms = now_ms
        if self._last is not None and demands.max_age_ms is None:
            return self._last
        waited_ms = self._clock.now_ms() - now_ms
        error = error or self._unanswered(waited_ms)
        raise ProblemError(problem_of(error, phase=Phase.METADATA, waited_ms=waited_ms))

    def _is_silent(self) -> bool:
        """Returns whether a caller has waited in vain, and no broker has answered since."""
        if self._silent_since_ms is None:
            return False
        answered_ms = refreshed_ms_of(self._producer.cache, None)
        return answered_ms is None or answered_ms <= self._silent_since_ms

    def _young(self, demands: Demands, now_ms: int) -> Listed | None:
        """Returns the last list if it is as young as demanded at that time."""
        last = self._last
        if last is None:
            return None
        if demands.max_age_ms is None:
            return last if now_ms - last.refreshed.now_ms <= self._max_age_ms else None
        return last if now_ms - last.asked_ms <= demands.max_age_ms else None

    def _unanswered(self, waited_ms: int) -> KafkaError:
        cause = self._producer.status().cause_of_silence
        if not self._producer.cache.is_bootstrap:
            return TimeoutError(f"The topics were not listed within {waited_ms} ms.").because_of(cause)
        error = NoBrokersError(f"No broker of bootstrap.servers has answered, within {waited_ms} ms")
        error.cause = cause
        return error

    def close(self) -> None:
        """Cancels the pending request and the timer."""
        if self._fetch is not None:
            self._fetch.cancel()
        if self._drop is not None:
            self._drop.cancel()

    async def _join_fetch(self, wait_s: float) -> KafkaError | None:
        """Waits for the pending fetch, or begins one; returns its error. Callers that leave do not end it."""
        if self._fetch is None:
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_once())
            self._fetch.add_done_callback(self._fetched)
        fetch = self._fetch
        done, _ = await asyncio.wait({fetch}, timeout=wait_s)
        if fetch.cancelled():
            return ProducerClosedError("the sidecar is shutting down")
        return fetch.result() if done else None

    async def _fetch_once(self) -> KafkaError | None:
        future: asyncio.Future[ListingResult] = asyncio.get_running_loop().create_future()

        def done(result: object) -> None:
            if not future.done():
                future.set_result(cast("ListingResult", result))

        asked_ms = self._clock.now_ms()
        try:
            ticket = self._producer.list_topics(deadline_ms=asked_ms + FETCH_MS, done=done)
        except IllegalStateError:
            return ProducerClosedError("the sidecar is shutting down")
        try:
            result = await future
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        if result.listing is not None:
            refreshed = RefreshTime(self._clock.now_ms(), self._clock.wall_ms())
            self._last = Listed(result.listing, refreshed, asked_ms, self._slices)
            self._silent_since_ms = None
        return result.error

    def _fetched(self, _: asyncio.Task[KafkaError | None]) -> None:
        self._fetch = None

    def _keep_for_a_while(self) -> None:
        if self._drop is not None:
            self._drop.cancel()
        self._drop = asyncio.get_running_loop().call_later(KEEP_S, self._let_go)

    def _let_go(self) -> None:
        self._last = None
        self._drop = None
