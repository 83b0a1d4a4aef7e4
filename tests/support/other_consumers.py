"""Records of a partition as read by other clients: aiokafka, and Java's own console consumer.

Each reads from the first offset to a given one, by assignment and without a group, and gives what
`kafka_admin.ReadRecord` holds, so that it can be compared field by field with what librdkafka reads
(`KraftCluster.read_back`) and with what was sent. AssertionError when it doesn't get there in time.
Blocking; any thread without a running loop.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING, Final

import aiokafka

from tests.support.kafka_admin import ReadRecord
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PATIENCE_S: Final = patient(60.0)
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

#: The console consumer prints bytes as they are: these separators occur in no test's record.
_FIELD: Final = "<<|field|>>"
_LINE: Final = "<<|line|>>"
_HEADER: Final = "<<|header|>>"
_NULL: Final = "<<|null|>>"
_NO_HEADERS: Final = b"NO_HEADERS"


def read_by_aiokafka(
    bootstrap_servers: str, topic: str, *, partition: int = 0, count: int
) -> list[ReadRecord]:
    """The first records of a partition, as aiokafka reads them, checksums checked."""
    return asyncio.run(_by_aiokafka(bootstrap_servers, aiokafka.TopicPartition(topic, partition), count))


async def _by_aiokafka(
    bootstrap_servers: str, partition: aiokafka.TopicPartition, count: int
) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        check_crcs=True,
    )
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        async with asyncio.timeout(_PATIENCE_S):
            while len(records) < count:
                message = await consumer.getone()
                records.append(
                    ReadRecord(
                        message.partition,
                        message.offset,
                        message.key,
                        message.value,
                        tuple(message.headers),
                        message.timestamp,
                        _TIMESTAMP_TYPES[message.timestamp_type],
                    )
                )
    except TimeoutError as error:
        raise AssertionError(f"aiokafka read {len(records)} of {count} records") from error
    finally:
        await consumer.stop()
    return records


def read_by_java(
    java: Path,
    jars: Sequence[Path],
    bootstrap_servers: str,
    topic: str,
    *,
    partition: int = 0,
    count: int,
    temporary: Path,
) -> list[ReadRecord]:
    """The first records of a partition, as Kafka's console consumer prints them. Takes two seconds."""
    shown = {**dict.fromkeys(("timestamp", "partition", "offset", "headers", "key", "value"), "true")}
    formats = {
        **{f"print.{what}": value for what, value in shown.items()},
        "key.separator": _FIELD,
        "line.separator": _LINE,
        "headers.separator": _HEADER,
        "null.literal": _NULL,
    }
    done = subprocess.run(
        [
            str(java),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            f"-Djava.io.tmpdir={temporary}",
            *("-cp", os.pathsep.join(map(str, jars))),
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap_servers, "--topic", topic),
            *("--partition", str(partition), "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", str(int(_PATIENCE_S * 1_000))),
            *("--command-property", "enable.auto.commit=false"),
            *(
                word
                for name, value in formats.items()
                for word in ("--formatter-property", f"{name}={value}")
            ),
        ],
        capture_output=True,
        timeout=2 * _PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4_000:]
    *lines, rest = done.stdout.split(_LINE.encode())
    assert not rest, f"behind the last record: {rest!r}"
    assert len(lines) == count, f"Java's consumer read {len(lines)} of {count} records"
    return [_printed_record(line) for line in lines]


def _printed_record(line: bytes) -> ReadRecord:
    timestamp, partition, offset, headers, key, value = line.split(_FIELD.encode())
    timestamp_type, _, timestamp_ms = timestamp.decode().partition(":")
    return ReadRecord(
        int(partition.removeprefix(b"Partition:")),
        int(offset.removeprefix(b"Offset:")),
        _or_null(key),
        _or_null(value),
        ()
        if headers == _NO_HEADERS
        else tuple(_printed_header(header) for header in headers.split(_HEADER.encode())),
        int(timestamp_ms),
        timestamp_type,
    )


def _printed_header(header: bytes) -> tuple[str, bytes | None]:
    name, _, value = header.partition(b":")
    return name.decode(), _or_null(value)


def _or_null(printed: bytes) -> bytes | None:
    return None if printed == _NULL.encode() else printed
