"""Records that follow each other in a stream are separated, however the stream is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.dialects.rest_v3.concatenated_json import ConcatenatedJson
from service.wire.strict_json import BodyError
from tests.support.counted_work import python_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 60

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(max_size=3), _JSON, max_size=3)
_SPACE = st.text(" \t\r\n", max_size=3)

#: What streams are made of, sound and broken, in bytes that matter to the splitter.
_HOSTILE = st.lists(
    st.sampled_from([b'{"a":1}', b"{", b"}", b"[", b"]", b'"', b"\\", b"\n", b" ", b"x", b"\x00", b"\xff"])
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


def split(pieces: Iterable[bytes], max_bytes: int = MAX_BYTES) -> list[bytes | tuple[int, str]]:
    """All that is found; faults as their status and message."""
    records = ConcatenatedJson(max_bytes)
    found = [one for piece in pieces for one in records.feed(piece)] + records.end()
    return [(one.status, one.message) if isinstance(one, BodyError) else one for one in found]


def statuses(stream: bytes, max_bytes: int = MAX_BYTES) -> list[bytes | int]:
    return [one if isinstance(one, bytes) else one[0] for one in split([stream], max_bytes)]


def cut(stream: bytes, at: Iterable[int]) -> list[bytes]:
    """The stream in pieces, cut at these places as far as it has them."""
    places = sorted({0, len(stream), *(place % (len(stream) + 1) for place in at)})
    return [stream[start:end] for start, end in pairwise(places)]


@given(st.lists(st.tuples(_OBJECTS, _SPACE, st.booleans())))
def test_concatenated_records_are_separated_again(parts: list[tuple[object, str, bool]]) -> None:
    written = [json.dumps(value, ensure_ascii=ascii_only).encode() for value, _, ascii_only in parts]
    spaces = [space.encode() for _, space, _ in parts]
    stream = b"".join(text + space for text, space in zip(written, spaces, strict=True))
    assert split([stream], 10**6) == written


@given(_HOSTILE, st.lists(st.integers(min_value=0, max_value=10**6), max_size=8))
@example(b'{"a":"\\', [])
@example(b'{"' + b"x" * MAX_BYTES + b'"]', [30])
@example(b'{"' + b"x" * MAX_BYTES + b'"}x', [MAX_BYTES, MAX_BYTES + 1])
def test_any_cutting_finds_the_same(stream: bytes, at: list[int]) -> None:
    whole = split([stream])
    assert split(cut(stream, at)) == whole
    assert split(stream[n : n + 1] for n in range(len(stream))) == whole


@given(_HOSTILE)
def test_no_record_is_larger_than_the_limit_and_nothing_more_than_that_is_held(stream: bytes) -> None:
    records = ConcatenatedJson(MAX_BYTES)
    for n in range(len(stream)):
        for found in records.feed(stream[n : n + 1]):
            assert isinstance(found, BodyError) or len(found) <= MAX_BYTES
        assert records.held_bytes <= MAX_BYTES


def test_brackets_and_quotes_in_strings_are_text() -> None:
    record = rb'{"a":"}{][\"","\\":"\\"}'
    assert split([record * 2]) == [record, record]


def test_text_within_matching_brackets_is_not_judged_here() -> None:
    for text in (b'{"a":nonsense}', b"{a}", b"{,}", b"{[1 2]}", b'{"a":1}'):
        assert split([text + b"{}"]) == [text, b"{}"]


def test_words_between_records_and_a_byte_order_mark_are_answered_once_and_passed_over() -> None:
    assert statuses(b'{} not json, 1 {"a":1}nor this') == [b"{}", 400, b'{"a":1}', 400]
    assert statuses(b"\xef\xbb\xbf{}") == [400, b"{}"]


def test_where_no_next_record_can_be_found_the_stream_ends() -> None:
    for bad in (b"[{}]", b"]", b"}", b'"{}"', b'{"a":[}]', b'{"a":"line\n{}"}', b'{"a":"\\\n"'):
        records = ConcatenatedJson(MAX_BYTES)
        first, fault = records.feed(b"{}" + bad + b'{"more":1}')
        assert first == b"{}", bad
        assert isinstance(fault, BodyError), bad
        assert fault.status == 400, bad
        assert fault.message.endswith("the stream ends"), bad
        assert records.is_broken, bad
        assert records.feed(b'{"more":2}') == [], bad
        assert records.end() == [], bad


def test_a_fault_names_the_byte_of_the_stream_that_it_is_at() -> None:
    assert split([b"{} ", b"{", b"]"]) == [
        b"{}",
        (400, "not JSON: unexpected ']': nothing is open (byte 4); the stream ends"),
    ]
    assert split([b"  ", b" x"]) == [(400, "not JSON: no record begins at byte 3")]


def test_a_record_whose_end_does_not_come_is_said_to_be_none() -> None:
    assert split([b'{}{"a":']) == [b"{}", (400, "not JSON: the body ends within a record")]


def test_a_record_of_the_largest_size_is_taken_and_one_byte_more_is_not() -> None:
    largest = b'{"a":"' + b"x" * (MAX_BYTES - 8) + b'"}'
    assert len(largest) == MAX_BYTES
    assert statuses(largest) == [largest]
    assert statuses(largest.replace(b"xx", b"xxx", 1) + b"{}") == [413, b"{}"]


def test_a_record_that_is_too_large_is_answered_before_its_end_comes() -> None:
    records = ConcatenatedJson(MAX_BYTES)
    (fault,) = records.feed(b'{"a":"' + b"x" * MAX_BYTES)
    assert isinstance(fault, BodyError)
    assert fault.status == 413
    assert f"larger than {MAX_BYTES} bytes" in fault.message
    assert records.held_bytes == 0
    assert records.feed(b"x" * 1000) == []
    assert records.feed(b'"}{}') == [b"{}"]


def test_a_record_that_is_passed_over_is_not_found_and_the_next_one_is() -> None:
    records = ConcatenatedJson(MAX_BYTES)
    records.feed(b'{"a":')
    assert records.held_bytes == 5
    records.pass_over()
    assert records.held_bytes == 0
    assert records.feed(b'{"b":1}}{"c":2}') == [b'{"c":2}']


def test_passing_over_between_records_passes_over_nothing() -> None:
    records = ConcatenatedJson(MAX_BYTES)
    records.pass_over()
    assert records.feed(b"{}") == [b"{}"]


def test_an_absurd_nesting_ends_the_stream() -> None:
    assert statuses(b'{"a":' + b"[" * 2_000, 10**6) == [400]
    deep = b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"
    assert statuses(deep, 10**6) == [deep]


@pytest.mark.parametrize(
    "stream",
    [b'{"a":"' + b"\\\\" * 20_000, b'{"' + b'":"' * 12_000, b"{}" * 6_000, b"[" * 40_000, b"x" * 40_000],
)
def test_hostile_streams_cost_linear_time(stream: bytes) -> None:
    """Twice the stream takes twice the lines. Quadratic work would take minutes."""

    def read(stream: bytes) -> None:
        records = ConcatenatedJson(2 * 10**6)
        for start in range(0, len(stream), 1_024):
            records.feed(stream[start : start + 1_024])
        records.end()

    half = python_lines(lambda: read(stream[: len(stream) // 2]))
    assert python_lines(lambda: read(stream)) <= 2.1 * half
