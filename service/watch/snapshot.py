"""The JSON of a snapshot for a watcher, in pieces, so that the whole is never in memory.

The pieces form one line. White space between two pieces is allowed: an event stream joins several `data:`
lines with it. A topic's JSON depends on its table alone, so it is cached and shared by all watchers. Event
loop only. Shapes: docs/watch.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from client_core import TopicTable
from service.lookup.answers import node_json, topic_id_text
from service.watch.changes import PIECE, brokers_of, partition_json
from service.watch.subscription import Start, Subscription
from service.wire.errors import Problem, error_item
from service.wire.freshness import rfc3339, version_text

_encode: Final = msgspec.json.Encoder().encode

#: Ten thousand topics with a handful of partitions each.
_MAX_KEPT_BYTES: Final = 16 * 1024 * 1024


class TopicTexts:
    """Caches the JSON of topics, each as long as its table is the same object."""

    def __init__(self, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: dict[str, tuple[TopicTable, bytes]] = {}
        self._bytes = 0

    def of(self, table: TopicTable) -> Iterator[bytes]:
        """Returns the topic in pieces. One with many partitions is built piece by piece, and not cached."""
        kept = self._kept.get(table.name)
        if kept is not None and kept[0] is table:
            yield kept[1]
        elif table.partition_count > PIECE:
            yield from topic_pieces(table)
        else:
            text = b"".join(topic_pieces(table))
            self._keep(table, text)
            yield text

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def _keep(self, table: TopicTable, text: bytes) -> None:
        before = self._kept.pop(table.name, None)
        self._bytes += len(text) - (0 if before is None else len(before[1]))
        if self._bytes > self._max_kept_bytes:
            self.clear()
            self._bytes = len(text)
        self._kept[table.name] = (table, text)


def topic_pieces(table: TopicTable) -> Iterator[bytes]:
    """Returns one topic of a snapshot, in pieces."""
    head = {"name": table.name, "id": topic_id_text(table.topic_id), "internal": table.is_internal}
    yield _encode(head)[:-1] + b',"partitions":['
    numbers = table.numbers
    for start in range(0, len(numbers), PIECE):
        found = (partition_json(table, number) for number in numbers[start : start + PIECE])
        text = _encode([partition for partition in found if partition is not None])
        yield (b"," if start else b"") + text[1:-1]
    yield b"]}"


def snapshot_pieces(
    start: Start, subscription: Subscription, problems: Mapping[str, Problem], boot: str, texts: TopicTexts
) -> Iterator[bytes]:
    """Returns the JSON of a snapshot in pieces, with the topics that this watcher may read.

    `problems`: those of named topics that are missing.
    """
    cache, names, sees = start.cache, subscription.names, subscription.sees
    refreshed = cache.refreshed
    wall_ms = None if refreshed is None else refreshed.wall_ms
    head: dict[str, Any] = {
        "version": version_text(boot, start.number),
        "metadata_version": version_text(boot, cache.update_version),
        "refreshed_at": None if wall_ms is None else rfc3339(wall_ms),
        "cluster_id": cache.cluster_id,
        "brokers": [node_json(node) for _, node in sorted(brokers_of(cache).items())],
    }
    yield _encode(head)[:-1] + b',"topics":['
    is_first = True
    for name in sorted(cache.topics if names is None else names):
        table = cache.topics.get(name)
        if table is None or not sees(name):
            continue
        pieces = texts.of(table)
        yield (b"" if is_first else b",") + next(pieces)
        yield from pieces
        is_first = False
    errors = [
        {"topic": name, **error_item(problem)}
        for name, problem in sorted(problems.items())
        if name not in cache.topics or not sees(name)
    ]
    yield b'],"errors":' + _encode(errors) + b"}"
