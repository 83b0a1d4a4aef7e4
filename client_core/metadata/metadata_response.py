"""Reads a Metadata response, versions 1 to 13, reusing unchanged topics.

A topic whose bytes equal those of its known table keeps that table: one comparison in C. Only changed topics
are parsed, as far as `topic_layout.py` needs it, and compared with their predecessors. Topics that were not
requested are skipped. A large response is read as it arrives, and read bytes are dropped. So it takes only
the memory of the kept topics, and each piece takes some milliseconds. Sizes beyond any real cluster are
refused; see the limits below.

The generated message of the same name reads the same bytes field by field; a test checks that both agree.
Trailing bytes are tolerated, tags are skipped. Pure; called on the I/O thread, outside Metadata's lock.
Source: MetadataResponse, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from client_core.cluster import Node
from client_core.errors import TruncatedError
from client_core.metadata.leader_epochs import TopicDifference, compare
from client_core.metadata.topic_layout import TopicLayout, layout_of, locate_partitions, pass_over_partitions
from client_core.metadata.topic_runs import read_heads, read_run
from client_core.metadata.topic_table import TopicTable, TopicUse
from client_core.protocol.primitives import MOST_ELEMENTS, ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator
    from uuid import UUID

    from client_core.protocol.primitives import Reader

#: The least bytes of a broker and a topic in any version: these limit the counts by the bytes left.
_FEWEST_BROKER_BYTES: Final = 10
_FEWEST_TOPIC_BYTES: Final = 8
_NAME_LENGTH_AT: Final = 2

#: The largest known clusters have some hundreds of brokers.
MOST_BROKERS: Final = 10_000
#: A DNS name has at most 255 bytes (RFC 1035, section 2.3.4).
LONGEST_HOST: Final = 255
#: Kafka limits neither. A cluster id has 22 characters, a rack is the name of a zone.
LONGEST_RACK: Final = 1_024
LONGEST_CLUSTER_ID: Final = 1_024
#: Topics in one response. Clusters of a million partitions have some 100,000.
MOST_TOPICS: Final = 150_000
#: Total response bytes of new and changed topics: a million partitions of three replicas. The current
#: snapshot's bytes are in memory as well, until it is replaced.
MOST_KEPT_BYTES: Final = 42 * 1024 * 1024
#: Bytes of one topic: the most partitions (`topic_layout.py`), with six replicas. It is in memory whole, and
#: briefly twice.
MOST_TOPIC_BYTES: Final = 12 * 1024 * 1024
#: The largest part that must arrive whole to be skipped: a broker, or a partition of an unrequested topic.
_LARGEST_STEP_BYTES: Final = 1024 * 1024
#: Known topics are compared this many at once, or as many as have these bytes; others are read in runs. More
#: at once would delay other threads.
_CHUNK_TOPICS: Final = 256
_CHUNK_BYTES: Final = 64 * 1024
_RUN_TOPICS: Final = 64
#: For fewer topics, a proof by columns costs more than reading them alone.
_FEWEST_FOR_A_RUN: Final = 3
_RAW: Final = attrgetter("raw")

_T = TypeVar("_T")

KnownTopics = Mapping[str, TopicTable]
NO_KNOWN_TOPICS: Final[KnownTopics] = MappingProxyType({})


class TopicFailure(NamedTuple):
    """A topic with an error code. `topic_id` is None if the broker sent none, or zero."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    error_code: int


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """A response, its topics mostly undecoded. `differences` has those of changed topics."""

    throttle_time_ms: int
    brokers: Mapping[int, Node]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicTable | TopicFailure, ...]
    error_code: int
    differences: Mapping[str, TopicDifference]
    #: The error codes of the topics that have one.
    errors: Mapping[str, int]

    @property
    def controller(self) -> Node | None:
        return self.brokers.get(self.controller_id)


