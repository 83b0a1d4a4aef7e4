"""What happens to a replicated partition, in steps that real and simulated brokers take alike.

A scenario is a list of steps with three brokers and a topic of one partition, which broker 1 leads at first.
What it sees must be what it expects, from the simulated brokers (test_scenarios.py) and from real ones
(tests/kafka/test_simulated_brokers_are_true.py). Times are not compared: simulated brokers have shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from client_core.error_codes import Errors
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import ProduceResponse
from client_core.protocol.primitives import ZERO_UUID
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Shorter than the time after which a replica that is paused leaves the in-sync ones.
SOON_MS: Final = 300
PATIENT_MS: Final = 30_000
#: Of the Produce requests: the last that names topics, not their ids.
VERSION: Final = 12
_PRODUCER: Final = 4_000


class Brokers(Protocol):
    """Three brokers and the topic. Each call returns when all running brokers know of what it did."""

    def produce(self, data: bytes, to: int = 1, *, acks: int = -1, timeout_ms: int = PATIENT_MS) -> str:
        """Returns `offset N`, or the name of the error, and `, throttled` behind it if it is."""
        ...

    def wall_ms(self) -> int: ...
    def kill(self, broker_id: int) -> None:
        """Ends a broker without its leave."""
        ...

    def start(self, broker_id: int) -> None:
        """Starts a broker that has ended; does not wait until it is in sync."""
        ...

    def pause(self, broker_id: int) -> None:
        """Stops a broker's process, which may lose its session. No request of it waits at the leader."""
        ...

    def resume(self, broker_id: int) -> None: ...
    def await_isr(self, *broker_ids: int) -> None:
        """Waits until these are in sync, and the leader among them leads."""
        ...

    def await_session_end(self, broker_id: int) -> None: ...
    def leader(self) -> int | None: ...
    def values(self, of: int | None = None) -> list[bytes]:
        """Returns the values in the log of a broker, or of the leader: those that are committed."""
        ...

    def make_again(self) -> None:
        """Deletes the topic and creates it anew."""
        ...

    def forbid_writes(self) -> None: ...
    def allow_writes(self) -> None: ...
    def throttle(self) -> None:
        """Gives all clients a small quota of bytes."""
        ...


def produce_request(topic: str, data: bytes, acks: int, timeout_ms: int) -> bytes:
    """Returns the body of a Produce request of VERSION with one batch."""
    of_topic = TopicProduceData(topic, ZERO_UUID, (PartitionProduceData(0, data),))
    return ProduceRequest(None, acks, timeout_ms, (of_topic,)).encode(VERSION)


def outcome(body: bytes) -> str:
    """Returns what `Brokers.produce` does, from the body of the response."""
    response = ProduceResponse.decode(body, VERSION)
    partition = response.responses[0].partition_responses[0]
    throttled = ", throttled" if response.throttle_time_ms else ""
    if partition.error_code:
        return Errors.of(partition.error_code).name + throttled
    return f"offset {partition.base_offset}{throttled}"


@dataclass(frozen=True)
class Scenario:
    """`steps` returns what it saw."""

    name: str
    steps: Callable[[Brokers], Sequence[object]]
    expected: Sequence[object]
    min_insync_replicas: int = 2
    unclean: bool = False


def _numbered(brokers: Brokers, value: bytes, sequence: int, epoch: int = 0) -> bytes:
    # Brokers forget producers whose last record is old by its timestamp.
    return batch(value, producer=(_PRODUCER, epoch, sequence), timestamp_ms=brokers.wall_ms())


def _a_replica_leaves_and_all_are_needed(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.pause(3)
    seen.append(brokers.produce(batch(b"b")))
    brokers.await_isr(1, 2)
    seen.append(brokers.produce(batch(b"c")))
    seen.append(brokers.produce(batch(b"d"), acks=1))
    brokers.resume(3)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.produce(batch(b"e")), brokers.values(), brokers.values(3)]


def _a_replica_leaves_and_enough_are_left(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.pause(3)
    seen.append(brokers.produce(batch(b"b")))
    brokers.await_isr(1, 2)
    seen.append(brokers.produce(batch(b"c")))
    brokers.resume(3)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.values(3)]


