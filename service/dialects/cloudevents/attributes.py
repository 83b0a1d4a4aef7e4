"""Which attributes a CloudEvent must have, and which names and values they may have.

Shared by both content modes: a value comes here as its canonical string. Extensions may have any name of
`a-z` and `0-9` and any text; 20 characters are recommended for a name, and more are taken. Failures are
ValueErrors that say what is wrong, not where.

Pure; any thread. Source: CloudEvents 1.0.2, "Context Attributes"; the partitioning extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Final

from service.dialects.cloudevents.syntax import (
    fault_of_media_type,
    fault_of_text,
    fault_of_time,
    fault_of_uri,
    fault_of_uri_reference,
)

#: What every CloudEvent has, in the order in which a missing one is named.
REQUIRED: Final = ("specversion", "id", "source", "type")

#: The extension that becomes the record's key.
PARTITION_KEY: Final = "partitionkey"

_NAME: Final = re.compile(r"[a-z0-9]+")


def _fault_of_version(value: str) -> str | None:
    return None if value == "1.0" else "of CloudEvents only version 1.0 is taken"


def _fault_of_empty(value: str) -> str | None:
    return None if value else "must not be empty"


#: What the specification itself defines, all of it strings. Extensions have no rule of their own.
_RULES: Final[Mapping[str, Callable[[str], str | None]]] = {
    "specversion": _fault_of_version,
    "id": _fault_of_empty,
    "source": fault_of_uri_reference,
    "type": _fault_of_empty,
    "datacontenttype": fault_of_media_type,
    "dataschema": fault_of_uri,
    "subject": _fault_of_empty,
    "time": fault_of_time,
    PARTITION_KEY: _fault_of_empty,
}


def is_text_only(name: str) -> bool:
    """Whether the attribute is a string by definition, and can't be a number or a boolean."""
    return name in _RULES


def check_name(name: str) -> None:
    """Raises ValueError for a name that no attribute has."""
    if not _NAME.fullmatch(name):
        raise ValueError("an attribute's name has nothing but the letters a-z and digits")
    if name == "data":
        raise ValueError("data is no attribute's name")


def check_value(name: str, value: str) -> None:
    """Raises ValueError for a value that the attribute can't have."""
    rule = _RULES.get(name)
    fault = fault_of_text(value) or (None if rule is None else rule(value))
    if fault is not None:
        raise ValueError(fault)


def missing_attribute(present: Container[str]) -> str | None:
    """The first required attribute that is not there."""
    return next((name for name in REQUIRED if name not in present), None)
