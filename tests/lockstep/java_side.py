"""The JVM with Kafka's own producer: compiled from java/ against Kafka's jars, spoken to in lines of JSON.

with JavaSide(folder) as java:
    state = java.begin({"config": {...}, ...})      a new trace, up to its first poll that would sleep
    java.step([["t", 5], ...])                      what happens in that poll; does not wait
    state = java.state()                            the next such poll

One process serves any number of traces. It ends with its input, and so with this process.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.support.java import find_java, require_compiler
from tests.support.kafka_jars import ensure_jars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SOURCES: Final = Path(__file__).parent / "java"
_COMPILER: Final = "jdk.compiler/com.sun.tools.javac.Main"
_MAIN: Final = "org.apache.kafka.clients.producer.internals.Lockstep"
_OPTIONS: Final = (
    *("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("-ea:org.apache.kafka...", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
)

State = dict[str, Any]


class JavaSideError(RuntimeError):
    """The program ended; the message has what it complained of."""


class JavaSide:
    """One JVM. One thread."""

    def __init__(self, folder: Path, *, patched: Path | None = None) -> None:
        """The folder is for its classes and its log. `patched`: classes to use instead of the jar's."""
        self._folder = folder
        self._patched = patched
        #: Whether a trace may name deviations that Java shadows.
        self.is_patched = patched is not None

    def __enter__(self) -> Self:
        java = find_java().path
        require_compiler(java)
        jars = ":".join(map(str, ensure_jars()))
        classes = self._folder / "classes"
        path = f"{self._patched}:{jars}" if self._patched else jars
        sources = map(str, sorted(_SOURCES.glob("*.java")))
        subprocess.run(
            [str(java), "-m", _COMPILER, "-nowarn", "-d", str(classes), "-cp", path, *sources],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        self._log = self._folder / "java.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(java), *_OPTIONS, "-cp", f"{classes}:{path}", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def begin(self, settings: Mapping[str, object]) -> State:
        """Begins a trace, and forgets the one before."""
        self._write({"new": settings})
        return self.state()

    def step(self, acts: Sequence[Sequence[object]]) -> None:
        """Says what happens in the poll that waits."""
        self._write({"do": acts})

    def state(self) -> State:
        """Waits for the next poll that would sleep, and returns what was done until then."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise JavaSideError(self._log.read_text()[-4000:])
        state: State = json.loads(line)
        return state

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise JavaSideError(self._log.read_text()[-4000:]) from error
