"""JSON is read exactly, or refused with the place of the fault."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.strict_json import MAX_DEPTH, SEARCHED_BYTES, BodyError, compact, find_fault, too_deep
from tests.support.counted_work import python_lines

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_compacting_changes_white_space_only(value: object) -> None:
    written = json.dumps(value, indent=3).encode()
    assert compact(written) == json.dumps(value, separators=(",", ":")).encode()


@given(_JSON)
def test_sound_json_without_duplicates_has_no_fault(value: object) -> None:
    assert find_fault(json.dumps(value, ensure_ascii=False).encode()) is None


def test_digits_and_escapes_stay_as_they_were() -> None:
    written = rb'{ "a" : [ 1.50, -0, 1e400, 12345678901234567890123, "\u00e9\/" ] }'
    assert compact(written) == rb'{"a":[1.50,-0,1e400,12345678901234567890123,"\u00e9\/"]}'


def refusal(body: bytes) -> tuple[int, str, str]:
    """The status, the place and the message; 0 where it is taken."""
    try:
        compact(body)
    except BodyError as refused:
        return refused.status, refused.place, refused.message
    return 0, "", ""


def test_what_is_not_json_is_refused() -> None:
    for body in (
        *(b"", b"{", b"[1,]", b'{"a":1,}', b"nul", b"NaN", b"[Infinity]", b"01", b"1.", b'"\x01"', b'"\\x"'),
        *(b"\xef\xbb\xbf1", b"1 2", b"'a'"),
    ):
        status, _, message = refusal(body)
        assert (status, "not JSON" in message) == (400, True), body


def test_invalid_utf_8_is_refused_with_the_byte_and_a_lone_surrogate_with_its_place() -> None:
    assert "invalid UTF-8 at byte 7" in refusal(b'{"a": "\xff"}')[2]
    for surrogate in (rb"\ud800", rb"\udc00", rb"\ud800x", rb"\ud800\u0041"):
        _, place, message = refusal(b'{"a": [1, "x%sy"]}' % surrogate)
        assert (place, "surrogate" in message) == ("a[1]", True), surrogate


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert compact(rb'"\ud83d\ude00"') == rb'"\ud83d\ude00"'


def test_an_escaped_backslash_before_u_is_no_surrogate() -> None:
    assert compact(rb'"\\ud800"') == rb'"\\ud800"'
    assert find_fault(rb'"\\ud800"') is None


def test_nesting_beyond_what_the_parser_survives_is_refused_and_not_an_accident() -> None:
    levels = 100_000
    with pytest.raises(BodyError, match="nested deeper") as refused:
        compact(b"[" * levels + b"]" * levels)
    assert refused.value.status == 400


def test_depth_is_counted_exactly() -> None:
    wide = b'["' + b"[" * 300 + b'",' + b"[]," * 300
    for levels in (MAX_DEPTH, MAX_DEPTH + 1):
        assert too_deep(wide + b"[" * (levels - 1) + b"]" * levels) is (levels > MAX_DEPTH)
    assert not too_deep(b"[" + b",".join([b"{}"] * 1000) + b"]")
    assert not too_deep(rb'["\\","' + b"[" * 300 + b'"]'), "behind a string that ends with a backslash"


def _levels_of(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(_levels_of, value), default=0)
    return 1 + max(map(_levels_of, value.values()), default=0) if isinstance(value, dict) else 0


_NASTY = st.sampled_from(["", "[", "]]", "{[", "\\", '"', '\\"[', '["', "a"])
_NESTED = st.recursive(
    st.integers(0, 9) | _NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NASTY, inner, max_size=3),
    max_leaves=30,
)


@given(_NESTED, st.integers(4, 9))
def test_brackets_in_strings_and_beside_each_other_do_not_deceive(value: object, limit: int) -> None:
    wide = [value, *([[]] * limit), "x" * 2 * limit]  # or it is too short to be looked at
    assert too_deep(json.dumps(wide).encode(), limit) is (_levels_of(wide) > limit)


def test_the_depth_of_a_large_body_costs_no_step_for_each_bracket() -> None:
    """These once took five seconds, in which no other request had a turn."""
    for unit in (b"[],", b'{"a":1},', b'"a",[],', b"[[[[[[[]]]]]]],", b'"[",{},'):
        text = b"[" + unit * (400_000 // len(unit)) + b"0]"
        assert python_lines(partial(too_deep, text)) < len(text), unit
        assert not too_deep(text), unit


def test_large_bodies_are_refused_without_a_second_look() -> None:
    large = b'{"value":[' + b"{}," * (SEARCHED_BYTES // 3) + b"0]"
    with pytest.raises(BodyError, match="not JSON") as refused:
        compact(large)
    assert (refused.value.status, refused.value.place) == (400, "")
    fault = find_fault(large + b',"value":1}')
    assert fault is not None
    assert (fault.status, fault.place) == (400, "")
    assert "duplicate field" in fault.message


def test_what_is_no_text_is_said_of_large_bodies_too() -> None:
    for unfit, message in ((b"\xff", "invalid UTF-8 at byte"), (b"[" * 5_000, "nested deeper")):
        assert message in refusal(b'"' + b"x" * SEARCHED_BYTES + b'"' + unfit)[2]


def test_a_duplicate_member_is_found_with_its_place() -> None:
    places = {
        b'{"a": 1, "a": 1}': "a",
        b'{"records": [{"value": 1}, {"value": 1, "value": 2}]}': "records[1].value",
        rb'{"a": 1, "\u0061": 2}': "a",
        b'{"records": [{"headers": [{"key": "k", "key": "l"}]}]}': "records[0].headers[0].key",
    }
    for body, place in places.items():
        fault = find_fault(body)
        assert fault is not None, body
        assert (fault.status, fault.place) == (400, place), body


def test_names_may_repeat_inside_of_a_key_or_a_value() -> None:
    for body in (
        b'{"records": [{"key": {"a": 1, "a": 2}, "value": [{"b": 1, "b": 2}]}]}',
        b'{"records": [{"value": {"a": {"b": 1, "b": 2}}}]}',
    ):
        assert find_fault(body) is None, body


def test_a_string_of_escapes_that_never_ends_costs_one_look() -> None:
    """Each escaped quote must not be tried as the beginning of a string: that took minutes for this one."""
    fault = find_fault(b'"' + rb"\"" * 200_000 + b"[" * 200)
    assert fault is not None
    assert fault.status == 400


def test_a_number_of_hostile_length_costs_nothing() -> None:
    assert find_fault(b'{"a": ' + b"9" * 100_000 + b"}") is None
