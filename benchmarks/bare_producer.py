"""A minimal producer in Python, as a ceiling for complete ones. One topic, keyless records.

    producer = BareProducer(bootstrap_servers, topic, loop.call_soon_threadsafe)
    producer.hand_over(Handed(values, done))        any thread; done is posted

One thread owns the sockets. The records submitted since its last turn become batches of a sticky partition,
16 KiB each. One Produce request per broker has one batch of each of its partitions. One wakeup brings in any
number of submissions, one post brings out any number of acknowledgements.

acks=all, linger 0, five requests in flight per broker, no compression. It has no idempotence, retries,
deadlines, metadata refreshes, limits or checks: the first error ends the process.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.record.varint import LENGTH_AND_ATTRIBUTES, NULL_KEY_AND_LENGTH, VARINT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

BATCH_BYTES: Final = 16_384
MAX_IN_FLIGHT: Final = 5
_TIMEOUT_MS: Final = 30_000
_CLIENT_ID: Final = "bare"
#: The last version of Produce without tags, so that each field of a response has a fixed position.
_VERSION: Final = 8
_METADATA_VERSION: Final = 12

_SIZE: Final = struct.Struct(">i")
#: int64 base offset, int32 length, int32 leader epoch, int8 magic, uint32 crc
_BATCH_HEAD: Final = struct.Struct(">qiibI")
#: int16 attributes, int32 last offset delta, int64 first and last timestamp, int64 producer id, int16 epoch,
#: int32 sequence, int32 records
_BATCH_REST: Final = struct.Struct(">hiqqqhii")
#: int32 partition, int32 bytes of records
_PARTITION: Final = struct.Struct(">ii")
#: int16 api, int16 version, int32 correlation id
_REQUEST: Final = struct.Struct(">hhi")
#: int32 partition, int16 error, int64 base offset, int64 log append time, int64 log start offset,
#: int32 record errors, int16 length of the error's message
_PARTITION_ANSWER: Final = struct.Struct(">ihqqqih")
#: The most bytes of a record besides its value, if values are short.
_RECORD_OVERHEAD: Final = 12


class Handed:
    """Records that were submitted together, and the callback for their outcome."""

    __slots__ = ("done", "left", "receipts", "values")

    def __init__(self, values: Sequence[bytes], done: Callable[[Handed], None]) -> None:
        self.values = values
        self.done = done
        self.left = len(values)
        #: Per batch that has some of them: first record, count, partition, first offset, timestamp.
        self.receipts: list[tuple[int, int, int, int, int]] = []


class _Batch:
    """Records of one partition, and their submissions."""

    __slots__ = ("count", "owners", "partition", "pieces", "size", "timestamp_ms")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.pieces: list[bytes] = []
        #: Per submission: its first record here, the count, and the position in the batch.
        self.owners: list[tuple[Handed, int, int, int]] = []
        self.count = 0
        self.size = 0
        self.timestamp_ms = 0

    def add(self, handed: Handed, begin: int) -> int:
        """Adds records from `begin` on until the batch is full; returns the index after the last one."""
        values = handed.values[begin:] if begin else handed.values
        size, count = self.size, self.count
        pieces = self.pieces
        for value in values:
            length = len(value)
            if size and size + length + _RECORD_OVERHEAD > BATCH_BYTES:
                break
            delta, key_and_length = VARINT[count], NULL_KEY_AND_LENGTH[length]
            # length, attributes; timestamp delta 0, offset delta, no key, value's length; value; no headers
            pieces += (
                LENGTH_AND_ATTRIBUTES[3 + len(delta) + len(key_and_length) + length],
                b"\0" + delta + key_and_length,
                value,
                b"\0",
            )
            count += 1
            size += length + _RECORD_OVERHEAD
        taken = count - self.count
        if taken:
            self.owners.append((handed, begin, taken, self.count))
        self.size, self.count = size, count
        return begin + taken

    def encode(self) -> bytes:
        self.timestamp_ms = now_ms = time.time_ns() // 1_000_000
        head = _BATCH_REST.pack(0, self.count - 1, now_ms, now_ms, -1, -1, -1, self.count)
        rest = b"".join((head, *self.pieces))
        # The length counts the bytes after it: leader epoch, magic, checksum (nine bytes), and the rest.
        return _BATCH_HEAD.pack(0, 9 + len(rest), -1, 2, crc32c(rest)) + rest


class _Node:
    """One broker: its blocking socket, which is read when data is there, and its requests."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.full: deque[_Batch] = deque()
        self.in_flight: deque[list[_Batch]] = deque()
        self.received = bytearray()


