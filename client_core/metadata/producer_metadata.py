"""The producer's topics, their expiry, and waits for metadata updates.

A topic is held from `add` until it is unused for metadata.max.idle.ms; configured topics are held for ever.
Another `add`, or a look-up that marks its table, counts as use. A missing topic is held while callers add it
again between the responses that report it missing. Java requests it once a second until it expires. A broker
that has just started may report an existing topic as missing. So for a topic that existed before, other
brokers are asked too. Until then readers still find it, as old as it is (`answered_cache`); records wait.

Unlike in Java, each topic has a flag whether a request may create it (`may_create`): a look-up must not. A
request allows creation only if all its topics do. A creatable topic reported missing without creation allowed
is requested again, only with other creatable topics. Any thread adds and waits; the I/O thread sends requests
and applies responses. Source: ProducerMetadata, Kafka 4.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import KafkaError, TimeoutError
from client_core.events import NO_EVENTS, EventSink
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_request import MetadataRequestBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from client_core.clock import Clock
    from client_core.errors import Cause
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.metadata_response import MetadataResponse

_log = logging.getLogger(__name__)


#: Consecutive responses that must report a topic missing: right after its creation a broker may not know it.
ANSWERS_THAT_SETTLE: Final = 2
#: How long one broker must report an existing topic missing: right after its start it may know no topics.
_DENIED_BY_ONE_MS: Final = 5_000
#: While responses are equal, topics are checked for uses and expiry so often in metadata.max.idle.ms.
_CHECKS_UNTIL_IDLE: Final = 16


class TopicError(NamedTuple):
    """A topic's last error, and the number of consecutive responses with it."""

    code: int
    consecutive_answers: int


@dataclass(slots=True)
class _HeldTopic:
    """A wanted topic. `expires_ms` None: configured, held for ever."""

    expires_ms: int | None
    may_create: bool
    #: Whether it was added since its last error response: records or a look-up wait for it.
    is_wanted: bool = True


@dataclass(slots=True)
class _Denial:
    """Consecutive reports that a topic, which existed before, is missing."""

    since_ms: int
    node_id: int | None
    is_proven: bool = False


