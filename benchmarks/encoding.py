"""Measures the CPU of encoding a v2 batch: ours, kafka-python with its crc32c wheel, aiokafka's Cython.

Batches of 100 and of 1,000 records, each with a 100-byte value, no key, no headers and the same time; no
compression, an idempotent producer's id and sequence. The records are prepared before, in each library's
form. Encoding is appending them all and building the bytes. Ours appends them by one `append_many`, the
others by one call per record. All results must be equal, except for the epoch that the broker overwrites.

The ceiling is the same technique in Python without rules: pieces from a table, one join, one checksum. It
ignores limits, keys, headers and other times.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiokafka.record.default_records
import kafka.record.util
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from benchmarks.measure import Sample, goal, in_turns, median, report, table
from client_core import ProducerRecord
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import CHECKED_HEAD, HEAD, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from client_core.record.varint import LENGTH_AND_ATTRIBUTES, NULL_KEY_AND_LENGTH, VARINT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BATCHES: Final = (100, 1_000)
VALUE_BYTES: Final = 100
RECORDS_A_TURN: Final = 200_000
QUICK_RECORDS_A_TURN: Final = 20_000
ROUNDS: Final = 9
TIMESTAMP_MS: Final = 1_750_000_000_000
PRODUCER_ID: Final = 7
PRODUCER_EPOCH: Final = 0
BASE_SEQUENCE: Final = 0
LIMIT_BYTES: Final = 1 << 20

OURS: Final = "pilotfish"
KAFKA_PYTHON: Final = "kafka-python, with its crc32c wheel"
AIOKAFKA: Final = "aiokafka (Cython)"
CEILING: Final = "ceiling: bare pieces, joined"

#: int64 offset, int32 length, int32 epoch: not covered by the checksum.
_EPOCH_AT: Final = 12
_BEHIND_EPOCH: Final = 16

Encode = Callable[[], bytes | bytearray]


class _Builder(Protocol):
    """The interface that kafka-python's and aiokafka's builders share."""

    def append(self, offset: int, timestamp: int, key: None, value: bytes, headers: list[Any]) -> object: ...

    def build(self) -> bytearray: ...


def ours(values: Sequence[bytes]) -> Encode:
    records = [ProducerRecord("bench", value) for value in values]
    indices = range(len(records))

    def encode() -> bytes:
        builder = MemoryRecordsBuilder(LIMIT_BYTES)
        builder.append_many(records, indices, 0, TIMESTAMP_MS)
        builder.set_producer_state(PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE)
        return builder.build()

    return encode


def theirs(make: Callable[..., _Builder], values: Sequence[bytes]) -> Encode:
    """Returns an encoder for kafka-python's API, which is also aiokafka's."""
    records = list(enumerate(values))

    def encode() -> bytearray:
        builder = make(
            magic=MAGIC,
            compression_type=0,
            is_transactional=False,
            producer_id=PRODUCER_ID,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=BASE_SEQUENCE,
            batch_size=LIMIT_BYTES,
        )
        append = builder.append
        for offset, value in records:
            append(offset, TIMESTAMP_MS, None, value, [])
        return builder.build()

    return encode


def bare(values: Sequence[bytes]) -> Encode:
    same_time = VARINT[0]
    no_headers = VARINT[0]

    def encode() -> bytes:
        pieces: list[bytes] = []
        for offset, value in enumerate(values):
            lead, delta = NULL_KEY_AND_LENGTH[len(value)], VARINT[offset]
            body = 3 + len(delta) + len(lead) + len(value)
            pieces += (LENGTH_AND_ATTRIBUTES[body], same_time, delta, lead, value, no_headers)
        payload = b"".join(pieces)
        checked = CHECKED_HEAD.pack(
            0,
            len(values) - 1,
            TIMESTAMP_MS,
            TIMESTAMP_MS,
            PRODUCER_ID,
            PRODUCER_EPOCH,
            BASE_SEQUENCE,
            len(values),
        )
        length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
        return b"".join((HEAD.pack(0, length, -1, MAGIC, crc32c(payload, crc32c(checked))), checked, payload))

    return encode


def contestants(records: int) -> dict[str, Encode]:
    """Returns all contestants with a batch of `records`; ends the run if their bytes differ."""
    values = [os.urandom(VALUE_BYTES) for _ in range(records)]
    encoders = {
        OURS: ours(values),
        KAFKA_PYTHON: theirs(KafkaPythonBuilder, values),
        AIOKAFKA: theirs(aiokafka.record.default_records.DefaultRecordBatchBuilder, values),
        CEILING: bare(values),
    }
    expected = _comparable(encoders[KAFKA_PYTHON]())
    for name, encode in encoders.items():
        if _comparable(encode()) != expected:
            raise SystemExit(f"{name} encodes other bytes than kafka-python")
    return encoders


def _comparable(batch: bytes | bytearray) -> bytes:
    return bytes(batch[:_EPOCH_AT]) + bytes(batch[_BEHIND_EPOCH:])


def measure(encoders: Mapping[str, Encode], records: int, records_a_turn: int) -> dict[str, list[Sample]]:
    times = records_a_turn // records

    def turn(encode: Encode) -> Sample:
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        for _ in range(times):
            encode()
        return Sample(times * records, time.perf_counter() - wall_s, time.thread_time() - cpu_s)

    return in_turns({name: partial(turn, encode) for name, encode in encoders.items()}, ROUNDS)


def require_compiled_peers() -> None:
    """Ends the run if a peer is not compiled: kafka-python without its wheel is ten times slower."""
    if kafka.record.util.crc32c_c is None:
        raise SystemExit("kafka-python has no crc32c wheel here: pip install crc32c")
    module = aiokafka.record.default_records.DefaultRecordBatchBuilder.__module__
    if not module.startswith("aiokafka.record._crecords"):
        raise SystemExit(f"aiokafka's builder is the one of {module}, not its Cython one")


def main(records_a_turn: int = RECORDS_A_TURN) -> None:
    require_compiled_peers()
    goals = []
    for records in BATCHES:
        samples = measure(contestants(records), records, records_a_turn)
        million_a_s = {
            name: 1 / median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()
        }
        wall = {name: median(turns, lambda s: s.per_wall_s) / 1e6 for name, turns in samples.items()}
        table(
            f"v2 batch of {records:,} records of {VALUE_BYTES} B, no compression, M records/s",
            ("who", "by CPU", "by wall time", f"{OURS} / it"),
            [
                (name, million_a_s[name], wall[name], million_a_s[OURS] / million_a_s[name])
                for name in samples
            ],
        )
        goals.append(
            goal(
                f"encoding a batch of {records:,} records, by CPU, against kafka-python with its wheel",
                ours=million_a_s[OURS],
                peer=million_a_s[KAFKA_PYTHON],
                at_least=3.0,
            )
        )
    report(goals)


if __name__ == "__main__":
    main(QUICK_RECORDS_A_TURN if "--quick" in sys.argv[1:] else RECORDS_A_TURN)
