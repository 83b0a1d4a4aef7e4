"""The requirements of a Kafka broker: a Java and Kafka's jars. Blocks while the jars are fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class KafkaHome:
    """A `java` program, and the jars of Kafka."""

    java: Path
    jars: Sequence[Path]
    #: For each server, on top of the tests' own.
    java_options: Sequence[str] = ()


def find_kafka_home() -> KafkaHome:
    """JavaMissingError and JarsMissingError say what to install."""
    return KafkaHome(find_java().path, ensure_jars())
