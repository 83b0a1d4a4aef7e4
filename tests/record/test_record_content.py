from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from client_core.record.record_content import content_pieces, size_of_content

if TYPE_CHECKING:
    from client_core.record.record_batch import RecordHeaders

OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "é"]), OPTIONAL_BYTES), max_size=3).map(tuple)


def test_key_value_and_headers_stand_behind_their_lengths() -> None:
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
