from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import CorruptRecordError
from client_core.record.varint import (
    LENGTH_AND_ATTRIBUTES,
    NULL_KEY_AND_LENGTH,
    TABLE_SIZE,
    VARINT,
    encode_varint,
    read_varint,
    read_varlong,
    size_of_varint,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_zigzag_puts_small_numbers_of_either_sign_into_few_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_back_at_any_offset(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert read_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(INT64)
def test_a_varlong_is_read_back(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(INT64)
def test_the_size_is_known_without_encoding(value: int) -> None:
    assert size_of_varint(value) == len(encode_varint(value))


@given(INT64)
def test_a_varint_that_is_cut_off_raises(value: int) -> None:
    encoded = encode_varint(value)
    for length in range(len(encoded)):
        with pytest.raises(CorruptRecordError, match="cut off"):
            read_varlong(encoded[:length], 0)


def test_a_varint_may_have_five_bytes_and_a_varlong_ten() -> None:
    with pytest.raises(CorruptRecordError, match="more than 32 bits"):
        read_varint(b"\xff" * 5 + b"\x00", 0)
    with pytest.raises(CorruptRecordError, match="more than 64 bits"):
        read_varlong(b"\xff" * 10 + b"\x00", 0)


def test_bits_beyond_the_integers_are_dropped_as_javas_shift_drops_them() -> None:
    assert (
        read_varint(b"\xfe\xff\xff\xff\x7f", 0) == read_varint(b"\xfe\xff\xff\xff\x0f", 0) == (2**31 - 1, 5)
    )
    beyond, within = (b"\xfe" + b"\xff" * 8 + last for last in (b"\x7f", b"\x01"))
    assert read_varlong(beyond, 0) == read_varlong(within, 0) == (2**63 - 1, 10)


@pytest.mark.parametrize("number", [0, 1, 63, 64, 127, 128, TABLE_SIZE - 1])
def test_the_tables_hold_what_encoding_would_give(number: int) -> None:
    assert VARINT[number] == encode_varint(number)
    assert LENGTH_AND_ATTRIBUTES[number] == encode_varint(number) + b"\x00"
    assert NULL_KEY_AND_LENGTH[number] == encode_varint(-1) + encode_varint(number)


def test_all_tables_end_at_the_same_number() -> None:
    assert len(VARINT) == len(LENGTH_AND_ATTRIBUTES) == len(NULL_KEY_AND_LENGTH) == TABLE_SIZE
