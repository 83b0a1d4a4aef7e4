"""Lines out of a body that comes in pieces: the same lines, however it was cut.

A line ends with LF; what is before it may end with CR, which is white space to JSON. The last line needs no
end. Lines of white space alone are left out. One that is longer than the limit is told of as soon as that is
known, and passed over up to its end, so that no more than one line of that length is ever held. Pure.
"""

from __future__ import annotations

from typing import Final

_WHITE: Final = b" \t\r"


class LineSplitter:
    """One body."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._begun: bytes | bytearray = b""
        self._passes_over = False
        #: What is held of a line whose end has not come.
        self.held_bytes = 0

    def feed(self, piece: bytes) -> list[bytes | None]:
        """The lines that end in this piece, None for one that is too long, be it at an end or not."""
        first, *others = piece.split(b"\n")
        lines = self._add(first)
        if others:
            lines += self.end()
            rest, limit = others.pop(), self._max_line_bytes
            # Whole lines, most of what comes: a read may bring a hundred thousand, if they are blank.
            lines += [
                line if len(line) <= limit else None
                for line in others
                if line.strip(_WHITE) or len(line) > limit
            ]
            lines += self._add(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """What was begun, if it says anything: the line, or the body, has come to its end."""
        line = bytes(self._begun)
        self._begun = b""
        self.held_bytes = 0
        self._passes_over = False
        return [line] if line.strip(_WHITE) else []

    def pass_over(self) -> None:
        """Holds nothing of the line that was begun, and passes over the rest of it."""
        self._begun = b""
        self.held_bytes = 0
        self._passes_over = True

    def _add(self, part: bytes) -> list[bytes | None]:
        if self._passes_over or not part:
            return []
        if self.held_bytes + len(part) > self._max_line_bytes:
            self.pass_over()
            return [None]
        if self._begun:
            if isinstance(self._begun, bytes):  # nearly always a line comes whole, and is not copied
                self._begun = bytearray(self._begun)
            self._begun += part  # not a list of parts: they may be of a byte each
        else:
            self._begun = part
        self.held_bytes += len(part)
        return []
