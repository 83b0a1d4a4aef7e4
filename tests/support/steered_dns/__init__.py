"""The addresses of host names in another Python process, which a test sets while it runs.

    dns = SteeredDns(folder)
    dns.answer("kafka.test", ["127.0.0.1"])
    Sidecar(..., bootstrap_servers="kafka.test:9092", environment=dns.environment())
    dns.fail("kafka.test")
    dns.hang("kafka.test")    # until the next answer

The process finds `sitecustomize.py` of this folder first on its path: socket.getaddrinfo then reads a file at
each look-up. Names that the file does not hold are looked up as ever. Programs that resolve names in C, such
as librdkafka, are not steered. Any thread.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE: Final = Path(__file__).resolve().parent
#: The variable with the path of the file.
ANSWERS_VARIABLE: Final = "STEERED_DNS_ANSWERS"


class SteeredDns:
    """Names and their addresses, in a file that is replaced whole."""

    def __init__(self, folder: Path) -> None:
        """The folder is for the file."""
        self._path = folder / "steered-dns.json"
        self._folder = folder
        self._answers: dict[str, list[str] | str] = {}
        #: The pipes that look-ups of a name hang at.
        self._gates: dict[str, Path] = {}
        self._opened: list[int] = []
        self._write()

    def environment(self) -> dict[str, str]:
        """What a process must be started with; its children are steered too."""
        path = os.pathsep.join(filter(None, (str(_HERE), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, ANSWERS_VARIABLE: str(self._path)}

    def answer(self, host: str, addresses: Sequence[str]) -> None:
        """From now on the name leads to these addresses, in this order."""
        self._answers[host] = list(addresses)
        self._write()
        self._release(host)

    def hang(self, host: str) -> None:
        """Look-ups of the name do not return before the next answer for it."""
        gate = self._folder / f"gate-{len(self._opened)}-{len(self._gates)}"
        os.mkfifo(gate)
        self._gates[host] = gate
        self._answers[host] = str(gate)
        self._write()

    def fail(self, host: str) -> None:
        """From now on nobody knows the name: EAI_NONAME."""
        self.answer(host, [])

    def forget(self, host: str) -> None:
        """The name is looked up as ever."""
        self._answers.pop(host, None)
        self._write()
        self._release(host)

    def close(self) -> None:
        """Frees what `hang` took."""
        while self._opened:
            os.close(self._opened.pop())

    def _release(self, host: str) -> None:
        """Lets look-ups go on that hang. A pipe opened both ways blocks neither us nor who opens it later."""
        gate = self._gates.pop(host, None)
        if gate is not None:
            self._opened.append(os.open(gate, os.O_RDWR))

    def _write(self) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._answers), encoding="utf-8")
        os.replace(beside, self._path)
