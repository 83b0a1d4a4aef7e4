"""Random messages of every generated class, for hypothesis, and what is known of their fields.

The fields of a version are read from the generated source itself: its annotations (`Int16`, `str | None`) and
the comments after them (`# v5-13, tag 0, null in v8-13`). Java's bytes are the oracle in `tests/golden/`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import strategies as st

from client_core.protocol import messages as generated

_FIELD: Final = re.compile(r"^    (?P<name>\w+): .* = [^#]+(?:  # (?P<notes>.*))?$")
#: Enough to distinguish one from many; more only makes the tests slow.
_MAX_ELEMENTS: Final = 2


class FieldNotes(NamedTuple):
    """The versions that have a field, and those in which it may be null; None where not restricted."""

    versions: tuple[int, int] | None
    null_in: tuple[int, int] | None


class GeneratedMessage(NamedTuple):
    """A generated class and its range of versions."""

    name: str
    type: Any  # one of the generated NamedTuples
    api_key: int
    versions: range


def generated_messages() -> list[GeneratedMessage]:
    """Every generated message."""
    found = []
    for module_info in pkgutil.iter_modules(generated.__path__):
        module = importlib.import_module(f"{generated.__name__}.{module_info.name}")
        name = "".join(word.capitalize() for word in module_info.name.split("_"))
        versions = range(module.MIN_VERSION, module.MAX_VERSION + 1)
        found.append(GeneratedMessage(name, getattr(module, name), module.API_KEY, versions))
    return found


@cache
def carried_by(message: Any, version: int) -> st.SearchStrategy[Any]:
    """Messages in which only what the version has room for differs from its default."""
    return _struct(message, version)


def _struct(struct: Any, version: int) -> st.SearchStrategy[Any]:
    notes = field_notes(struct)
    fields = {
        name: _field(annotation, notes[name], version)
        for name, annotation in get_type_hints(struct, include_extras=True).items()
        if is_in_version(notes[name].versions, version)
    }
    # Not st.builds: that also invents the fields of a NamedTuple which it isn't given.
    return st.fixed_dictionaries(fields).map(lambda values: struct(**values))


def _field(annotation: Any, notes: FieldNotes, version: int) -> st.SearchStrategy[Any]:
    if isinstance(annotation, UnionType) or NoneType in get_args(annotation):
        [annotation] = [option for option in get_args(annotation) if option is not NoneType]
        if is_in_version(notes.null_in, version):
            return st.none() | _value(annotation, version)
    return _value(annotation, version)


def _value(annotation: Any, version: int) -> st.SearchStrategy[Any]:
    if get_origin(annotation) is tuple:
        elements = _value(get_args(annotation)[0], version)
        return st.lists(elements, max_size=_MAX_ELEMENTS).map(tuple)
    if get_origin(annotation) is Annotated:
        bits = annotation.__metadata__[0]
        return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    return _struct(annotation, version)


_SIMPLE: Final[dict[Any, st.SearchStrategy[Any]]] = {
    bool: st.booleans(),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    bytes: st.binary(max_size=4),
    UUID: st.uuids(),
}


def is_in_version(versions: tuple[int, int] | None, version: int) -> bool:
    """Whether a version is within a range of notes."""
    return versions is None or versions[0] <= version <= versions[1]


@cache
def field_notes(struct: Any) -> dict[str, FieldNotes]:
    """What the comments behind a struct's fields say."""
    lines = map(_FIELD.match, inspect.getsource(struct).splitlines())
    return {line["name"]: _notes(line["notes"] or "") for line in lines if line is not None}


def _notes(text: str) -> FieldNotes:
    parts = text.split(", ")
    versions = [_range(part[1:]) for part in parts if part.startswith("v")]
    nulls = [_range(part.removeprefix("null in v")) for part in parts if part.startswith("null in v")]
    return FieldNotes(versions[0] if versions else None, nulls[0] if nulls else None)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)
