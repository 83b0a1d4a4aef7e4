"""The traffic to the brokers: each batch of a Produce request, and its answer.

A proxy copies the bytes of each connection (`FaultyProxy.tap`). A `Conversation` finds the Produce requests
in them. A record is known by the `#caller/number#` in its value, so batches must not be compressed. TLS
connections can't be read, and are left out. Proxies append from threads of their own.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, decode_response_header
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.protocol.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIZE: Final = struct.Struct(">i")
_PRODUCE: Final = struct.Struct(">hh")
_RECORD: Final = re.compile(rb"#([\w-]+/\d+)#")
#: int64 base offset, int32 length, int32 epoch, int8 magic, uint32 crc, int16 attributes, int32 last offset
#: delta, int64 first and largest timestamp, then int64 producer id, int16 its epoch, int32 base sequence.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
#: As many batches are remembered.
_MOST_BATCHES: Final = 500_000


class BatchId(NamedTuple):
    """The identity by which a broker recognises a batch."""

    partition: int
    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class SentBatch:
    """One batch in one Produce request; `error` is None without an answer, else Kafka's code."""

    broker: int
    batch: BatchId
    error: int | None = None


@dataclass(slots=True)
class WireTrace:
    """All batches by the records in them."""

    sends: dict[bytes, list[SentBatch]] = field(default_factory=dict)
    errors: set[tuple[int, int]] = field(default_factory=set)
    batches: int = 0

    def clear(self) -> None:
        """Forgets all: another fault begins."""
        self.sends, self.errors, self.batches = {}, set(), 0

    def of_value(self, value: bytes) -> Sequence[SentBatch]:
        """Every time that the record was sent to a broker, in order."""
        found = _RECORD.search(value)
        return () if found is None else tuple(self.sends.get(found[1], ()))

    def has_error(self, producer_id: int, codes: frozenset[int]) -> bool:
        """Whether a broker answered a batch of this producer with one of these."""
        return any((producer_id, code) in self.errors for code in codes)

    def conversation(self, broker: int) -> Conversation:
        """For one connection."""
        return Conversation(self, broker)

    def sent(self, broker: int, batch: BatchId, records: bytes) -> SentBatch | None:
        """Adds a batch; None for one that holds no record of ours, or one too many."""
        ids = _RECORD.findall(records)
        if not ids or self.batches >= _MOST_BATCHES:
            return None
        self.batches += 1
        sent = SentBatch(broker, batch)
        for record in ids:
            self.sends.setdefault(record, []).append(sent)
        return sent

    def answered(self, sent: SentBatch, error: int) -> None:
        """A broker's answer to a batch."""
        sent.error = error
        if error:
            self.errors.add((sent.batch.producer_id, error))


class Conversation:
    """The two directions of one connection, as they come. One thread."""

    def __init__(self, trace: WireTrace, broker: int) -> None:
        self._trace = trace
        self._broker = broker
        self._requests = bytearray()
        self._answers = bytearray()
        self._open: dict[int, tuple[int, dict[int, SentBatch]]] = {}

    def request_bytes(self, data: bytes) -> None:
        """What the client sent."""
        self._requests += data
        for frame in _frames(self._requests):
            if len(frame) >= _PRODUCE.size and _PRODUCE.unpack_from(frame)[0] == ApiKey.PRODUCE.id:
                self._produce(frame)

    def answer_bytes(self, data: bytes) -> None:
        """What the broker answered."""
        self._answers += data
        for frame in _frames(self._answers):
            opened = self._open.pop(_SIZE.unpack_from(frame)[0], None)
            if opened is None:
                continue
            version, batches = opened
            _, offset = decode_response_header(frame, ApiKey.PRODUCE, version)
            for topic in ProduceResponse.decode(frame, version, offset).responses:
                for answer in topic.partition_responses:
                    if answer.partition_index in batches:
                        self._trace.answered(batches[answer.partition_index], answer.error_code)

    def _produce(self, frame: bytes) -> None:
        try:
            header = decode_request_header(frame)
            request = ProduceRequest.decode(frame, header.version, header.body_offset)
        except SchemaError:  # a client that speaks what we do not: nothing of it can be attributed
            return
        batches = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    records = bytes(data.records)
                    batch = BatchId(data.partition_index, *_PRODUCER.unpack_from(records, _PRODUCER_AT))
                    sent = self._trace.sent(self._broker, batch, records)
                    if sent is not None:
                        batches[data.partition_index] = sent
        if batches:
            self._open[header.correlation_id] = (header.version, batches)


def _frames(buffer: bytearray) -> list[bytes]:
    """The whole frames at the buffer's beginning, which are taken out of it."""
    frames, at = [], 0
    while len(buffer) >= at + _SIZE.size:
        size = _SIZE.unpack_from(buffer, at)[0]
        if len(buffer) < at + _SIZE.size + size:
            break
        frames.append(bytes(buffer[at + _SIZE.size : at + _SIZE.size + size]))
        at += _SIZE.size + size
    del buffer[:at]
    return frames
