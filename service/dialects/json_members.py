"""The members of one JSON object as they were written, for envelopes whose members nobody can list.

A CloudEvent may bring any attribute, so no struct describes it. What stands under a name stays raw: it goes
on the wire digit by digit. A name that stands twice is found because the object is then longer than what was
understood of it.

Pure; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from service.strict_json import MAX_DEPTH, BodyError, too_deep

NULL: Final = b"null"

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ITEMS: Final = msgspec.json.Decoder(list[Raw])
_STRING: Final = msgspec.json.Decoder(str)

#: What a member adds to the length of a compact object besides its name and value: quotes, colon, comma.
_AROUND: Final = len('"":,')
#: The braces, without the comma that the last member does not have.
_BRACES: Final = len("{}") - len(",")


def members_of(text: bytes, place: str = "") -> dict[str, Raw]:
    """The members of a compact JSON object (`strict_json.compact`), by name.

    Raises BodyError (400) for what is no object, nests too deeply, or has a name twice.
    """
    if too_deep(text):
        raise BodyError(400, place, f"nested deeper than {MAX_DEPTH} levels")
    try:
        members = _MEMBERS.decode(text)
    except msgspec.DecodeError as e:
        raise BodyError(400, place, "must be a JSON object") from e
    if members and _understood(members) != len(text):
        twice = _name_that_stands_twice(text)
        if twice is not None:
            raise BodyError(400, within(place, twice), "the member stands twice")
    return members


def items_of(text: bytes) -> list[Raw]:
    """The items of a compact JSON array. Raises BodyError (400) for anything else."""
    try:
        return _ITEMS.decode(text)
    except msgspec.DecodeError as e:
        raise BodyError(400, "", "must be a JSON array") from e


def text_of(raw: Raw) -> str | None:
    """The string that a raw JSON value is; None for any other value."""
    written = bytes(raw)
    return _STRING.decode(written) if written[:1] == b'"' else None


def is_null(raw: Raw) -> bool:
    """Whether a raw JSON value is null. Looks at no more than four bytes."""
    return len(raw) == len(NULL) and bytes(raw) == NULL


def within(place: str, name: str) -> str:
    """The place of a member within another place."""
    return f"{place}.{name}" if place else name


def _understood(members: Mapping[str, Raw]) -> int:
    return _BRACES + sum(len(name.encode()) + len(raw) + _AROUND for name, raw in members.items())


def _name_that_stands_twice(text: bytes) -> str | None:
    """None where a name was merely written with escapes, which makes it longer than it is."""
    pairs: list[tuple[str, object]] = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None
