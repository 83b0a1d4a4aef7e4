"""Splits a body's large `records` into parts, and says which of its records is invalid.

The native API and REST Proxy v2, whose envelopes share that list, have a `RecordList` each. Pure; any thread:
large bodies are parsed on threads (`service/produce/body_threads.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.wire.json_parts import ArrayParts, BodyLimits, array_of_member, items_of
from service.wire.strict_json import BodyError, Homes, compact, find_fault, misfit

T = TypeVar("T")


class _Whole(msgspec.Struct):
    """The records as raw JSON, to count them."""

    records: Raw | UnsetType = UNSET


#: `{},` is the shortest record in a list.
LEAST_BYTES: Final = 3

_FORM: Final = 'the form is {"records":[{"value":...}]}'
_INDEX: Final = re.compile(r"^records\[(\d+)\]")
_WHOLE: Final = msgspec.json.Decoder(_Whole)


class RecordList:
    """The faults of one kind of list.

    `homes` says what an unknown member is elsewhere; `status_of` gives the status of msgspec's message.
    """

    def __init__(self, homes: Homes, status_of: Callable[[str], int] = lambda _: 422) -> None:
        self._homes = homes
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
            raise _further(self.fault(e, "records"), first) from e
        limits.check_count(first + len(items))
        return items

    @staticmethod
    def refuse_unfit_part(part: bytes, first: int) -> None:
        """Does `refuse_unfit` for a part whose first record is `records[first]`."""
        fault = find_fault(b'{"records":' + part + b"}")
        if fault is not None:
            raise _further(fault, first)

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

    def fault(self, error: msgspec.ValidationError, place: str = "") -> BodyError:
        """Returns `error` as a BodyError. `place` is that of the decoded text in the body."""
        found = misfit(error, place, self._status_of(str(error)), self._homes)
        if found.place and ("." in found.place or not found.message.startswith("Expected")):
            return found
        return BodyError(found.status, found.place, f"{found.message}; {_FORM}")


def _further(fault: BodyError, first: int) -> BodyError:
    """Returns the fault of a part whose first record is `records[first]`, with its place in the body."""
    place = _INDEX.sub(lambda found: f"records[{int(found[1]) + first}]", fault.place)
    return BodyError(fault.status, place, fault.message)
