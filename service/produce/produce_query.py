"""The query of a produce request: each parameter once, none that nobody knows, numbers in plain digits.

A misspelt deadline must not become none, so what is unknown is refused. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from service.produce.producing import Times
from service.wire.errors import refused
from service.wire.payload import Format
from service.wire.waiting import MAX_WAIT_MS

_TIMES: Final = Times._fields

_MAX_DIGITS: Final = 19

#: How records are delivered: "direct", which is meant where nothing is said, or "spool".
DELIVERY: Final = "delivery"
DELIVERIES: Final = ("direct", "spool")


def parameters(query: bytes, more: tuple[str, ...] = ()) -> dict[str, str]:
    """The parameters by name: those of `Times` and `more`. Raises ProblemError."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place="query") from e
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _TIMES and name not in more:
            *all_but_last, last = _TIMES + more
            known = f"{', '.join(all_but_last)} and {last}"
            raise refused(422, f"unknown parameter; there are {known}", place=f"query.{name}")
        if name in given:
            raise refused(400, "stands twice", place=f"query.{name}")
        given[name] = value
    return given


def times_of(given: Mapping[str, str], defaults: Times) -> Times:
    """max_block_ms and timeout_ms; raises ProblemError for what is no such time."""
    times = defaults
    if "max_block_ms" in given:
        times = times._replace(max_block_ms=_number(given, "max_block_ms", MAX_WAIT_MS))
    if "timeout_ms" in given:
        timeout_ms = _number(given, "timeout_ms", defaults.timeout_ms, " (delivery.timeout.ms)")
        times = times._replace(timeout_ms=timeout_ms)
    return times


def number_of(given: Mapping[str, str], name: str, greatest: int) -> int | None:
    """A whole number from 0 to `greatest`, or None where there is none. Raises ProblemError."""
    return _number(given, name, greatest) if name in given else None


def format_of(given: Mapping[str, str], name: str, default: Format) -> Format:
    """How keys or values are written. Raises ProblemError."""
    try:
        return Format(given[name]) if name in given else default
    except ValueError as e:
        raise refused(422, "must be json, text or base64", place=f"query.{name}") from e


def is_spooled(given: Mapping[str, str]) -> bool:
    """Whether the records are for the spool. Raises ProblemError."""
    delivery = given.get(DELIVERY, "direct")
    if delivery not in DELIVERIES:
        raise refused(422, "must be direct or spool", place=f"query.{DELIVERY}")
    return delivery == "spool"


def _number(given: Mapping[str, str], name: str, greatest: int, of_what: str = "") -> int:
    value = given[name]
    if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS and int(value) <= greatest:
        return int(value)
    raise refused(422, f"must be a whole number from 0 to {greatest}{of_what}", place=f"query.{name}")
