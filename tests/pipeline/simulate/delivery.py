"""Simulates delivery: some lines arrive twice, some late, and unreadable lines are added.

There is one kind of broken line for each reason by which bronze rejects a line. A broken line is a changed
copy of a line that was sent; the original is not lost.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.pipeline.simulate.plan import Plan
    from tests.pipeline.simulate.sidecar import Said

_MOST_BYTES: Final = 256 * 1024
_HOSTILE_TOPIC: Final = "<script>alert('orders')</script>"


def _changed(line: bytes, **fields: object) -> bytes:
    """Returns the line with changed values; None removes a field."""
    event: dict[str, Any] = json.loads(line)
    for name, value in fields.items():
        event.pop(name, None)
        if value is not None:
            event[name] = value
    return json.dumps(event, separators=(",", ":")).encode()


def _half(line: bytes, source: random.Random) -> bytes:
    return line[: source.randrange(len(line) // 4, len(line) * 3 // 4)]


def _not_utf8(line: bytes, source: random.Random) -> bytes:
    at = source.randrange(20, len(line) - 20)
    return line[:at] + b"\xff\xfe\xc3" + line[at:]


def _ahead(line: bytes, _: random.Random) -> bytes:
    observed: str = json.loads(line)["observed_at"]
    return _changed(line, observed_at=f"{int(observed[:4]) + 10}{observed[4:]}")


#: By the reason with which bronze rejects them.
BREAK: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {
    "invalid_utf8": _not_utf8,
    "not_json": _half,
    "not_an_object": lambda _line, source: b"[%d,%d]" % (source.randrange(10**6), source.randrange(10**6)),
    "no_version": lambda line, _: _changed(line, v=None),
    "unknown_version": lambda line, source: _changed(line, v=source.randrange(2, 9), topic=_HOSTILE_TOPIC),
    "wrong_type": lambda line, _: _changed(line, sidecar_id="sidecar", seq="the next one"),
    "unknown_type": lambda line, _: _changed(line, type="metadata.rumour", topic=_HOSTILE_TOPIC),
    "missing_field": lambda line, _: _changed(line, sidecar_id=None),
    "bad_time": lambda line, source: _changed(line, observed_at=f"yesterday at {source.randrange(1, 13)}"),
    "clock_ahead": _ahead,
    "too_old": lambda line, _: _changed(line, observed_at="1999-12-31T23:59:59.000000Z"),
    "out_of_range": lambda line, source: _changed(line, partition=-source.randrange(2, 9)),
    "inconsistent": lambda line, source: _changed(line, dropped=10**12 - source.randrange(10**6)),
    "too_long": lambda line, _: _changed(line, padding="x" * _MOST_BYTES),
}


class Rejected(NamedTuple):
    """A broken line, by its reason and hash."""

    reason: str
    sha256: str


class Delivery:
    """A sidecar's lines as they arrive; `rejected` and the counts record the changes."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan: Final = plan
        self._random: Final = random.Random(f"{plan.seed} delivery {number}")
        self._kinds: Final = list(BREAK)
        # Each sidecar starts with another kind, so that a few broken lines are not all of the first kinds.
        # None starts with the last one, whose line is larger than all others of a small run together.
        self._next_kind: int = self._random.randrange(len(self._kinds) - 1)
        self._due = {name: self._random.random() for name in ("duplicates", "late", "broken")}
        self._has_long_line = False
        self._held: list[bytes] = []
        self.rejected: Final[list[Rejected]] = []
        self.duplicates = 0
        self.late = 0

    def arrived(self, said: Iterable[Said]) -> Iterator[tuple[Said, list[bytes]]]:
        """Yields each item with those of its lines that arrive on time."""
        for chunk in said:
            arriving = [line.encode() for line in chunk.lines]
            if arriving:
                self._meddle(arriving)
            yield chunk, arriving

    def late_lines(self) -> list[bytes]:
        """Returns the lines held back so far; they arrive now, in a separate file."""
        held, self._held = self._held, []
        return held

    def _meddle(self, arriving: list[bytes]) -> None:
        sound = len(arriving)
        drawn = [arriving[self._random.randrange(sound)] for _ in range(self._count("broken", sound))]
        again = [arriving[self._random.randrange(sound)] for _ in range(self._count("duplicates", sound))]
        for _ in range(min(self._count("late", sound), sound - 1)):
            self._held.append(arriving.pop(self._random.randrange(len(arriving))))
            self.late += 1
        for line in again:
            # Resent at once, or when the connection is back.
            (arriving if self._random.random() < 0.7 else self._held).append(line)
            self.duplicates += 1
        arriving += map(self._broken, drawn)

    def _count(self, name: str, sound: int) -> int:
        """Returns how many of these lines are affected this time; overall it is the plan's share."""
        due = self._due[name] + getattr(self._plan, name) * sound
        self._due[name] = due % 1
        return int(due)

    def _broken(self, line: bytes) -> bytes:
        reason = self._kinds[self._next_kind % len(self._kinds)]
        self._next_kind += 1
        if reason == "too_long":
            if self._has_long_line:
                return self._broken(line)
            self._has_long_line = True
        broken = BREAK[reason](line, self._random)
        self.rejected.append(Rejected(reason, hashlib.sha256(broken).hexdigest()))
        return broken
