"""REST Proxy v2's answers as JSON. Pure.

    P = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": true, "in_sync": true}]}

A partition without a leader has leader -1. An acknowledged record is `{"partition", "offset", "error_code":
null, "error": null}`. A failed one has its text twice: Confluent calls it `error`, Strimzi `message`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from client_core import MetadataCache, Node, PartitionInfo, RecordMetadata, TopicTable
from service.dialects.rest_v2.error_codes import message_of, record_code_of
from service.lookup.topic_configs import Configs
from service.produce.producing import RecordOutcome
from service.wire.errors import Problem
from service.wire.long_answers import joined

_NO_LEADER: Final = -1
_NO_SCHEMAS: Final = '"key_schema_id":null,"value_schema_id":null}'

_encode = msgspec.json.Encoder().encode


def names_pieces(names: Iterable[str | None]) -> Iterator[bytes]:
    """Yields a list of names, in pieces; skips None."""
    yield b"["
    yield from joined(b"" if name is None else _encode(name) for name in names)
    yield b"]"


def brokers_body(cache: MetadataCache) -> bytes:
    return _encode({"brokers": sorted(cache.nodes_by_id)})


def topic_pieces(topic: TopicTable, configs: Configs, nodes: Mapping[int, Node]) -> Iterator[bytes]:
    """Yields a topic, its configs and its partitions, in pieces."""
    yield _encode({"name": topic.name, "configs": dict(configs)})[:-1] + b',"partitions":'
    yield from partitions_pieces(topic, nodes)
    yield b"}"


def partitions_pieces(topic: TopicTable, nodes: Mapping[int, Node]) -> Iterator[bytes]:
    """Yields a topic's partitions, in pieces."""
    found = (topic.partition(number, nodes) for number in topic.numbers)
    yield b"["
    yield from joined(_encode(_partition(info)) for info in found if info is not None)
    yield b"]"


def partition_body(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> bytes | None:
    """Returns the partition as JSON; None if there is no such partition."""
    info = topic.partition(partition, nodes)
    return None if info is None else _encode(_partition(info))


def _partition(info: PartitionInfo) -> dict[str, Any]:
    leader = _NO_LEADER if info.leader is None else info.leader.id
    in_sync = {node.id for node in info.in_sync_replicas}
    replicas = [
        {"broker": node.id, "leader": node.id == leader, "in_sync": node.id in in_sync}
        for node in info.replicas
    ]
    return {"partition": info.partition, "leader": leader, "replicas": replicas}


def acknowledged_body(receipts: Sequence[RecordMetadata]) -> bytes:
    """Returns the answer when every record was acknowledged."""
    offsets = ",".join(
        [
            f'{{"partition":{partition},"offset":{_json(offset)},"error_code":null,"error":null}}'
            for _, partition, offset, _ in receipts
        ]
    )
    return f'{{"offsets":[{offsets}],{_NO_SCHEMAS}'.encode()


def partial_body(outcomes: Sequence[RecordOutcome]) -> bytes:
    """Returns the answer when only some were acknowledged."""
    return _encode({"offsets": offset_items(outcomes), "key_schema_id": None, "value_schema_id": None})


def offset_items(outcomes: Sequence[RecordOutcome]) -> list[object]:
    """Returns each record's partition and offset, or its error."""
    return [_failed(one) if isinstance(one, Problem) else _written(one) for one in outcomes]


def _written(receipt: RecordMetadata) -> dict[str, Any]:
    return {"partition": receipt.partition, "offset": receipt.offset, "error_code": None, "error": None}


def _failed(problem: Problem) -> dict[str, Any]:
    text = message_of(problem)
    return {
        "partition": None,
        "offset": None,
        "error_code": record_code_of(problem),
        "error": text,
        "message": text,
    }


def _json(offset: int | None) -> int | str:
    return "null" if offset is None else offset
