"""One key or value, from what a caller wrote to bytes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from service.wire.payload import (
    _SLICE_BYTES,
    Format,
    bytes_of_base64,
    bytes_of_json,
    bytes_of_plain,
    bytes_of_text,
)
from service.wire.strict_json import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable
import re


@given(st.text())
def test_text_becomes_its_utf_8_with_or_without_escapes(text: str) -> None:
    assert bytes_of_text(json.dumps(text, ensure_ascii=True).encode()) == text.encode()
    assert bytes_of_text(json.dumps(text, ensure_ascii=False).encode()) == text.encode()


@given(st.binary())
def test_base64_gives_back_every_byte(data: bytes) -> None:
    written = base64.b64encode(data)
    assert bytes_of_base64(b'"' + written + b'"') == data
    assert bytes_of_plain(written.decode(), Format.BASE64) == data


def fault_of(decode: Callable[..., bytes | None], *given: object) -> str:
    """What is wrong with it, and nothing where it is decoded."""
    try:
        decode(*given)
    except ValueError as error:
        return str(error)
    return ""


def test_null_is_nothing_and_no_other_json_is() -> None:
    assert [decode(b"null") for decode in (bytes_of_json, bytes_of_text, bytes_of_base64)] == [None] * 3
    for raw in (b"0", b"false", b'""', b"[]", b"{}"):
        assert bytes_of_json(raw) == raw
    for decode in (bytes_of_text, bytes_of_base64):
        for raw in (b"1", b"{}", b"true", b"[]"):
            assert "must be a string" in fault_of(decode, raw), raw


def test_base64_in_another_spelling_is_refused() -> None:
    for written in ("YQ", "YQ=", "YQ==\n", "Y Q==", "YR==", "_-==", "Y===", "=", "YQ==YQ=="):
        assert "bad base64" in fault_of(bytes_of_plain, written, Format.BASE64), written


def test_padding_inside_of_a_long_text_is_refused_wherever_it_is() -> None:
    """A long text is decoded in slices, each of which could end with its own padding."""
    padded = base64.b64encode(bytes(_SLICE_BYTES // 4 * 3 - 1)).decode()
    assert len(padded) == _SLICE_BYTES
    for written in (padded + "YQ==", "YQ==" + padded, padded * 2):
        assert "bad base64" in fault_of(bytes_of_plain, written, Format.BASE64)


def test_a_plain_json_key_is_compacted_and_a_text_is_itself() -> None:
    assert bytes_of_plain('{"a": 1.0}', Format.JSON) == b'{"a":1.0}'
    assert bytes_of_plain("null", Format.JSON) is None
    assert bytes_of_plain("null", Format.TEXT) == b"null"
    for written in ("{", "[" * (MAX_DEPTH * 3), "\ud800"):
        fault = fault_of(bytes_of_plain, written, Format.JSON)
        assert re.search(r"not JSON|invalid UTF-8|nested deeper", fault), written
    levels = MAX_DEPTH + 1
    assert "nested deeper than 128 levels" in fault_of(bytes_of_json, b"[" * levels + b"]" * levels)
