"""Which topics the producer wants metadata of, and until when; and waiting for it.

A topic is held from `add` until nobody used it for metadata.max.idle.ms; configured ones are held for ever.
Using is adding it again, or a look-up's mark on its table. Beyond Java, each topic says whether asking for it
may create it (`may_create`): a look-up must not. A request allows creation only when all its topics may be
created; one that is answered as missing where creation was not allowed is asked for again, with its like
alone. Any thread adds and waits; the I/O thread asks and answers. Source: ProducerMetadata, Kafka 4.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import KafkaError, TimeoutError
from client_core.events import NO_EVENTS, EventSink
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_request import MetadataRequestBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from client_core.clock import Clock
    from client_core.metadata.metadata_response import MetadataResponse

_log = logging.getLogger(__name__)


class TopicError(NamedTuple):
    """The error that a topic was answered with last, and how many answers in a row said the same."""

    code: int
    consecutive_answers: int


@dataclass(slots=True)
class _HeldTopic:
    """A topic that is wanted. `expires_ms` None: configured, held for ever."""

    expires_ms: int | None
    may_create: bool


class ProducerMetadata(Metadata):
    """Metadata of the topics that are used. It holds a Clock, as Java's does, to wait by."""

    def __init__(
        self, config: MetadataConfig, random: Random, clock: Clock, events: EventSink = NO_EVENTS
    ) -> None:
        super().__init__(config, random, events)
        self._clock = clock
        self._max_idle_ms = config.max_idle_ms
        self._topics: dict[str, _HeldTopic] = {}
        #: Topics that no response has named yet, in the order they were added.
        self._new_topics: dict[str, None] = {}
        #: Topics that are missing, may be created, and were last asked for without leave to create them.
        self._to_create: dict[str, None] = {}
        self._may_create_in_flight = True
        self._topic_errors: dict[str, TopicError] = {}
        #: Why the last connection ended, and when.
        self._last_disconnection: tuple[str, int] | None = None

    @property
    def last_disconnection(self) -> str | None:
        """Why the last connection ended, and how long ago, for who waits in vain for a first answer. Any
        thread.
        """
        last = self._last_disconnection
        return None if last is None else f"{last[0]}, {(self._clock.now_ms() - last[1]) / 1000:.1f} s ago"

    def note_disconnection(self, detail: str) -> None:
        """A connection has ended, or could not be made. I/O thread."""
        self._last_disconnection = (detail, self._clock.now_ms())

    # -- what is wanted --------------------------------------------------------------------------------------

    def add(self, topic: str, now_ms: int, *, may_create: bool = True) -> None:
        """Holds a topic for another metadata.max.idle.ms; asks for it at once if it is new (PMD-01).

        Once added with `may_create` it keeps that leave for as long as it is held.
        """
        with self._changed:
            held = self._topics.get(topic)
            if held is None:
                self._hold_new(topic, now_ms + self._max_idle_ms, may_create)
                return
            if held.expires_ms is not None:
                held.expires_ms = now_ms + self._max_idle_ms
            if may_create and not held.may_create:
                held.may_create = True
                error = self._topic_errors.get(topic)
                if error is not None and error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code:
                    self._to_create[topic] = None
                    self._schedule.need_new_topics()

    def configure_topics(self, topics: Iterable[str], *, may_create: bool = False) -> None:
        """Holds topics for ever, used or not."""
        with self._changed:
            for topic in topics:
                held = self._topics.get(topic)
                if held is None:
                    self._hold_new(topic, None, may_create)
                else:
                    held.expires_ms = None

    def _hold_new(self, topic: str, expires_ms: int | None, may_create: bool) -> None:
        self._topics[topic] = _HeldTopic(expires_ms, may_create)
        self._new_topics[topic] = None
        self._schedule.need_new_topics()

    def discard(self, topic: str) -> None:
        """Stops asking for a topic that brokers say is not there, before it expires; a configured one stays.

        For names that turned out not to exist: each would otherwise keep the refreshing going. While no
        broker can be asked, nothing is known to be missing.
        """
        with self._changed:
            held = self._topics.get(topic)
            last = self._topic_errors.get(topic)
            is_missing = last is not None and last.code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
            if held is not None and held.expires_ms is not None and is_missing:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        del self._topics[topic]
        self._new_topics.pop(topic, None)
        self._to_create.pop(topic, None)
        self._topic_errors.pop(topic, None)

    @property
    def topics(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        """The topics that no response has named yet."""
        with self._changed:
            return frozenset(self._new_topics)

    def contains_topic(self, topic: str) -> bool:
        return topic in self._topics

    def _is_held(self, topic: str) -> bool:
        return topic in self._topics

    def request_update_for_topic(self, topic: str) -> int:
        """Asks for an update for a topic's sake; returns the present update_version (PMD-05)."""
        with self._changed:
            if topic in self._new_topics:
                return self.request_update_for_new_topics()
            missing = topic not in self.cache.topics
            return self.request_update(False, "topic_missing" if missing else "leader_error")

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        """Whether a topic is held still; one not used in time is dropped here (PMD-02). Lock held."""
        held = self._topics.get(topic)
        if held is None:
            return False
        if held.expires_ms is None or topic in self._new_topics:
            return True
        table = self.cache.topics.get(topic)
        if table is not None and table.use.touched:
            table.use.touched = False
            held.expires_ms = now_ms + self._max_idle_ms
        if held.expires_ms > now_ms:
            return True
        _log.debug("Removing unused topic %s, expired at %s, now %s", topic, held.expires_ms, now_ms)
        self._forget(topic)
        return False

    # -- asking ----------------------------------------------------------------------------------------------

    def _new_request(self) -> MetadataRequestBuilder:
        return self._request_for(self._topics)

    def _new_partial_request(self, is_enough: bool) -> MetadataRequestBuilder | None:
        if self._to_create:
            # Even before a full update that is due: that one would only find them missing once more.
            return self._request_for(self._to_create)
        return self._request_for(self._new_topics) if is_enough else None

    def _request_for(self, names: Iterable[str]) -> MetadataRequestBuilder:
        """A request for these topics (PMD-06). Before any was added it names none: brokers only."""
        topics = tuple(names)
        may_create = all(self._topics[topic].may_create for topic in topics)
        self._may_create_in_flight = may_create
        return MetadataRequestBuilder(topics, may_create, self._known_topics)

    # -- answers ---------------------------------------------------------------------------------------------

    def _answered(self, response: MetadataResponse, is_partial: bool, now_ms: int) -> None:
        """Whatever was answered is no longer new, be the answer an error (PMD-03). Lock held."""
        failed = {topic: code for topic, code in response.errors.items() if topic in self._topics}
        missing = [topic for topic, code in failed.items() if code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code]
        to_create: list[str] = []
        if not self._may_create_in_flight:
            to_create = [topic for topic in missing if self._topics[topic].may_create]
        is_first_answer = not self._new_topics.keys().isdisjoint(to_create)
        if self._new_topics or self._to_create or self._topic_errors or failed:
            self._note_answers((topic.name for topic in response.topics), failed)
        if to_create:
            self._to_create.update(dict.fromkeys(to_create))
            if is_first_answer:
                self._schedule.need_new_topics()

    def _note_answers(self, answered: Iterable[str], failed: dict[str, int]) -> None:
        for topic in answered:
            self._new_topics.pop(topic, None)
            self._to_create.pop(topic, None)
            if topic not in failed:
                self._topic_errors.pop(topic, None)
        for topic, code in failed.items():
            earlier = self._topic_errors.get(topic)
            again = earlier.consecutive_answers if earlier is not None and earlier.code == code else 0
            self._topic_errors[topic] = TopicError(code, again + 1)

    def topic_error(self, topic: str) -> TopicError | None:
        """The error of the last response that named the topic; None if there was none (PMD-08)."""
        return self._topic_errors.get(topic)

    def _wall_ms(self) -> int | None:
        return self._clock.wall_ms()

    # -- waiting ---------------------------------------------------------------------------------------------

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        """Blocks until update_version is greater than `last_version` (PMD-04, PMD-07). Not on the I/O thread.

        Raises TimeoutError, the fatal error if there is one, and KafkaError when closed.
        """
        deadline_ms = min(self._clock.now_ms() + timeout_ms, FOREVER_MS)

        def is_over() -> bool:
            self.maybe_throw_fatal_exception()
            return self._update_version > last_version or self._is_closed

        with self._changed:
            if not self._clock.wait_for(self._changed, is_over, deadline_ms):
                raise TimeoutError(f"metadata not updated within {timeout_ms} ms")
            if self._is_closed:
                raise KafkaError("Requested metadata update after close")
