"""Splits a stream of concatenated JSON objects into records, without parsing them.

    {"value": …}{"value": …}      white space between them, or none

It reads only strings and brackets, each byte a bounded number of times. The result does not depend on how the
stream is cut into chunks. It does not validate JSON: an invalid record fails alone, as long as its brackets
match. Otherwise:

    words between records     get one error and are skipped
    a record that is too large gets one error and is skipped; its bytes are not kept
    anything else             ends the stream, since the next record's start is unknown: brackets or quotes
                              between records, a bracket that closes one of another kind, a string that ends
                              with its line, absurd nesting

Pure; one owner. Source: RFC 8259 for the grammar; Confluent's JsonStream for the stream of records.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from service.base.possessive import POSSESSIVE_BYTES
from service.wire.strict_json import BodyError

#: Far above any record's nesting. Bounded, because each level takes memory.
_MAX_LEVELS: Final = 1_000

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_WORDS: Final = re.compile(rb'[^"{}\[\]]*+')

#: The inside of a string: up to its quote, half an escape, or a forbidden character.
_INSIDE: Final = rb'[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*' + POSSESSIVE_BYTES
_STRING: Final = re.compile(_INSIDE)
#: Everything between two brackets, including whole strings.
_PLAIN: Final = re.compile(rb'(?:[^"{}\[\]]++|"' + _INSIDE + rb'")*' + POSSESSIVE_BYTES)

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OPENED: Final = ord("{")
_CLOSING_OF: Final = {ord("{"): ord("}"), ord("["): ord("]")}
_FIRST_PRINTABLE: Final = 0x20


class _State(Enum):
    """The position of the next byte in the grammar."""

    BETWEEN = "between"
    WORDS = "words"
    RECORD = "record"
    STRING = "string"
    ESCAPE = "escape"
    BROKEN = "broken"


class ConcatenatedJson:
    """One stream: `feed` each chunk, then `end`.

    Both return the results in order: a record's text, or the BodyError in its place.
    """

    def __init__(self, max_record_bytes: int) -> None:
        self._max_record_bytes = max_record_bytes
        self._state = _State.BETWEEN
        self._found: list[bytes | BodyError] = []
        #: Bytes of the stream before the current chunk.
        self._before = 0
        #: The record's pending closing brackets, innermost last; empty between records.
        self._closing = bytearray()
        #: The record's bytes of earlier chunks, and where it starts or continues in this chunk.
        self._begun = bytearray()
        self._from = 0
        #: Whether the record already has its error, so that the rest of it is dropped.
        self._passes_over = False
        #: Bytes kept of an incomplete record.
        self.held_bytes = 0

    @property
    def is_broken(self) -> bool:
        """Whether the stream can't continue: later input is ignored."""
        return self._state is _State.BROKEN

    def feed(self, chunk: bytes) -> list[bytes | BodyError]:
        """Returns the records completed, and the errors found, with this chunk."""
        self._from = at = 0
        while at < len(chunk):
            at = self._read(chunk, at)
        if self._closing:
            self._keep(chunk, len(chunk))
        self._before += len(chunk)
        found, self._found = self._found, []
        return found

    def end(self) -> list[bytes | BodyError]:
        """Returns the error for an incomplete record, if any."""
        unfinished = bool(self._closing) and not self._passes_over
        self._stop()
        return [BodyError(400, "", "not JSON: the body ends within a record")] if unfinished else []

    def pass_over(self) -> None:
        """Drops the incomplete record: keeps nothing and reports nothing more of it."""
        if self._closing:
            self._forget()
            self._passes_over = True

    # -- by state --------------------------------------------------------------------------------------------

    def _read(self, chunk: bytes, at: int) -> int:
        """Reads at least one step from `at` in the current state; returns the new position."""
        match self._state:
            case _State.RECORD:
                return self._record(chunk, at)
            case _State.STRING:
                return self._string(chunk, at)
            case _State.ESCAPE:
                return self._escape(chunk, at)
            case _State.BETWEEN:
                return self._between(chunk, at)
            case _State.WORDS:
                return self._words(chunk, at)
            case _State.BROKEN:
                return len(chunk)

    def _between(self, chunk: bytes, at: int) -> int:
        at = _end_of(_SPACE, chunk, at)
        if at == len(chunk):
            return at
        byte = chunk[at]
        if byte == _OPENED:
            self._state = _State.RECORD
            self._from = at
            self._closing.append(_CLOSING_OF[byte])
            return at + 1
        if byte in b'}[]"':
            return self._break(chunk, at, f"a record begins with '{{', not with {chr(byte)!r}")
        self._found.append(BodyError(400, "", f"not JSON: no record begins at byte {self._before + at}"))
        self._state = _State.WORDS
        return at

    def _words(self, chunk: bytes, at: int) -> int:
        at = _end_of(_WORDS, chunk, at)
        if at < len(chunk):
            self._state = _State.BETWEEN
        return at

    def _record(self, chunk: bytes, at: int) -> int:
        closing = self._closing
        while closing:
            at = _end_of(_PLAIN, chunk, at)
            if at == len(chunk):
                return at
            byte = chunk[at]
            if byte == _QUOTE:
                self._state = _State.STRING  # this chunk does not end it
                return at + 1
            if byte in _CLOSING_OF:
                if len(closing) == _MAX_LEVELS:
                    return self._break(chunk, at, f"nested deeper than {_MAX_LEVELS} levels")
                closing.append(_CLOSING_OF[byte])
            elif byte == closing[-1]:
                closing.pop()
            else:
                return self._break(chunk, at, f"unexpected {chr(byte)!r}: nothing is open")
            at += 1
        self._complete(chunk, at)
        return at

    def _string(self, chunk: bytes, at: int) -> int:
        at = _end_of(_STRING, chunk, at)
        if at == len(chunk):
            return at
        if chunk[at] == _QUOTE:
            self._state = _State.RECORD
            return at + 1
        if chunk[at] == _BACKSLASH and at + 1 == len(chunk):
            self._state = _State.ESCAPE
            return at + 1
        return self._break_string(chunk, at + (chunk[at] == _BACKSLASH))

    def _escape(self, chunk: bytes, at: int) -> int:
        if chunk[at] < _FIRST_PRINTABLE:
            return self._break_string(chunk, at)
        self._state = _State.STRING
        return at + 1

    # -- ends ------------------------------------------------------------------------------------------------

    def _complete(self, chunk: bytes, end: int) -> None:
        self._keep(chunk, end)
        if not self._passes_over:
            self._found.append(bytes(self._begun))
        self._forget()
        self._state = _State.BETWEEN

    def _break_string(self, chunk: bytes, at: int) -> int:
        return self._break(chunk, at, "a string is not closed on its line, or has a control character")

    def _break(self, chunk: bytes, at: int, why: str) -> int:
        """Ends the stream with an error; returns the chunk's end."""
        if self._closing:
            self._keep(chunk, at)
        self._found.append(BodyError(400, "", f"not JSON: {why} (byte {self._before + at}); the stream ends"))
        self._stop()
        return len(chunk)

    def _stop(self) -> None:
        self._closing.clear()
        self._forget()
        self._state = _State.BROKEN

    def _keep(self, chunk: bytes, end: int) -> None:
        """Keeps the record's bytes of this chunk, or reports, once, that it is too large."""
        if self._passes_over:
            return
        self.held_bytes += end - self._from
        if self.held_bytes <= self._max_record_bytes:
            self._begun += chunk[self._from : end]
            return
        detail = f"a record is larger than {self._max_record_bytes} bytes"
        self._forget()
        self._passes_over = True
        self._found.append(BodyError(413, "", detail))

    def _forget(self) -> None:
        self._begun = bytearray()
        self.held_bytes = 0
        self._passes_over = False


def _end_of(pattern: re.Pattern[bytes], chunk: bytes, at: int) -> int:
    found = pattern.match(chunk, at)
    assert found is not None, "the pattern matches the empty string"
    return found.end()
