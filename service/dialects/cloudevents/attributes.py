"""Which attributes a CloudEvent must have, and which names and values they may have.

Shared by both content modes: a value comes here as its canonical string. Extensions may have any name of
`a-z` and `0-9` and any text; 20 characters are recommended for a name, and more are taken. Failures are
ValueErrors that say what is wrong, not where.

Pure; any thread. Source: CloudEvents 1.0.2, "Context Attributes"; the partitioning extension.

How the values of CloudEvents attributes may be spelled: URIs, times, media types, and text at all.

Each function answers what is wrong with a value, or None. The patterns take their repetitions possessively,
so that a hostile value costs one pass.

Pure; any thread. Sources: RFC 3986 (URI), RFC 3339 (time), RFC 2046 with RFC 9110's tokens (media type),
CloudEvents 1.0.2 "Type System".
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Container, Mapping
from typing import Final

from service.base.possessive import POSSESSIVE

#: What every CloudEvent has, in the order in which a missing one is named.
REQUIRED: Final = ("specversion", "id", "source", "type")

#: The extension that becomes the record's key.
PARTITION_KEY: Final = "partitionkey"

_NAME: Final = re.compile(r"[a-z0-9]+")


_PCHAR: Final = r"(?:[A-Za-z0-9\-._~!$&'*+(),;=:@]|%[0-9A-Fa-f]{2})"
_USERINFO: Final = rf"(?:[A-Za-z0-9\-._~!$&'*+(),;=:]|%[0-9A-Fa-f]{{2}})*{POSSESSIVE}@"
_NAME_OF_A_HOST: Final = rf"(?:[A-Za-z0-9\-._~!$&'*+(),;=]|%[0-9A-Fa-f]{{2}})*{POSSESSIVE}"
_HOST: Final = rf"(?:\[[0-9A-Fa-f:.vV]++\]|{_NAME_OF_A_HOST})"
_AUTHORITY: Final = rf"//(?:{_USERINFO})?{POSSESSIVE}{_HOST}(?::[0-9]*+)?{POSSESSIVE}"
_PATHS: Final = rf"(?:/{_PCHAR}*{POSSESSIVE})*{POSSESSIVE}"
_AFTER_THE_PATH: Final = rf"(?:{_PCHAR}|[/?])*{POSSESSIVE}"
_TAIL: Final = rf"(?:\?{_AFTER_THE_PATH})?{POSSESSIVE}(?:\#{_AFTER_THE_PATH})?{POSSESSIVE}"
#: The first segment of a relative reference has no colon: with one, what stands before it would be a scheme.
_SEGMENT_WITHOUT_COLON: Final = rf"(?:[A-Za-z0-9\-._~!$&'*+(),;=@]|%[0-9A-Fa-f]{{2}})+{POSSESSIVE}"
_PATH: Final = rf"(?:{_PCHAR}+{POSSESSIVE}{_PATHS})?{POSSESSIVE}"

_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.\-]*+:(?:{_AUTHORITY}{_PATHS}|/?+{_PATH}){_TAIL}")
_RELATIVE: Final = re.compile(rf"(?:{_AUTHORITY}{_PATHS}|{_SEGMENT_WITHOUT_COLON}{_PATHS}|/{_PATH}|){_TAIL}")

_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d++)?(?:[Zz]|[+-](\d\d):(\d\d))", re.ASCII
)

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"  # noqa: S105 - a pattern
_QUOTED: Final = rf'"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t -~])*{POSSESSIVE}"'
_PARAMETER: Final = rf"[ \t]*+;[ \t]*+(?:{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))?{POSSESSIVE}"
_MEDIA_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(?:{_PARAMETER})*{POSSESSIVE}[ \t]*+")

_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_NONCHARACTERS: Final = "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)
_FORBIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]")


def fault_of_text(value: str) -> str | None:
    """Control characters, lone surrogates and noncharacters stand in no attribute."""
    found = None if value.isascii() and value.isprintable() else _FORBIDDEN.search(value)
    return None if found is None else f"the character U+{ord(found[0]):04X} is not allowed in an attribute"


def fault_of_uri_reference(value: str) -> str | None:
    """RFC 3986 section 4.1, and not empty."""
    if value and (_URI.fullmatch(value) or _RELATIVE.fullmatch(value)):
        return None
    return "must be a URI-reference (RFC 3986), and not empty"


def fault_of_uri(value: str) -> str | None:
    """RFC 3986 section 3: with a scheme. A fragment may follow, as the specification's JSON schema has it."""
    return None if _URI.fullmatch(value) else "must be a URI with a scheme (RFC 3986)"


def fault_of_time(value: str) -> str | None:
    """RFC 3339, on a day that the calendar has. A leap second may stand in any minute."""
    found = _TIME.fullmatch(value)
    if found is not None:
        year, month, day, hour, minute, second, *offset = (int(part or 0) for part in found.groups())
        if _is_day(year, month, day) and hour < 24 and minute < 60 and second <= 60:
            off_hours, off_minutes = offset
            if off_hours < 24 and off_minutes < 60:
                return None
    return "must be a time as RFC 3339 writes it, such as 2018-04-05T17:31:00Z"


def fault_of_media_type(value: str) -> str | None:
    """`type/subtype`, parameters or not."""
    return None if _MEDIA_TYPE.fullmatch(value) else "must be a media type, such as application/json"


def _is_day(year: int, month: int, day: int) -> bool:
    if not 1 <= month <= 12:
        return False
    days = 29 if month == 2 and calendar.isleap(year) else _DAYS[month - 1]
    return 1 <= day <= days


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
