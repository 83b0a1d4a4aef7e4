"""Large arrays in parts: the same items, wherever the parts end, and no long part."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire import json_parts
from service.wire.json_parts import (
    PART_BYTES,
    ArrayParts,
    BodyLimits,
    array_of_member,
    items_of,
    items_of_body,
)
from service.wire.strict_json import BodyError, compact

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


BROKEN = (
    *(b"[1,]", b"[1, ]", b"[,1]", b"[1,,2]", b"[1 , , 2]", b"[,]", b"[ , ]", b"[", b"[1", b"[1,"),
    *(b'["a', b'["a\\', b'["a\\"', b"[[1]", b"[1}", b"[[1}]", b'{"a":1]', b"[1]]"),
)


def test_an_array_that_is_not_well_continued_is_refused_in_any_window() -> None:
    def read(parts: ArrayParts) -> tuple[int, str]:
        """How it is refused."""
        try:
            assert list(parts) == [b"[1]"]
            compact(parts.around)
        except BodyError as error:
            return error.status, error.message
        return 0, ""

    for body in BROKEN:
        for window in (1, 2, 3, 5, 100):
            status, message = read(ArrayParts(body, 1, _PLENTY, window))
            assert (status, "not JSON" in message) == (400, True), (body, window)


def test_an_empty_array_has_no_parts() -> None:
    for body in (b"[]", b"[ ]", b"[\n\t ]"):
        for window in (1, 2, 100):
            parts = ArrayParts(body, 1, _PLENTY, window)
            assert (list(parts), parts.around) == ([], b"[]"), (body, window)


@given(st.lists(_VALUE, max_size=8), _INDENT)
def test_an_array_is_found_as_a_member_behind_plain_ones(items: list[object], indent: int | None) -> None:
    body = json.dumps({"key_format": "a,]", "n": -1.5, "records": items, "more": 1}, indent=indent).encode()
    parts = array_of_member(body, "records", _PLENTY)
    assert parts is not None
    assert _items(parts) == json.loads(json.dumps(items), object_pairs_hook=list)
    assert compact(parts.around) == b'{"key_format":"a,]","n":-1.5,"records":[],"more":1}'


def test_another_body_has_no_such_member() -> None:
    for body in (b"[]", b'{"a":[],"records":[]}', b'{"r\\u0065cords":[]}', b"", b"{"):
        assert array_of_member(body, "records", _PLENTY) is None, body


def _parts_of(body: bytes, most_bytes: int = _PLENTY) -> ArrayParts:
    return ArrayParts(body, body.index(b"[") + 1, most_bytes)


def test_no_part_is_longer_than_a_window() -> None:
    header = b'{"value":%d,"headers":[{"key":"a","value":""}]}'
    for items in (
        [b"0"] * 20_000,
        [header % n for n in range(20_000)],
        [b'"' + b"\\\\," * 20 + b'"'] * 20_000,
        [b"[" * 40 + b"]" * 40] * 20_000,
    ):
        parts = _parts_of(b" [" + b" , ".join(items) + b"] ")
        assert sum(len(json.loads(part)) for part in parts if len(part) <= PART_BYTES + 2) == 20_000


def test_an_item_of_many_windows_is_a_part_of_its_own() -> None:
    for giant in (b'"%s"' % (b"a" * 400_000), b"[" + b"0," * 200_000 + b"0]", b"1" * 400_000):
        assert list(_parts_of(b"[1,2," + giant + b",3]")) == [b"[1,2]", b"[" + giant + b"]", b"[3]"]


def test_an_item_that_is_too_long_is_refused_and_not_looked_through() -> None:
    parts = _parts_of(b'[1,"' + b"a" * 400_000 + b'"]', 300_000)
    message = r"item at byte 3 is too large.*300000 bytes.*max\.request\.size"
    with pytest.raises(BodyError, match=message) as e:
        list(parts)
    assert e.value.status == 413


@pytest.mark.parametrize("fault", [b"[" * 10_000, b'{"a":' * 10_000])
def test_an_item_that_nests_too_deeply_is_refused_at_once(fault: bytes) -> None:
    with pytest.raises(BodyError, match=r"nested deeper than 128 levels|not JSON") as e:
        list(_parts_of(b"[1," + fault))
    assert e.value.status == 400


def test_a_fault_says_where_its_part_begins() -> None:
    body = b"[" + b"12345," * 40_000 + b"nul,1]"
    with pytest.raises(BodyError, match=r"not JSON.*counted from byte \d+ of the body"):
        items_of_body(body, BodyLimits(1_000_000, _PLENTY))


@pytest.mark.parametrize("index", [0, 3, 9_000])
def test_a_fault_of_an_item_names_it_in_whichever_part_it_is(index: int) -> None:
    items = [b'{"a":"twelve bytes"}'] * 10_000
    items[index] = b'{"a":"\\ud800"}'
    with pytest.raises(BodyError) as e:
        items_of_body(b"[" + b",".join(items) + b"]", BodyLimits(1_000_000, _PLENTY))
    assert e.value.place == f"[{index}].a"


def test_a_record_of_as_many_bytes_as_allowed_is_taken_and_one_more_is_not() -> None:
    limits = BodyLimits(1, 10)
    limits.check_text(b"x" * 10)
    with pytest.raises(BodyError, match=r"^11 bytes of JSON are more than one record may take \(10"):
        limits.check_text(b"x" * 11)


def test_text_after_a_large_array_is_refused() -> None:
    body = b"[" + b"12345," * 40_000 + b"1] 2"
    with pytest.raises(BodyError) as e:
        items_of_body(body, BodyLimits(1_000_000, _PLENTY))
    assert e.value.status == 400


# -- items, no more of them than are wanted ------------------------------------------------------------------


_LEAF: st.SearchStrategy[object] = st.none() | st.integers() | st.text() | st.just([]) | st.just({})
_ITEM = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.lists(_ITEM), st.integers(0, 5))
def test_items_come_as_they_were_written_and_one_more_than_wanted_at_most(
    items: list[object], most: int
) -> None:
    text = compact(json.dumps(items).encode())
    found = [json.loads(bytes(raw)) for raw in items_of(text, most)]
    assert found == items[: len(found)]
    assert len(found) >= min(len(items), most + 1)


def test_long_arrays_are_taken_piece_by_piece() -> None:
    for count in (999, 1_000, 1_001, 1_999, 2_000, 2_001, 5_000):
        text = b"[" + b",".join(b'{"n":[%d,",]"]}' % n for n in range(count)) + b"]"
        for most in (0, 10, 1_000, 1_999, 2_000, 2_500):
            found = [json.loads(bytes(raw))["n"][0] for raw in items_of(text, most)]
            assert found == list(range(min(count, most + 1))), (count, most)
    text = b"[" + b",".join([b"%1000d" % n for n in range(1, 201)]).replace(b" ", b"1") + b"]"
    for most in range(200):  # as many as are in some parts, too
        assert len(items_of(text, most)) == most + 1
    assert len(items_of_body(b" \r\n\t" + text, BodyLimits(1_000, 2_000))) == 200
    very_long = b"[" + b",".join(b"%d" % n for n in range(60_000)) + b"]"
    assert [int(bytes(raw)) for raw in items_of(very_long, 30_000)] == list(range(30_001))


def test_what_is_no_array_is_refused() -> None:
    def fault_of(text: bytes) -> str:
        try:
            return f"it has {items_of(text, 1)}"
        except BodyError as error:
            return error.message

    for text in (b"{}", b"1", b"", b"[1", b"null", b'{"a":1,"b":2,"c":3}', b"[1,2,3"):
        assert "must be a JSON array" in fault_of(text), text


def test_a_million_items_take_little_more_memory_than_their_text() -> None:
    text = b"[" + b",".join([b"0"] * 1_000_000) + b"]"
    tracemalloc.start()
    try:
        assert len(items_of(text, 2_000)) == 2_001
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


def test_brackets_that_do_not_match_are_refused_in_any_window() -> None:
    for body in (b'[{"a":[1}},{"b":2]]', b"[[1,2},[3],4]", b'["a",{1,2],3]', b"[[[[[[[[[1]]]]]]]]},2]"):
        for window in range(4, 30):
            with pytest.raises(BodyError):
                _items(ArrayParts(body, 1, _PLENTY, window))


def test_the_patterns_grow_by_a_little_with_each_level() -> None:
    """Each start compiles them: one pattern for each kind of bracket took 40 ms, this takes ten."""
    assert len(json_parts._ITEM.pattern) < 1_000
