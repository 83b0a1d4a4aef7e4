"""Splits a large JSON array into small ones, so that each parser call is short.

    b'{"a": [ 1, 2, … ], "b": 0}'   ─▶   the array's parts, each as compact JSON: b"[1,2]", …

A parser holds the interpreter until it returns: 5 ms a megabyte, 40 when it makes objects. Regular
expressions find the items' ends in windows of a part's length: about a millisecond a call, 15 ns a byte. They
look only at strings, brackets and commas. The parser checks every byte of every part for valid JSON.

Items are read only up to the wanted number. A parser would make all objects first: for sixteen megabytes of
`0,0,0,…` half a gigabyte, and half a second of the interpreter. The rest of a long array is never parsed.

Pure; any thread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from service.base.possessive import POSSESSIVE_BYTES
from service.wire.strict_json import MAX_DEPTH, BodyError, compact

#: How much of an array one parser call gets: 1 ms, or 3 ms with the smallest records. Without possessive
#: quantifiers a group keeps up to 200 bytes per byte, so the part is smaller.
PART_BYTES: Final = 64 * 1024 if POSSESSIVE_BYTES else 8 * 1024

#: Levels below an item that one regex call covers; deeper ones take more calls.
_LEVELS: Final = 6
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*' + POSSESSIVE_BYTES + rb'"'
_INSIDE_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*' + POSSESSIVE_BYTES, re.DOTALL)

_ALL: Final = msgspec.json.Decoder(list[Raw])

#: A record's JSON may be this many times its size: every byte may be an escape, `\\u0061`.
TEXT_TIMES: Final = 6


class BodyLimits(NamedTuple):
    """Limits of a body: number of records, and bytes of JSON per record."""

    records: int
    record_text_bytes: int

    @staticmethod
    def of(max_records: int, max_request_bytes: int) -> BodyLimits:
        """Returns the limits from the number of records and max.request.size."""
        return BodyLimits(max_records, TEXT_TIMES * max_request_bytes)

    def check_count(self, records: int) -> None:
        """Raises BodyError (413) for too many records."""
        if records > self.records:
            raise BodyError(413, "records", f"more than {self.records} records")

    def check_text(self, text: bytes) -> None:
        """Raises BodyError (413) for JSON that is too long for one record."""
        if len(text) > self.record_text_bytes:
            detail = (
                f"{len(text)} bytes of JSON are more than one record may take ({self.record_text_bytes}, "
                f"{TEXT_TIMES} times max.request.size)"
            )
            raise BodyError(413, "", detail)


#: For bodies that are already bounded elsewhere.
NO_LIMITS: Final = BodyLimits(sys.maxsize, sys.maxsize)


def items_of(text: bytes, most: int) -> list[Raw]:
    """Returns the items of a compact JSON array (`strict_json.compact`), at most `most` + 1.

    Raises BodyError (400) for anything but an array.
    """
    try:
        if len(text) <= LARGE_BYTES:
            return _ALL.decode(text)[: most + 1]
    except msgspec.DecodeError as e:
        raise BodyError(400, "", "must be a JSON array") from e
    if not text.startswith(b"["):
        raise BodyError(400, "", "must be a JSON array")
    return _first_of(ArrayParts(text, 1, NO_LIMITS.record_text_bytes), most)


def items_of_body(body: bytes, limits: BodyLimits) -> list[Raw]:
    """Returns the items of an array body, each compact; at most `limits.records` + 1.

    Raises BodyError: 400 for anything but an array, 413 for an item that is too long.
    """
    at = _after_space(body, 0)
    if len(body) <= LARGE_BYTES or body[at : at + 1] != b"[":
        limits.check_text(body)
        return items_of(compact(body), limits.records)
    parts = ArrayParts(body, at + 1, limits.record_text_bytes)
    items = _first_of(parts, limits.records)
    if len(items) <= limits.records:
        compact(parts.around)  # checks the text after the array
    return items


def items_of_member(body: bytes, name: str, limits: BodyLimits) -> tuple[bytes, list[Raw]] | None:
    """Returns a large body, compact, with the member's array left empty; and the array's items.

    None for a small body, or when the array is not found easily. Returns at most `limits.records` + 1 items,
    and then an empty body. Raises BodyError as `items_of_body` does.
    """
    if len(body) <= LARGE_BYTES:
        return None
    parts = array_of_member(body, name, limits.record_text_bytes)
    if parts is None:
        return None
    items = _first_of(parts, limits.records)
    return (b"" if len(items) > limits.records else compact(parts.around)), items


def _first_of(parts: ArrayParts, most: int) -> list[Raw]:
    items: list[Raw] = []
    for part in parts:
        items += _ALL.decode(part)
        if len(items) > most:
            return items[: most + 1]
    return items


def _values(plain: bytes) -> bytes:
    """Returns a pattern for whole strings, arrays and objects, and for `plain` bytes between them.

    Any bracket closes any other: a pattern for each kind would be twice as long at each level, and take a
    twentieth of the start to compile. The parser refuses such an item.
    """
    repeated = rb")*" + POSSESSIVE_BYTES
    nested = rb'(?:[^"{}\[\]]++|' + _STRING + repeated
    for _ in range(_LEVELS - 1):
        nested = rb'(?:[^"{}\[\]]++|' + _STRING + rb"|[{\[]" + nested + rb"[}\]]" + repeated
    return rb"(?:" + plain + rb"|" + _STRING + rb"|[{\[]" + nested + rb"[}\]]" + repeated


_WITHIN: Final = re.compile(_values(rb'[^"{}\[\]]++'), re.DOTALL)
_ITEM: Final = re.compile(_values(rb'[^",{}\[\]]++'), re.DOTALL)
#: Up to the last comma between whole items.
_ITEMS_WITH_COMMAS: Final = re.compile(rb"(?:" + _ITEM.pattern + rb",)*" + POSSESSIVE_BYTES, re.DOTALL)
_OPENERS: Final = re.compile(rb"[\[{]++")
_CLOSERS: Final = re.compile(rb"[\]}]++")
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")

_INDEX: Final = re.compile(r"\[(\d+)\]")

#: Minimum length of a text that is split.
LARGE_BYTES: Final = 2 * PART_BYTES


class ArrayParts:
    """The parts of the array whose opening bracket is at `start - 1`. Iterate once.

    After the last part, `end` is the position after the closing bracket.
    """

    def __init__(
        self, body: bytes, start: int, max_item_bytes: int, part_bytes: int = PART_BYTES, name: str = ""
    ) -> None:
        """`name` is the array's name in error places."""
        self._name = name
        self._body = body
        self._at = start
        self._start = start
        self._max_item_bytes = max_item_bytes
        self._part_bytes = part_bytes
        self.end = start

    def __iter__(self) -> Iterator[bytes]:
        """Yields each part as a compact array of at least one item; nothing for an empty array.

        Raises BodyError: 400 for invalid JSON, 413 for an item of more than `max_item_bytes`.
        """
        body, is_last = self._body, False
        first = True
        while not is_last:
            at = self._at
            found = _ITEMS_WITH_COMMAS.match(body, at, at + self._part_bytes)
            assert found is not None
            end = found.end()
            if end == at:  # one item: larger than a window, or the last
                end = self._end_of_item(at)
                is_last = body[end : end + 1] == b"]"
                if not is_last and body[end : end + 1] != b",":
                    raise _not_json(end)
            else:
                end -= 1
            self._at = self.end = end + 1
            part = body[at:end]
            if part.isspace() or not part:
                if first and is_last:
                    return
                raise _not_json(end)
            first = False
            try:
                text = compact(b"[" + part + b"]")
            except BodyError as e:
                raise self._located(e, at) from e
            yield text

    def _located(self, error: BodyError, at: int) -> BodyError:
        """Returns the fault with the item's index in the array, or with the byte where its part starts."""
        index = _INDEX.match(error.place)
        if index is None:
            message = f"{error.message} (counted from byte {at} of the body)"
            return BodyError(error.status, error.place, message)
        before = ArrayParts(self._body[: at - 1] + b"]", self._start, self._max_item_bytes, self._part_bytes)
        items = 0 if at == self._start else sum(len(_ALL.decode(part)) for part in before)
        place = f"{self._name}[{items + int(index[1])}]{error.place[index.end() :]}"
        return BodyError(error.status, place, error.message)

    @property
    def around(self) -> bytes:
        """The body with the array left empty. Valid after the last part."""
        return self._body[: self._start] + b"]" + self._body[self.end :]

    def _end_of_item(self, at: int) -> int:
        """Returns where the item that begins at `at` ends: at its comma or the array's closing bracket."""
        body, position, depth = self._body, at, 0
        while True:
            if position - at > self._max_item_bytes:
                detail = (
                    f"one of its items takes more than {self._max_item_bytes} bytes of JSON, six times "
                    "max.request.size; leave out white space, or raise max.request.size"
                )
                raise BodyError(413, "", f"the item at byte {at} is too large: {detail}")
            pattern = _WITHIN if depth else _ITEM
            found = pattern.match(body, position, position + self._part_bytes)
            position = position if found is None else found.end()
            byte = body[position : position + 1]
            if not byte:
                raise _not_json(position)
            if byte in (b"[", b"{"):
                openers = _OPENERS.match(body, position, position + self._part_bytes)
                assert openers is not None
                depth += openers.end() - position
                position = openers.end()
                if depth > MAX_DEPTH + _LEVELS:
                    raise BodyError(400, "", f"nested deeper than {MAX_DEPTH} levels")
            elif byte in (b"]", b"}"):
                if not depth:
                    return position
                closers = _CLOSERS.match(body, position, position + min(depth, self._part_bytes))
                assert closers is not None
                depth -= closers.end() - position
                position = closers.end()
            elif byte == b'"':
                position = _end_of_string(body, position + 1, self._part_bytes)
            elif byte == b"," and not depth:
                return position


