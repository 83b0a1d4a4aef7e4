"""Generates docs/event-v1.schema.json and the tables of docs/events.md, from the types of event v1.

They describe what a sidecar of this version writes, so every field is required. Readers must ignore unknown
fields, and treat a missing one as null. Called by docs/tables.py. Pure.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Final

import msgspec

from service.events.event_v1 import TYPES, Event

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REF: Final = "#/$defs/{name}"


def schema_text() -> str:
    """Returns the schema as it is in the documentation."""
    return json.dumps(event_schema(), indent=2) + "\n"


def event_schema() -> dict[str, Any]:
    """Returns the JSON Schema of one event: exactly one of the types."""
    _, components = msgspec.json.schema_components(TYPES, ref_template=_REF)
    return {
        "$schema": _DIALECT,
        "title": "Pilotfish event v1",
        "description": "One line of a sidecar's event log (docs/events.md).",
        "oneOf": [{"$ref": _REF.format(name=kind.__name__)} for kind in TYPES],
        "$defs": {kind.__name__: _as_written(components[kind.__name__]) for kind in TYPES},
    }


def _as_written(component: dict[str, Any]) -> dict[str, Any]:
    """Removes the defaults, which are for our code, and makes every field required: each is written."""
    properties = {
        name: {key: value for key, value in property_.items() if key != "default"}
        for name, property_ in component["properties"].items()
    }
    # Python 3.13 removes the indentation of docstrings, older versions keep it.
    described = inspect.cleandoc(component["description"])
    return {**component, "description": described, "properties": properties, "required": list(properties)}


# -- Markdown ------------------------------------------------------------------------------------------------


def common_fields_table() -> str:
    """Returns the fields of all events as a Markdown table."""
    fields = event_schema()["$defs"][TYPES[0].__name__]["properties"]
    kind = {"type": "string", "description": "one of those below"}
    return _table([(name, kind if name == "type" else fields[name]) for name in _COMMON])


def fields_tables() -> str:
    """Returns the other fields of each type: a heading, a sentence and a Markdown table."""
    sections = []
    for defined in event_schema()["$defs"].values():
        fields = list(defined["properties"].items())
        name = defined["properties"]["type"]["enum"][0]
        description = " ".join(defined["description"].split())
        sections.append(f"### `{name}`\n\n{description}\n\n{_table(fields[len(_COMMON) :])}")
    return "\n\n".join(sections)


_COMMON: Final = Event.__struct_fields__


def _table(fields: list[tuple[str, dict[str, Any]]]) -> str:
    lines = ["| field | type | |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {_type_for_people(field)} | {field.get('description', '')} |" for name, field in fields
    ]
    return "\n".join(lines)


def _type_for_people(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type_for_people(one) for one in field["anyOf"])
    if "enum" in field:
        return ", ".join(map(str, field["enum"])) if len(field["enum"]) > 1 else f"`{field['enum'][0]}`"
    match field["type"]:
        case "integer":
            return "int32" if field["maximum"] < 2**31 else "int64"
        case "array":
            return f"list of {_type_for_people(field['items'])}"
        case "object":
            return f"object of {_type_for_people(field['additionalProperties'])}"
        case other:
            return str(other)
