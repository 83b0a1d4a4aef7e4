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

#: What Kafka's int32 holds: the bound of partitions.
MAX_INT32: Final = 2**31 - 1

#: Members whose content belongs to the caller: names may repeat there, it goes on the wire as it is.
_PAYLOAD: Final = frozenset({"key", "value"})

#: A longer body gets no second look: one of this length may take 0.3 s, within which nobody else has a turn.
SEARCHED_BYTES: Final = 1024 * 1024

#: What `_brackets` keeps, and all brackets as square ones.
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_RUNS: Final = re.compile(rb"\[+|\]+")

#: So many levels are peeled off innermost first, at the speed of memory, before the rest is counted: runs of
#: brackets are then so much fewer than brackets.
_PEELED_LEVELS: Final = 4

#: Of a longer text the beginning is looked at by itself, before all of it is.
_PROBED_BYTES: Final = 16 * 1024

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


def misfit(error: msgspec.ValidationError, place: str = "", status: int = 422) -> BodyError:
    """JSON of the wrong shape, from msgspec's `what - at `$.path``; `place` is where that text stood."""
    message, _, path = str(error).partition(" - at `$")
    return BodyError(status, (place + path.rstrip("`")).lstrip("."), message)


def compact(body: bytes) -> bytes:
    """The same JSON without white space: digits, escapes and the order of members stay as they were.

    Raises BodyError for what is not JSON in UTF-8. Does not look for duplicate names.
    """
    try:
        if not body.isascii():
            body.decode()
        return msgspec.json.format(body, indent=-1)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as e:
        raise _unsound(body, e) from e


def _unsound(body: bytes, error: Exception) -> BodyError:
    """What is wrong with a body that no parser takes."""
    fault = find_fault(body) if len(body) <= SEARCHED_BYTES else _fault_of_text(body)
    return fault or BodyError(400, "", f"not JSON, or a lone surrogate in it: {error}")


def refuse_unfit(body: bytes) -> None:
    """Raises what `find_fault` finds, if anything.

    An error under a name of the function that raises it is a cycle: the error has the frame, which has the
    name, and all that the frame holds, such as the body, stays until the garbage collector comes.
    """
    fault = find_fault(body)
    if fault is not None:
        try:
            raise fault
        finally:
            del fault


def too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether objects and arrays nest deeper than the limit. Cheap where there are few brackets."""
    if len(text) <= 2 * limit or text.count(b"{") + text.count(b"[") <= limit:
        return False
    if len(text) > _PROBED_BYTES and too_deep(text[:_PROBED_BYTES], limit):
        return True  # found at once, as in a body of nothing but brackets
    # Ends for what is still open, so that it is peeled as everything else is.
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
    """The brackets outside of strings, all of them square. A string that never ends goes on to the end.

    No step of it is a step per byte in Python: a body of some megabytes of brackets is a few milliseconds.
    """
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes side by side end one string and begin another, or are an empty one: nothing lies outside.
    kept = text.translate(_SQUARE, _NO_BRACKETS).replace(b'""', b"")
    return b"".join(kept.split(b'"')[::2]) if b'"' in kept else kept


def find_fault(body: bytes) -> BodyError | None:
    """What makes this body unfit as an envelope, with its place; None if nothing does.

    Looks, in this order, for invalid UTF-8, nesting, syntax, lone surrogates and duplicate names outside of
    payloads. In a body of more than SEARCHED_BYTES the last three are not looked for: something is known or
    suspected to be wrong with it, and that is all it is told.
    """
    fault = _fault_of_text(body)
    if fault is not None:
        return fault
    if len(body) > SEARCHED_BYTES:
        detail = (
            "a duplicate field, or a field name with escapes; the field is named in bodies of at most "
            f"{SEARCHED_BYTES} bytes"
        )
        return BodyError(400, "", detail)
    try:
        tree = json.loads(
            body.decode(),
            object_pairs_hook=_Members,
            parse_int=_as_text,
            parse_float=_as_text,
            parse_constant=_refuse_constant,
        )
    except ValueError as e:
        return BodyError(400, "", f"not JSON: {e}")
    return _fault_of(tree, "", in_payload=False)


def _fault_of_text(body: bytes) -> BodyError | None:
    """What makes these bytes no text, or one that no parser survives."""
    try:
        body.decode()
    except UnicodeDecodeError as e:
        return BodyError(400, "", f"invalid UTF-8 at byte {e.start}")
    if too_deep(body, MAX_DEPTH + _ENVELOPE_DEPTH):
        return BodyError(400, "", f"nested deeper than {MAX_DEPTH} levels")
    return None


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
            return BodyError(400, within, "duplicate field")
        seen.add(name)
        fault = _fault_of(value, within, in_payload=in_payload or name in _PAYLOAD)
        if fault:
            return fault
    return None
