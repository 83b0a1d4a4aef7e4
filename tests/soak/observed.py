"""A sidecar that can be inspected: the ordinary `pilotfish`, and a thread that answers on a Unix socket.

    python -m tests.soak.observed SOCKET LIMITS [--leak] serve --kafka …

    inventory     what it holds, as JSON (inventory.py), and what allocators gave out (allocators.py)
    trace         begins to trace allocations; slow from then on
    grown         the lines that allocated most since `trace`, or since the last `grown`, as JSON

LIMITS are fields of InternalLimits, as JSON. With `--leak` it keeps one object for each line of the access
log, which a soak must find. Nothing in the sidecar is replaced.
"""

from __future__ import annotations

import gc
import json
import logging
import socket
import sys
import threading
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.soak.allocators import allocated
from tests.soak.inventory import take_inventory

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_LINES: Final = 40
_LONGER_THAN_IT_TAKES_S: Final = 30.0
_A_MOMENT_S: Final = 0.01


class LeakedRequest:
    """What the planted leak keeps."""

    def __init__(self, line: str) -> None:
        self.line = line


class _LeakyHandler(logging.Handler):
    """Keeps something of every request, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[LeakedRequest] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(LeakedRequest(record.getMessage()))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Only this thread runs for as long as the block lasts.

    Some of all objects are still being made. If another thread fills a tuple while this one holds it, that
    thread gets a SystemError ("bad argument to internal function").
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_LONGER_THAN_IT_TAKES_S)
    threading.Event().wait(_A_MOMENT_S)  # threads that wait by the old interval have their turn now
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


class Observer:
    """Answers questions about this process, one at a time."""

    def __init__(self, path: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._before: tracemalloc.Snapshot | None = None

    def run(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rw") as talk:
                question = talk.readline().strip()
                json.dump(self._answer(question), talk)

    def _answer(self, question: str) -> object:
        match question:
            case "inventory":
                gc.unfreeze()  # what the start has made holds what grows; see service/process/garbage.py
                with _undisturbed():
                    return {**take_inventory()._asdict(), "allocated": allocated()}
            case "trace":
                tracemalloc.start(6)
                self._before = tracemalloc.take_snapshot()
                return None
            case "grown":
                return self._grown()
        raise ValueError(f"nobody answers {question!r}")

    def _grown(self) -> object:
        gc.collect()
        now, before = tracemalloc.take_snapshot(), self._before
        self._before = now
        assert before is not None, "ask for a trace first"
        return [str(line) for line in now.compare_to(before, "lineno")[:_MOST_LINES]]


def main() -> None:
    path, limits, *arguments = sys.argv[1:]
    if arguments[0] == "--leak":
        del arguments[0]
        logging.getLogger("service.access_log").addHandler(_LeakyHandler())
    threading.Thread(target=Observer(path).run, name="observer", daemon=True).start()
    sys.argv[1:] = arguments
    from service.__main__ import main as pilotfish
    from service.base.settings import InternalLimits

    pilotfish(obj=InternalLimits(**json.loads(limits)))


if __name__ == "__main__":
    main()