class ListedTopic(NamedTuple):
    """A topic without its partitions. `error_code` is 0 unless the broker can't describe the topic now.

    `replication_factor` is that of the first partition in the response, 0 without one. During a reassignment
    partitions differ.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partition_count: int
    error_code: int = 0
    replication_factor: int = 0


def read_metadata_response(
    body: bytes,
    version: int,
    known_topics: KnownTopics = NO_KNOWN_TOPICS,
    asked: Collection[str] | None = None,
    in_order: tuple[TopicTable, ...] = (),
) -> MetadataResponse:
    """Returns the response after its header, with the topics in `asked`, or all.

    Raises SchemaError for bytes that do not match the schema, or exceed a limit.
    """
    reader = MetadataReader(len(body), version, known_topics, asked, in_order=in_order)
    reader.feed(body)
    return reader.finish()


class MetadataReader:
    """Decodes a response while it arrives. `feed` raises SchemaError at the first wrong bytes. One thread.

    `asked`: the topics to keep, None for all. `on_listed`, if set, gets each topic without its partitions
    instead, and none is kept.
    `in_order`: all topics of an earlier response to an equal request, without overlays. If they are the same
    again, they are the response's `topics`: the same object.
    """

    def __init__(
        self,
        size_bytes: int,
        version: int,
        known_topics: KnownTopics = NO_KNOWN_TOPICS,
        asked: Collection[str] | None = None,
        on_listed: Callable[[ListedTopic], None] | None = None,
        in_order: tuple[TopicTable, ...] = (),
    ) -> None:
        layout = layout_of(version)
        self._reader = layout.reader(b"", 0, size_bytes)
        self._steps = _Steps(
            self._reader, version, layout, known_topics, asked, on_listed, in_order
        ).response()
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._wanted_bytes = 0
        self._response: MetadataResponse | None = None

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes of the response, and decodes as many as possible."""
        reader = self._reader
        reader.to_come -= len(piece)
        if self._response is not None:
            return  # trailing bytes
        self._pieces.append(piece)
        self._unread_bytes += len(piece)
        if reader.to_come and self._unread_bytes < self._wanted_bytes:
            return
        rest = reader.buf[reader.pos :]
        reader.buf = b"".join([rest, *self._pieces] if rest else self._pieces)
        reader.pos = 0
        self._pieces.clear()
        try:
            self._wanted_bytes = next(self._steps)
        except StopIteration as end:
            self._response = end.value
            reader.buf = b""
        else:
            self._unread_bytes = len(reader.buf) - reader.pos

    def finish(self) -> MetadataResponse:
        """Returns the response, after the last byte."""
        if self._response is None:
            raise self._reader.wrong("the response is incomplete")
        return self._response


