"""Reads and writes Kafka's primitive types, in classic and flexible encoding.

`Reader` and `Writer` use the classic encoding: two- or four-byte lengths, no tags. `FlexibleReader` and
`FlexibleWriter` use the flexible one (KIP-482): lengths as unsigned varints plus one, tagged fields after
every struct. The method names are the same, so a generated message is written once for both.

A reader trusts no input. A length is checked against the bytes left before it sizes anything, a message's
elements are counted, and a schema violation raises SchemaError. A writer trusts its caller's types; a
message's `encode` maps values that can't be packed. Called by `messages/` (generated) and `header.py`. State:
a cursor and a count; one thread at a time. Source: ByteBufferAccessor, ByteUtils, Readable, Writable, Kafka
4.3.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from uuid import UUID

from client_core.errors import IllegalArgumentError, SchemaError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Integers by their size on the wire in bits, for the fields of messages: signed, big-endian.
Int8: TypeAlias = Annotated[int, 8]
Int16: TypeAlias = Annotated[int, 16]
Int32: TypeAlias = Annotated[int, 32]
Int64: TypeAlias = Annotated[int, 64]

#: The wire's "no id". Source: Uuid.ZERO_UUID.
ZERO_UUID: Final = UUID(int=0)

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UUID_BYTES: Final = 16
_INT32_BYTES: Final = 4
#: Seven bits per byte: 32 bits end in the fifth byte.
_BITS_PER_BYTE: Final = 7
_VARINT_BITS: Final = 32
#: The most elements of all arrays of one message together, tagged fields included. Each becomes an object of
#: 100 to 400 bytes, independent of its wire size. The longest honest response names the failed records of
#: one request: max.request.size (1 MiB) holds some 130,000 of the smallest.
MOST_ELEMENTS: Final = 150_000
#: Java's clients have the same limit: "string field ... had invalid length".
_LONGEST_STRING_BYTES: Final = 0x7FFF
_ONE_BYTE_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))
_NO_TAGS: Final = b"\x00"


class Reader:
    """A cursor over bytes in the classic form. `what` names the message in errors; `pos` is the next byte.

    `to_come` bytes of the message are not in `buf` yet; a read beyond `buf` then raises TruncatedError.
    """

    __slots__ = ("buf", "elements_left", "pos", "to_come", "what")

    def __init__(self, buf: bytes, offset: int = 0, what: str = "message", to_come: int = 0) -> None:
        self.buf = buf
        self.pos = offset
        self.what = what
        self.to_come = to_come
        self.elements_left = MOST_ELEMENTS

    @property
    def remaining(self) -> int:
        """The number of bytes left in the message."""
        return len(self.buf) - self.pos + self.to_come

    def wrong(self, fault: str) -> SchemaError:
        """Returns the error for invalid bytes at the cursor."""
        return SchemaError(f"{self.what}: {fault} at byte {self.pos} of {len(self.buf)}")

    def short(self, fault: str) -> SchemaError:
        """Returns the error for missing bytes."""
        error = self.wrong(fault)
        return TruncatedError(error.message) if self.to_come else error

    def count(self, elements: int) -> None:
        """Counts elements that will become objects. Raises SchemaError when they are too many."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise self.wrong(f"more than {MOST_ELEMENTS} elements in one message")

    # -- fixed size ------------------------------------------------------------------------------------------

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Reads adjacent integers at once."""
        try:
            values: tuple[int, ...] = layout.unpack_from(self.buf, self.pos)
        except StructError:
            raise self.short(f"{layout.size} bytes expected, {self.remaining} left") from None
        self.pos += layout.size
        return values

    def int8(self) -> int:
        return self.unpack(_INT8)[0]

    def int16(self) -> int:
        return self.unpack(_INT16)[0]

    def int32(self) -> int:
        return self.unpack(_INT32)[0]

    def int64(self) -> int:
        return self.unpack(_INT64)[0]

    def boolean(self) -> bool:
        """Reads a boolean: any byte but 0 is true, as in Java."""
        return self.unpack(_INT8)[0] != 0

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(_UUID_BYTES))

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        start = self.pos
        end = start + size
        if size < 0 or end > len(self.buf):
            fault = f"{size} bytes expected, {self.remaining} left"
            raise self.short(fault) if 0 <= size <= self.remaining else self.wrong(fault)
        self.pos = end
        return self.buf[start:end]

    # -- variable size ---------------------------------------------------------------------------------------

    def unsigned_varint(self) -> int:
        """Reads an unsigned 32-bit integer of one to five bytes."""
        # Java silently drops the bits above the 32nd; no encoder writes them, so here they are an error.
        value = 0
        end = self.pos
        try:
            for shift in range(0, _VARINT_BITS, _BITS_PER_BYTE):
                byte = self.buf[end]
                end += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    if value >> _VARINT_BITS:
                        break
                    self.pos = end
                    return value
        except IndexError:
            raise self.short(f"a varint that does not end, {self.remaining} bytes left") from None
        raise self.wrong(f"a varint of more than {_VARINT_BITS} bits")

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise self.wrong("a null string where none is allowed")
        return value

    def nullable_string(self) -> str | None:
        size = self._string_size()
        if size is None:
            return None
        raw = self.take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError as problem:
            self.pos -= size
            raise self.wrong(f"a string that is not UTF-8 ({problem.reason})") from problem

    def byte_array(self) -> bytes:
        value = self.nullable_byte_array()
        if value is None:
            raise self.wrong("null where bytes are required")
        return value

    def nullable_byte_array(self) -> bytes | None:
        size = self._size()
        return None if size is None else self.take(size)

    def array_length(self, min_element_bytes: int) -> int:
        """Returns the number of elements; never more than the bytes left can hold."""
        count = self.passed_array_length(min_element_bytes)
        self.count(count)
        return count

    def nullable_array_length(self, min_element_bytes: int) -> int | None:
        count = self._size()
        if count is not None:
            self._ensure_left(count, min_element_bytes)
            self.count(count)
        return count

    def passed_array_length(self, min_element_bytes: int) -> int:
        """Like array_length, without counting elements, for an array that is skipped or limited otherwise."""
        count = self._size()
        if count is None:
            raise self.wrong("a null array where none is allowed")
        self._ensure_left(count, min_element_bytes)
        return count

    def _ensure_left(self, count: int, min_element_bytes: int) -> None:
        """Raises SchemaError if the bytes left can't hold `count` elements."""
        if count * min_element_bytes > self.remaining:
            raise self.wrong(f"an array of {count} elements does not fit in the {self.remaining} bytes left")

    def int32_array(self) -> tuple[int, ...]:
        count = self.array_length(_INT32_BYTES)
        return self.unpack(_int32s(count)) if count else ()

    # -- what the flexible form does differently -------------------------------------------------------------

    def _string_size(self) -> int | None:
        return self._size_or_null(self.int16())

    def _size(self) -> int | None:
        return self._size_or_null(self.int32())

    def _size_or_null(self, size: int) -> int | None:
        if size < -1:
            raise self.wrong(f"the negative length {size}")
        return None if size == -1 else size

    def tags(self) -> Iterator[tuple[int, FlexibleReader]]:
        """Yields the tagged fields after a struct, with readers of their bytes; none in the classic form."""
        return iter(())

    def skip_tags(self) -> None:
        """Skips the tagged fields of a struct without known ones."""