def _replicas_that_are_paused_for_a_moment(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.pause(2)
    brokers.pause(3)
    seen.append(brokers.produce(batch(b"b"), timeout_ms=SOON_MS))
    brokers.resume(2)
    brokers.resume(3)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.produce(batch(b"c")), brokers.values()]


def _a_leader_dies(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.kill(1)
    brokers.await_isr(2, 3)
    seen += [brokers.leader(), brokers.produce(batch(b"b"), 2), brokers.produce(batch(b"c"), 3)]
    brokers.start(1)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.leader(), brokers.produce(batch(b"d"), 1), brokers.values(1)]


def _a_leader_is_paused_until_another_leads(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.pause(1)
    brokers.await_isr(2, 3)
    seen += [brokers.leader(), brokers.produce(batch(b"b"), 2)]
    brokers.resume(1)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.leader(), brokers.produce(batch(b"c"), 1), brokers.values(1)]


def _what_only_the_old_leader_has(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(_numbered(brokers, b"a", 0))]
    brokers.pause(2)
    brokers.pause(3)
    seen.append(brokers.produce(_numbered(brokers, b"alone", 1), acks=1))
    brokers.kill(1)
    brokers.resume(2)
    brokers.resume(3)
    brokers.await_isr(2, 3)
    seen += [brokers.leader(), brokers.produce(_numbered(brokers, b"behind", 2), 2)]
    seen += [brokers.produce(_numbered(brokers, b"instead", 1), 2)]
    brokers.start(1)
    brokers.await_isr(1, 2, 3)
    return [*seen, brokers.values(), brokers.values(1)]


