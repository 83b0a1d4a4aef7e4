"""Six metadata responses as bytes, for caches to apply in order: the history of a cluster.

A shape has a number of partitions a topic and of brokers; three replicas each. Every contestant starts with
an empty cache and gets the six in this order, so each change applies to topics that it holds:

    first               everything is new
    again               the same bytes
    1 % of topics       in one topic of a hundred every partition has another leader and a greater epoch
    1 % of partitions   the same for one partition of a hundred, scattered over the topics
    topic inserted      one more topic, in the middle
    one broker down     one broker left every ISR; the next broker leads its partitions, epochs increased
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: The version of all contestants except aiokafka, which ends at 5: no topic ids, no epochs.
VERSION: Final = 12
AIOKAFKA_VERSION: Final = 5
REPLICAS: Final = 3
LOST_BROKER: Final = 2

FIRST: Final = "first"
AGAIN: Final = "again"
TOPICS_CHANGED: Final = "1 % of topics"
PARTITIONS_CHANGED: Final = "1 % of partitions"
INSERTED: Final = "topic inserted"
BROKER_DOWN: Final = "one broker down"
CASES: Final = (FIRST, AGAIN, TOPICS_CHANGED, PARTITIONS_CHANGED, INSERTED, BROKER_DOWN)


@dataclass(frozen=True, slots=True)
class Answers:
    """The history of a cluster with `partitions` partitions, as many a topic, on some brokers.

    `bodies` are the responses by version and case, `added` the topics that begin with a case,
    `leader_changes` the expected total, and `led` the partitions that each broker leads at the end.
    """

    partitions: int
    per_topic: int
    brokers: int
    bodies: Mapping[int, Mapping[str, bytes]]
    added: Mapping[str, Sequence[str]]
    leader_changes: int
    led: Mapping[int, int]


def answers(
    partitions: int,
    per_topic: int = 100,
    brokers: int = 3,
    versions: Iterable[int] = (VERSION, AIOKAFKA_VERSION),
) -> Answers:
    """Returns the history at each version; the bytes are the same in each run."""
    random = Random(5)
    node_ids = range(1, brokers + 1)

    def topic(name: str, number: int) -> MetadataResponseTopic:
        of_topic = tuple(_partition(number + n, n, node_ids) for n in range(per_topic))
        return MetadataResponseTopic(name=name, topic_id=UUID(int=number + 1), partitions=of_topic)

    topics = [topic(topic_name(number), number) for number in range(partitions // per_topic)]
    names = [topic_name(number) for number in range(len(topics))]
    bodies: dict[int, dict[str, bytes]] = {version: {} for version in versions}

    def answer(case: str, alive: Sequence[int] = node_ids) -> None:
        for version, by_case in bodies.items():
            by_case[case] = _response(alive, topics).encode(version)

    answer(FIRST)
    answer(AGAIN)

    chosen = random.sample(range(len(topics)), max(1, len(topics) // 100))
    for number in chosen:
        topics[number] = _changed(topics[number], _moved)
    answer(TOPICS_CHANGED)

    scattered = random.sample(range(partitions), partitions // 100)
    for number, moving in _by_topic(scattered, per_topic).items():
        topics[number] = _changed(topics[number], _moved, moving)
    answer(PARTITIONS_CHANGED)

    middle = len(topics) // 2
    inserted = f"{topic_name(middle - 1)}-and-a-half"
    topics.insert(middle, topic(inserted, len(topics)))
    answer(INSERTED)

    orphans = _led(topics)[LOST_BROKER]
    topics = [_changed(topic, _without_lost_broker) for topic in topics]
    answer(BROKER_DOWN, [broker for broker in node_ids if broker != LOST_BROKER])

    changes = len(chosen) * per_topic + len(scattered) + orphans
    added = {FIRST: names, INSERTED: [inserted]}
    return Answers(partitions, per_topic, brokers, bodies, added, changes, _led(topics))


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def _response(brokers: Iterable[int], topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    nodes = tuple(
        MetadataResponseBroker(node_id=node_id, host=f"broker-{node_id}", port=9092, rack=None)
        for node_id in brokers
    )
    return MetadataResponse(brokers=nodes, cluster_id="bench", controller_id=1, topics=tuple(topics))


def _partition(turn: int, partition: int, node_ids: Sequence[int]) -> MetadataResponsePartition:
    """Returns a partition. Its replicas begin with the preferred leader; brokers take turns."""
    replicas = tuple(node_ids[(turn + n) % len(node_ids)] for n in range(REPLICAS))
    return MetadataResponsePartition(
        partition_index=partition,
        leader_id=replicas[0],
        leader_epoch=5,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


def _changed(
    topic: MetadataResponseTopic,
    change: Callable[[MetadataResponsePartition], MetadataResponsePartition],
    numbers: Iterable[int] | None = None,
) -> MetadataResponseTopic:
    """Returns the topic with these of its partitions changed, or all of them."""
    partitions = list(topic.partitions)
    for number in range(len(partitions)) if numbers is None else numbers:
        partitions[number] = change(partitions[number])
    return topic._replace(partitions=tuple(partitions))


def _moved(partition: MetadataResponsePartition) -> MetadataResponsePartition:
    """Returns the partition, led by its next replica."""
    replicas = partition.replica_nodes
    leader = replicas[(replicas.index(partition.leader_id) + 1) % len(replicas)]
    return partition._replace(leader_id=leader, leader_epoch=partition.leader_epoch + 1)


def _without_lost_broker(partition: MetadataResponsePartition) -> MetadataResponsePartition:
    if LOST_BROKER not in partition.replica_nodes:
        return partition
    in_sync = tuple(node_id for node_id in partition.isr_nodes if node_id != LOST_BROKER)
    orphaned = partition.leader_id == LOST_BROKER
    return partition._replace(
        leader_id=in_sync[0] if orphaned else partition.leader_id,
        leader_epoch=partition.leader_epoch + orphaned,
        isr_nodes=in_sync,
        offline_replicas=(LOST_BROKER,),
    )


def _by_topic(numbers: Iterable[int], per_topic: int) -> dict[int, list[int]]:
    """Converts numbers over all partitions to topic numbers with partition numbers."""
    found: dict[int, list[int]] = {}
    for number in numbers:
        topic, partition = divmod(number, per_topic)
        found.setdefault(topic, []).append(partition)
    return found


def _led(topics: Iterable[MetadataResponseTopic]) -> Counter[int]:
    return Counter(partition.leader_id for topic in topics for partition in topic.partitions)
