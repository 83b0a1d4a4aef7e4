"""One key or value, from what a caller wrote to bytes."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.payload import Format, bytes_of_base64, bytes_of_json, bytes_of_plain, bytes_of_text
from service.wire.strict_json import MAX_DEPTH


@given(st.text())
def test_text_becomes_its_utf_8_with_or_without_escapes(text: str) -> None:
    assert bytes_of_text(json.dumps(text, ensure_ascii=True).encode()) == text.encode()
    assert bytes_of_text(json.dumps(text, ensure_ascii=False).encode()) == text.encode()


@given(st.binary())
def test_base64_gives_back_every_byte(data: bytes) -> None:
    written = base64.b64encode(data)
    assert bytes_of_base64(b'"' + written + b'"') == data
    assert bytes_of_plain(written.decode(), Format.BASE64) == data


@pytest.mark.parametrize("decode", [bytes_of_json, bytes_of_text, bytes_of_base64])
def test_null_is_nothing(decode: object) -> None:
    assert callable(decode)
    assert decode(b"null") is None


@pytest.mark.parametrize("raw", [b"0", b"false", b'""', b"[]", b"{}"])
def test_falsy_json_is_not_null(raw: bytes) -> None:
    assert bytes_of_json(raw) == raw


@pytest.mark.parametrize("raw", [b"1", b"{}", b"true", b"[]"])
@pytest.mark.parametrize("decode", [bytes_of_text, bytes_of_base64])
def test_other_json_is_no_text(decode: object, raw: bytes) -> None:
    assert callable(decode)
    with pytest.raises(ValueError, match="must be a string"):
        decode(raw)


@pytest.mark.parametrize("written", ["YQ", "YQ=", "YQ==\n", "Y Q==", "YR==", "_-==", "Y===", "=", "YQ==YQ=="])
def test_base64_in_another_spelling_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="bad base64"):
        bytes_of_plain(written, Format.BASE64)


def test_a_plain_json_key_is_compacted() -> None:
    assert bytes_of_plain('{"a": 1.0}', Format.JSON) == b'{"a":1.0}'
    assert bytes_of_plain("null", Format.JSON) is None


def test_a_plain_text_key_is_itself() -> None:
    assert bytes_of_plain("null", Format.TEXT) == b"null"


@pytest.mark.parametrize("written", ["{", "[" * (MAX_DEPTH * 3), "\ud800"])
def test_a_plain_json_key_that_is_not_json_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|invalid UTF-8|nested deeper"):
        bytes_of_plain(written, Format.JSON)


def test_a_value_nested_too_deep_is_refused() -> None:
    levels = MAX_DEPTH + 1
    with pytest.raises(ValueError, match="nested deeper than 128 levels"):
        bytes_of_json(b"[" * levels + b"]" * levels)