class FlexibleReader(Reader):
    """A cursor over bytes in the flexible form."""

    __slots__ = ()

    def _string_size(self) -> int | None:
        size = self._size()
        if size is not None and size > _LONGEST_STRING_BYTES:
            raise self.wrong(f"a string of {size} bytes, more than {_LONGEST_STRING_BYTES}")
        return size

    def _size(self) -> int | None:
        size = self.unsigned_varint()
        return size - 1 if size else None

    def tags(self) -> Iterator[tuple[int, FlexibleReader]]:
        # Java ignores the size of a known field. Here it is binding: a field that needs more bytes is an
        # error, and bytes that a newer broker appends are skipped.
        for _ in range(self._tag_count()):
            tag = self.unsigned_varint()
            field = FlexibleReader(self.take(self.unsigned_varint()), 0, f"{self.what} tag {tag}")
            field.elements_left = self.elements_left
            yield tag, field
            self.elements_left = field.elements_left

    def skip_tags(self) -> None:
        if self.buf[self.pos : self.pos + 1] == _NO_TAGS:
            self.pos += 1
            return
        for _ in range(self._tag_count()):
            self.unsigned_varint()
            self.take(self.unsigned_varint())

    def _tag_count(self) -> int:
        count = self.unsigned_varint()
        self.count(count)
        return count