def _only_broker_3_runs_and_lacks_a_record(brokers: Brokers) -> list[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    _kill_both_followers(brokers)
    seen.append(brokers.produce(batch(b"b")))
    brokers.kill(1)
    brokers.start(3)
    return seen


def _kill_both_followers(brokers: Brokers) -> None:
    brokers.kill(2)
    brokers.kill(3)
    brokers.await_isr(1)


def _the_last_replica_in_sync_dies(brokers: Brokers) -> Sequence[object]:
    seen = _only_broker_3_runs_and_lacks_a_record(brokers)
    brokers.await_session_end(1)
    seen += [brokers.leader(), brokers.produce(batch(b"c"), 3)]
    brokers.start(1)
    brokers.await_isr(1, 3)
    return [*seen, brokers.leader(), brokers.produce(batch(b"d"), 1), brokers.values(3)]


def _an_unclean_leader(brokers: Brokers) -> Sequence[object]:
    seen = _only_broker_3_runs_and_lacks_a_record(brokers)
    brokers.await_isr(3)
    seen += [brokers.leader(), brokers.produce(batch(b"c"), 3)]
    brokers.start(1)
    brokers.await_isr(1, 3)
    return [*seen, brokers.values(3), brokers.values(1)]


def _seven_batches(brokers: Brokers) -> None:
    for number in range(7):
        brokers.produce(_numbered(brokers, b"%d" % number, number))


def _sent_again(brokers: Brokers, broker_id: int) -> list[object]:
    """The last five batches of seven again, and one behind a gap, and the next."""
    again = [brokers.produce(_numbered(brokers, b"%d" % n, n), broker_id) for n in range(2, 7)]
    behind = [brokers.produce(_numbered(brokers, b"%d" % n, n), broker_id) for n in (8, 7)]
    return [*again, *behind]


def _a_new_leader_knows_the_last_batches(brokers: Brokers) -> Sequence[object]:
    _seven_batches(brokers)
    brokers.kill(1)
    brokers.await_isr(2, 3)
    return _sent_again(brokers, 2)


def _a_leader_that_was_killed_knows_the_last_batch(brokers: Brokers) -> Sequence[object]:
    _seven_batches(brokers)
    _kill_both_followers(brokers)
    brokers.kill(1)
    brokers.start(1)
    brokers.await_isr(1)
    return _sent_again(brokers, 1)


def _an_epoch_that_is_over(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(_numbered(brokers, b"a", 0, epoch=1))]
    brokers.kill(1)
    brokers.await_isr(2, 3)
    seen += [
        brokers.produce(_numbered(brokers, b"b", 1), 2),
        brokers.produce(_numbered(brokers, b"c", 0, epoch=2), 2),
    ]
    return [*seen, brokers.values()]


def _a_topic_made_again(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(_numbered(brokers, b"a", 0))]
    brokers.make_again()
    seen += [
        brokers.values(),
        brokers.produce(_numbered(brokers, b"b", 1)),
        brokers.produce(_numbered(brokers, b"c", 2)),
    ]
    return [*seen, brokers.values()]


def _no_right_to_write(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.forbid_writes()
    seen.append(brokers.produce(batch(b"b")))
    brokers.allow_writes()
    return [*seen, brokers.produce(batch(b"c")), brokers.values()]


def _more_than_a_quota(brokers: Brokers) -> Sequence[object]:
    seen: list[object] = [brokers.produce(batch(b"a"))]
    brokers.throttle()
    seen.append(brokers.produce(batch(bytes(100_000))))
    return [*seen, len(brokers.values())]


SCENARIOS: Final = (
    Scenario(
        "a replica leaves and all are needed",
        _a_replica_leaves_and_all_are_needed,
        [
            "offset 0",
            "REQUEST_TIMED_OUT",
            "NOT_ENOUGH_REPLICAS",
            "offset 2",
            "offset 3",
            [b"a", b"b", b"d", b"e"],
            [b"a", b"b", b"d", b"e"],
        ],
        min_insync_replicas=3,
    ),
    Scenario(
        "a replica leaves and enough are left",
        _a_replica_leaves_and_enough_are_left,
        ["offset 0", "offset 1", "offset 2", [b"a", b"b", b"c"]],
    ),
    Scenario(
        "replicas that are paused for a moment",
        _replicas_that_are_paused_for_a_moment,
        ["offset 0", "REQUEST_TIMED_OUT", "offset 2", [b"a", b"b", b"c"]],
    ),
    Scenario(
        "a leader dies",
        _a_leader_dies,
        ["offset 0", 2, "offset 1", "NOT_LEADER_OR_FOLLOWER", 2, "NOT_LEADER_OR_FOLLOWER", [b"a", b"b"]],
    ),
    Scenario(
        "a leader is paused until another leads",
        _a_leader_is_paused_until_another_leads,
        ["offset 0", 2, "offset 1", 2, "NOT_LEADER_OR_FOLLOWER", [b"a", b"b"]],
    ),
    Scenario(
        "what only the old leader has",
        _what_only_the_old_leader_has,
        [
            "offset 0",
            "offset 1",
            2,
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "offset 1",
            [b"a", b"instead"],
            [b"a", b"instead"],
        ],
    ),
    Scenario(
        "the last replica in sync dies",
        _the_last_replica_in_sync_dies,
        ["offset 0", "offset 1", None, "NOT_LEADER_OR_FOLLOWER", 1, "offset 2", [b"a", b"b", b"d"]],
        min_insync_replicas=1,
    ),
    Scenario(
        "an unclean leader",
        _an_unclean_leader,
        ["offset 0", "offset 1", 3, "offset 1", [b"a", b"c"], [b"a", b"c"]],
        min_insync_replicas=1,
        unclean=True,
    ),
    Scenario(
        "a new leader knows the last batches",
        _a_new_leader_knows_the_last_batches,
        [*(f"offset {n}" for n in range(2, 7)), "OUT_OF_ORDER_SEQUENCE_NUMBER", "offset 7"],
    ),
    Scenario(
        "a leader that was killed knows the last batch",
        _a_leader_that_was_killed_knows_the_last_batch,
        [*["OUT_OF_ORDER_SEQUENCE_NUMBER"] * 4, "offset 6", "OUT_OF_ORDER_SEQUENCE_NUMBER", "offset 7"],
        min_insync_replicas=1,
    ),
    Scenario(
        "an epoch that is over",
        _an_epoch_that_is_over,
        ["offset 0", "INVALID_PRODUCER_EPOCH", "offset 1", [b"a", b"c"]],
    ),
    Scenario(
        "a topic made again", _a_topic_made_again, ["offset 0", [], "offset 0", "offset 1", [b"b", b"c"]]
    ),
    Scenario(
        "no right to write",
        _no_right_to_write,
        ["offset 0", "TOPIC_AUTHORIZATION_FAILED", "offset 1", [b"a", b"c"]],
    ),
    Scenario("more than a quota", _more_than_a_quota, ["offset 0", "offset 1, throttled", 2]),
)
