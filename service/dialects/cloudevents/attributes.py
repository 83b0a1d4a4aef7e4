"""Checks CloudEvents attributes: required ones, names, and the syntax of values.

Shared by both content modes: values arrive as canonical strings. An extension's name may have any length (20
characters are recommended) of `a-z` and `0-9`; its value may be any text. Each `fault_of_` function returns
the fault of a value, or None. The checks raise ValueErrors with the reason, without the place. The patterns
use possessive repetition, so that a hostile value costs one pass.

Pure; any thread. Sources: CloudEvents 1.0.2 "Context Attributes" and "Type System", the partitioning
extension; RFC 3986 (URI), RFC 3339 (time), RFC 2046 with RFC 9110's tokens (media type).
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Container, Mapping
from typing import Final

from service.base.possessive import POSSESSIVE

#: Required attributes, in the order in which errors name them.
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
#: The first segment of a relative reference has no colon: a colon would make it a scheme.
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
    """Rejects control characters, lone surrogates and noncharacters."""
    found = None if value.isascii() and value.isprintable() else _FORBIDDEN.search(value)
    return None if found is None else f"the character U+{ord(found[0]):04X} is not allowed in an attribute"


def fault_of_uri_reference(value: str) -> str | None:
    """Requires a non-empty URI-reference (RFC 3986 section 4.1)."""
    if value and (_URI.fullmatch(value) or _RELATIVE.fullmatch(value)):
        return None
    return "must be a URI-reference (RFC 3986), and not empty"


def fault_of_uri(value: str) -> str | None:
    """Requires a scheme (RFC 3986 section 3); allows a fragment, as the specification's JSON schema does."""
    return None if _URI.fullmatch(value) else "must be a URI with a scheme (RFC 3986)"


def fault_of_time(value: str) -> str | None:
    """Requires RFC 3339 with a valid calendar day. Allows a leap second in any minute."""
    found = _TIME.fullmatch(value)
    if found is not None:
        year, month, day, hour, minute, second, *offset = (int(part or 0) for part in found.groups())
        if _is_day(year, month, day) and hour < 24 and minute < 60 and second <= 60:
            off_hours, off_minutes = offset
            if off_hours < 24 and off_minutes < 60:
                return None
    return "must be an RFC 3339 time, such as 2018-04-05T17:31:00Z"


def fault_of_media_type(value: str) -> str | None:
    """Requires `type/subtype`, with or without parameters."""
    return None if _MEDIA_TYPE.fullmatch(value) else "must be a media type, such as application/json"


def _is_day(year: int, month: int, day: int) -> bool:
    if not 1 <= month <= 12:
        return False
    days = 29 if month == 2 and calendar.isleap(year) else _DAYS[month - 1]
    return 1 <= day <= days


def _fault_of_version(value: str) -> str | None:
    return None if value == "1.0" else "only version 1.0 of CloudEvents is supported"


def _fault_of_empty(value: str) -> str | None:
    return None if value else "must not be empty"


#: The specification's own attributes, all strings. Extensions have no rules.
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
    """Returns whether the attribute must be a string, never a number or a boolean."""
    return name in _RULES


def check_name(name: str) -> None:
    """Raises ValueError for an invalid attribute name."""
    if not _NAME.fullmatch(name):
        raise ValueError("an attribute's name may have only the letters a-z and digits")
    if name == "data":
        raise ValueError("an attribute can't be named data")


def check_value(name: str, value: str) -> None:
    """Raises ValueError for an invalid value of the attribute."""
    rule = _RULES.get(name)
    fault = fault_of_text(value) or (None if rule is None else rule(value))
    if fault is not None:
        raise ValueError(fault)


def missing_attribute(present: Container[str]) -> str | None:
    """Returns the first missing required attribute, or None."""
    return next((name for name in REQUIRED if name not in present), None)
