"""The list of all topics: a snapshot of its own, fetched when somebody asks and the last one is too old.

Many askers share one request. While the brokers are away the old list goes on being served, its age says
how old it is; nobody asking for some minutes lets it go. Never merged into the producer's topics. Event
loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from client_core import (
    Errors,
    IllegalStateError,
    KafkaError,
    ListedTopic,
    ListingResult,
    Phase,
    ProducerClosedError,
    TimeoutError,
    TopicListing,
)
from service.admission.caller import ALL_TOPICS, TopicRules
from service.base.producer_protocol import Producer
from service.lookup.answers import topic_id_text
from service.lookup.lookups import Demands
from service.wire.errors import ProblemError, problem_of
from service.wire.long_answers import LongBody, Slices, joined

#: A list that nobody asked for in so long is dropped.
KEEP_S: Final = 300.0

#: How many bodies, by prefix and by whose they are, lie ready beside one list.
_MAX_BODIES: Final = 64


@dataclass(slots=True)
class Listed:
    """One list and when it came; answers made of it are kept beside it."""

    listing: TopicListing
    refreshed_ms: int
    refreshed_wall_ms: int
    slices: Slices
    _names: list[str] | None = None
    _bodies: dict[tuple[str, bool, TopicRules], LongBody] = field(default_factory=dict)

    async def names(self) -> list[str]:
        """The names of all topics, in order."""
        if self._names is None:
            self._names = await self.slices.sorted(self.listing.topics)
        return self._names

    async def body(self, prefix: str, *, internal: bool, rules: TopicRules = ALL_TOPICS) -> LongBody:
        """The JSON of the allowed topics with that prefix, by name; internal ones only where asked for."""
        found = self._bodies.get((prefix, internal, rules))
        if found is None:
            found = await self.slices.body(self._pieces(await self.names(), prefix, internal, rules))
            if len(self._bodies) < _MAX_BODIES:
                self._bodies[prefix, internal, rules] = found
        return found

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
    """The last list, and the one request that may be under way for the next."""

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

    async def current(self, demands: Demands) -> Listed:
        """A list no older than demanded, or than we like, or the old one where there is no newer to be had.

        Raises ProblemError where there is none, or none as young as demanded.
        """
        self._keep_for_a_while()
        max_age_ms = self._max_age_ms if demands.max_age_ms is None else demands.max_age_ms
        if self._last is not None and self._clock.now_ms() - self._last.refreshed_ms <= max_age_ms:
            return self._last
        asked_ms = self._clock.now_ms()
        wait_ms = self._wait_ms if demands.max_block_ms is None else demands.max_block_ms
        error = await self._join_fetch(wait_ms)
        last = self._last
        if last is not None and (demands.max_age_ms is None or asked_ms - last.refreshed_ms <= max_age_ms):
            return last
        waited_ms = self._clock.now_ms() - asked_ms
        error = error or TimeoutError(f"No list of topics came within {waited_ms} ms.")
        raise ProblemError(problem_of(error, phase=Phase.METADATA, waited_ms=waited_ms))

    def close(self) -> None:
        """Ends what is under way."""
        if self._fetch is not None:
            self._fetch.cancel()
        if self._drop is not None:
            self._drop.cancel()

    async def _join_fetch(self, wait_ms: int) -> KafkaError | None:
        """Waits for the request under way, making it where there is none. No asker who leaves ends it."""
        if self._fetch is None:
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_once(wait_ms))
            self._fetch.add_done_callback(self._fetched)
        fetch = self._fetch
        done, _ = await asyncio.wait({fetch}, timeout=wait_ms / 1000)
        return fetch.result() if done and not fetch.cancelled() else None

    async def _fetch_once(self, wait_ms: int) -> KafkaError | None:
        future: asyncio.Future[ListingResult] = asyncio.get_running_loop().create_future()

        def done(result: object) -> None:
            if not future.done():
                future.set_result(cast("ListingResult", result))

        try:
            ticket = self._producer.list_topics(deadline_ms=self._clock.now_ms() + wait_ms, done=done)
        except IllegalStateError:
            return ProducerClosedError("the sidecar is shutting down")
        try:
            result = await future
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        if result.listing is not None:
            self._last = Listed(result.listing, self._clock.now_ms(), self._clock.wall_ms(), self._slices)
        return result.error

    def _fetched(self, fetch: asyncio.Task[KafkaError | None]) -> None:
        if self._fetch is fetch:
            self._fetch = None

    def _keep_for_a_while(self) -> None:
        if self._drop is not None:
            self._drop.cancel()
        self._drop = asyncio.get_running_loop().call_later(KEEP_S, self._let_go)

    def _let_go(self) -> None:
        self._last = None
        self._drop = None
