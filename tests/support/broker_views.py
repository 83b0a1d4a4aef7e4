"""The metadata that each single broker has of a topic: brokers learn of a change one after the other.

A client that asks "the cluster" asks one of them, and the next request may go to one that is behind. So a
test that created a topic, or killed a leader, waits until all of them show it. Brokers are asked one by one
with Metadata v5, which every present broker answers, librdkafka's mock cluster included. Blocks; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION: Final = 5
_PATIENCE_S: Final = 2.0


class SeenPartition(NamedTuple):
    """A partition as a broker describes it."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def views(brokers: Mapping[int, tuple[str, int]], topic: str) -> dict[int, Sequence[SeenPartition] | None]:
    """By broker id, the topic's partitions in order, None where a broker knows no such topic.

    A broker that takes no connection, ends it or is silent for 2 s (killed, or paused by a test) has no view.
    """
    seen: dict[int, Sequence[SeenPartition] | None] = {}
    for broker_id, address in brokers.items():
        try:
            seen[broker_id] = _view(address, topic)
        except OSError:
            continue
    return seen


def _view(address: tuple[str, int], topic: str) -> Sequence[SeenPartition] | None:
    request = MetadataRequest((MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
    with Wire(address, patience_s=_PATIENCE_S) as wire:
        body = wire.ask(ApiKey.METADATA, _VERSION, request.encode(_VERSION))
    (answered,) = MetadataResponse.decode(body, _VERSION).topics
    if answered.error_code and not answered.partitions:
        return None
    return tuple(
        SeenPartition(
            p.partition_index,
            None if p.leader_id < 0 else p.leader_id,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
        )
        for p in sorted(answered.partitions, key=lambda p: p.partition_index)
    )