class Writer:
    """Collects a message in the classic form, piece by piece."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def getvalue(self) -> bytes:
        """Returns the bytes written so far."""
        return b"".join(self.parts)

    # -- fixed size ------------------------------------------------------------------------------------------

    def pack(self, layout: Struct, *values: int) -> None:
        """Writes adjacent integers at once."""
        self.parts.append(layout.pack(*values))

    def int8(self, value: int) -> None:
        self.parts.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        self.parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self.parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self.parts.append(_INT64.pack(value))

    def boolean(self, value: bool) -> None:
        self.parts.append(_ONE_BYTE_VARINTS[value])

    def uuid(self, value: UUID) -> None:
        self.parts.append(value.bytes)

    # -- variable size ---------------------------------------------------------------------------------------

    def string(self, value: str) -> None:
        raw = value.encode()
        self._string_size(len(raw))
        self.parts.append(raw)

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self._string_size(None)
        else:
            self.string(value)

    def byte_array(self, value: bytes) -> None:
        self._size(len(value))
        self.parts.append(value)

    def nullable_byte_array(self, value: bytes | None) -> None:
        if value is None:
            self._size(None)
        else:
            self.byte_array(value)

    def array_length(self, count: int | None) -> None:
        """Writes an array's length; None for a null array."""
        self._size(count)

    def int32_array(self, values: Sequence[int]) -> None:
        self._size(len(values))
        self.parts.append(_int32s(len(values)).pack(*values))

    # -- what the flexible form does differently -------------------------------------------------------------

    def _string_size(self, size: int | None) -> None:
        self.parts.append(_INT16.pack(-1 if size is None else size))

    def _size(self, size: int | None) -> None:
        self.parts.append(_INT32.pack(-1 if size is None else size))

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """Writes the tagged fields after a struct, by ascending tag; the classic form has none."""


class FlexibleWriter(Writer):
    """Collects a message in the flexible form."""

    __slots__ = ()

    def _string_size(self, size: int | None) -> None:
        self._size(size)

    def _size(self, size: int | None) -> None:
        self.parts.append(unsigned_varint(0 if size is None else size + 1))

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """Raises IllegalArgumentError unless the tags ascend. Source: RawTaggedFieldWriter."""
        self.parts.append(unsigned_varint(len(fields)))
        last = -1
        for tag, raw in fields:
            if tag <= last:
                raise IllegalArgumentError(f"tag {tag} must not follow tag {last}: tags ascend")
            last = tag
            self.parts += (unsigned_varint(tag), unsigned_varint(len(raw)), raw)


def unsigned_varint(value: int) -> bytes:
    """Returns a varint: seven bits per byte, lowest first, top bit set on all bytes but the last."""
    if 0 <= value < 0x80:
        return _ONE_BYTE_VARINTS[value]
    if value < 0:
        raise IllegalArgumentError(f"an unsigned varint can't be {value}")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= _BITS_PER_BYTE
    encoded.append(value)
    return bytes(encoded)


def _int32s(count: int) -> Struct:
    """Returns the layout of `count` int32. Replica lists are short, so the usual layouts are kept."""
    return _INT32_RUNS[count] if count < len(_INT32_RUNS) else Struct(f">{count}i")


_INT32_RUNS: Final = tuple(Struct(f">{count}i") for count in range(16))
