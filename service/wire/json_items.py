"""The items of a JSON array, one by one, and no more of them than are wanted.

A parser makes an object of each item before anybody can count them: of sixteen megabytes of `0,0,0,…` half a
gigabyte, and half a second in which nobody else has the interpreter. A long array is taken part by part
(`json_parts.py`), and what lies behind the wanted number nobody looks at.

Pure; any thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from service.wire.json_parts import LARGE_BYTES, ArrayParts, array_of_body, array_of_member
from service.wire.strict_json import BodyError, compact

_ALL: Final = msgspec.json.Decoder(list[Raw])

#: A record's JSON may be so many times as long as the record may be: each byte of it an escape, `\\u0061`.
TEXT_TIMES: Final = 6


class BodyLimits(NamedTuple):
    """What a body of records may hold: how many, and how many bytes of JSON each of them."""

    records: int
    record_text_bytes: int

    @staticmethod
    def of(max_records: int, max_request_bytes: int) -> BodyLimits:
        """By max_records_per_request and max.request.size."""
        return BodyLimits(max_records, TEXT_TIMES * max_request_bytes)

    def check_count(self, records: int) -> None:
        """Raises a 413 for more records than a body may bring."""
        if records > self.records:
            raise BodyError(413, "records", f"more than {self.records} records (max_records_per_request)")

    def check_text(self, text: bytes, place: str = "") -> None:
        """Raises a 413 for JSON of one record that is longer than any record's can be."""
        if len(text) > self.record_text_bytes:
            detail = (
                f"{len(text)} bytes of JSON are more than one record may take ({self.record_text_bytes}, "
                f"{TEXT_TIMES} times max.request.size)"
            )
            raise BodyError(413, place, detail)


#: For bodies that somebody else has bounded.
NO_LIMITS: Final = BodyLimits(2**31 - 1, 2**63 - 1)


def items_of(text: bytes, most: int) -> list[Raw]:
    """The items of a compact JSON array (`strict_json.compact`), `most` and one more of them at most.

    Raises BodyError (400) for anything else than an array.
    """
    try:
        if len(text) <= LARGE_BYTES:
            return _ALL.decode(text)[: most + 1]
    except msgspec.DecodeError as e:
        raise BodyError(400, "", "must be a JSON array") from e
    if not text.startswith(b"["):
        raise BodyError(400, "", "must be a JSON array")
    return _first_of(ArrayParts(text, 1, NO_LIMITS.record_text_bytes), most)


def items_of_body(body: bytes, limits: BodyLimits) -> list[Raw]:
    """The items of a body that is an array, each compact; one more than `limits.records` at most.

    Raises BodyError: 400 for anything else than an array, 413 for an item that is too long.
    """
    parts = array_of_body(body, limits.record_text_bytes) if len(body) > LARGE_BYTES else None
    if parts is None:
        limits.check_text(body)
        return items_of(compact(body), limits.records)
    items = _first_of(parts, limits.records)
    if len(items) <= limits.records:
        compact(parts.around)  # what stands behind the array
    return items


def items_of_member(body: bytes, name: str, limits: BodyLimits) -> tuple[bytes, list[Raw]] | None:
    """A large body with the array of a member left empty, compact; and the array's items.

    None where it is not large, or the array is not plainly there. One more item than `limits.records` at
    most, and nothing of the body then. Raises BodyError as `items_of_body` does.
    """
    parts = None
    if len(body) > LARGE_BYTES:
        parts = array_of_member(body, name, limits.record_text_bytes)
    if parts is None:
        return None
    items = _first_of(parts, limits.records)
    return (b"" if len(items) > limits.records else compact(parts.around)), items


def _first_of(parts: ArrayParts, most: int) -> list[Raw]:
    items: list[Raw] = []
    for part in parts:
        items += _ALL.decode(part)
        if len(items) > most:
            return items[: most + 1]
    return items
