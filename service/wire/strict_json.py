"""Strict JSON: accepts unambiguous text only, and names the place of a fault.

msgspec is fast and strict about syntax and escapes. But it allows invalid UTF-8 in a Raw, silently keeps the
last of two equal names, and raises RecursionError on deep nesting. `compact` handles the first and the last.
Callers detect duplicates: they can compute the length of a body without them. `find_fault` is the slow second
pass, run only for a known or suspected fault: it names the place.

Pure; any thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

import msgspec

#: Maximum nesting inside one key or value. msgspec's own limit depends on the stack's depth at the moment;
#: ours is the same for every request.
MAX_DEPTH: Final = 128

#: Maximum depth of the envelope around keys and values: `{"records": [{"headers": [{…}]}]}`.
_ENVELOPE_DEPTH: Final = 5

#: Kafka's int32, the bound of partitions.
MAX_INT32: Final = 2**31 - 1

#: Members with the caller's content: names may repeat there, and it is sent unchanged.
_PAYLOAD: Final = frozenset({"key", "value"})

#: Longer bodies get no second pass: at this length it may block the event loop for 0.3 s.
SEARCHED_BYTES: Final = 1024 * 1024

#: The bytes that `_brackets` deletes; the map of all brackets to square ones.
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_RUNS: Final = re.compile(rb"\[+|\]+")

#: Levels removed innermost first, at memory speed, before the rest is counted: few runs of brackets remain.
_PEELED_LEVELS: Final = 4

#: For a longer text, this prefix is checked first.
_PROBED_BYTES: Final = 16 * 1024

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


#: Names that callers put into the wrong part of a request, in lower case with underscores, and what they are:
#: `a query parameter`.
Homes = Mapping[str, str]
NO_HOMES: Final[Homes] = {}
_UNKNOWN: Final = "Object contains unknown field `"


class BodyError(Exception):
    """A rejected body: 400 for malformed JSON, 422 for an impossible request.

    `place` is a path such as `records[3].key`; empty for the whole body.
    """

    def __init__(self, status: int, place: str, message: str) -> None:
        self.status = status
        self.place = place
        self.message = message
        super().__init__(f"{place}: {message}" if place else message)


def misfit(
    error: msgspec.ValidationError, place: str = "", status: int = 422, homes: Homes = NO_HOMES
) -> BodyError:
    """Returns the BodyError for wrongly shaped JSON, from msgspec's `what - at `$.path``, at `place`."""
    message, _, path = str(error).partition(" - at `$")
    unknown = message.removeprefix(_UNKNOWN).rstrip("`") if message.startswith(_UNKNOWN) else ""
    return BodyError(status, (place + path.rstrip("`")).lstrip("."), message + home_of(unknown, homes))


def home_of(name: str, homes: Homes) -> str:
    """Returns where an unknown member or parameter belongs, to add to a message; empty if nobody knows."""
    home = homes.get(name.lower().replace("-", "_"))
    return "" if home is None else f"; {name} is {home}"


def compact(body: bytes) -> bytes:
    """Returns the same JSON without white space; keeps digits, escapes and the order of members.

    Raises BodyError unless it is JSON in UTF-8. Does not look for duplicate names.
    """
    try:
        if not body.isascii():
            body.decode()
        return msgspec.json.format(body, indent=-1)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as e:
        raise _unsound(body, e) from e


def _unsound(body: bytes, error: Exception) -> BodyError:
    """Returns the fault of a body that can't be parsed."""
    fault = find_fault(body) if len(body) <= SEARCHED_BYTES else _fault_of_text(body)
    return fault or BodyError(400, "", f"not JSON, or a lone surrogate in it: {error}")


def refuse_unfit(body: bytes) -> None:
    """Raises the fault that `find_fault` returns, if any.

    A local variable that holds the raised error makes a reference cycle through the frame. It would keep the
    frame's objects, such as the body, until garbage collection.
    """
    fault = find_fault(body)
    if fault is not None:
        try:
            raise fault
        finally:
            del fault


def too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    """Returns whether objects and arrays nest deeper than the limit. Cheap when there are few brackets."""
    if len(text) <= 2 * limit or text.count(b"{") + text.count(b"[") <= limit:
        return False
    if len(text) > _PROBED_BYTES and too_deep(text[:_PROBED_BYTES], limit):
        return True  # early result, such as for a body of nothing but brackets
    # Closes what may still be open, so that peeling handles it too.
    brackets = _brackets(text) + b"]" * _PEELED_LEVELS
    for _ in range(_PEELED_LEVELS):
        brackets = brackets.replace(b"[]", b"")
    depth = _PEELED_LEVELS
    for run in _RUNS.finditer(brackets):
        length = run.end() - run.start()
        depth += length if run[0].startswith(b"[") else -length
        if depth > limit:
            return True
    return False


def _brackets(text: bytes) -> bytes:
    """Returns the brackets outside strings, as square ones. An unterminated string extends to the end.

    No step works byte by byte in Python: some megabytes of brackets take a few milliseconds.
    """
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two adjacent quotes are an empty string, or end one and begin another: no bracket is between.
    kept = text.translate(_SQUARE, _NO_BRACKETS).replace(b'""', b"")
    return b"".join(kept.split(b'"')[::2]) if b'"' in kept else kept


def find_fault(body: bytes) -> BodyError | None:
    """Returns the first fault that makes this body unfit as an envelope, with its place; None without one.

    Checks UTF-8, nesting, syntax, lone surrogates, and duplicate names outside payloads, in this order. Above
    SEARCHED_BYTES the last three are skipped: a fault is known or suspected, and the error names no place.
    """
    fault = _fault_of_text(body)
    if fault is not None:
        return fault
    if len(body) > SEARCHED_BYTES:
        detail = (
            "a duplicate field, or a field name with escapes; it is named only in bodies of at most"
            f" {SEARCHED_BYTES} bytes"
        )
        return BodyError(400, "", detail)
    try:
        tree = json.loads(
            body.decode(),
            object_pairs_hook=_Members,
            parse_int=str,  # its value is not needed, and a hostile length must cost nothing
            parse_float=str,
            parse_constant=_refuse_constant,
        )
    except ValueError as e:
        return BodyError(400, "", f"not JSON: {e}")
    return _fault_of(tree, "", in_payload=False)


def _fault_of_text(body: bytes) -> BodyError | None:
    """Returns the fault of bytes that are not UTF-8, or nested too deep for parsers."""
    try:
        body.decode()
    except UnicodeDecodeError as e:
        return BodyError(400, "", f"invalid UTF-8 at byte {e.start}")
    if too_deep(body, MAX_DEPTH + _ENVELOPE_DEPTH):
        return BodyError(400, "", f"nested deeper than {MAX_DEPTH} levels")
    return None


class _Members(list[tuple[str, object]]):
    """The members of one object in order, duplicates included."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _fault_of(node: object, place: str, *, in_payload: bool) -> BodyError | None:
    if isinstance(node, str):
        if _SURROGATE.search(node):
            return BodyError(400, place, "a lone surrogate is not a character")
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
            return BodyError(400, place, "a lone surrogate in a member's name is not a character")
        within = f"{place}.{name}" if place else name
        if name in seen and not in_payload:
            return BodyError(400, within, "duplicate field")
        seen.add(name)
        fault = _fault_of(value, within, in_payload=in_payload or name in _PAYLOAD)
        if fault:
            return fault
    return None
