"""Starts the three real brokers for the produce benchmarks, with a topic."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars
from tests.support.kraft import KraftCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "bench"
PARTITIONS: Final = 6


@contextlib.contextmanager
def three_brokers(replication_factor: int = 3) -> Iterator[KraftCluster]:
    """Yields a cluster with the topic `bench`: six partitions, min.insync.replicas 2 for three replicas."""
    with (
        tempfile.TemporaryDirectory(prefix="pilotfish-bench-") as folder,
        KraftCluster(find_java().path, ensure_jars(), Path(folder) / "kafka", brokers=3) as cluster,
    ):
        config = {"min.insync.replicas": str(min(2, replication_factor))}
        cluster.admin.create_topic(
            TOPIC, partitions=PARTITIONS, replication_factor=replication_factor, config=config
        )
        yield cluster
