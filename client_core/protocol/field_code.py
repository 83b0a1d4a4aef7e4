"""Generates Python for a message field: type, default, conditions, wire size.

Shared by `reader_code.py`, `writer_code.py` and `message_code.py`, at generation time only. Pure functions
from definitions to source text.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from client_core.protocol.schema import DefinitionError, snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from client_core.protocol.schema import FieldDefinition, MessageDefinition, StructDefinition, Versions

#: Adjacent integers are packed and unpacked together: their letters in `struct` and their sizes.
INTEGERS: Final = {"int8": ("b", 1), "int16": ("h", 2), "int32": ("i", 4), "int64": ("q", 8)}
#: Every other type: its Python type, its default, the method of Reader and Writer.
SCALARS: Final = {
    "bool": ("bool", "False", "boolean"),
    "string": ("str", '""', "string"),
    "uuid": ("UUID", "ZERO_UUID", "uuid"),
    "bytes": ("bytes", 'b""', "byte_array"),
    "records": ("bytes", "None", "byte_array"),
}
_UUID_BYTES: Final = 16
INDENT: Final = "    "
LINE_LENGTH: Final = 110


def python_type(field: FieldDefinition) -> str:
    """Returns the annotation of a field."""
    if field.type.name in INTEGERS:
        base = field.type.name.capitalize()
    else:
        base = field.type.name if field.type.struct is not None else _scalar(field)[0]
    one_or_many = f"tuple[{base}, ...]" if field.type.is_array else base
    return f"{one_or_many} | None" if field.nullable or default(field) == "None" else one_or_many


def default(field: FieldDefinition) -> str:
    """Returns a field's default expression; versions without the field decode to it."""
    if field.default == "null":
        return "None"
    if field.type.is_array:
        return "()"
    if field.type.struct is not None:
        return f"{field.type.name}()"
    if field.type.name in INTEGERS:
        return field.default or "0"
    if field.type.name == "bool":
        return (field.default or "false").capitalize()
    if field.default is not None:
        raise DefinitionError(f"{field.json_name}: default {field.default!r} of type {field.type.name}")
    return _scalar(field)[1]


def differs_from_default(field: FieldDefinition) -> str:
    """Returns the condition that a message's field is set."""
    expression = default(field)
    if expression in ("None", "True", "False"):
        return f"message.{field.name} is not {expression}"
    return f"message.{field.name} != {expression}"


def method(field: FieldDefinition) -> str:
    """Returns the Reader and Writer method for a field that is no array and no struct."""
    return field.type.name if field.type.name in INTEGERS else _scalar(field)[2]


def _scalar(field: FieldDefinition) -> tuple[str, str, str]:
    try:
        return SCALARS[field.type.name]
    except KeyError:
        raise DefinitionError(f"{field.json_name}: type {field.type.name}") from None


def condition(versions: Versions, among: Versions) -> str | None:
    """Returns the test that `version`, one of `among`, is in `versions`; None when it always is."""
    if versions.first > among.first and versions.last < among.last:
        return f"{versions.first} <= version <= {versions.last}"
    if versions.first > among.first:
        return f"version >= {versions.first}"
    return f"version <= {versions.last}" if versions.last < among.last else None


def negated(expression: str) -> str:
    """Negates an expression of `condition`."""
    if expression.count("<=") == 2:
        return f"not {expression}"
    return expression.replace(">=", "<") if ">=" in expression else expression.replace("<=", ">")


def runs(fields: Sequence[FieldDefinition]) -> Iterator[list[FieldDefinition]]:
    """Yields the untagged fields: adjacent integers of the same versions together, others alone."""
    untagged = [field for field in fields if field.tag is None]

    def kin(numbered: tuple[int, FieldDefinition]) -> tuple[int, Versions | None]:
        number, field = numbered
        fuses = field.type.name in INTEGERS and not field.type.is_array
        return (-1, field.versions) if fuses else (number, None)

    for _, run in groupby(enumerate(untagged), key=kin):
        yield [field for _, field in run]


def layout_letters(run: Sequence[FieldDefinition]) -> str:
    """Returns the format of a run of integers, in the letters of `struct`."""
    return "".join(INTEGERS[field.type.name][0] for field in run)


def layout_name(run: Sequence[FieldDefinition]) -> str:
    """Returns the module's name for that format: `_IHQ` for ">ihq"."""
    return f"_{layout_letters(run).upper()}"


def min_element_bytes(field: FieldDefinition, message: MessageDefinition) -> int:
    """Returns the minimum bytes of an array's element in any version, which limit the array's length."""
    versions = range(field.versions.first, field.versions.last + 1)
    return min(_element_bytes(field, message, version) for version in versions)


def _element_bytes(field: FieldDefinition, message: MessageDefinition, version: int) -> int:
    if field.type.struct is not None:
        return _struct_bytes(field.type.struct, message, version)
    if field.type.name in INTEGERS:
        return INTEGERS[field.type.name][1]
    sizes = {"bool": 1, "uuid": _UUID_BYTES, "string": 1 if version in message.flexible else 2}
    return sizes.get(field.type.name, 1 if version in message.flexible else 4)


def _struct_bytes(struct: StructDefinition, message: MessageDefinition, version: int) -> int:
    flexible = version in message.flexible
    size = 1 if flexible else 0  # the number of tagged fields
    for field in struct.fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field.type.is_array:
            size += 1 if flexible else 4
        else:
            size += _element_bytes(field, message, version)
    return size


def indented(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" if line else line for line in lines]


def wrapped(head: str, arguments: Sequence[str], tail: str = ")", *, depth: int = 2) -> list[str]:
    """Returns a call on one line if it fits at that indentation, else with one argument per line."""
    line = f"{head}{', '.join(arguments)}{tail}"
    if len(line) + depth * len(INDENT) <= LINE_LENGTH:
        return [line]
    return [head, *(f"{INDENT}{argument}," for argument in arguments), tail]


def function_name(verb: str, struct: StructDefinition) -> str:
    """Returns a name such as `_read_metadata_response_topic`."""
    return f"_{verb}_{snake_case(struct.name)}"


def takes_version(lines: Sequence[str]) -> bool:
    """Returns whether a function's body uses the version."""
    return any("version" in line for line in lines)