class ProducerMetadata(Metadata):
    """Metadata of the topics in use. It holds a Clock for its waits, as in Java."""

    def __init__(
        self, config: MetadataConfig, random: Random, clock: Clock, events: EventSink = NO_EVENTS
    ) -> None:
        super().__init__(config, random, events)
        self._clock = clock
        self._max_idle_ms = config.max_idle_ms
        self._topics: dict[str, _HeldTopic] = {}
        #: When the topics of a full response were checked for expiry, and when the first may expire.
        self._checked_ms = 0
        self._retained_until_ms = 0
        #: Topics that no response to the schedule contained yet, in the order they were added.
        self._new_topics: dict[str, None] = {}
        #: When those of them were added that are neither known nor missing, and must not be created.
        self._unanswered: dict[str, int] = {}
        #: Missing topics that may be created, but were last requested without allowing creation.
        self._to_create: dict[str, None] = {}
        self._may_create_in_flight = True
        self._topic_errors: dict[str, TopicError] = {}
        self._denials: dict[str, _Denial] = {}
        #: Topics that the present response ended: they are missing, and nobody waits for them.
        self._ended: set[str] = set()
        #: Why the last connection ended, and when.
        self._last_disconnection: tuple[str, int] | None = None
        #: Why no broker has answered, if a connection shows it. Any thread; the client's wiring sets it.
        self.cause_of_silence: Callable[[], Cause | None] = lambda: None

    @property
    def last_disconnection(self) -> str | None:
        """Why and when the last connection ended, for errors of waits for a first response. Any thread."""
        last = self._last_disconnection
        return None if last is None else f"{last[0]}, {(self._clock.now_ms() - last[1]) / 1000:.1f} s ago"

    def note_disconnection(self, detail: str) -> None:
        """Records that a connection ended or failed. I/O thread."""
        self._last_disconnection = (detail, self._clock.now_ms())

    # -- wanted topics ---------------------------------------------------------------------------------------

    def add(self, topic: str, now_ms: int, *, may_create: bool = True) -> None:
        """Holds a topic for another metadata.max.idle.ms; requests it at once if new (PMD-01).

        Once added with `may_create`, it keeps this flag while it is held.
        """
        with self._lock:
            held = self._topics.get(topic)
            if held is None:
                self._hold_new(topic, now_ms, now_ms + self._max_idle_ms, may_create)
                return
            held.is_wanted = True
            if held.expires_ms is not None:
                held.expires_ms = now_ms + self._max_idle_ms
            if may_create and not held.may_create:
                held.may_create = True
                self._unanswered.pop(topic, None)
                error = self._topic_errors.get(topic)
                if error is not None and error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code:
                    self._to_create[topic] = None
                    self._schedule.need_new_topics()

    def configure_topics(self, topics: Iterable[str]) -> None:
        """Holds topics for ever, used or not; look-ups of them create none."""
        with self._lock:
            for topic in topics:
                held = self._topics.get(topic)
                if held is None:
                    self._hold_new(topic, self._clock.now_ms(), None, may_create=False)
                else:
                    held.expires_ms = None

    def _hold_new(self, topic: str, now_ms: int, expires_ms: int | None, may_create: bool) -> None:
        self._topics[topic] = _HeldTopic(expires_ms, may_create)
        self._new_topics[topic] = None
        if not may_create:
            self._unanswered[topic] = now_ms
        self._schedule.need_new_topics()

    def discard(self, topic: str) -> None:
        """Forgets a topic that brokers report missing, before it expires; a configured one stays.

        Otherwise each nonexistent name would keep causing refreshes. A topic in doubt, or not answered yet,
        does not count as missing.
        """
        with self._lock:
            held = self._topics.get(topic)
            is_missing = self.settled_error_code(topic) == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
            if held is not None and held.expires_ms is not None and is_missing:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        del self._topics[topic]
        self._retained_until_ms = 0
        self._new_topics.pop(topic, None)
        self._unanswered.pop(topic, None)
        self._to_create.pop(topic, None)
        self._topic_errors.pop(topic, None)
        self._denials.pop(topic, None)

    @property
    def topics(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        """The topics that no response contained yet."""
        with self._lock:
            return frozenset(self._new_topics)

    @property
    def unanswered_since_ms(self) -> int | None:
        """When the first of the unanswered topics was added; None without any."""
        if not self._unanswered:
            return None
        with self._lock:
            return next(iter(self._unanswered.values()), None)

    @property
    def unanswered_topics(self) -> tuple[str, ...]:
        """The new topics that are neither known nor missing, without those that may be created."""
        with self._lock:
            return tuple(self._unanswered)

    def contains_topic(self, topic: str) -> bool:
        return topic in self._topics

    def _is_held(self, topic: str) -> bool:
        return topic in self._topics or topic in self._ended

    def request_update_for_topic(self, topic: str) -> int:
        """Requests an update because of a topic; returns the current update_version (PMD-05)."""
        with self._lock:
            if topic in self._new_topics:
                return self.request_update_for_new_topics()
            missing = topic not in self.cache.topics
            return self.request_update(False, "topic_missing" if missing else "leader_error")

    def retain_topic(self, topic: str, now_ms: int) -> bool:
        """Returns whether a topic is still held; drops one that has expired (PMD-02). Lock held."""
        held = self._topics.get(topic)
        if held is None:
            return False
        if held.expires_ms is None:
            return True
        is_new = topic in self._new_topics
        if not is_new and not held.is_wanted and self.is_missing(topic):
            _log.info("Topic %s is no longer requested: brokers report that it does not exist", topic)
            self._forget(topic)
            self._ended.add(topic)
            return False
        table = self.cache.topics.get(topic)
        if table is not None and table.use.touched:
            table.use.touched = False
            held.expires_ms = now_ms + self._max_idle_ms
        if held.expires_ms > now_ms or is_new:
            if held.expires_ms < self._retained_until_ms:
                self._retained_until_ms = held.expires_ms
            return True
        _log.debug("Removing unused topic %s, expired at %s, now %s", topic, held.expires_ms, now_ms)
        self._forget(topic)
        return False

    def _begin_to_check(self, now_ms: int) -> None:
        self._checked_ms, self._retained_until_ms = now_ms, FOREVER_MS

    def _retains_all(self, now_ms: int) -> bool:
        # The use of a topic may be noticed late, by a fraction of metadata.max.idle.ms.
        until_ms = self._retained_until_ms
        is_fresh = now_ms < self._checked_ms + self._max_idle_ms // _CHECKS_UNTIL_IDLE
        return now_ms < until_ms and (is_fresh or until_ms == FOREVER_MS)

    # -- requests --------------------------------------------------------------------------------------------

    def _new_request(self) -> MetadataRequestBuilder:
        return self._request_for(self._topics)

    def _new_partial_request(self, is_enough: bool) -> MetadataRequestBuilder | None:
        if self._to_create:
            # Even before a due full update, which would only report them missing again.
            return self._request_for(self._to_create)
        return self._request_for(self._new_topics) if is_enough else None

    def _request_for(self, names: Iterable[str]) -> MetadataRequestBuilder:
        """Returns a request for these topics (PMD-06); without topics it requests only the brokers."""
        topics = tuple(names)
        may_create = all(self._topics[topic].may_create for topic in topics)
        self._may_create_in_flight = may_create
        if names is self._topics:
            return MetadataRequestBuilder(topics, may_create, self._known_topics, self._known_in_order)
        return MetadataRequestBuilder(topics, may_create, self._known_topics)

    # -- responses -------------------------------------------------------------------------------------------

    def _answered(self, response: MetadataResponse) -> None:
        """Topics in a response, even with an error, are no longer new (PMD-03). Lock held."""
        failed = {topic: code for topic, code in response.errors.items() if topic in self._topics}
        missing = [topic for topic, code in failed.items() if code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code]
        to_create: list[str] = []
        if not self._may_create_in_flight:
            to_create = [topic for topic in missing if self._topics[topic].may_create]
        is_first_answer = not self._new_topics.keys().isdisjoint(to_create)
        if self._new_topics or self._to_create:
            for answered in response.topics:
                self._new_topics.pop(answered.name, None)
                self._unanswered.pop(answered.name, None)
                self._to_create.pop(answered.name, None)
        for topic in failed:
            self._topics[topic].is_wanted = False
        if to_create:
            self._to_create.update(dict.fromkeys(to_create))
            if is_first_answer:
                self._schedule.need_new_topics()

    def _errors_came(self, response: MetadataResponse, now_ms: int, node_id: int | None) -> None:
        """Counts consecutive errors of each held topic."""
        errors = response.errors
        self._ended.clear()
        is_same_cluster = response.cluster_id == self.answered_cache.cluster_id
        if not is_same_cluster:
            self._denials.clear()  # topics of another cluster end at once
        if self._topic_errors:
            for topic in response.topics:
                if topic.name not in errors:
                    self._topic_errors.pop(topic.name, None)
                    self._denials.pop(topic.name, None)
        for name, code in errors.items():
            if name not in self._topics:
                continue
            earlier = self._topic_errors.get(name)
            again = earlier.consecutive_answers if earlier is not None and earlier.code == code else 0
            self._topic_errors[name] = TopicError(code, again + 1)
            if is_same_cluster and code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code:
                self._denied(name, now_ms, node_id)
            else:
                self._denials.pop(name, None)
        if self._unanswered:
            for topic in response.topics:
                if topic.name not in errors or self.is_missing(topic.name):
                    self._unanswered.pop(topic.name, None)

    def _denied(self, topic: str, now_ms: int, node_id: int | None) -> None:
        """Records which broker reports an existing topic missing."""
        denial = self._denials.get(topic)
        if denial is None:
            if topic in self.answered_cache.topics:
                self._denials[topic] = _Denial(now_ms, node_id)
            return
        is_another = None not in (node_id, denial.node_id) and node_id != denial.node_id
        if is_another or now_ms - denial.since_ms >= _DENIED_BY_ONE_MS:
            denial.is_proven = True

    def _is_settled(self, topic: str) -> bool:
        held = self._topics.get(topic)
        return held is not None and not held.is_wanted and self.is_missing(topic)

    def topic_error(self, topic: str) -> TopicError | None:
        """Returns the topic's error in the last response with it; None without one (PMD-08)."""
        return self._topic_errors.get(topic)

    def settled_error_code(self, topic: str) -> int | None:
        """Returns that error's code; None if in doubt: only one broker reports an existing topic missing."""
        last = self._topic_errors.get(topic)
        return None if last is None or self.is_topic_in_doubt(topic) else last.code

    def proven_error_code(self, topic: str) -> int | None:
        """Returns that error's code; None also if too few responses have reported the topic missing."""
        code = self.settled_error_code(topic)
        if code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code and not self.is_missing(topic):
            return None
        return code

    def is_missing(self, topic: str) -> bool:
        """Returns whether enough responses have reported the topic missing."""
        last = self._topic_errors.get(topic)
        return (
            last is not None
            and last.consecutive_answers >= ANSWERS_THAT_SETTLE
            and self.settled_error_code(topic) == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
        )

    @property
    def is_in_doubt(self) -> bool:
        """Whether only one broker reports an existing topic missing: another one must be asked."""
        with self._lock:
            return any(map(self.is_topic_in_doubt, self._denials))

    def is_topic_in_doubt(self, topic: str) -> bool:
        """Returns whether only one broker reports this topic, which existed, missing."""
        denial = self._denials.get(topic)
        return denial is not None and not denial.is_proven

    def _with_doubtful_topics(self, before: MetadataCache, after: MetadataCache) -> MetadataCache:
        doubtful = filter(self.is_topic_in_doubt, self._denials)
        kept = [topic for topic in doubtful if topic in before.topics and topic not in after.topics]
        return after.with_tables_of(before, kept) if kept else after

    def _wall_ms(self) -> int | None:
        return self._clock.wall_ms()

    # -- waiting ---------------------------------------------------------------------------------------------

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        """Blocks until update_version is greater than `last_version` (PMD-04, PMD-07). Not on the I/O thread.

        Raises TimeoutError, the fatal error if any, and KafkaError when closed.
        """
        deadline_ms = min(self._clock.now_ms() + timeout_ms, FOREVER_MS)

        def is_over() -> bool:
            self.maybe_throw_fatal_exception()
            return self.update_version > last_version or self.is_closed

        with self._lock:
            if not self._clock.wait_for(self._changed, is_over, deadline_ms):
                raise TimeoutError(f"metadata not updated within {timeout_ms} ms")
            if self.is_closed:
                raise KafkaError("Requested metadata update after close")
