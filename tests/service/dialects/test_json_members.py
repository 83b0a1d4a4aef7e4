"""Members of JSON objects whose names are not known beforehand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from service.dialects.json_members import is_null, members_of, text_of, within
from service.wire.strict_json import BodyError, compact

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), JSON, max_size=6), st.booleans())
def test_every_member_comes_back_as_it_was_written(members: dict[str, object], escaped: bool) -> None:
    text = compact(json.dumps(members, ensure_ascii=escaped).encode())
    assert {name: json.loads(bytes(raw)) for name, raw in members_of(text).items()} == members


def fault_of(text: bytes, place: str = "") -> tuple[int, str, str]:
    """The status, the place and the message of a refusal; 0 where it is taken."""
    try:
        members_of(text, place)
    except BodyError as refused:
        return refused.status, refused.place, str(refused)
    return 0, "", ""


def test_a_duplicate_name_is_found_in_whatever_spelling() -> None:
    for text, place in (
        (b'{"a":1,"a":1}', "a"),
        (b'{"a":1,"b":2,"a":null}', "a"),
        (b'{"a":1,"\\u0061":2}', "a"),
        ('{"ü":1,"\\u00fc":2}'.encode(), "ü"),
        (b'{"":1,"":2}', ""),
    ):
        status, found, message = fault_of(text)
        assert (status, found, "duplicate field" in message) == (400, place, True), text


def test_many_names_in_an_odd_spelling_are_looked_through_once() -> None:
    text = b"{" + b",".join(b'"\\u0061%d":0' % n for n in range(4_000)) + b"}"
    assert len(members_of(text)) == 4_000


def test_names_within_a_value_are_the_callers_own() -> None:
    assert bytes(members_of(b'{"\\u0061":{"b":1,"b":2}}')["a"]) == b'{"b":1,"b":2}'


def test_what_is_no_object_is_refused() -> None:
    for text in (b"[]", b"1", b"null", b'"a"', b"", b"{", b'{"a":}', b"{}{}"):
        status, _, message = fault_of(text, "[2]")
        assert (status, "[2]: must be a JSON object" in message) == (400, True), text


def test_very_many_members_are_refused_and_a_payload_may_have_as_many_as_it_likes() -> None:
    many = b"{" + b",".join(b'"n%d":1' % n for n in range(20_000)) + b"}"
    with pytest.raises(BodyError, match="more than 65536") as caught:
        members_of(many, "[1]", payload=("data",))
    assert (caught.value.status, caught.value.place) == (413, "[1]")
    assert members_of(b'{"id":1,"data":%s}' % many, payload=("data",)).keys() == {"id", "data"}
    assert members_of(b'{"id":1,"DaTa":%s}' % many, payload=("data",)).keys() == {"id", "DaTa"}
    with pytest.raises(BodyError, match="besides data and event take"):
        members_of(b'{"other":%s,"data":1}' % many, payload=("data", "event"))
    with pytest.raises(BodyError, match="must be a JSON object"):
        members_of(b"[" + many + b"]")


def test_deep_nesting_is_refused_at_a_limit_of_our_own() -> None:
    deep = b'{"a":' + b"[" * 127 + b"]" * 127 + b"}"
    assert members_of(deep)
    with pytest.raises(BodyError, match="nested deeper than 128 levels"):
        members_of(b'{"a":' + b"[" * 128 + b"]" * 128 + b"}")
    with pytest.raises(BodyError, match="nested deeper than 128 levels"):
        members_of(b'{"a":' * 50_000 + b"1" + b"}" * 50_000)


def test_a_value_is_asked_what_it_is() -> None:
    assert text_of(Raw(b'"\\u00fc\\n"')) == "ü\n"
    assert text_of(Raw(b'""')) == ""
    assert [text_of(Raw(raw)) for raw in (b"1", b"null", b"{}", b"[]", b"true")] == [None] * 5
    assert is_null(Raw(b"null"))
    assert not is_null(Raw(b"true"))
    assert not is_null(Raw(b'"null"'))


def test_places_are_paths() -> None:
    assert (within("", "id"), within("[3]", "id")) == ("id", "[3].id")
