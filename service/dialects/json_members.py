"""The raw fields of one JSON object, for envelopes with any fields.

A CloudEvent may have any attribute, so no struct describes it. Values stay raw and are sent unchanged. A
duplicate field shows because the object is longer than its parsed fields.

Pure; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.wire.strict_json import MAX_DEPTH, BodyError, too_deep

NULL: Final = b"null"

#: With more names than this, payload included, the length outside the payload is limited.
_MANY_MEMBERS: Final = 1_000
MAX_BESIDE_BYTES: Final = 65_536

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_STRING: Final = msgspec.json.Decoder(str)

#: Bytes per member besides name and value: quotes, colon, comma.
_AROUND: Final = len('"":,')
#: The braces, minus the comma that the last member lacks.
_BRACES: Final = len("{}") - len(",")


def members_of(text: bytes, place: str = "", *, payload: tuple[str, ...] = ()) -> dict[str, Raw]:
    """Returns the members of a compact JSON object (`strict_json.compact`), by name.

    Raises BodyError: 400 if it is no object, nests too deeply, or repeats a name. 413 for too much outside
    `payload`, the members with the sender's own content.
    """
    if too_deep(text):
        raise BodyError(400, place, f"nested deeper than {MAX_DEPTH} levels")
    try:
        if text.count(b'":') > _MANY_MEMBERS:
            _bound(text, place, payload)
        members = _MEMBERS.decode(text)
    except msgspec.DecodeError as e:
        raise BodyError(400, place, "must be a JSON object") from e
    if members and _understood(members) != len(text):
        twice = _repeated_name(text)
        if twice is not None:
            raise BodyError(400, within(place, twice), "duplicate field")
    return members


def _bound(text: bytes, place: str, payload: tuple[str, ...]) -> None:
    """Raises a 413 for an object of very many members, before parsing them all.

    Decodes only the payload, to get its length. In lower case, since dialects may ignore case in names; that
    changes no length.
    """
    found = msgspec.structs.astuple(_decoder_of(payload).decode(text.lower()))
    beside_bytes = len(text) - sum(len(raw) for raw in found if raw is not UNSET)
    if beside_bytes > MAX_BESIDE_BYTES:
        besides = f" besides {' and '.join(payload)}" if payload else ""
        detail = f"members{besides} take {beside_bytes} bytes, more than {MAX_BESIDE_BYTES}"
        raise BodyError(413, place, detail)


@cache
def _decoder_of(payload: tuple[str, ...]) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = [(name, Raw | UnsetType, UNSET) for name in payload]
    return msgspec.json.Decoder(msgspec.defstruct("Payload", fields))


def text_of(raw: Raw) -> str | None:
    """Returns the string in a raw JSON value; None for another type."""
    written = bytes(raw)
    return _STRING.decode(written) if written[:1] == b'"' else None


def is_null(raw: Raw) -> bool:
    """Returns whether a raw JSON value is null. Reads at most four bytes."""
    return len(raw) == len(NULL) and bytes(raw) == NULL


def within(place: str, name: str) -> str:
    """Returns the place of a member in another place."""
    return f"{place}.{name}" if place else name


def _understood(members: Mapping[str, Raw]) -> int:
    return _BRACES + sum(len(name.encode()) + len(raw) + _AROUND for name, raw in members.items())


def _repeated_name(text: bytes) -> str | None:
    """Returns the first repeated name; None if a name only contains escapes, which add length."""
    pairs: list[tuple[str, object]] = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None
