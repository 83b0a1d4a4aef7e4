"""Valid messages by their schema, from a Random: what a version can carry, encoded.

The classes and what is known of their fields are those of `tests/protocol/messages.py`, which makes the same
for hypothesis; this is for volume.
"""

from __future__ import annotations

import string
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

from tests.protocol.messages import FieldNotes, field_notes, is_in_version

if TYPE_CHECKING:
    from random import Random

_LETTERS: Final = string.ascii_letters + "-._é🔥"


@cache
def _hints(struct: Any) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def message(struct: Any, version: int, random: Random) -> Any:
    """A message in which only what the version has room for differs from its default."""
    notes = field_notes(struct)
    values = {
        name: _field(name, annotation, notes[name], version, random)
        for name, annotation in _hints(struct).items()
        if is_in_version(notes[name].versions, version)
    }
    return struct(**values)


def _field(name: str, annotation: Any, notes: FieldNotes, version: int, random: Random) -> Any:
    if isinstance(annotation, UnionType) or NoneType in get_args(annotation):
        if is_in_version(notes.null_in, version) and random.random() < 0.25:
            return None
        [annotation] = [option for option in get_args(annotation) if option is not NoneType]
    return _value(name, annotation, version, random)


def _value(name: str, annotation: Any, version: int, random: Random) -> Any:
    if get_origin(annotation) is tuple:
        count = random.choice((0, 1, 1, 2, 3, 6))
        return tuple(_value(name, get_args(annotation)[0], version, random) for _ in range(count))
    if get_origin(annotation) is Annotated:
        return _number(annotation.__metadata__[0], random)
    if annotation is bool:
        return random.random() < 0.5
    if annotation is str:
        return "".join(random.choices(_LETTERS, k=random.choice((0, 1, 5, 20, 130))))
    if annotation is bytes:
        return random.randbytes(random.choice((0, 1, 16, 300)))
    if annotation is UUID:
        return UUID(int=random.getrandbits(128))
    return message(annotation, version, random)


def _number(bits: int, random: Random) -> int:
    largest = (1 << (bits - 1)) - 1
    return random.choice(
        (0, 0, 1, 2, 3, -1, min(largest, 9_092), largest, random.randint(-largest - 1, largest))
    )
