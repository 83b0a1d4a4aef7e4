"""Parses a v3 batch: up to ten entries, each a record with its own id.

    {"entries": [{"id": "1", "value": {"type": "JSON", "data": …}}, …]}

The envelope is accepted or refused as a whole: invalid JSON is a 400. No entries, more than ten, or a
missing, malformed or duplicate id are a 422 with Confluent's 42208. An invalid record fails only its entry.
Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from msgspec import Raw

from service.dialects.json_members import members_of, text_of
from service.dialects.rest_v3.errors import NOT_A_BATCH, problem_of_record, refused_with
from service.dialects.rest_v3.record_codec import PAYLOAD, Posted, record_of
from service.wire.errors import Problem, ProblemError
from service.wire.json_parts import NO_LIMITS, BodyLimits, items_of, items_of_member
from service.wire.strict_json import BodyError, compact

#: Source: api.v3.produce.batch.maximum.entries and ProduceBatchAction, kafka-rest.
MAX_ENTRIES: Final = 10
MAX_ID_LENGTH: Final = 80

_ID: Final = re.compile(rf"[0-9a-zA-Z_-]{{1,{MAX_ID_LENGTH}}}")


class Entry(NamedTuple):
    """One entry: a record, or the reason that it is invalid."""

    id: str
    posted: Posted | Problem


def parse_batch(topic: str, body: bytes, limits: BodyLimits = NO_LIMITS) -> list[Entry]:
    """Returns the entries, in order. Raises BodyError or ProblemError if the body is no batch."""
    if not body.strip():
        raise _no_batch("Request body is empty. Data is required.")
    found = items_of_member(body, "entries", limits._replace(records=MAX_ENTRIES))
    if found is not None:
        around, items = found
        if len(items) <= MAX_ENTRIES:
            _envelope(around)
    else:
        items = _items_of_envelope(_envelope(compact(body)))
    if not 0 < len(items) <= MAX_ENTRIES:
        many = "none" if not items else "more"
        raise _no_batch(f"entries: must have 1 to {MAX_ENTRIES} items, not {many}")
    entries = [_entry(topic, bytes(item), f"entries[{index}]") for index, item in enumerate(items)]
    if len({entry.id for entry in entries}) != len(entries):
        raise _no_batch("entries: their ids must be distinct")
    return entries


def _envelope(text: bytes) -> dict[str, Raw]:
    envelope = members_of(text, payload=("entries",))
    for name in envelope:
        if name != "entries":
            raise BodyError(422, name, "unknown member; the only one is entries")
    if "entries" not in envelope:
        raise _no_batch("entries: at least one entry is needed")
    return envelope


def _items_of_envelope(envelope: dict[str, Raw]) -> list[Raw]:
    try:
        return items_of(bytes(envelope["entries"]), MAX_ENTRIES)
    except BodyError as e:
        raise BodyError(400, "entries", "must be an array of entries") from e


def _entry(topic: str, text: bytes, place: str) -> Entry:
    members = members_of(text, place, payload=PAYLOAD)
    entry_id = _id(members.pop("id", None), place)
    try:
        return Entry(entry_id, record_of(topic, members))
    except BodyError as e:
        return Entry(entry_id, problem_of_record(e))


def _id(raw: Raw | None, place: str) -> str:
    text = None if raw is None else text_of(raw)
    if text is None or not _ID.fullmatch(text):
        raise _no_batch(f"{place}.id: must be a string of 1 to {MAX_ID_LENGTH} letters, digits, '_' or '-'")
    return text


def _no_batch(detail: str) -> ProblemError:
    return refused_with(422, NOT_A_BATCH, detail)
