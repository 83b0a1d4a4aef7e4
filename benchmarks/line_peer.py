"""Runs a contestant in its own process, with a line protocol: both ends. Java peers use it too.

    with LinePeer("benchmarks.producers.aiokafka", "bench", "acks=all") as peer:
        answer = peer.ask("run 100 1000")        a line in, a line of JSON out

A program prints `{"ready": true}` first, answers each line of its standard input with one line, and ends with
its input, so it never outlives its parent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_GRACE_S: Final = 20.0


class Peer(Protocol):
    """A LinePeer or a JavaPeer."""

    def ask(self, line: str) -> dict[str, Any]: ...


class ChildPeer:
    """A running program. The caller's thread waits for each answer."""

    def __init__(self, name: str, command: Sequence[str | Path]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
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
        """Returns the program's answer. Ends the benchmark with a plain message if there is none."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise SystemExit(f"{self._name} ended with {self._process.wait(_GRACE_S)}; its words are above")
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise SystemExit(f"{self._name}: {answer['error']}")
        return answer


class LinePeer(ChildPeer):
    """One running Python module."""

    def __init__(self, module: str, *arguments: str) -> None:
        super().__init__(" ".join((module, *arguments)), [sys.executable, "-m", module, *arguments])


def answer_lines(commands: Mapping[str, Callable[..., Mapping[str, object]]]) -> None:
    """Answers each line with the command that its first word names, until the input ends."""
    print('{"ready": true}', flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        try:
            answer = commands[word](*arguments)
        except Exception as error:  # noqa: BLE001 - returned to the parent, which ends the run
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
