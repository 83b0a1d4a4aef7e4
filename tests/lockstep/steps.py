"""What happens to a trace: drawn at random, or given for a replay.

A step is a list of events, each a tuple that JSON can hold:

    ("rand", number)                                  what random choices give until the next step
    ("time", ms)
    ("append", topic, partition or -1, bytes, seed, bytes of its key or -1)   one record
    ("connect", node)                                 the connection succeeds
    ("end", node, stored)                             it ends; so many requests are stored all the same
    ("refuse", node)                                  the broker refuses the credentials
    ("answer", node, error, first only, hints, throttle ms)     the node's oldest request is answered
    ("leader", topic, partition, node or -1)
    ("forget", topic, partition)                      the broker forgets the partition's producers
    ("grow", topic)                                   it has one partition more, if it may
    ("gone", node)                                    no answer names the broker, until the next of these
    ("port", node)                                    the broker listens elsewhere
    ("flush",), ("close",), ("abort",)

An event that does not apply, such as an answer of a node without a request, is left out: so a replay works
with steps removed. `Draw` sees what is open, and prefers what applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client_core.error_codes import Errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

Event = tuple[Any, ...]
Step = list[Event]

_RETRIABLE: Final = (
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.LEADER_NOT_AVAILABLE,
    Errors.REQUEST_TIMED_OUT,
    Errors.NETWORK_EXCEPTION,
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.FENCED_LEADER_EPOCH,
    Errors.UNKNOWN_TOPIC_ID,
    Errors.CORRUPT_MESSAGE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
)
_FINAL: Final = (
    Errors.INVALID_RECORD,
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.INVALID_REQUIRED_ACKS,
    Errors.POLICY_VIOLATION,
    Errors.INVALID_TIMESTAMP,
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Errors.RECORD_LIST_TOO_LARGE,
    Errors.INVALID_TOPIC_EXCEPTION,
    Errors.THROTTLING_QUOTA_EXCEEDED,
    Errors.UNKNOWN_SERVER_ERROR,
    Errors.REBOOTSTRAP_REQUIRED,
)
#: Of a broker newer than either client.
_UNKNOWN_CODE: Final = 9_999
#: An idempotent producer ends with these.
_FATAL: Final = (
    Errors.CLUSTER_AUTHORIZATION_FAILED,
    Errors.PRODUCER_FENCED,
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Errors.UNSUPPORTED_VERSION,
)
_SEQUENCE: Final = (
    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Errors.DUPLICATE_SEQUENCE_NUMBER,
    Errors.UNKNOWN_PRODUCER_ID,
    Errors.INVALID_PRODUCER_EPOCH,
)


class View(NamedTuple):
    """What is open, as both sides have it."""

    nodes: Sequence[int]
    connecting: Sequence[int]
    open: Sequence[int]
    #: Nodes with a request that waits for an answer.
    asked: Sequence[int]
    topics: dict[str, int]
    #: How long the poll would sleep.
    timeout_ms: int
    #: How many answers a producer id still needs: the first seconds are calm.
    is_calm: bool


class Profile(NamedTuple):
    """How rough a trace is: probabilities per step, or per answer."""

    error: float
    final_error: float
    fatal_error: float
    sequence_error: float
    too_large: float
    end: float
    move: float
    throttle: float
    long_wait: float
    #: Brokers that come and go, or refuse; topics that grow.
    change: float
    burst: int
    largest: int


CALM: Final = Profile(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6, 3_000)
USUAL: Final = Profile(0.10, 0.02, 0.001, 0.02, 0.01, 0.03, 0.05, 0.02, 0.03, 0.01, 8, 9_000)
ROUGH: Final = Profile(0.30, 0.05, 0.003, 0.06, 0.03, 0.10, 0.12, 0.05, 0.06, 0.03, 12, 20_000)


class Draw:
    """Draws the steps of one trace."""

    def __init__(self, random: Random, profile: Profile | None = None) -> None:
        """`profile`: how rough it is; drawn, if it is not given."""
        self._random = random
        drawn = random.choices((CALM, USUAL, ROUGH), (1, 5, 4))[0]
        self._profile = drawn if profile is None else profile
        self._slow = random.random() < 0.5
        #: After how many steps the producer is closed, and its batches are aborted; None for never.
        self._close_at = random.randrange(30, 280) if profile is None and random.random() < 0.3 else None
        self._abort_at = None
        if self._close_at is not None and random.random() < 0.5:
            self._abort_at = self._close_at + random.randrange(1, 20)
        self._steps = 0

    def step(self, view: View) -> Step:
        random, profile = self._random, self._profile
        events: Step = [("rand", random.getrandbits(31))]
        self._steps += 1
        if self._steps == self._close_at:
            events.append(("close",))
        elif self._steps == self._abort_at:
            return [*events, ("abort",)]  # Kafka's thread ends here: no batch expires after it
        if view.is_calm:
            profile = CALM
        for _ in range(random.choice((1, 1, 2, 3))):
            kind = random.choices(
                ("append", "answer", "connect", "end", "leader", "time", "flush", "forget", "change"),
                (
                    4,
                    6 if view.asked else 0,
                    6 if view.connecting else 0,
                    10 * profile.end,
                    10 * profile.move,
                    3,
                    0.15,
                    profile.sequence_error,
                    10 * profile.change,
                ),
            )[0]
            getattr(self, f"_{kind}")(events, view, profile)
        return events

    # -- kinds -----------------------------------------------------------------------------------------------

    def _append(self, events: Step, view: View, profile: Profile) -> None:
        random = self._random
        topic = random.choice(tuple(view.topics))
        keyless = random.random() < 0.4
        for _ in range(random.randint(1, profile.burst)):
            partition = -1 if keyless else random.randrange(view.topics[topic])
            size = random.randint(1, 200) if random.random() < 0.5 else random.randint(200, profile.largest)
            key = -1 if random.random() < 0.7 else random.choice((0, 3, 40))
            events.append(("append", topic, partition, size, random.randrange(4), key))

    def _answer(self, events: Step, view: View, profile: Profile) -> None:
        random = self._random
        node = random.choice(view.asked)
        error = 0
        drawn = random.random()
        for chance, errors in (
            (profile.error, _RETRIABLE),
            (profile.final_error, _FINAL),
            (profile.fatal_error, _FATAL),
            (profile.sequence_error, _SEQUENCE),
            (profile.too_large, (Errors.MESSAGE_TOO_LARGE,)),
        ):
            if drawn < chance:
                error = _UNKNOWN_CODE if random.random() < 0.02 else random.choice(errors).code
                break
            drawn -= chance
        throttle_ms = random.choice((1, 20, 500)) if random.random() < profile.throttle else 0
        events.append(("answer", node, error, random.random() < 0.6, random.random() < 0.5, throttle_ms))

    def _connect(self, events: Step, view: View, profile: Profile) -> None:
        node = self._random.choice(view.connecting)
        if self._random.random() < 2 * profile.end:
            events.append(("end", node, 0))
        else:
            events.append(("connect", node))

    def _end(self, events: Step, view: View, profile: Profile) -> None:
        if view.open:
            events.append(("end", self._random.choice(view.open), self._random.randrange(3)))

    def _leader(self, events: Step, view: View, profile: Profile) -> None:
        topic = self._random.choice(tuple(view.topics))
        node = -1 if self._random.random() < 0.15 else self._random.choice(view.nodes)
        events.append(("leader", topic, self._random.randrange(view.topics[topic]), node))

    def _forget(self, events: Step, view: View, profile: Profile) -> None:
        topic = self._random.choice(tuple(view.topics))
        events.append(("forget", topic, self._random.randrange(view.topics[topic])))

    def _change(self, events: Step, view: View, profile: Profile) -> None:
        random = self._random
        kind = random.choice(("gone", "gone", "port", "grow", "refuse"))
        if kind == "grow":
            events.append((kind, random.choice(tuple(view.topics))))
        elif kind == "refuse":
            if view.connecting:
                events.append((kind, random.choice(view.connecting)))
        else:
            events.append((kind, random.choice(view.nodes)))

    def _flush(self, events: Step, view: View, profile: Profile) -> None:
        events.append(("flush",))

    def _time(self, events: Step, view: View, profile: Profile) -> None:
        random = self._random
        if random.random() < profile.long_wait:
            ms = random.choice((1_000, 9_000, 31_000, 60_000, 125_000) if self._slow else (500, 1_000, 2_000))
        else:
            ms = random.choice((0, 1, random.randint(1, 10), random.randint(10, 120), view.timeout_ms))
            if ms > 2_000 and random.random() < 0.9:
                ms = random.randint(1, 200)
        events.append(("time", ms))
