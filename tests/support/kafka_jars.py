"""Fetches the jars of Apache Kafka's broker from Maven's central repository into a cache folder, once.

    python -m tests.support.kafka_jars .cache/kafka/4.3.1 [--with mvn|jgo]

`pipeline/jars/connector_jars.py` describes the ways and the folder. Called by the Makefile, by
`tests/kafka` and `benchmarks/`; blocks, on the caller's thread.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pipeline.jars import connector_jars
from pipeline.jars.connector_jars import WantedJars

KAFKA_VERSION: Final = "4.3.1"
#: The broker, its command line tools, and a log that goes to stderr. slf4j's version is the one of Kafka's
#: own pom.
WANTED: Final = WantedJars(
    "Kafka's jars",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
)
#: The folder that tests and benchmarks share, below the project's root.
DEFAULT_FOLDER: Final = Path(__file__).resolve().parents[2] / ".cache" / "kafka" / KAFKA_VERSION


def ensure_jars(folder: Path = DEFAULT_FOLDER, *, fetcher: str | None = None) -> tuple[Path, ...]:
    """The jars of Kafka's broker in `folder`, fetched if they are not there yet."""
    return connector_jars.ensure_jars(WANTED, folder, fetcher=fetcher)


if __name__ == "__main__":
    sys.exit(
        connector_jars.fetch_from_command_line(
            WANTED, DEFAULT_FOLDER, sys.argv[1:], program="python -m tests.support.kafka_jars"
        )
    )
