"""Makes requests that can be granted from those that the OpenAPI document allows.

Some rules are not in the document: OpenAPI 3.0 has no words for them, or generators stumble over the words.
Each function here is one such rule, and changes only what breaks it. What is left must be answered with
success, 404, or a timeout.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: What only an answer gives: links bring it.
FROM_ANSWERS: Final = ("page_token", "min_version")
#: Text, JSON and base64.
_ANY_FORMAT: Final = "1234"
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff\U0001fffe-\U0010ffff]")
#: Groups of base64 by their number of "=".
_ASCII: Final = ("YWJj", "YWI=", "YQ==")
_BEYOND_INT32: Final = 2**31
_PAST_MS: Final = 1_600_000_000_000
_MANY_DIGITS: Final = 8
_keys: Final = count()


def make_grantable(case: Any, there: Mapping[str, str], linked: Collection[str | None] = ()) -> None:
    """Changes a drawn request. `there` are names that exist; `linked` are the parameters of a link."""
    for name in FROM_ANSWERS:
        if name not in linked:
            case.query.pop(name, None)
    for given in (case.path_parameters, case.query):
        # A link may bring a made-up topic, since answers repeat the one that was asked for.
        names = [name for name in given if name in there and (name not in linked or name == "topic")]
        given.update({name: there[name] for name in names})
    _of_key(case)
    if "ce-id" in case.headers:
        _of_attribute_headers(case)
    _of_query(case)
    if case.path == "/v1.0/metadata/{key}" and case.method == "PUT" and type(case.body) is not str:
        case.body = "any text"  # schemathesis sends the bytes of pictures as text/plain
    if isinstance(case.body, dict):
        if case.path == "/cloudevents/{topic}":
            case.body = _event(case.body)
        for record in case.body.get("records", ()):
            _of_record(case, record, there)
        for lookup in case.body.get("lookups", ()):
            _of_lookup(lookup, there)
        _with_distinct(case.body.get("entries", ()), "id")
    elif isinstance(case.body, list) and case.path == "/cloudevents/{topic}/batch":
        case.body = [_event(event) for event in case.body]
    elif isinstance(case.body, list) and "/bulk/" in case.path:
        _with_distinct(case.body, "entryId")
        for entry in case.body:
            entry["contentType"] = "application/json"  # which `event` fits another type?


def _of_key(case: Any) -> None:
    """One key at most, in its format, or a partition; a new Idempotency-Key; header names in UTF-8."""
    if "Pilotfish-Key" in case.headers:
        case.query.pop("key", None)
    if case.query.get("key_format", "text") != "text":
        for given, name in ((case.query, "key"), (case.headers, "Pilotfish-Key")):
            if name in given:
                given[name] = _ANY_FORMAT
    if case.path == "/v1/topics/{topic}/leader":
        if "key" not in case.query and "Pilotfish-Key" not in case.headers:
            case.query["partition"] = 1
        else:
            case.query.pop("partition", None)
    if "Idempotency-Key" in case.headers:
        key = case.headers["Idempotency-Key"]
        at = 1 if key.startswith('"') else 0
        new = f"{key[:at]}{next(_keys)}-{key[at:]}" if len(key) < 240 else f"{next(_keys)}"
        case.headers["Idempotency-Key"] = new
    if "Pilotfish-Headers" in case.headers:  # names are UTF-8
        case.headers["Pilotfish-Headers"] = re.sub(
            "[a-zA-Z0-9+/=]{4}", lambda group: _ASCII[group[0].count("=")], case.headers["Pilotfish-Headers"]
        )


def _of_query(case: Any) -> None:
    """A time that is past, a duration that is not too long, and what is for streams."""
    if "timestamp" in case.query:
        case.query["timestamp"] = min(case.query["timestamp"], _PAST_MS)
    if len(case.query.get("metadata.ttlInSeconds", "")) > _MANY_DIGITS:
        case.query["metadata.ttlInSeconds"] = "1m30s"
    if case.path == "/v1/watch":  # which is asked for JSON
        case.query.pop("status_ms", None)


def _of_attribute_headers(case: Any) -> None:
    """Percent-encoded UTF-8, maybe in quotes."""
    for name in ("ce-id", "ce-type", "ce-source", "ce-partitionkey"):
        if name in case.headers:
            case.headers[name] = re.sub('[%"\t]', "-", case.headers[name]).strip() or "-"


def _event(event: dict[str, Any]) -> dict[str, Any]:
    """Returns a CloudEvent whose extensions have names and values as they must be, and one kind of data."""
    if event.get("data_base64") is not None:
        event.pop("data", None)
    return {
        name: _FORBIDDEN.sub("-", value) if isinstance(value, str) and not name.startswith("data") else value
        for name, value in event.items()
        if name in ("data", "data_base64") or (re.fullmatch("[a-z0-9]+", name) and _is_attribute(value))
    }


def _is_attribute(value: object) -> bool:
    """Returns whether it is a string, a boolean, a whole number of 32 bits, or null."""
    return not isinstance(value, (dict, list, float)) and (
        not isinstance(value, int) or abs(value) < _BEYOND_INT32
    )


def _of_record(case: Any, record: dict[str, Any], there: Mapping[str, str]) -> None:
    """Keys and values in the formats that the body or its media type names; an existing topic."""
    if "topic" in record:
        record["topic"] = there["topic"]
    if "partition" in case.path_parameters:  # it is in the path
        record.pop("partition", None)
    if record.get("timestamp") is not None:  # brokers refuse the future
        record["timestamp"] = min(record["timestamp"], _PAST_MS)
    for name in ("key", "value"):
        form = case.body.get(f"{name}_format", "text" if name == "key" else "json")
        value = record.get(name)
        if form == "base64" or (form == "text" and value is not None and not isinstance(value, str)):
            record[name] = _ANY_FORMAT


def _of_lookup(lookup: dict[str, Any], there: Mapping[str, str]) -> None:
    """Either a partition or a key, in its format. The answer repeats the topic, and links follow it."""
    lookup["topic"] = there["topic"]
    if "key" in lookup:
        lookup.pop("partition", None)
        lookup["key"] = _ANY_FORMAT
    else:
        lookup.setdefault("partition", 0)


def _with_distinct(entries: list[dict[str, Any]], name: str) -> None:
    """Entries of one request need ids that differ."""
    for n, entry in enumerate(entries):
        entry[name] = str(n)
