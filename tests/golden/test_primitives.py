"""Java's own varints and ids against ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.errors import SchemaError
from client_core.protocol.primitives import Reader, Writer, unsigned_varint
from client_core.record.varint import encode_varint, read_varint, read_varlong
from tests.golden.adapters import uuid_from_base64url

if TYPE_CHECKING:
    from collections.abc import Callable


def test_unsigned_varints_are_javas_both_ways(golden: Callable[[str], Any]) -> None:
    for value, encoded in golden("primitives.json")["unsigned_varint"]:
        reader = Reader(bytes.fromhex(encoded))
        assert unsigned_varint(value).hex() == encoded
        assert (reader.unsigned_varint(), reader.remaining) == (value, 0)


def test_unsigned_varints_that_java_calls_too_long_raise(golden: Callable[[str], Any]) -> None:
    for encoded in golden("primitives.json")["unsigned_varint_too_long"]:
        with pytest.raises(SchemaError, match="a varint of more than 32 bits"):
            Reader(bytes.fromhex(encoded)).unsigned_varint()


def test_varints_of_records_are_javas_both_ways(golden: Callable[[str], Any]) -> None:
    for value, encoded in golden("primitives.json")["varint"]:
        assert encode_varint(value).hex() == encoded
        assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_varlongs_of_records_are_javas_both_ways(golden: Callable[[str], Any]) -> None:
    for text, encoded in golden("primitives.json")["varlong_as_string"]:
        assert encode_varint(int(text)).hex() == encoded
        assert read_varlong(bytes.fromhex(encoded), 0) == (int(text), len(encoded) // 2)


def test_ids_are_javas_sixteen_bytes(golden: Callable[[str], Any]) -> None:
    for text, encoded in golden("primitives.json")["uuid_base64url"]:
        writer = Writer()
        writer.uuid(uuid_from_base64url(text))
        assert writer.getvalue().hex() == encoded
        assert Reader(bytes.fromhex(encoded)).uuid() == uuid_from_base64url(text)
