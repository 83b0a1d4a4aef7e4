"""Large arrays in parts: the same items, wherever the parts end, and no long part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.json_parts import (
    PART_BYTES,
    ArrayParts,
    BodyLimits,
    array_of_body,
    array_of_member,
    items_of_body,
)
from service.wire.strict_json import BodyError, compact

if TYPE_CHECKING:
    from collections.abc import Callable

_PLENTY = 1 << 40
_TEXT = st.text(st.sampled_from('a,]}[{":\\\n é') | st.characters(exclude_categories=["Cs"]), max_size=12)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=30,
)
_INDENT = st.none() | st.just(1)
_WINDOW = st.integers(4, 60)


def _items(parts: ArrayParts) -> list[object]:
    items: list[object] = []
    for part in parts:
        assert part == compact(part)
        some = json.loads(part, object_pairs_hook=list)
        assert some
        items += some
    return items


@given(st.lists(_VALUE, max_size=12), _INDENT, _WINDOW)
def test_the_parts_are_the_items_in_their_order(items: list[object], indent: int | None, window: int) -> None:
    body = json.dumps(items, indent=indent, ensure_ascii=False).encode()
    parts = ArrayParts(body, 1, _PLENTY, window)
    assert _items(parts) == json.loads(body, object_pairs_hook=list)
    assert parts.around == b"[]"


@given(st.lists(_VALUE, min_size=1, max_size=6), _WINDOW, st.data())
def test_what_is_no_json_is_refused_wherever_it_is_broken(
    items: list[object], window: int, data: st.DataObject
) -> None:
    body = bytearray(json.dumps(items, ensure_ascii=False).encode())
    at = data.draw(st.integers(1, len(body) - 1))
    body[at] = data.draw(st.sampled_from(b'[]{}",:1\\ '))
    try:
        expected = json.loads(compact(bytes(body)), object_pairs_hook=list)
    except BodyError:
        expected = None
    parts = ArrayParts(bytes(body), 1, _PLENTY, window)
    try:
        found: list[object] | None = _items(parts)
        compact(parts.around)
    except BodyError:
        found = None
    assert found == expected


@pytest.mark.parametrize("window", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    "body",
    [
        *(b"[1,]", b"[1, ]", b"[,1]", b"[1,,2]", b"[1 , , 2]", b"[,]", b"[ , ]", b"[", b"[1", b"[1,"),
        *(b'["a', b'["a\\', b'["a\\"', b"[[1]", b"[1}", b"[[1}]", b'{"a":1]', b"[1]]"),
    ],
)
def test_an_array_that_is_not_well_continued_is_refused_in_any_window(body: bytes, window: int) -> None:
    parts = ArrayParts(body, 1, _PLENTY, window)

    def read() -> None:
        assert list(parts) == [b"[1]"]
        compact(parts.around)

    with pytest.raises(BodyError, match="not JSON") as e:
        read()
    assert e.value.status == 400


@pytest.mark.parametrize("window", [1, 2, 100])
@pytest.mark.parametrize("body", [b"[]", b"[ ]", b"[\n\t ]"])
def test_an_empty_array_has_no_parts(body: bytes, window: int) -> None:
    parts = ArrayParts(body, 1, _PLENTY, window)
    assert (list(parts), parts.around) == ([], b"[]")


@given(st.lists(_VALUE, max_size=8), _INDENT)
def test_an_array_is_found_as_a_member_behind_plain_ones(items: list[object], indent: int | None) -> None:
    body = json.dumps({"key_format": "a,]", "n": -1.5, "records": items, "more": 1}, indent=indent).encode()
    parts = array_of_member(body, "records", _PLENTY)
    assert parts is not None
    assert _items(parts) == json.loads(json.dumps(items), object_pairs_hook=list)
    assert compact(parts.around) == b'{"key_format":"a,]","n":-1.5,"records":[],"more":1}'


@pytest.mark.parametrize("body", [b"[]", b'{"a":[],"records":[]}', b'{"r\\u0065cords":[]}', b"", b"{"])
def test_another_body_has_no_such_member(body: bytes) -> None:
    assert array_of_member(body, "records", _PLENTY) is None


@pytest.mark.parametrize(
    "item",
    [
        lambda n: b"0",
        lambda n: b'{"value":%d,"headers":[{"key":"a","value":""}]}' % n,
        lambda n: b'"' + b"\\\\," * 20 + b'"',
        lambda n: b"[" * 40 + b"]" * 40,
    ],
)
def test_no_part_is_longer_than_a_window(item: Callable[[int], bytes]) -> None:
    body = b" [" + b" , ".join(item(n) for n in range(20_000)) + b"] "
    parts = array_of_body(body, _PLENTY)
    assert parts is not None
    assert sum(len(json.loads(part)) for part in parts if len(part) <= PART_BYTES + 2) == 20_000


@pytest.mark.parametrize(
    "giant", [b'"%s"' % (b"a" * 400_000), b"[" + b"0," * 200_000 + b"0]", b"1" * 400_000]
)
def test_an_item_of_many_windows_is_a_part_of_its_own(giant: bytes) -> None:
    body = b"[1,2," + giant + b",3]"
    parts = array_of_body(body, _PLENTY)
    assert parts is not None
    assert list(parts) == [b"[1,2]", b"[" + giant + b"]", b"[3]"]


def test_an_item_that_is_too_long_is_refused_and_not_looked_through() -> None:
    parts = array_of_body(b'[1,"' + b"a" * 400_000 + b'"]', 300_000)
    assert parts is not None
    with pytest.raises(
        BodyError, match=r"item at byte 3 is too large.*300000 bytes.*max\.request\.size"
    ) as e:
        list(parts)
    assert e.value.status == 413


@pytest.mark.parametrize("fault", [b"[" * 10_000, b'{"a":' * 10_000])
def test_an_item_that_nests_too_deeply_is_refused_at_once(fault: bytes) -> None:
    parts = array_of_body(b"[1," + fault, _PLENTY)
    assert parts is not None
    with pytest.raises(BodyError, match=r"nested deeper than 128 levels|not JSON") as e:
        list(parts)
    assert e.value.status == 400


def test_a_fault_says_where_its_part_begins() -> None:
    body = b"[" + b"12345," * 40_000 + b"nul,1]"
    with pytest.raises(BodyError, match=r"not JSON.*counted from byte \d+ of the body"):
        items_of_body(body, BodyLimits(1_000_000, _PLENTY))


def test_what_stands_behind_a_large_array_is_refused() -> None:
    body = b"[" + b"12345," * 40_000 + b"1] 2"
    with pytest.raises(BodyError) as e:
        items_of_body(body, BodyLimits(1_000_000, _PLENTY))
    assert e.value.status == 400
