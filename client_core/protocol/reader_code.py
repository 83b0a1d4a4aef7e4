"""Generates the functions that read a message's structs, for every version.

One function per struct. Called by `message_code.py` at generation time; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.protocol.field_code import (
    INDENT,
    LINE_LENGTH,
    condition,
    default,
    function_name,
    indented,
    layout_name,
    method,
    min_element_bytes,
    python_type,
    runs,
    takes_version,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.protocol.schema import FieldDefinition, MessageDefinition, StructDefinition


class ReaderCode:
    """Generates a message's reading functions; call it for inner structs first."""

    def __init__(self, message: MessageDefinition) -> None:
        self._message = message
        self._versioned: set[str] = set()  # structs whose function takes the version

    def function(self, struct: StructDefinition) -> list[str]:
        """Returns the lines of the function that reads a struct."""
        body = self._body(struct)
        parameters = ["reader: Reader"]
        if takes_version(body):
            self._versioned.add(struct.name)
            parameters.append("version: int")
        head = wrapped(f"def {function_name('read', struct)}(", parameters, f") -> {struct.name}:", depth=0)
        return [*head, *indented(body)]

    def call(self, struct: StructDefinition, reader: str = "reader") -> str:
        """Returns the expression that reads a struct."""
        version = ", version" if struct.name in self._versioned else ""
        return f"{function_name('read', struct)}({reader}{version})"

    def _body(self, struct: StructDefinition) -> list[str]:
        lines: list[str] = []
        for run in runs(struct.fields):
            lines += self._run(run, struct)
        lines += self._tags([field for field in struct.fields if field.tag is not None], struct)
        return lines + wrapped(f"return {struct.name}(", [field.name for field in struct.fields])

    def _run(self, run: Sequence[FieldDefinition], struct: StructDefinition) -> list[str]:
        only_if = condition(run[0].versions, struct.versions)
        if len(run) > 1:
            names = ", ".join(field.name for field in run)
            lines = [f"{names} = reader.unpack({layout_name(run)})"]
            absent = f"{names} = {', '.join(default(field) for field in run)}"
        else:
            lines = self._field(run[0])
            absent = f"{run[0].name} = {default(run[0])}"
        if only_if is None:
            return lines
        if len(run) == 1 and len(lines) == 1 and " if " not in lines[0] and " for " not in lines[0]:
            return [f"{lines[0]} if {only_if} else {default(run[0])}"]
        return [f"if {only_if}:", *indented(lines), "else:", *indented([absent])]

    def _field(self, field: FieldDefinition, reader: str = "reader") -> list[str]:
        """Returns the lines that read one field at a version that has it."""
        if not field.type.is_array:
            value = self._element(field, reader)
            if not field.nullable:
                return [f"{field.name} = {value}"]
            nullable = f"{reader}.nullable_{method(field)}()"
            null_if = condition(field.nullable, field.versions)
            return [
                f"{field.name} = {nullable}"
                if null_if is None
                else f"{field.name} = {nullable} if {null_if} else {value}"
            ]
        if field.type.name == "int32" and not field.nullable:
            return [f"{field.name} = {reader}.int32_array()"]
        smallest = min_element_bytes(field, self._message)
        element = self._element(field, reader)
        length = f"{reader}.array_length({smallest})"
        if not field.nullable:
            return _array(field, element, length)
        count = f"{field.name}_count"
        null_if = condition(field.nullable, field.versions)
        nullable_length = f"{reader}.nullable_array_length({smallest})"
        if null_if is not None:
            nullable_length += f" if {null_if} else {length}"
        return [
            f"{count} = {nullable_length}",
            f"{field.name}: {python_type(field)} = None",
            f"if {count} is not None:",
            *indented(_array(field, element, count)),
        ]

    def _element(self, field: FieldDefinition, reader: str) -> str:
        if field.type.struct is not None:
            return self.call(field.type.struct, reader)
        return f"{reader}.{method(field)}()"

    def _tags(self, tagged: Sequence[FieldDefinition], struct: StructDefinition) -> list[str]:
        flexible = self._message.flexible & struct.versions
        if not flexible:
            return []
        if not tagged:
            return ["reader.skip_tags()"]
        lines = [f"{field.name}: {python_type(field)} = {default(field)}" for field in tagged]
        lines.append("for tag, field in reader.tags():")
        for number, field in enumerate(tagged):
            only_if = condition(field.versions, flexible)
            known = f"tag == {field.tag}" if only_if is None else f"tag == {field.tag} and {only_if}"
            lines += indented(
                [f"{'el' if number else ''}if {known}:", *indented(self._field(field, "field"))]
            )
        return lines


def _array(field: FieldDefinition, element: str, length: str) -> list[str]:
    line = f"{field.name} = tuple([{element} for _ in range({length})])"
    if len(line) + 3 * len(INDENT) <= LINE_LENGTH:
        return [line]
    return [f"{field.name} = tuple([", *indented([element, f"for _ in range({length})"]), "])"]
