"""Reads a Metadata response, versions 1 to 13, reusing what the last snapshot holds already.

A topic whose bytes equal those of the table that is known keeps that table: one comparison in C. Only what
changed is taken apart, as far as `topic_layout.py` needs it, and compared with its predecessor. The generated
message of the same name reads the same bytes plainly; a test holds the two equal. Trailing bytes are
tolerated, tags are skipped. Pure; called on the I/O thread, outside Metadata's lock. Source:
MetadataResponse, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.cluster import Node
from client_core.metadata.leader_epochs import TopicDifference, compare
from client_core.metadata.topic_layout import TopicLayout, layout_of, locate_partitions
from client_core.metadata.topic_table import TopicTable, TopicUse
from client_core.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from client_core.protocol.primitives import Reader

#: The least that a broker and a topic take in any version: they bound the counts by the bytes left.
_FEWEST_BROKER_BYTES: Final = 10
_FEWEST_TOPIC_BYTES: Final = 8
_NAME_LENGTH_AT: Final = 2

KnownTopics = Mapping[str, TopicTable]
NO_KNOWN_TOPICS: Final[KnownTopics] = MappingProxyType({})


class TopicFailure(NamedTuple):
    """A topic that was answered with an error. `topic_id` is None where the broker sent none, or zero."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    error_code: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """A response, its topics mostly bytes still. `differences` are those of changed topics."""

    version: int
    throttle_time_ms: int
    brokers: Mapping[int, Node]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicTable | TopicFailure, ...]
    error_code: int
    differences: Mapping[str, TopicDifference]

    @property
    def controller(self) -> Node | None:
        return self.brokers.get(self.controller_id)

    @property
    def has_reliable_leader_epochs(self) -> bool:
        """Whether the leader epochs may be relied on (META-11)."""
        return layout_of(self.version).has_reliable_epochs

    @property
    def errors(self) -> dict[str, int]:
        """The error codes of the topics that have one."""
        return {topic.name: topic.error_code for topic in self.topics if isinstance(topic, TopicFailure)}


def read_metadata_response(
    body: bytes, version: int, known_topics: KnownTopics = NO_KNOWN_TOPICS
) -> MetadataResponse:
    """The response behind its header. Raises SchemaError for bytes that do not follow the schema."""
    layout = layout_of(version)
    reader = layout.reader(body, 0)
    throttle_time_ms = reader.int32() if version >= 3 else 0
    brokers = [_read_broker(reader) for _ in range(reader.array_length(_FEWEST_BROKER_BYTES))]
    cluster_id = reader.nullable_string() if version >= 2 else None
    controller_id = reader.int32()
    topics, differences = _read_topics(reader, version, layout, known_topics)
    if 8 <= version <= 10:
        reader.int32()  # the operations that we may do on the cluster: never asked for
    error_code = reader.int16() if version >= 13 else 0
    reader.skip_tags()
    return MetadataResponse(
        version,
        throttle_time_ms,
        # One without an address is none: to connect to it is a bug (NET-01), which Java meets at every turn.
        MappingProxyType({node.id: node for node in brokers if not node.is_empty}),
        cluster_id,
        controller_id,
        topics,
        error_code,
        differences,
    )


def _read_broker(reader: Reader) -> Node:
    node_id = reader.int32()
    host = reader.string()
    port = reader.int32()
    rack = reader.nullable_string()
    reader.skip_tags()
    return Node(node_id, host, port, rack)


def _read_topics(
    reader: Reader, version: int, layout: TopicLayout, known_topics: KnownTopics
) -> tuple[tuple[TopicTable | TopicFailure, ...], dict[str, TopicDifference]]:
    """The topics, and what differs in those that are known otherwise.

    Brokers answer in the order of the request, which is ours, so the next topic is first taken for the next
    of those we know: then it need not be found by its name. What is known is gone through once at most.
    """
    body = reader.buf
    topics: list[TopicTable | TopicFailure] = []
    differences: dict[str, TopicDifference] = {}
    in_order = iter(known_topics.values())
    expected = next(in_order, None)
    for _ in range(reader.array_length(_FEWEST_TOPIC_BYTES)):
        at = reader.pos
        known, is_unchanged = expected, expected is not None and _is_unchanged(expected, body, at, layout)
        if not is_unchanged:
            known = known_topics.get(_name_at(body, at, layout))
            is_unchanged = known is not None and _is_unchanged(known, body, at, layout)
        if known is not None:
            if known is not expected:
                _skip_to(known, in_order)
            expected = next(in_order, None)
            if is_unchanged:
                reader.pos = at + len(known.raw)
                topics.append(known)
                continue
        topic = _read_topic(reader, version, layout, known.use if known is not None else None)
        if topic is None:
            continue
        if known is not None and isinstance(topic, TopicTable):
            differences[topic.name] = compare(known, topic)
        topics.append(topic)
    return tuple(topics), differences


def _skip_to(known: TopicTable, in_order: Iterator[TopicTable]) -> None:
    for candidate in in_order:
        if candidate is known:
            return


def _name_at(body: bytes, at: int, layout: TopicLayout) -> str:
    """The name of the topic at `at`, to find its predecessor by; nonsense where the bytes are nonsense."""
    length_at = at + _NAME_LENGTH_AT
    if not layout.is_flexible:
        size = int.from_bytes(body[length_at : length_at + 2], "big")
        start = length_at + 2
    else:
        encoded = body[length_at : length_at + 2] or b"\0"
        if encoded[0] < 0x80:
            size, start = encoded[0] - 1, length_at + 1
        else:
            size, start = (encoded[0] & 0x7F | encoded[-1] << 7) - 1, length_at + 2
    return body[start : start + max(size, 0)].decode(errors="replace")


def _is_unchanged(known: TopicTable, body: bytes, at: int, layout: TopicLayout) -> bool:
    """Whether the topic at `at` is the known one to the byte. Under an overlay it is always read anew."""
    return known.layout is layout and not known.overlay and body.startswith(known.raw, at)


def _read_topic(
    reader: Reader, version: int, layout: TopicLayout, use: TopicUse | None
) -> TopicTable | TopicFailure | None:
    """The topic at the cursor; None for one without a name, which only who asks by id is answered."""
    start = reader.pos
    error_code = reader.int16()
    name = reader.nullable_string() if version >= 12 else reader.string()
    topic_id = reader.uuid() if layout.has_topic_id else ZERO_UUID
    is_internal = reader.boolean()
    count = reader.array_length(layout.fewest_partition_bytes)
    located = locate_partitions(reader.buf, reader.pos, count, layout, start)
    reader.pos = start + located.end
    if layout.has_authorized_operations:
        reader.int32()
    reader.skip_tags()
    if name is None:
        return None
    id_or_none = None if topic_id == ZERO_UUID else topic_id
    if error_code != 0:
        return TopicFailure(name, id_or_none, is_internal, error_code, len(located.numbers))
    raw = reader.buf[start : reader.pos]
    return TopicTable(
        name,
        id_or_none,
        is_internal,
        raw,
        located,
        layout,
        use if use is not None else TopicUse(),
    )
