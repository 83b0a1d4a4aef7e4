"""What is wrong with a body whose `records` are no list of records, and which of them it is.

msgspec says what is wrong but not in which of a hundred thousand records, so the list is taken apart into
their texts, and each is read by itself until one does not fit. That is done for refusals only, and not where
the list may be so long that the outline of it would take fifty times its length. The native API and REST
Proxy v2, whose envelopes share that list, have a `RecordList` each. Pure; event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.json_items import items_of
from service.strict_json import BodyError, misfit

#: How many commas a body may have for its records to be taken apart, at some 60 bytes for each.
_MAX_OUTLINED: Final = 500_000


class _Outline(msgspec.Struct):
    """The records one by one, for naming the one that does not fit."""

    records: list[Raw] | UnsetType | None = UNSET


class _Whole(msgspec.Struct):
    """The records as they were written, for counting them."""

    records: Raw | UnsetType = UNSET


_OUTLINE: Final = msgspec.json.Decoder(_Outline)
_WHOLE: Final = msgspec.json.Decoder(_Whole)


class RecordList:
    """The faults of one kind of list; `decode_one` reads a record, `status_of` gives a message its status."""

    def __init__(
        self, decode_one: Callable[[Raw], object], status_of: Callable[[str], int] = lambda _: 422
    ) -> None:
        self._decode_one = decode_one
        self._status_of = status_of

    def bound(self, text: bytes, max_records: int) -> None:
        """Raises a 413 for too many records, before an object is made of each of their members.

        In compact JSON records are parted by `},{`, and so is much else: only where there are many of them
        are the records counted.
        """
        if text.count(b"},{") < max_records:
            return
        try:
            whole = _WHOLE.decode(text).records
            records = [] if whole is UNSET else items_of(bytes(whole), max_records)
        except (msgspec.ValidationError, BodyError):
            return  # it has no such list, which `fault` says better
        if len(records) > max_records:
            raise BodyError(413, "records", f"more than {max_records} records (max_records_per_request)")

    def fault(self, text: bytes, error: msgspec.ValidationError) -> BodyError:
        """What `error` says of the body, with the place in the first record that does not fit."""
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
