"""The items of JSON arrays, no more of them than are wanted."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.json_parts import items_of
from service.wire.strict_json import BodyError, compact

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


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 1_999, 2_000, 2_001, 5_000])
@pytest.mark.parametrize("most", [0, 10, 1_000, 1_999, 2_000, 2_500])
def test_long_arrays_are_taken_piece_by_piece(count: int, most: int) -> None:
    text = b"[" + b",".join(b'{"n":[%d,",]"]}' % n for n in range(count)) + b"]"
    found = [json.loads(bytes(raw))["n"][0] for raw in items_of(text, most)]
    assert found == list(range(min(count, most + 1)))


def test_very_long_arrays_are_taken_in_larger_pieces() -> None:
    text = b"[" + b",".join(b"%d" % n for n in range(60_000)) + b"]"
    assert [int(bytes(raw)) for raw in items_of(text, 30_000)] == list(range(30_001))


@pytest.mark.parametrize("text", [b"{}", b"1", b"", b"[1", b"null", b'{"a":1,"b":2,"c":3}', b"[1,2,3"])
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(BodyError, match="must be a JSON array"):
        items_of(text, 1)


def test_a_million_items_take_little_more_memory_than_their_text() -> None:
    text = b"[" + b",".join([b"0"] * 1_000_000) + b"]"
    tracemalloc.start()
    try:
        assert len(items_of(text, 2_000)) == 2_001
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()
