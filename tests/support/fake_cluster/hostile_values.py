"""Absurd values in honest answers: changed fields of a message, which can mostly still be encoded.

    mutated(MetadataResponse(...), Random(7))      a leader nobody knows, no brokers, an epoch of 2^31 - 1

The possible values of a field are read from the generated classes: `Int32`, `str | None`, tuples of structs.
A value that the version can't carry raises at `encode`, and the caller leaves it out. Pure: the same Random
makes the same message. Called by hostile.py, on the cluster's loop or in a test's thread.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from client_core.error_codes import Errors
from client_core.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from random import Random

_M = TypeVar("_M")

_CODES: Final = (*(error.code for error in Errors), 9_999, 32_767, -32_768)
#: Names that fail when they are resolved or before, because a test must not reach DNS.
_TEXTS: Final = (
    *("", "\0", "nul\0within", "..", "x" * 300, "y" * 32_000, "z" * 32_000, "\U0001f525" * 70),
    *("\u202e\n\x1b[2J", "[::1]", "-1"),
)
_STRUCTS_WEIGH: Final = 5
#: How often one element of an array may be there: more only makes the frames large.
_COPIES: Final = (*(2, 3) * 20, *(50,) * 5, 1_000)


def mutated(message: _M, random: Random) -> _M:
    """The message with one to three of its fields changed, at any depth."""
    for _ in range(random.choice((1, 1, 2, 3))):
        message = _struct(message, random)
    return message


@cache
def _fields(struct: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type without None, and whether None is allowed, of each field."""
    found = []
    for name, annotation in get_type_hints(struct, include_extras=True).items():
        options = (
            get_args(annotation) if isinstance(annotation, UnionType) or _is_optional(annotation) else ()
        )
        plain = next((option for option in options if option is not NoneType), annotation)
        found.append((name, plain, NoneType in options))
    return tuple(found)


def _weight(annotation: Any) -> int:
    """Most of a message lies in its arrays of structs: so must most lies."""
    is_array = get_origin(annotation) is tuple
    return _STRUCTS_WEIGH if is_array and hasattr(get_args(annotation)[0], "_fields") else 1


def _is_optional(annotation: Any) -> bool:
    return get_origin(annotation) is not tuple and NoneType in get_args(annotation)


def _struct(struct: Any, random: Random) -> Any:
    fields = _fields(struct.__class__)
    (chosen,) = random.choices(fields, [_weight(annotation) for _, annotation, _ in fields])
    name, annotation, is_nullable = chosen
    if is_nullable and random.random() < 0.3:
        return struct._replace(**{name: None})
    return struct._replace(**{name: _value(name, annotation, getattr(struct, name), random)})


def _value(name: str, annotation: Any, value: Any, random: Random) -> Any:
    if get_origin(annotation) is tuple:
        return _array(name, get_args(annotation)[0], value or (), random)
    if get_origin(annotation) is Annotated:
        bits = annotation.__metadata__[0]
        return random.choice(_CODES) if name == "error_code" else _number(bits, random)
    if annotation is bool:
        return not value
    if annotation is str:
        return random.choice(_TEXTS)
    if annotation is bytes:
        return random.randbytes(random.choice((0, 1, 70_000)))
    if annotation is UUID:
        return random.choice((ZERO_UUID, UUID(int=random.getrandbits(128))))
    return _struct(value, random)


def _number(bits: int, random: Random) -> int:
    largest = (1 << (bits - 1)) - 1
    choices = (0, -1, -2, 1, 2, 65_536, largest, largest - 1, -largest - 1, random.randint(-largest, largest))
    return max(min(random.choice(choices), largest), -largest - 1)


def _array(name: str, element: Any, values: tuple[Any, ...], random: Random) -> tuple[Any, ...]:
    """One element changed, most of the time; or none left, one more often, one less, the last one first."""
    if not values:
        return (_value(name, element, element() if hasattr(element, "_fields") else None, random),)
    at = random.randrange(len(values))
    match random.randrange(8):
        case 0:
            return ()
        case 1:
            return values[:at] + values[at + 1 :]
        case 2:
            return values + (values[at],) * random.choice(_COPIES)
        case 3:
            return values[::-1]
        case _:
            return (*values[:at], _value(name, element, values[at], random), *values[at + 1 :])
