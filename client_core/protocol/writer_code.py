"""Generates the functions that write a message's structs, for every version.

A field that a version lacks is dropped if its definition is ignorable. Otherwise it must have its default, or
the function raises UnsupportedVersionError. Called by `message_code.py` at generation time; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.protocol.field_code import (
    condition,
    differs_from_default,
    function_name,
    indented,
    layout_name,
    method,
    negated,
    runs,
    takes_version,
    wrapped,
)
from client_core.protocol.schema import snake_case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.protocol.schema import FieldDefinition, MessageDefinition, StructDefinition


class WriterCode:
    """Generates a message's writing functions; call it for inner structs first."""

    def __init__(self, message: MessageDefinition) -> None:
        self._message = message
        self._versioned: set[str] = set()  # structs whose function takes the version

    def function(self, struct: StructDefinition) -> list[str]:
        """Returns the lines of the function that writes a struct."""
        body = self._body(struct)
        parameters = ["writer: Writer", f"message: {struct.name}"]
        if takes_version(body):
            self._versioned.add(struct.name)
            parameters.insert(1, "version: int")
        head = wrapped(f"def {function_name('write', struct)}(", parameters, ") -> None:", depth=0)
        return [*head, *indented(body)]

    def call(self, struct: StructDefinition, message: str, writer: str = "writer") -> str:
        """Returns the statement that writes a struct."""
        version = "version, " if struct.name in self._versioned else ""
        return f"{function_name('write', struct)}({writer}, {version}{message})"

    def _body(self, struct: StructDefinition) -> list[str]:
        lines: list[str] = []
        for run in runs(struct.fields):
            lines += self._run(run, struct)
        lines += self._tags([field for field in struct.fields if field.tag is not None], struct)
        return lines or ["pass"]

    def _run(self, run: Sequence[FieldDefinition], struct: StructDefinition) -> list[str]:
        if len(run) > 1:
            values = [f"message.{field.name}" for field in run]
            lines = wrapped("writer.pack(", [layout_name(run), *values])
        else:
            lines = self._field(run[0])
        only_if = condition(run[0].versions, struct.versions)
        if only_if is None:
            return lines
        lines = [f"if {only_if}:", *indented(lines)]
        for field in run:
            if not field.ignorable:
                lines += [f"elif {differs_from_default(field)}:", *indented([self._refusal(field)])]
        return lines

    def _refusal(self, field: FieldDefinition, function: str = "cannot_carry") -> str:
        return f'raise {function}("{self._message.name}", version, "{field.json_name}")'

    def _field(self, field: FieldDefinition, writer: str = "writer") -> list[str]:
        """Returns the lines that write one field at a version that has it."""
        value = f"message.{field.name}"
        guard = self._null_guard(field)
        if not field.type.is_array:
            if field.type.struct is not None:
                return [self.call(field.type.struct, value, writer)]
            nullable = "nullable_" if field.nullable else ""
            return [*guard, f"{writer}.{nullable}{method(field)}({value})"]
        if field.type.name == "int32" and not field.nullable:
            return [f"{writer}.int32_array({value})"]
        if field.type.struct is None:
            element, statement = "element", f"{writer}.{method(field)}(element)"
        else:
            element = snake_case(field.type.struct.name)
            statement = self.call(field.type.struct, element, writer)
        elements = [
            f"{writer}.array_length(len({value}))",
            f"for {element} in {value}:",
            *indented([statement]),
        ]
        if not field.nullable:
            return elements
        return [
            *guard,
            f"if {value} is None:",
            *indented([f"{writer}.array_length(None)"]),
            "else:",
            *indented(elements),
        ]

    def _null_guard(self, field: FieldDefinition) -> list[str]:
        null_if = condition(field.nullable, field.versions) if field.nullable else None
        if null_if is None:
            return []
        refused = f"if message.{field.name} is None and {negated(null_if)}:"
        return [refused, *indented([self._refusal(field, "cannot_carry_null")])]

    def _tags(self, tagged: Sequence[FieldDefinition], struct: StructDefinition) -> list[str]:
        if not self._message.flexible & struct.versions:
            return []
        if not tagged:
            return ["writer.tags()"]
        lines = ["tags: list[tuple[int, bytes]] = []"]
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            only_if = condition(field.versions, struct.versions)
            written = [
                "field = FlexibleWriter()",
                *self._field(field, "field"),
                f"tags.append(({field.tag}, field.getvalue()))",
            ]
            is_set = differs_from_default(field)
            if only_if is None:
                lines += [f"if {is_set}:", *indented(written)]
            elif field.ignorable:
                lines += [f"if {only_if} and {is_set}:", *indented(written)]
            else:
                refused = [f"if {negated(only_if)}:", *indented([self._refusal(field)])]
                lines += [f"if {is_set}:", *indented([*refused, *written])]
        return [*lines, "writer.tags(tags)"]