def array_of_member(body: bytes, name: str, max_item_bytes: int) -> ArrayParts | None:
    """Returns the parts of a member array of an object body; None when it is not found easily.

    Only short members with string, number or null values may precede it.
    """
    found = _head_of(name).match(body, 0, PART_BYTES)
    return None if found is None else ArrayParts(body, found.end(), max_item_bytes, name=name)


@cache
def _head_of(name: str) -> re.Pattern[bytes]:
    space = rb"[ \t\r\n]*+"
    colon, comma = space + rb":" + space, space + rb"," + space
    member = _STRING + colon + rb"(?:" + _STRING + rb"|[-\w.+]++)" + comma
    own = b'"' + name.encode() + b'"' + colon
    return re.compile(space + rb"\{" + space + rb"(?:" + member + rb")*" + own + rb"\[", re.DOTALL)


def _end_of_string(body: bytes, at: int, part_bytes: int) -> int:
    """Returns the position after the string's closing quote; raises BodyError if there is none."""
    while True:
        found = _INSIDE_STRING.match(body, at, at + max(part_bytes, 2))
        assert found is not None
        at = found.end()
        if body[at : at + 1] == b'"':
            return at + 1
        if at >= len(body) - 1:
            raise _not_json(at)


def _after_space(body: bytes, at: int) -> int:
    while True:
        found = _SPACE.match(body, at, at + PART_BYTES)
        assert found is not None
        if found.end() < at + PART_BYTES or found.end() >= len(body):
            return found.end()
        at = found.end()


def _not_json(at: int) -> BodyError:
    return BodyError(400, "", f"not JSON: expected ',' or ']' at byte {at}")
