"""Timestamps of REST Proxy v3: RFC 3339 in, what Java's Instant prints out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dialects.rest_v3.record_codec import LAST_MS, ms_of_rfc3339, text_of_ms


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2021-02-05T19:14:42Z", 1_612_552_482_000),
        ("2021-02-05T19:14:42.5Z", 1_612_552_482_500),
        ("2021-02-05T19:14:42.123456789Z", 1_612_552_482_123),
        ("2021-02-05t19:14:42z", 1_612_552_482_000),
        ("2021-02-05T20:44:42+01:30", 1_612_552_482_000),
        ("2021-02-05T11:14:42.001-08:00", 1_612_552_482_001),
        ("2024-02-29T00:00:00-00:00", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999Z", LAST_MS),
    ],
)
def test_a_time_is_read_as_milliseconds(text: str, at_ms: int) -> None:
    assert ms_of_rfc3339(text) == at_ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "RFC 3339"),
        ("2021-02-05", "RFC 3339"),
        ("2021-02-05T19:14:42", "RFC 3339"),
        ("2021-02-05 19:14:42Z", "RFC 3339"),
        ("2021-02-05T19:14Z", "RFC 3339"),
        ("2021-02-05T19:14:42.Z", "RFC 3339"),
        ("2021-02-05T19:14:42+0100", "RFC 3339"),
        ("2021-02-05T19:14:42Z\n", "RFC 3339"),
        ("٢٠٢١-02-05T19:14:42Z", "RFC 3339"),
        ("1612552482", "RFC 3339"),
        ("2021-02-30T00:00:00Z", "no time that there is"),
        ("2021-02-05T24:00:00Z", "no time that there is"),
        ("2021-02-05T23:59:60Z", "no time that there is"),
        ("2021-02-05T19:14:42+24:00", "no time that there is"),
        ("2021-02-05T19:14:42+01:60", "no time that there is"),
        ("0000-01-01T00:00:00Z", "no time that there is"),
        ("0001-01-01T00:00:00+01:00", "before 1970"),
        ("1969-12-31T23:59:59.999Z", "before 1970"),
        ("9999-12-31T23:59:59-00:01", "after the year 9999"),
    ],
)
def test_what_is_no_time_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ms_of_rfc3339(text)


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_612_552_482_000, "2021-02-05T19:14:42Z"),
        (1_612_552_482_050, "2021-02-05T19:14:42.050Z"),
    ],
)
def test_a_time_is_written_without_zero_milliseconds(at_ms: int, text: str) -> None:
    assert text_of_ms(at_ms) == text


@given(st.integers(min_value=0, max_value=LAST_MS))
def test_what_is_written_is_read_again(at_ms: int) -> None:
    assert ms_of_rfc3339(text_of_ms(at_ms)) == at_ms
