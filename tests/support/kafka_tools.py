"""Kafka's own command line tools, for what librdkafka's admin cannot do: move replicas, set quotas.

Each call is a Java process of its own that takes about two seconds, and ends before the call returns.
Blocks; any thread. KafkaToolError when the tool says no.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from typing import TYPE_CHECKING, Final

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TIMEOUT_S: Final = patient(120.0)
_QUOTA: Final = re.compile(r"(\w+_(?:rate|percentage))=")
_JAVA_OPTIONS: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class KafkaToolError(RuntimeError):
    """A tool failed; the message holds what it said."""


class KafkaTools:
    """The tools of Kafka's distribution, on one cluster."""

    def __init__(self, java: Path, jars: Sequence[Path], folder: Path, bootstrap_servers: str) -> None:
        """The folder is for files that tools read; it must be there by the first call."""
        self._java = java
        self._class_path = os.pathsep.join(str(jar) for jar in jars)
        self._folder = folder
        self._bootstrap_servers = bootstrap_servers

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Begins to give partitions these replicas, the preferred leader first."""
        wanted = {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": list(brokers)}
                for partition, brokers in replicas.items()
            ],
        }
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir=self._folder) as plan:
            json.dump(wanted, plan)
            plan.flush()
            self._run(
                "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
                *("--reassignment-json-file", plan.name, "--execute"),
            )

    def set_quotas(self, kind: str, name: str | None, quotas: Mapping[str, float]) -> None:
        """Sets quotas of one of a kind, `clients` or `users`, or of the kind's default."""
        wanted = ",".join(f"{quota}={value:g}" for quota, value in quotas.items())
        self._configure(kind, name, "--alter", "--add-config", wanted)

    def remove_quotas(self, kind: str, name: str | None) -> None:
        """Takes away every quota of one of a kind, or of the kind's default."""
        there = _QUOTA.findall(self._configure(kind, name, "--describe"))
        if there:
            self._configure(kind, name, "--alter", "--delete-config", ",".join(there))

    def _configure(self, kind: str, name: str | None, *arguments: str) -> str:
        entity = ("--entity-default",) if name is None else ("--entity-name", name)
        return self._run("kafka.admin.ConfigCommand", "--entity-type", kind, *entity, *arguments)

    def _run(self, tool: str, *arguments: str) -> str:
        """What the tool printed."""
        command = [str(self._java), *_JAVA_OPTIONS, "-cp", self._class_path, tool]
        said = subprocess.run(
            [*command, "--bootstrap-server", self._bootstrap_servers, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if said.returncode:
            raise KafkaToolError(f"{tool} {' '.join(arguments)}: {said.stdout}{said.stderr}")
        return said.stdout