class BareProducer:
    """`hand_over` may be called on any thread; the rest belongs to the producer's own thread."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        post: Callable[[Callable[[list[Handed]], None], list[Handed]], object],
    ) -> None:
        """Requests the leaders, and starts. `post` calls a function on the callers' thread."""
        self._post = post
        self._topic = topic.encode()
        self._leaders = _leaders(bootstrap_servers, topic)
        self._order = sorted(self._leaders)
        self._nodes = list({id(node): node for node in self._leaders.values()}.values())
        self._handed: deque[Handed] = deque()
        self._reader, self._writer = socket.socketpair()
        self._is_woken = False
        self._turn = 0
        self._sticky = self._leaders[self._order[0]]
        self._open = _Batch(self._order[0])
        self._of_sticky = 0
        client_id = _CLIENT_ID.encode()
        # The rest of the header, no transactional id, acks -1, timeout, one topic by its name.
        self._request_rest = (
            struct.pack(">h", len(client_id))
            + client_id
            + struct.pack(">hhiih", -1, -1, _TIMEOUT_MS, 1, len(self._topic))
            + self._topic
        )
        threading.Thread(target=self._run, daemon=True, name="bare-producer").start()

    def hand_over(self, handed: Handed) -> None:
        """Submits records; `handed.done` is called on the callers' thread."""
        self._handed.append(handed)
        if not self._is_woken:
            self._is_woken = True
            self._writer.send(b"\0")

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._turns()
        except BaseException as error:  # noqa: BLE001 -- a ceiling with missing records would be invalid
            print(f"the bare producer ends: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)

    def _turns(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._reader, selectors.EVENT_READ)
        for node in self._nodes:
            selector.register(node.socket, selectors.EVENT_READ, node)
        while True:
            finished: list[Handed] = []
            for key, _ in selector.select():
                if key.data is None:
                    self._reader.recv(16)
                    self._is_woken = False
                else:
                    self._receive(key.data, finished)
            if finished:
                self._post(_report, finished)
            self._fill()
            for node in self._nodes:
                self._send(node)

    def _fill(self) -> None:
        """Makes batches of all submitted records."""
        while self._handed:
            handed = self._handed.popleft()
            begin, count = 0, len(handed.values)
            while True:
                begin = self._open.add(handed, begin)
                if begin == count:
                    break
                self._sticky.full.append(self._open)
                self._next_partition()

    def _next_partition(self) -> None:
        """Switches the sticky partition: to the next one whose broker has room, if there is one."""
        for _ in self._order:
            self._turn = (self._turn + 1) % len(self._order)
            if len(self._leaders[self._order[self._turn]].in_flight) < MAX_IN_FLIGHT:
                break
        partition = self._order[self._turn]
        self._sticky, self._open, self._of_sticky = self._leaders[partition], _Batch(partition), 0

    def _send(self, node: _Node) -> None:
        """Sends as many requests as fit in flight."""
        while len(node.in_flight) < MAX_IN_FLIGHT:
            batches: dict[int, _Batch] = {}
            while node.full and node.full[0].partition not in batches:
                batch = node.full.popleft()
                batches[batch.partition] = batch
            if (
                not node.full
                and node is self._sticky
                and self._open.count
                and self._open.partition not in batches
            ):
                batch = batches[self._open.partition] = self._open
                self._of_sticky += batch.size
                if self._of_sticky < BATCH_BYTES:
                    self._open = _Batch(batch.partition)
                else:
                    self._next_partition()
            if not batches:
                return
            node.in_flight.append(list(batches.values()))
            node.socket.sendall(self._request(batches.values()))

    def _request(self, batches: Collection[_Batch]) -> bytes:
        parts = [
            b"",
            _REQUEST.pack(ApiKey.PRODUCE.id, _VERSION, 0),
            self._request_rest,
            _SIZE.pack(len(batches)),
        ]
        for batch in batches:
            records = batch.encode()
            parts += (_PARTITION.pack(batch.partition, len(records)), records)
        parts[0] = _SIZE.pack(sum(map(len, parts)))
        return b"".join(parts)

    def _receive(self, node: _Node, finished: list[Handed]) -> None:
        received = node.received
        chunk = node.socket.recv(65_536)
        if not chunk:
            raise ConnectionError("a broker closed the connection")
        received += chunk
        begin = 0
        while len(received) - begin >= 4:
            (size,) = _SIZE.unpack_from(received, begin)
            if len(received) - begin < 4 + size:
                break
            # int32 size, int32 correlation id, int32 topics, int16 name's length, name, int32 partitions
            self._settle(
                node.in_flight.popleft(), received, begin + 4 + 4 + 4 + 2 + len(self._topic) + 4, finished
            )
            begin += 4 + size
        del received[:begin]

    @staticmethod
    def _settle(batches: list[_Batch], answer: bytearray, at: int, finished: list[Handed]) -> None:
        """Assigns offsets to the records of a request. The answer's partitions may be in any order."""
        of_partition = {batch.partition: batch for batch in batches}
        for _ in batches:
            partition, error, base_offset, _, _, record_errors, message = _PARTITION_ANSWER.unpack_from(
                answer, at
            )
            at += _PARTITION_ANSWER.size
            if error or record_errors or message != -1:
                raise RuntimeError(f"partition {partition} failed with error {error}")
            batch = of_partition[partition]
            for handed, first, count, place in batch.owners:
                handed.receipts.append((first, count, partition, base_offset + place, batch.timestamp_ms))
                handed.left -= count
                if not handed.left:
                    finished.append(handed)


def _report(finished: list[Handed]) -> None:
    for handed in finished:
        handed.done(handed)


def _leaders(bootstrap_servers: str, topic: str) -> dict[int, _Node]:
    """Returns the leader of each partition, connected."""
    host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        header = encode_request_header(ApiKey.METADATA, _METADATA_VERSION, 0, _CLIENT_ID)
        body = MetadataRequest((MetadataRequestTopic(name=topic),), False).encode(_METADATA_VERSION)
        connection.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        with connection.makefile("rb") as answers:
            (size,) = _SIZE.unpack(answers.read(_SIZE.size))
            frame = answers.read(size)
    _, at = decode_response_header(frame, ApiKey.METADATA, _METADATA_VERSION)
    answer = MetadataResponse.decode(frame, _METADATA_VERSION, at)
    nodes = {broker.node_id: _Node(broker.host, broker.port) for broker in answer.brokers}
    return {p.partition_index: nodes[p.leader_id] for t in answer.topics for p in t.partitions}
