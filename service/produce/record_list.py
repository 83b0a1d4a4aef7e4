"""Finds which of a body's `records` is invalid, and splits large lists of records.

msgspec reports what is wrong, but not in which of a hundred thousand records. So the list is split into the
texts of its records, and each is decoded alone until one fails. This is done for refusals only, and not for
very long lists: their outline could take fifty times their length. The native API and REST Proxy v2, whose
envelopes share that list, have a `RecordList` each. Pure; any thread: large bodies are parsed on threads
(`service/produce/body_threads.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.wire.json_parts import ArrayParts, BodyLimits, array_of_member, items_of
from service.wire.strict_json import BodyError, compact, find_fault, misfit

T = TypeVar("T")

#: A body with more commas is not outlined: each takes about 60 bytes.
_MAX_OUTLINED: Final = 500_000


class _Outline(msgspec.Struct):
    """The records one by one, to find the invalid one."""

    records: list[Raw] | UnsetType | None = UNSET


class _Whole(msgspec.Struct):
    """The records as raw JSON, to count them."""

    records: Raw | UnsetType = UNSET


_OUTLINE: Final = msgspec.json.Decoder(_Outline)
#: `{},` is the shortest record in a list.
LEAST_BYTES: Final = 3

_ITEMS: Final = msgspec.json.Decoder(list[Raw])
_INDEX: Final = re.compile(r"^records\[(\d+)\]")
_WHOLE: Final = msgspec.json.Decoder(_Whole)


class RecordList:
    """The faults of one kind of list. `decode_one` decodes a record; `status_of` gives a message's status."""

    def __init__(
        self, decode_one: Callable[[Raw], object], status_of: Callable[[str], int] = lambda _: 422
    ) -> None:
        self._decode_one = decode_one
        self._status_of = status_of

    def split(self, body: bytes, limits: BodyLimits) -> tuple[bytes, list[bytes]]:
        """Splits a large body: returns it compact with an empty list, and the list's parts as compact arrays.

        Raises BodyError. A body without such a list is returned whole; its decoder reports the fault.
        """
        parts = array_of_member(body, "records", limits.record_text_bytes)
        if parts is not None:
            texts = list(parts)
            return compact(parts.around), texts
        text = compact(body)  # its members have an unusual order or escapes
        try:
            whole = _WHOLE.decode(text).records
        except msgspec.ValidationError:
            return text, []
        if whole is UNSET or not bytes(whole).startswith(b"["):
            return text, []
        written = bytes(whole)
        texts = list(ArrayParts(written, 1, limits.record_text_bytes, name="records"))
        return text.replace(written, b"[]", 1), texts

    def decode_part(
        self, decoder: msgspec.json.Decoder[list[T]], part: bytes, first: int, limits: BodyLimits
    ) -> list[T]:
        """Returns the items of a part whose first record is `records[first]`.

        Raises BodyError: 413 for too many records, otherwise with the place of the invalid record.
        """
        try:
            items = decoder.decode(part)
        except msgspec.ValidationError as e:
            raise self._fault_of_part(part, first, e) from e
        limits.check_count(first + len(items))
        return items

    def _fault_of_part(self, part: bytes, first: int, error: msgspec.ValidationError) -> BodyError:
        for index, raw in enumerate(_ITEMS.decode(part), first):
            try:
                self._decode_one(raw)
            except msgspec.ValidationError as e:
                return self._located(e, f"records[{index}]")
        return self._located(error, "records")

    @staticmethod
    def refuse_unfit_part(part: bytes, first: int) -> None:
        """Does `refuse_unfit` for a part whose first record is `records[first]`."""
        fault = find_fault(b'{"records":' + part + b"}")
        if fault is not None:
            place = _INDEX.sub(lambda found: f"records[{int(found[1]) + first}]", fault.place)
            raise BodyError(fault.status, place, fault.message)

    def bound(self, text: bytes, max_records: int) -> None:
        """Raises BodyError (413) for too many records, before an object is made of each member.

        A text of fewer than LEAST_BYTES for each allowed record can't have too many.

        In compact JSON `},{` separates records, but also other objects. So the records are counted only if
        it is frequent.
        """
        if len(text) < LEAST_BYTES * max_records or text.count(b"},{") < max_records:
            return
        try:
            whole = _WHOLE.decode(text).records
            records = [] if whole is UNSET else items_of(bytes(whole), max_records)
        except (msgspec.ValidationError, BodyError):
            return  # without such a list, `fault` reports it better
        if len(records) > max_records:
            raise BodyError(413, "records", f"more than {max_records} records")

    def fault(self, text: bytes, error: msgspec.ValidationError) -> BodyError:
        """Returns `error` as a BodyError, with its place in the first invalid record."""
        if text.count(b",") > _MAX_OUTLINED:
            return self._located(error, "")
        try:
            records = _OUTLINE.decode(text).records
        except msgspec.ValidationError:
            return self._located(error, "")
        for index, raw in enumerate(records if isinstance(records, list) else ()):
            try:
                self._decode_one(raw)
            except msgspec.ValidationError as e:
                return self._located(e, f"records[{index}]")
        return self._located(error, "")

    def _located(self, error: msgspec.ValidationError, place: str) -> BodyError:
        return misfit(error, place, self._status_of(str(error)))
