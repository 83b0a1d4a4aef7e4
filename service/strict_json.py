"""JSON that is taken exactly as it was meant, or refused with the place where it went wrong.

msgspec is fast and strict about syntax and escapes, but it lets invalid UTF-8 through a Raw, keeps the last
of two equal names without a word and gives up on deep nesting with a RecursionError. `compact` closes the
first and the last; duplicates are found by the callers, who can add up what a body without them would
measure. `find_fault` is the slow second look, taken only once something is known or suspected to be wrong:
it names the place.

Pure; any thread.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

import msgspec

#: How deep objects and arrays may nest inside one key or value. msgspec itself ends near the interpreter's
#: recursion limit, wherever the stack happens to stand; a limit of our own is the same for every request.
MAX_DEPTH: Final = 128

#: The envelope around keys and values is at most this deep: `{"records": [{"headers": [{…}]}]}`.
_ENVELOPE_DEPTH: Final = 5

#: Members whose content belongs to the caller: names may repeat there, it goes on the wire as it is.
_PAYLOAD: Final = frozenset({"key", "value"})

#: Strings and brackets. A string that never ends is one mismatch, and the escapes in it are passed over one
#: by one: without that each of its quotes would be tried as the beginning of another, in quadratic time.
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|\\.|[\[\]{}]', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class BodyError(Exception):
    """A body that is refused: 400 where it is not sound JSON, 422 where it says what can't be done.

    `place` is a path such as `records[3].key`; empty for the body as a whole.
    """

    def __init__(self, status: int, place: str, message: str) -> None:
        self.status = status
        self.place = place
        self.message = message
        super().__init__(f"{place}: {message}" if place else message)


def compact(body: bytes) -> bytes:
    """The same JSON without white space: digits, escapes and the order of members stay as they were.

    Raises BodyError for what is not JSON in UTF-8. Does not look for duplicate names.
    """
    try:
        if not body.isascii():
            body.decode()
        return msgspec.json.format(body, indent=-1)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as e:
        raise (find_fault(body) or BodyError(400, "", f"not JSON: {e}")) from e


def too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether objects and arrays nest deeper than the limit. Cheap where there are few brackets."""
    if len(text) <= 2 * limit or text.count(b"{") + text.count(b"[") <= limit:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        bracket = token[0]
        if bracket in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif bracket in b"]}":
            depth -= 1
    return False


def find_fault(body: bytes) -> BodyError | None:
    """What makes this body unfit as an envelope, with its place; None if nothing does.

    Looks, in this order, for invalid UTF-8, nesting, syntax, lone surrogates and duplicate names outside of
    payloads.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as e:
        return BodyError(400, "", f"invalid UTF-8 at byte {e.start}")
    if too_deep(body, MAX_DEPTH + _ENVELOPE_DEPTH):
        return BodyError(400, "", f"nested deeper than {MAX_DEPTH} levels")
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_Members,
            parse_int=_as_text,
            parse_float=_as_text,
            parse_constant=_refuse_constant,
        )
    except ValueError as e:
        return BodyError(400, "", f"not JSON: {e}")
    return _fault_of(tree, "", in_payload=False)


class _Members(list[tuple[str, object]]):
    """The members of one object, duplicates and all, in their order."""


def _as_text(digits: str) -> str:
    """A number as it stands: its value does not matter here, and a hostile length must cost nothing."""
    return digits


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _fault_of(node: object, place: str, *, in_payload: bool) -> BodyError | None:
    if isinstance(node, str):
        if _SURROGATE.search(node):
            return BodyError(400, place, "a lone surrogate is no character")
        return None
    if isinstance(node, _Members):
        return _fault_of_members(node, place, in_payload=in_payload)
    if isinstance(node, list):
        for index, item in enumerate(node):
            fault = _fault_of(item, f"{place}[{index}]", in_payload=in_payload)
            if fault:
                return fault
    return None


def _fault_of_members(members: _Members, place: str, *, in_payload: bool) -> BodyError | None:
    seen: set[str] = set()
    for name, value in members:
        if _SURROGATE.search(name):
            return BodyError(400, place, "a lone surrogate in a member's name is no character")
        within = f"{place}.{name}" if place else name
        if name in seen and not in_payload:
            return BodyError(400, within, "the member stands twice")
        seen.add(name)
        fault = _fault_of(value, within, in_payload=in_payload or name in _PAYLOAD)
        if fault:
            return fault
    return None
