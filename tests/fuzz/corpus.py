"""Earlier findings: one small file for each, which the suite replays.

    corpus/<12 hex digits>.json     {"target": "JAAS config", "input": "<base64>", "broke": "KeyError: ..."}

`target` is a decoder of decoders.ALL, or one of those below. The input is the bytes that were tried; where
brokers lie it is the seed of the run as text. A run of `python -m tests.fuzz` writes the files itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.fuzz.target import FaultError, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.target import Target

FOLDER: Final = Path(__file__).parent / "corpus"
#: Bytes to a server, and seeds of what lying brokers say, to a decoder or to whole producers.
HTTP: Final = "HTTP"
ANSWERS: Final = "answers of brokers"
PRODUCERS: Final = "producers in simulated time"
SOCKETS: Final = "producers over sockets"

#: How often an input is tried anew to make it smaller, and how much of what it broke is kept.
_TRIES: Final = 300
_SAID_CHARACTERS: Final = 300


class Finding(NamedTuple):
    """An input, what it was for, and what it had broken."""

    target: str
    input: bytes
    broke: str

    def __repr__(self) -> str:
        return f"<Finding {self.name} of {self.target}>"

    @property
    def name(self) -> str:
        """The same input for the same target has the same."""
        return hashlib.sha256(self.target.encode() + b"\0" + self.input).hexdigest()[:12]

    def write(self, folder: Path = FOLDER) -> Path:
        """Keeps it; where it is."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.json"
        said = {
            "target": self.target,
            "input": base64.b64encode(self.input).decode(),
            "broke": self.broke[:_SAID_CHARACTERS].encode(errors="backslashreplace").decode(),
        }
        path.write_text(json.dumps(said, indent=1) + "\n")
        return path


def findings(folder: Path = FOLDER) -> Iterator[Finding]:
    """All that was kept, in order."""
    for path in sorted(folder.glob("*.json")):
        said = json.loads(path.read_text())
        yield Finding(said["target"], base64.b64decode(said["input"], validate=True), said["broke"])


def kind_of(fault: str) -> str:
    """The identity of a fault, without its input: the target, and the error's type."""
    return ":".join(fault.split(":")[:2])


def smaller(target: Target, data: bytes) -> bytes:
    """A shorter input with the same kind of fault, found by leaving out pieces; else the given input."""
    wanted = _fault(target, data)
    if wanted is None or "not over in time" in wanted:
        return data
    tries, piece = 0, max(len(data) // 2, 1)
    while data and tries < _TRIES:
        at = 0
        while at < len(data) and tries < _TRIES:
            tries += 1
            shorter = data[:at] + data[at + piece :]
            if _fault(target, shorter) == wanted:
                data = shorter
            else:
                at += piece
        if piece == 1:
            break
        piece //= 2
    return data


def _fault(target: Target, data: bytes) -> str | None:
    try:
        judge(target, data)
    except FaultError as fault:
        return kind_of(str(fault))
    return None
