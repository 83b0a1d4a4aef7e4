"""The topics that the producer wants metadata of, their expiry, and waits for them.

A topic is held from `add` until it is unused for metadata.max.idle.ms; configured topics are held for ever.
It is used by another `add`, or by a look-up that marks its table. A missing topic is held while callers add
it again between the responses that report it missing; Java requests it once a second until it expires. A
broker that has just started may report an existing topic as missing. So for a topic that existed before,
other brokers are asked too.

Beyond Java, each topic says whether requesting it may create it (`may_create`): a look-up must not. A request
allows creation only if all its topics may be created. A topic reported missing where creation was not allowed
is requested again, only with topics that may be created. Any thread adds and waits; the I/O thread sends
requests and applies responses. Source: ProducerMetadata, Kafka 4.3.
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
    from collections.abc import Iterable
    from random import Random

    from client_core.clock import Clock
    from client_core.metadata.metadata_response import MetadataResponse

_log = logging.getLogger(__name__)


#: How often in a row brokers must say that a topic does not exist: right after its creation one may not
#: know it yet.
ANSWERS_THAT_SETTLE: Final = 2
#: And for how long the same broker must, if the topic was there: after its start it may know nothing yet.
_DENIED_BY_ONE_MS: Final = 5_000


class TopicError(NamedTuple):
    """The error that a topic was answered with last, and how many answers in a row said the same."""

    code: int
    consecutive_answers: int


@dataclass(slots=True)
class _HeldTopic:
    """A topic that is wanted. `expires_ms` None: configured, held for ever."""

    expires_ms: int | None
    may_create: bool
    #: Whether somebody added it since it was last answered with an error: records or a look-up wait for it.
    is_wanted: bool = True


@dataclass(slots=True)
class _Denial:
    """What brokers say in a row of a topic that was there before: that it does not exist."""

    since_ms: int
    node_id: int | None
    is_proven: bool = False


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
        self._denials: dict[str, _Denial] = {}
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
        with self._lock:
            held = self._topics.get(topic)
            if held is None:
                self._hold_new(topic, now_ms + self._max_idle_ms, may_create)
                return
            held.is_wanted = True
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
        with self._lock:
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
        broker can be asked, or where it is in doubt, nothing is known to be missing.
        """
        with self._lock:
            held = self._topics.get(topic)
            is_missing = self.settled_error_code(topic) == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
            if held is not None and held.expires_ms is not None and is_missing:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        del self._topics[topic]
        self._new_topics.pop(topic, None)
        self._to_create.pop(topic, None)
        self._topic_errors.pop(topic, None)
        self._denials.pop(topic, None)

    @property
    def topics(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        """The topics that no response has named yet."""
        with self._lock:
            return frozenset(self._new_topics)

    def contains_topic(self, topic: str) -> bool:
        return topic in self._topics

    def _is_held(self, topic: str) -> bool:
        return topic in self._topics

    def request_update_for_topic(self, topic: str) -> int:
        """Asks for an update for a topic's sake; returns the present update_version (PMD-05)."""
        with self._lock:
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
        if not held.is_wanted and self.is_missing(topic):
            _log.info("Topic %s is not asked for any more: brokers say that it does not exist", topic)
            self._forget(topic)
            return False
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
        if self._new_topics or self._to_create:
            for answered in response.topics:
                self._new_topics.pop(answered.name, None)
                self._to_create.pop(answered.name, None)
        for topic in failed:
            self._topics[topic].is_wanted = False
        if to_create:
            self._to_create.update(dict.fromkeys(to_create))
            if is_first_answer:
                self._schedule.need_new_topics()

    def _errors_came(self, response: MetadataResponse, now_ms: int, node_id: int | None) -> None:
        """Counts what brokers say in a row of each topic that is held."""
        errors = response.errors
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
            if code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code:
                self._denied(name, now_ms, node_id)
            else:
                self._denials.pop(name, None)

    def _denied(self, topic: str, now_ms: int, node_id: int | None) -> None:
        """Notes who says of a topic that was there that it is not."""
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
        """The error of the last response that named the topic; None if there was none (PMD-08)."""
        return self._topic_errors.get(topic)

    def settled_error_code(self, topic: str) -> int | None:
        """The code of that error; None while in doubt: the topic was there, and one broker denies it."""
        denial, last = self._denials.get(topic), self._topic_errors.get(topic)
        return None if last is None or (denial is not None and not denial.is_proven) else last.code

    def is_missing(self, topic: str) -> bool:
        """Whether brokers have said often enough that the topic does not exist."""
        last = self._topic_errors.get(topic)
        return (
            last is not None
            and last.consecutive_answers >= ANSWERS_THAT_SETTLE
            and self.settled_error_code(topic) == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
        )

    @property
    def is_in_doubt(self) -> bool:
        """Whether a topic that was there is denied by one broker only: another one is to be asked."""
        with self._lock:
            return any(not denial.is_proven for denial in self._denials.values())

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

        with self._lock:
            if not self._clock.wait_for(self._changed, is_over, deadline_ms):
                raise TimeoutError(f"metadata not updated within {timeout_ms} ms")
            if self._is_closed:
                raise KafkaError("Requested metadata update after close")
