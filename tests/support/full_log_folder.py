"""A broker with one full log folder, which goes on with another.

    fill_log_folder(kafka, broker_id, "orders", 0)      # the folder in which orders-0 lies

Kafka takes a log folder offline at the first write to it that fails; with another one left the broker goes
on, answers KAFKA_STORAGE_ERROR for what lay in the first, and the controller gives its partitions to others.

No file system is filled, which would need privileges. Instead the process gets a limit for the size of any
file (RLIMIT_FSIZE), and a write beyond it fails as on a full disk. A ballast topic has a file in that folder
that is larger than all other files of the broker. The limit is set between these sizes, so that only writes
to the ballast fail. Then one such write is made.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kraft import KraftCluster

_MIB: Final = 1 << 20
#: How much other files may grow before writes to them fail as well. This includes an index file, which Kafka
#: makes 10 MB long at once.
_ROOM_BYTES: Final = 12 * _MIB
_RECORD_BYTES: Final = 900_000
_BALLAST_PARTITIONS: Final = 6
_TIMEOUT_S: Final = patient(60.0)


def fill_log_folder(kafka: KraftCluster, broker_id: int, topic: str, partition: int) -> None:
    """Has the broker take the folder offline in which it keeps this partition; returns when it has.

    The broker needs a second one in log.dirs, and another for metadata.log.dir. `stop` and `heal` end it.
    """
    folder = kafka.log_folder(broker_id, topic, partition).parent
    ballast = f"ballast-{secrets.token_hex(4)}"
    kafka.admin.create_topic(
        ballast, partitions=_BALLAST_PARTITIONS, replication_factor=len(kafka.broker_ids)
    )
    beside = _partition_in(kafka, broker_id, ballast, folder)
    limit_bytes = _largest_file_bytes(kafka.server_folder(broker_id)) + _ROOM_BYTES
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for _ in range(limit_bytes // _RECORD_BYTES + 2):
        producer.produce(ballast, secrets.token_bytes(_RECORD_BYTES), partition=beside)
        assert producer.flush(_TIMEOUT_S) == 0, "the ballast can't be written"
    in_folder = kafka.log_folder(broker_id, ballast, beside)
    wait_until(
        lambda: _largest_file_bytes(in_folder) > limit_bytes,
        what="the broker has the ballast",
        timeout_s=_TIMEOUT_S,
    )
    kafka.fail_disk(broker_id, above_bytes=limit_bytes)
    producer.produce(ballast, b"more than the folder takes", partition=beside)
    kafka.admin.wait_for_leader_other_than(topic, partition, broker_id)
    assert kafka.is_running(broker_id), f"broker {broker_id} ended, though it has another log folder"
    assert producer.flush(_TIMEOUT_S) == 0, "the ballast's other replicas don't take it"


def _partition_in(kafka: KraftCluster, broker_id: int, topic: str, folder: Path) -> int:
    """A partition that the broker keeps in this folder: Kafka fills its folders evenly.

    A new topic's replicas count as in sync before they have made their folders.
    """
    wait_until(
        lambda: all(kafka.has_log_folder(broker_id, topic, p) for p in range(_BALLAST_PARTITIONS)),
        what=f"broker {broker_id} has folders for {topic}",
        timeout_s=_TIMEOUT_S,
    )
    for partition in range(_BALLAST_PARTITIONS):
        if kafka.log_folder(broker_id, topic, partition).parent == folder:
            return partition
    raise AssertionError(f"nothing of {topic} lies in {folder}: has the broker two log folders?")


def _largest_file_bytes(folder: Path) -> int:
    return max(_size_bytes(path) for path in folder.rglob("*"))


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Kafka writes checkpoints to a file that it renames
        return 0