class _Steps:
    """The decoding steps, as generators. Each yields the number of unread bytes it needs.

    It holds no reference to its MetadataReader, so an incomplete response is freed at once.
    """

    def __init__(
        self,
        reader: Reader,
        version: int,
        layout: TopicLayout,
        known_topics: KnownTopics,
        asked: Collection[str] | None,
        on_listed: Callable[[ListedTopic], None] | None,
        in_order: tuple[TopicTable, ...],
    ) -> None:
        self._reader = reader
        self._version = version
        self._layout = layout
        self._known_topics = known_topics
        self._topics: list[TopicTable | TopicFailure] = []
        self._known = in_order or _expected(known_topics, asked)
        self._in_order = in_order if in_order and in_order[0].layout is layout else ()
        #: The next known topic.
        self._position = 0
        self._asked = asked
        #: Requested topics without an answer yet: of two answers for one topic, the first counts.
        self._unanswered: set[str] | None = None
        self._checks_asked = False
        if not self._in_order:
            self._check_asked()
        self._on_listed = on_listed
        self._alone = self._failed_runs = 0
        self._differences: dict[str, TopicDifference] = {}
        self._kept_bytes = 0

    def _step(self, read: Callable[[], _T]) -> Generator[int, None, _T]:
        """Returns the result of `read`, once all its bytes have arrived."""
        reader = self._reader
        while True:
            start, reader.elements_left = reader.pos, MOST_ELEMENTS
            try:
                return read()
            except TruncatedError:
                yield self._wait(start, _LARGEST_STEP_BYTES)

    def _wait(self, start: int, most_bytes: int) -> int:
        """Resets to the start of a step, to repeat it once twice as many bytes have arrived."""
        reader = self._reader
        here = len(reader.buf) - start
        if here > most_bytes:
            raise reader.wrong(f"a topic, partition or broker of more than {most_bytes} bytes")
        reader.pos = start
        return max(2 * here, 1)

    # -- the response ----------------------------------------------------------------------------------------

    def response(self) -> Generator[int, None, MetadataResponse]:
        reader, version = self._reader, self._version
        throttle_time_ms = (yield from self._step(reader.int32)) if version >= 3 else 0
        brokers = yield from self._read_brokers()
        cluster_id = (yield from self._step(self._read_cluster_id)) if version >= 2 else None
        controller_id = yield from self._step(reader.int32)
        topics = yield from self._read_topics()
        if 8 <= version <= 10:
            yield from self._step(reader.int32)  # the cluster's authorized operations: never requested
        error_code = (yield from self._step(reader.int16)) if version >= 13 else 0
        yield from self._step(reader.skip_tags)
        return MetadataResponse(
            throttle_time_ms,
            MappingProxyType(brokers),
            cluster_id,
            controller_id,
            topics,
            error_code,
            self._differences,
            {topic.name: topic.error_code for topic in self._topics if isinstance(topic, TopicFailure)},
        )

    def _read_brokers(self) -> Generator[int, None, dict[int, Node]]:
        count = yield from self._step(lambda: self._reader.passed_array_length(_FEWEST_BROKER_BYTES))
        self._ensure("brokers", count, MOST_BROKERS)
        brokers: dict[int, Node] = {}
        for _ in range(count):
            node = yield from self._step(self._read_broker)
            if not node.is_empty:  # Java would try to connect to a broker without an address (NET-01)
                brokers[node.id] = node
        return brokers

    def _read_broker(self) -> Node:
        reader = self._reader
        node_id = reader.int32()
        host = reader.string()
        self._ensure("characters of a host name", len(host), LONGEST_HOST)
        port = reader.int32()
        rack = reader.nullable_string()
        self._ensure("characters of a rack", len(rack or ""), LONGEST_RACK)
        reader.skip_tags()
        return Node(node_id, host, port, rack)

    def _read_cluster_id(self) -> str | None:
        cluster_id = self._reader.nullable_string()
        self._ensure("characters of a cluster id", len(cluster_id or ""), LONGEST_CLUSTER_ID)
        return cluster_id

    def _ensure(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise self._reader.wrong(f"{count} {what}, more than {most},")

    # -- topics ----------------------------------------------------------------------------------------------

    def _read_topics(self) -> Generator[int, None, tuple[TopicTable | TopicFailure, ...]]:
        """Reads the topics, and compares changed ones with the known tables.

        Brokers answer in request order, which is that of our known topics. So topics are first compared with
        the next known ones, many at once if nothing came in between (`in_order`), without a search by name.
        """
        reader, in_order = self._reader, self._in_order
        count = yield from self._step(lambda: reader.passed_array_length(_FEWEST_TOPIC_BYTES))
        self._ensure("topics", count, MOST_TOPICS)
        chunk = max(1, min(_CHUNK_TOPICS, _CHUNK_BYTES * count // max(reader.remaining, 1)))
        left, compare_from = count, 0
        while left:
            if compare_from <= self._position < len(in_order):
                expected = in_order[self._position : self._position + chunk]
                if len(expected) <= left and (yield from self._is_next(b"".join(map(_RAW, expected)))):
                    self._topics.extend(expected)
                    self._position += len(expected)
                    left -= len(expected)
                    continue
                compare_from = self._position + len(expected)
                self._check_asked()
            unchanged = self._take_unchanged(min(left, compare_from - self._position) if in_order else left)
            taken = unchanged or self._take_moved() or self._take_run(left)
            left -= taken or (yield from self._take_one())
        if len(self._topics) == len(in_order) == self._position and not self._checks_asked:
            return in_order
        self._check_asked()
        return tuple(self._topics)

    def _is_next(self, expected: bytes) -> Generator[int, None, bool]:
        """Returns whether the next bytes are these, and skips them."""
        reader = self._reader
        while len(reader.buf) - reader.pos < len(expected) <= reader.remaining:
            yield len(expected)
        if not reader.buf.startswith(expected, reader.pos):
            return False
        reader.pos += len(expected)
        return True

    def _check_asked(self) -> None:
        """Makes the set of requested topics without an answer, once a topic is not as it was.

        Equal answers to equal requests need none: this takes time for each topic.
        """
        if self._checks_asked:
            return
        self._checks_asked = True
        if self._asked is not None:
            asked = set(self._asked)
            self._topics[:] = [topic for topic in self._topics if topic.name in asked]
            self._unanswered = asked.difference([topic.name for topic in self._topics])

    def _take_unchanged(self, most: int) -> int:
        """Takes the next known topics, as far as they are the next in the response; returns their number."""
        reader, layout, unanswered = self._reader, self._layout, self._unanswered
        taken: list[TopicTable] = []
        for table in self._known[self._position : self._position + most]:
            if not _is_unchanged(table, reader.buf, reader.pos, layout):
                break
            if unanswered is not None:
                if table.name not in unanswered:
                    break
                unanswered.discard(table.name)
            reader.pos += len(table.raw)
            taken.append(table)
        self._topics += taken
        self._position += len(taken)
        return len(taken)

    def _take_moved(self) -> int:
        """Takes the next topic if it is a known one, at another place than before; returns their number."""
        reader = self._reader
        known = self._known_topics.get(_name_at(reader.buf, reader.pos, self._layout))
        if known is None or not _is_unchanged(known, reader.buf, reader.pos, self._layout):
            return 0
        if not self._is_asked(known.name):
            return 0
        reader.pos += len(known.raw)
        self._answered(known)
        self._pass_known(known)
        return 1

    def _take_one(self) -> Generator[int, None, int]:
        """Reads the next topic alone; returns 1, or 0 if it has to be tried again: it has not all arrived."""
        reader = self._reader
        at = reader.pos
        known = self._known_topics.get(_name_at(reader.buf, at, self._layout))
        try:
            left = self._take_topic(known)
        except TruncatedError:
            yield self._wait(at, MOST_TOPIC_BYTES)
            return 0
        if left is not None:
            yield from self._pass_over(left)
        if known is not None:
            self._pass_known(known)
        return 1

    def _pass_known(self, table: TopicTable) -> None:
        """Continues behind a known table. The known tables are iterated at most once."""
        known = self._known
        while self._position < len(known) and known[self._position] is not table:
            self._position += 1
        self._position += 1

    def _take_run(self, left: int) -> int:
        """Reads as many usual topics as have arrived, up to a limit; returns their number.

        After a failure, topics are read alone for a while, twice as many each time.
        """
        if self._alone > 0:
            self._alone -= 1
            return 0
        if not self._layout.is_flexible or self._on_listed is not None:
            return 0
        reader, at = self._reader, self._reader.pos
        next_known = map(_RAW, self._known[self._position : self._position + _RUN_TOPICS])
        heads = read_heads(reader.buf, at, self._layout, min(left, _RUN_TOPICS), next_known)
        if len(heads) < _FEWEST_FOR_A_RUN:
            return 0
        run = read_run(reader.buf, heads, self._layout, self._known_topics, self._unanswered)
        if run is None:
            self._alone = self._failed_runs = min(2 * self._failed_runs + 1, _RUN_TOPICS)
            return 0
        self._failed_runs = 0
        self._keep_bytes(run.new_bytes)
        reader.pos = run.end
        self._topics += run.tables
        self._differences.update(run.differences)
        if self._unanswered is not None:
            self._unanswered.difference_update([table.name for table in run.tables])
        for known in run.known:
            if known is not None:
                self._pass_known(known)
        return len(heads)

    def _keep_bytes(self, size: int) -> None:
        self._kept_bytes += size
        self._ensure("bytes of topics", self._kept_bytes, MOST_KEPT_BYTES)

    def _is_asked(self, name: str) -> bool:
        return self._on_listed is None and (self._unanswered is None or name in self._unanswered)

    def _answered(self, topic: TopicTable | TopicFailure) -> None:
        self._topics.append(topic)
        if self._unanswered is not None:
            self._unanswered.discard(topic.name)

    def _take_topic(self, known: TopicTable | None) -> int | None:
        """Reads the topic at the cursor. If its partitions are not kept, it reads only the beginning, and
        returns how many partitions follow.
        """
        reader, layout = self._reader, self._layout
        start, reader.elements_left = reader.pos, MOST_ELEMENTS
        error_code = reader.int16()
        name = reader.nullable_string() if self._version >= 12 else reader.string()
        topic_id = reader.uuid() if layout.has_topic_id else ZERO_UUID
        is_internal = reader.boolean()
        count = reader.passed_array_length(layout.fewest_partition_bytes)
        id_or_none = None if topic_id == ZERO_UUID else topic_id
        if name is None:
            return count  # it answers a request by id
        if self._on_listed is not None:
            replicas = self._replicas_at_cursor() if count and not error_code else 0
            self._on_listed(ListedTopic(name, id_or_none, is_internal, count, error_code, replicas))
        if not self._is_asked(name):
            return count
        if error_code != 0:
            self._answered(TopicFailure(name, id_or_none, is_internal, error_code))
            return count
        located = locate_partitions(reader.buf, reader.pos, count, layout, start, reader.to_come)
        reader.pos = start + located.end
        self._end_topic()
        self._ensure("bytes of one topic", reader.pos - start, MOST_TOPIC_BYTES)
        self._keep_bytes(reader.pos - start)
        raw = reader.buf[start : reader.pos]
        use = known.use if known is not None else TopicUse()
        topic = TopicTable(name, is_internal, raw, located, layout, use)
        if known is not None:
            self._differences[name] = compare(known, topic)
        self._answered(topic)
        return None

    def _replicas_at_cursor(self) -> int:
        reader, start = self._reader, self._reader.pos
        reader.take(self._layout.head_bytes)
        count = reader.passed_array_length(4)
        reader.pos = start
        return count

    def _pass_over(self, left: int) -> Generator[int, None, None]:
        """Skips the partitions of a topic that is not kept, while they arrive, and its end."""
        reader = self._reader
        while left:
            left, reader.pos = pass_over_partitions(
                reader.buf, reader.pos, left, self._layout, reader.to_come
            )
            if left:
                yield self._wait(reader.pos, _LARGEST_STEP_BYTES)
        yield from self._step(self._end_topic)

    def _end_topic(self) -> None:
        if self._layout.has_authorized_operations:
            self._reader.int32()
        self._reader.skip_tags()


def _expected(known_topics: KnownTopics, asked: Collection[str] | None) -> tuple[TopicTable, ...]:
    """Returns the known tables in the order in which a response is likely to have them."""
    if asked is None or len(asked) >= len(known_topics):
        return tuple(known_topics.values())
    return tuple([known_topics[name] for name in asked if name in known_topics])


def _name_at(body: bytes, at: int, layout: TopicLayout) -> str:
    """Returns the name of the topic at `at`, to find its predecessor; arbitrary for invalid bytes."""
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
    """Returns whether the bytes at `at` equal the known topic's. A table with an overlay is never reused."""
    return known.layout is layout and not known.overlay and body.startswith(known.raw, at)
