from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.record.record_content import EncodedHeaders, content_pieces, size_of_content

if TYPE_CHECKING:
    from client_core.record.record_content import RecordHeaders

OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "é"]), OPTIONAL_BYTES), max_size=3).map(tuple)


def test_key_value_and_headers_follow_their_lengths() -> None:
    pieces = content_pieces(b"key", None, (("h", b"v"), ("é", None)))
    assert b"".join(pieces).hex(" ") == (
        "06 6b 65 79"  # key: 3 bytes
        " 01"  # value: null
        " 04"  # 2 headers
        " 02 68 02 76"  # h: v
        " 04 c3 a9 01"  # é: null
    )


def test_empty_is_not_null() -> None:
    assert b"".join(content_pieces(b"", b"", ())) == bytes.fromhex("00 00 00")
    assert b"".join(content_pieces(None, None, ())) == bytes.fromhex("01 01 00")


@given(OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS)
def test_the_size_is_that_of_the_pieces(
    key: bytes | None, value: bytes | None, headers: RecordHeaders
) -> None:
    assert size_of_content(key, value, headers) == len(b"".join(content_pieces(key, value, headers)))


_HEADERS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary(max_size=300))
)


@given(_HEADERS, _HEADERS)
def test_encoded_headers_are_the_headers_and_their_bytes_on_the_wire(
    headers: list[tuple[str, bytes | None]], more: list[tuple[str, bytes | None]]
) -> None:
    encoded = EncodedHeaders(headers)
    assert (len(encoded), list(encoded)) == (len(headers), headers)
    assert encoded == tuple(headers)
    assert encoded == EncodedHeaders(headers)
    assert encoded != (*headers, ("h", None))
    assert hash(encoded) == hash(tuple(headers))
    assert encoded + tuple(more) == tuple(headers + more) == encoded + EncodedHeaders(more)
    for key, value in ((None, None), (b"k", b"v")):
        pieces = b"".join(content_pieces(key, value, encoded))
        assert pieces == b"".join(content_pieces(key, value, tuple(headers)))
        assert size_of_content(key, value, encoded) == len(pieces)


def test_a_name_that_is_no_text_is_refused_when_it_is_encoded() -> None:
    with pytest.raises(UnicodeEncodeError):
        EncodedHeaders([("\ud800", None)])
