"""A contestant written in Java: Kafka's own client, in a process of its own, asked line by line.

    with JavaPeer("MetadataPeer", "100000") as java:
        answer = java.ask("again 50")        a line in, a line of JSON out

A program is one file in `benchmarks/java`, which Java compiles as it starts; it says `{"ready":true}` first,
answers each line of its standard input with one line, and ends with its input. It measures its own CPU.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars

if TYPE_CHECKING:
    from types import TracebackType

_PROGRAMS: Final = Path(__file__).parent / "java"
_GRACE_S: Final = 20.0


class JavaPeer:
    """One program, running. The caller's thread waits for each answer."""

    def __init__(self, program: str, *arguments: str, heap_mb: int = 1_024) -> None:
        java = find_java().path
        _require_compiler(java)
        jars = ":".join(str(jar) for jar in ensure_jars())
        source = _PROGRAMS / f"{program}.java"
        self._program = program
        self._process = subprocess.Popen(
            [java, f"-Xmx{heap_mb}m", "-cp", jars, source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self._answer()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, line: str) -> dict[str, Any]:
        """The program's answer. Ends the benchmark with a plain message where there is none."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise SystemExit(
                f"{self._program} ended with {self._process.wait(_GRACE_S)}; its words are above"
            )
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise SystemExit(f"{self._program}: {answer['error']}")
        return answer


def _require_compiler(java: Path) -> None:
    modules = subprocess.run([java, "--list-modules"], check=True, capture_output=True, text=True).stdout
    if "jdk.compiler@" not in modules:
        raise SystemExit(
            f"the Java programs of this benchmark need a JDK, and {java} is a runtime without a compiler: "
            "install one (Debian and Ubuntu: sudo apt-get install default-jdk-headless), or set JAVA_HOME"
        )
