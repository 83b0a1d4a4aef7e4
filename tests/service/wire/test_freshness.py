"""How old an answer is, as HTTP says it."""

from __future__ import annotations

from client_core import RefreshTime
from service.wire.freshness import etag_of, freshness_headers, matches, parse_version, rfc3339, version_text


def test_an_etag_is_of_the_bytes_alone() -> None:
    assert etag_of(b"a") == etag_of(b"a")
    assert etag_of(b"a") != etag_of(b"b")
    assert etag_of(b"a").startswith(b'"')


def test_if_none_match_is_compared_weakly() -> None:
    sent = (b'"x"', b'W/"x"', b'"a", "x"', b'"a",W/"x" ', b"*", b'"a"', b"x", b"")
    assert [etag for etag in sent if matches(etag, b'"x"')] == [*sent[:5]]


def test_age_is_in_whole_seconds_never_negative_and_absent_before_the_first_refresh() -> None:
    assert (b"age", b"1") in freshness_headers(b"v", RefreshTime(1_000, None), 2_999)
    assert (b"age", b"0") in freshness_headers(b"v", RefreshTime(5_000, None), 4_000)
    assert freshness_headers(b"v", None, 5) == [(b"pilotfish-metadata-version", b"v")]


def test_times_are_rfc_3339_in_utc() -> None:
    assert rfc3339(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_a_version_is_taken_apart_as_it_was_put_together_and_what_is_none_is_refused() -> None:
    assert parse_version(version_text("5f2c", 42)) == ("5f2c", 42)

    def fault_of(text: str) -> str:
        try:
            return f"it is {parse_version(text)}"
        except ValueError as error:
            return str(error)

    for text in ("", "5f2c", "-4", "5f2c-", "5f2c-x", "5f2c-4²", "5f2c--" + "9" * 19):
        assert "<boot>-<n>" in fault_of(text), text
