"""The body of POST /v1/leaders, from JSON to look-ups.

    {"lookups": [{"topic": "orders", "partition": 3}, {"topic": "orders", "key": K, "key_format": "text"}]}

Held to the same rules as a produce body: strict_json.py has them. What is wrong with one item's values is
that item's answer; a body that is no such list is refused as a whole. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.wire.payload import DECODERS, Format
from service.wire.strict_json import MAX_INT32, SEARCHED_BYTES, BodyError, compact, misfit, refuse_unfit

#: More in one request would hold up everybody else's look-ups.
MAX_LOOKUPS: Final = 1_000
MAX_BODY_BYTES: Final = SEARCHED_BYTES


class LeaderLookup(NamedTuple):
    """Which leader is asked for: that of a partition, or of the partition of a key."""

    topic: str
    partition: int | None
    key: bytes | None


class _Item(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str
    partition: int | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    key_format: str = Format.TEXT.value


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    lookups: list[Raw]


_BODY: Final = msgspec.json.Decoder(_Body)
_ITEM: Final = msgspec.json.Decoder(_Item)


def parse_lookups(body: bytes) -> list[LeaderLookup]:
    """The look-ups, in order. Raises BodyError with the place of the first fault."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyError(413, "", f"a body of look-ups has at most {MAX_BODY_BYTES} bytes, not {len(body)}")
    text = compact(body)
    # A body of look-ups is short: the second look, which finds duplicates, costs little.
    refuse_unfit(body)
    try:
        raws = _BODY.decode(text).lookups
    except msgspec.ValidationError as e:
        raise misfit(e) from e
    if not 1 <= len(raws) <= MAX_LOOKUPS:
        raise BodyError(422, "lookups", f"from 1 to {MAX_LOOKUPS} look-ups, not {len(raws)}")
    return [_parse_item(raw, f"lookups[{index}]") for index, raw in enumerate(raws)]


def _parse_item(raw: Raw, place: str) -> LeaderLookup:
    try:
        item = _ITEM.decode(raw)
    except msgspec.ValidationError as e:
        raise misfit(e, place) from e
    if (item.partition is UNSET) == (item.key is UNSET):
        raise BodyError(422, place, "needs either a partition or a key")
    try:
        form = Format(item.key_format)
    except ValueError as e:
        raise BodyError(422, f"{place}.key_format", "must be json, text or base64") from e
    if item.partition is not UNSET:
        if not 0 <= item.partition <= MAX_INT32:
            raise BodyError(422, f"{place}.partition", f"must be from 0 to {MAX_INT32}")
        return LeaderLookup(item.topic, item.partition, None)
    return LeaderLookup(item.topic, None, _key(item, form, place))


def _key(item: _Item, form: Format, place: str) -> bytes:
    assert item.key is not UNSET
    try:
        key = DECODERS[form](bytes(item.key))
    except ValueError as e:
        raise BodyError(422, f"{place}.key", str(e)) from e
    if key is None:
        raise BodyError(422, f"{place}.key", "a null key has no partition of its own")
    return key
