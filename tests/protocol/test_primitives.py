"""The primitive types in both forms: bytes, limits, and refused input."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import IllegalArgumentError, SchemaError
from client_core.protocol.primitives import (
    FlexibleReader,
    FlexibleWriter,
    Reader,
    Writer,
    unsigned_varint,
)

_UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_come_back(value: int) -> None:
    encoded = unsigned_varint(value)
    reader = Reader(encoded)
    assert reader.unsigned_varint() == value
    assert reader.remaining == 0
    assert len(encoded) == max(1, (value.bit_length() + 6) // 7)


@pytest.mark.parametrize(
    ("encoded", "fault"),
    [
        ("", "does not end, 0 bytes left"),
        ("80", "does not end, 1 bytes left"),
        ("ffffffff", "does not end, 4 bytes left"),
        ("808080808001", "more than 32 bits"),
        ("ffffffff1f", "more than 32 bits"),
    ],
)
def test_a_bad_varint_raises_and_does_not_move_the_cursor(encoded: str, fault: str) -> None:
    reader = Reader(bytes.fromhex(encoded))
    with pytest.raises(SchemaError, match=fault):
        reader.unsigned_varint()
    assert reader.pos == 0


def test_a_negative_number_is_no_unsigned_varint() -> None:
    with pytest.raises(IllegalArgumentError, match="can't be -1"):
        unsigned_varint(-1)


@pytest.mark.parametrize(
    ("name", "value", "classic", "flexible"),
    [
        ("nullable_string", None, "ffff", "00"),
        ("nullable_string", "", "0000", "01"),
        ("string", "é", "0002c3a9", "03c3a9"),
        ("nullable_byte_array", None, "ffffffff", "00"),
        ("nullable_byte_array", b"", "00000000", "01"),
        ("byte_array", b"ab", "000000026162", "036162"),
        ("int32_array", (), "00000000", "01"),
        ("int32_array", (1, -1), "0000000200000001ffffffff", "0300000001ffffffff"),
        ("int32_array", (1,) * 16, "00000010" + "00000001" * 16, "11" + "00000001" * 16),
        ("boolean", True, "01", "01"),
        ("int8", -1, "ff", "ff"),
        ("int16", -2, "fffe", "fffe"),
        ("int32", 1, "00000001", "00000001"),
        ("int64", -1, "ffffffffffffffff", "ffffffffffffffff"),
    ],
)
def test_bytes_of_both_forms(name: str, value: object, classic: str, flexible: str) -> None:
    for writer, encoded, reader_type in (
        (Writer(), classic, Reader),
        (FlexibleWriter(), flexible, FlexibleReader),
    ):
        getattr(writer, name)(value)
        assert writer.getvalue().hex() == encoded
        reader = reader_type(bytes.fromhex(encoded))
        assert getattr(reader, name)() == value
        assert reader.remaining == 0


@pytest.mark.parametrize(("size", "length"), [(126, "7f"), (127, "8001"), (16383, "808001")])
def test_a_compact_length_is_one_more_than_the_size(size: int, length: str) -> None:
    writer = FlexibleWriter()
    writer.string("x" * size)
    assert writer.getvalue().hex() == length + "78" * size
    assert FlexibleReader(writer.getvalue()).string() == "x" * size


@pytest.mark.parametrize("forms", [(Writer, Reader), (FlexibleWriter, FlexibleReader)])
@given(
    texts=st.lists(st.none() | _UNICODE), raw=st.none() | st.binary(), numbers=st.lists(st.integers(0, 99))
)
def test_both_forms_come_back(
    forms: tuple[type[Writer], type[Reader]], texts: list[str | None], raw: bytes | None, numbers: list[int]
) -> None:
    writer = forms[0]()
    writer.array_length(len(texts))
    for text in texts:
        writer.nullable_string(text)
    writer.nullable_byte_array(raw)
    writer.int32_array(numbers)
    reader = forms[1](writer.getvalue())
    assert [reader.nullable_string() for _ in range(reader.array_length(1))] == texts
    assert reader.nullable_byte_array() == raw
    assert reader.int32_array() == tuple(numbers)
    assert reader.remaining == 0


@pytest.mark.parametrize(
    ("read", "encoded", "fault"),
    [
        (Reader.string, "ffff", "a null string where none is allowed"),
        (Reader.string, "fffe", "the negative length -2"),
        (Reader.string, "00056162", "5 bytes expected, 2 left at byte 2 of 4"),
        (Reader.byte_array, "ffffffff", "null where bytes are required"),
        (Reader.byte_array, "7fffffff61", "2147483647 bytes expected, 1 left"),
        (Reader.byte_array, "80000000", "the negative length -2147483648"),
        (
            Reader.int32_array,
            "7fffffff00000001",
            "an array of 2147483647 elements does not fit in the 4 bytes left",
        ),
        (Reader.int32_array, "ffffffff", "a null array where none is allowed"),
        (Reader.int64, "00000000", "8 bytes expected, 4 left"),
        (Reader.uuid, "00" * 15, "16 bytes expected, 15 left"),
        (Reader.boolean, "", "1 bytes expected, 0 left"),
    ],
)
def test_invalid_bytes_of_a_peer_are_refused(read: object, encoded: str, fault: str) -> None:
    assert callable(read)
    with pytest.raises(SchemaError, match=f"^from a peer: {fault}"):
        read(Reader(bytes.fromhex(encoded), 0, "from a peer"))


@pytest.mark.parametrize(
    ("read", "encoded", "fault"),
    [
        (FlexibleReader.string, "00", "a null string where none is allowed"),
        (FlexibleReader.string, "ffffffff0f61", "a string of 4294967294 bytes, more than 32767"),
        (FlexibleReader.string, "818002" + "61" * 32_768, "a string of 32768 bytes, more than 32767"),
        (FlexibleReader.byte_array, "ffffffff0f61", "4294967294 bytes expected, 1 left"),
        (
            FlexibleReader.int32_array,
            "ffffffff0f61",
            "an array of 4294967294 elements does not fit in the 1 bytes left",
        ),
        (FlexibleReader.skip_tags, "ffffffff0f", "more than 150000 elements in one message"),
        (FlexibleReader.skip_tags, "0f", "a varint that does not end"),
        (FlexibleReader.skip_tags, "010002ff", "2 bytes expected, 1 left"),
        (FlexibleReader.skip_tags, "", "a varint that does not end"),
    ],
)
def test_invalid_bytes_of_a_peer_are_refused_in_the_flexible_form(
    read: object, encoded: str, fault: str
) -> None:
    assert callable(read)
    with pytest.raises(SchemaError, match=fault):
        read(FlexibleReader(bytes.fromhex(encoded)))


def _all_elements(reader: FlexibleReader) -> int:
    """Reads an array, a nullable array and two tagged fields of an array each; returns their elements."""
    count = reader.array_length(1)
    reader.take(count)
    nullable = reader.nullable_array_length(1) or 0
    reader.take(nullable)
    return count + nullable + sum(1 + field.array_length(1) for _, field in reader.tags())


def test_the_elements_of_a_message_are_counted_together_wherever_they_are() -> None:
    """Each becomes an object, however few bytes it takes. A tagged field is an element, too."""
    encoded = bytes.fromhex("03aaaa" + "03aaaa" + "02" + "0003" + "03aaaa" + "0103" + "03aaaa")
    for allowed in (10, 9, 7, 5, 3, 1):
        reader = FlexibleReader(encoded)
        reader.elements_left = allowed
        if allowed == 10:
            assert (_all_elements(reader), reader.elements_left) == (10, 0)
            continue
        with pytest.raises(SchemaError, match="more than 150000 elements in one message"):
            _all_elements(reader)


def test_a_nullable_array_has_no_more_elements_than_the_bytes_left() -> None:
    with pytest.raises(SchemaError, match="an array of 2 elements does not fit in the 1 bytes left"):
        FlexibleReader(bytes.fromhex("03aa")).nullable_array_length(1)


def test_a_string_that_is_not_utf_8_is_pointed_at() -> None:
    with pytest.raises(SchemaError, match=r"not UTF-8 \(invalid start byte\) at byte 2 of 4"):
        Reader(bytes.fromhex("0002ff61")).string()


def test_integers_that_adjoin_are_read_at_once_or_not_at_all() -> None:
    reader = Reader(bytes.fromhex("00010000000200"))
    assert reader.unpack(Struct(">hi")) == (1, 2)
    with pytest.raises(SchemaError, match="6 bytes expected, 1 left at byte 6 of 7"):
        reader.unpack(Struct(">hi"))


def test_the_classic_form_has_no_tags() -> None:
    writer = Writer()
    writer.tags([(0, b"x")])
    reader = Reader(b"")
    reader.skip_tags()
    assert writer.getvalue() == b""
    assert list(reader.tags()) == []


# -- twins of RawTaggedFieldWriterTest -----------------------------------------------------------------------


@pytest.mark.java("RawTaggedFieldWriterTest.WritingZeroRawTaggedFields")
def test_writing_zero_raw_tagged_fields() -> None:
    writer = FlexibleWriter()
    writer.tags()
    assert writer.getvalue() == b"\x00"


@pytest.mark.java("RawTaggedFieldWriterTest.WritingSeveralRawTaggedFields")
def test_writing_several_raw_tagged_fields() -> None:
    writer = FlexibleWriter()
    writer.tags([(2, b"\x01\x02\x03"), (5, b"\x04\x05")])
    assert writer.getvalue().hex() == "02" + "0203010203" + "05020405"
    reader = FlexibleReader(writer.getvalue())
    assert [(tag, field.buf) for tag, field in reader.tags()] == [(2, b"\x01\x02\x03"), (5, b"\x04\x05")]
    assert reader.remaining == 0


@pytest.mark.java("RawTaggedFieldWriterTest.InvalidNextDefinedTag", "RawTaggedFieldWriterTest.OutOfOrderTags")
@pytest.mark.parametrize("tags", [(2, 2), (5, 2)], ids=["the same tag twice", "out of order tags"])
def test_tags_that_do_not_ascend_are_a_bug(tags: tuple[int, int]) -> None:
    with pytest.raises(IllegalArgumentError, match=f"tag 2 must not follow tag {tags[0]}"):
        FlexibleWriter().tags([(tag, b"x") for tag in tags])


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=9), max_size=5))
def test_tags_come_back_and_can_be_skipped(fields: dict[int, bytes]) -> None:
    writer = FlexibleWriter()
    writer.tags(sorted(fields.items()))
    reader, skipping = FlexibleReader(writer.getvalue()), FlexibleReader(writer.getvalue())
    assert {tag: field.buf for tag, field in reader.tags()} == fields
    skipping.skip_tags()
    assert reader.remaining == skipping.remaining == 0
