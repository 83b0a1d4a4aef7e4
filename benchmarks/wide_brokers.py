"""Runs three fake brokers with many partitions at almost no cost, in their own process.

    with wide_brokers(topics=1_000, partitions=100) as bootstrap_servers:

They implement ApiVersions, InitProducerId and Metadata, as the fake cluster of the tests does. Each answer to
a request for more than one topic changes one topic in a hundred, and always the first topic: all partitions
get another leader and the next leader epoch. A refresh without changes would be less work. Unchanged topics
are kept as bytes, so that the brokers use little of the measured cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Final

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from client_core.testing import api_versions
from client_core.testing.broker import Answer, EndConnectionError, FakeBroker
from client_core.testing.free_ports import free_ports
from client_core.testing.reactions import Reaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.protocol.header import RequestHeader
    from client_core.testing.sasl import SaslSession

BROKERS: Final = 3
#: One topic in this many changes with an answer.
CHANGES: Final = 100
_HOST: Final = "127.0.0.1"
_VERSION: Final = ApiKey.METADATA.max_version
_PATIENCE_S: Final = 60.0


def topic_name(number: int) -> str:
    return f"wide-{number:05d}"


@contextlib.contextmanager
def wide_brokers(topics: int, partitions: int) -> Iterator[str]:
    """Yields the bootstrap servers of such brokers, which end with the block."""
    command = [sys.executable, "-m", "benchmarks.wide_brokers", str(topics), str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as brokers:
        assert brokers.stdout is not None
        try:
            reported = brokers.stdout.readline().strip()
            if not reported:
                raise SystemExit("the brokers of this benchmark ended at their start; their words are above")
            yield reported
        finally:
            brokers.communicate(timeout=_PATIENCE_S)  # it ends with its input


class WideCluster:
    """The answers of the brokers. On their loop only."""

    def __init__(self, topics: int, partitions: int) -> None:
        self.ports: Final = dict(zip(range(1, BROKERS + 1), free_ports(BROKERS), strict=True))
        self._partitions = partitions
        self._epochs = dict.fromkeys(map(topic_name, range(topics)), 0)
        self._names = list(self._epochs)
        self._next_change = 0
        empty = self._response(()).encode(_VERSION)
        # int32 throttle … the number of topics as a varint, here 0; int16 error; tags
        self._head, self._tail = empty[:-4], empty[-3:]
        self._topics = {name: self._encoded(name) for name in self._names}

    def answer(self, payload: bytes, header: RequestHeader) -> bytes:
        """Returns the body of a metadata answer."""
        if header.version != _VERSION:
            raise EndConnectionError
        asked = MetadataRequest.decode(payload, header.version, header.body_offset).topics
        names = self._names if asked is None else [topic.name or "" for topic in asked]
        reported = [self._topics[name] for name in names if name in self._topics]
        if len(reported) > 1:
            self._change()
        return b"".join((self._head, _unsigned_varint(len(reported) + 1), *reported, self._tail))

    def _change(self) -> None:
        """Prepares the next answer: other leaders for the first topic, and for the next of the others."""
        count = max(len(self._names) // CHANGES, 1)
        others = (self._names[(self._next_change + n) % len(self._names)] for n in range(count - 1))
        for name in {self._names[0], *others}:
            self._epochs[name] += 1
            self._topics[name] = self._encoded(name)
        self._next_change += count - 1

    def _encoded(self, name: str) -> bytes:
        """Returns one topic as encoded in an answer."""
        epoch = self._epochs[name]
        topic = MetadataResponseTopic(
            name=name,
            topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, name),
            partitions=tuple(
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=(number + epoch) % BROKERS + 1,
                    leader_epoch=epoch,
                    replica_nodes=(1, 2, 3),
                    isr_nodes=(1, 2, 3),
                )
                for number in range(self._partitions)
            ),
        )
        return self._response((topic,)).encode(_VERSION)[len(self._head) + 1 : -len(self._tail)]

    def _response(self, topics: tuple[MetadataResponseTopic, ...]) -> MetadataResponse:
        return MetadataResponse(
            brokers=tuple(MetadataResponseBroker(n, _HOST, port) for n, port in self.ports.items()),
            cluster_id="wide",
            controller_id=1,
            topics=topics,
        )


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _handle(
    cluster: WideCluster, header: RequestHeader, payload: bytes, _: Reaction, __: SaslSession
) -> Answer:
    if header.api is ApiKey.API_VERSIONS:
        reported, version = api_versions.answer(
            api_versions.KAFKA_4_3, payload, header.version, header.body_offset
        )
        return Answer(reported.encode(version), version)
    if header.api is ApiKey.METADATA:
        return Answer(cluster.answer(payload, header), header.version)
    if header.api is ApiKey.INIT_PRODUCER_ID:  # the sidecar asks for one as it starts
        return Answer(
            InitProducerIdResponse(producer_id=1, producer_epoch=0).encode(header.version), header.version
        )
    raise EndConnectionError


async def _serve(topics: int, partitions: int) -> None:
    """Serves until the input ends."""
    cluster = WideCluster(topics, partitions)
    brokers = [
        FakeBroker(
            broker_id,
            lambda *_: Reaction(),
            lambda _, header, payload, *more: _handle(cluster, header, payload, *more),
        )
        for broker_id in cluster.ports
    ]
    for broker in brokers:
        await broker.listen(_HOST, cluster.ports[broker.id])
    print(",".join(f"{_HOST}:{port}" for port in cluster.ports.values()), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for broker in brokers:
        await broker.stop()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
