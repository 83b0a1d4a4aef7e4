"""Runs a contestant written in Java (Kafka's own client), with a line protocol. Own process.

    with JavaPeer("MetadataPeer", "100000") as java:
        answer = java.ask("again 50")        a line in, a line of JSON out

A program is one file in `benchmarks/java`, which Java compiles at the start. It prints `{"ready":true}`
first, answers each line of its standard input with one line, ends with its input, and measures its own CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.line_peer import ChildPeer
from pipeline.java import JavaMissingError
from tests.support.java import find_java, require_compiler
from tests.support.kafka_jars import ensure_jars

_PROGRAMS: Final = Path(__file__).parent / "java"


class JavaPeer(ChildPeer):
    """One running program."""

    def __init__(self, program: str, *arguments: str, heap_mb: int = 1_024) -> None:
        java = find_java().path
        try:
            require_compiler(java)
        except JavaMissingError as error:
            raise SystemExit(str(error)) from error
        jars = ":".join(str(jar) for jar in ensure_jars())
        source = _PROGRAMS / f"{program}.java"
        super().__init__(program, [java, f"-Xmx{heap_mb}m", "-cp", jars, source, *arguments])
