"""Every metric of Kafka's own producer is in our table: with ours beside it, or the reason for its absence.

The Java producer itself prints the names. So the test finds names that a later Kafka adds, and names that
don't exist.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing import FakeCluster

if TYPE_CHECKING:
    from tests.support.kafka_home import KafkaHome

DOCS: Final = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
GROUPS: Final = ("producer-metrics", "producer-node-metrics", "producer-topic-metrics")
PRINTED: Final = re.compile(r"^([\w-]+):([\w-]+):\{", re.MULTILINE)


@pytest.fixture(scope="module")
def names_in_java(kafka_home: KafkaHome) -> dict[str, set[str]]:
    """By group."""
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders")
        command = [
            *(str(kafka_home.java), "-cp", ":".join(str(jar) for jar in kafka_home.jars)),
            *("org.apache.kafka.tools.ProducerPerformance", "--print-metrics"),
            *("--topic", "orders", "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}"),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    names: dict[str, set[str]] = {}
    for group, name in PRINTED.findall(ran.stdout):
        names.setdefault(group, set()).add(name)
    return names


def names_in_docs(group: str) -> set[str]:
    """The first column of a group's table."""
    section = re.search(rf"^### `{group}`$(.*?)(?=^#|\Z)", DOCS, re.MULTILINE | re.DOTALL)
    assert section is not None
    first_cells = re.findall(r"^\| (`[^|]*)", section[1], re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`([\w-]+)`", cell)}


@pytest.mark.parametrize("group", GROUPS)
def test_every_name_of_java_is_in_the_table_and_no_other(
    group: str, names_in_java: dict[str, set[str]]
) -> None:
    assert names_in_docs(group) == names_in_java[group]
