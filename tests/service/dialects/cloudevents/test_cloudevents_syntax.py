"""What attributes of CloudEvents may look like, by the RFCs that the specification names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.dialects.cloudevents.attributes import (
    check_name,
    check_value,
    fault_of_media_type,
    fault_of_text,
    fault_of_time,
    fault_of_uri,
    fault_of_uri_reference,
    missing_attribute,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: RFC 3986 sections 1.1.2 and 5.4, and the specification's own examples.
URIS = (
    *("ftp://ftp.is.co.za/rfc/rfc1808.txt", "http://www.ietf.org/rfc/rfc2396.txt"),
    *("ldap://[2001:db8::7]/c=GB?objectClass?one", "mailto:cncf-wg-serverless@lists.cncf.io"),
    *("news:comp.infosystems.www.servers.unix", "tel:+1-816-555-1212", "telnet://192.0.2.16:80/"),
    *("urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "file:///etc/hosts", "about:", "a:/", "x://"),
    "https://user:pw@example.com:8080/a%20b/c;d?e=f&g=/?#h/?",
)
REFERENCES = (
    *("/cloudevents/spec/pull/123", "/sensors/tn-1234567/alerts", "1-555-123-4567", "g?y#s", "../.."),
    *("./a:b", "//example.com/a", "?y", "#s", "/", "/a//b", "cloudevents/spec/pull/123"),
)
NEITHER = (
    *("", " ", "my source", "/ü", "/a%2", "/a%zz", "/a\\b", "<a>", 'a"b', "/a#b#c", "1http://a", ":a"),
    *("/[a]", "http://[::1", "http://a:b/", "/a\n", "a^b", "{a}"),
)
TIMES = (
    *("2018-04-05T17:31:00Z", "2018-04-05t17:31:00z", "1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00"),
    *("1990-12-31T23:59:60Z", "1937-01-01T12:00:27.87+00:20", "2024-02-29T00:00:00.123456789Z"),
    *("2000-02-29T00:00:00Z", "0000-01-01T00:00:00Z"),
)
NO_TIMES = (
    *("", "now", "2018-04-05", "2018-04-05T17:31:00", "2018-04-05 17:31:00Z", "2018-04-05T17:31Z"),
    *("2018-13-05T17:31:00Z", "2018-00-05T17:31:00Z", "2018-04-31T17:31:00Z", "2018-04-00T17:31:00Z"),
    *("2023-02-29T17:31:00Z", "1900-02-29T17:31:00Z", "2018-04-05T24:00:00Z", "2018-04-05T17:60:00Z"),
    *("2018-04-05T17:31:61Z", "2018-04-05T17:31:00.Z", "2018-04-05T17:31:00+0100", "1522949460"),
    *("2018-04-05T17:31:00+24:00", "2018-04-05T17:31:00+01:60", "18-04-05T17:31:00Z"),
    *("٢٠١٨-04-05T17:31:00Z", "2018-04-05T17:31:00Z\n"),
)
MEDIA_TYPES = (
    *("application/json", "application/json; charset=utf-8", 'text/plain;charset="utf-8"; format=flowed'),
    *("application/vnd.apache.thrift.binary", "TEXT/Plain; CharSet=utf-8", "a/b;"),
    'multipart/mixed; boundary="a\\"b"',
)
NO_MEDIA_TYPES = (
    *("", "json", "/json", "application/", "a b/c", "a/b c", "a/b; c", "a/b; c=", "a/ü", 'a/b; c="d'),
)


def taken(fault_of: Callable[[str], str | None], *tables: tuple[str, ...]) -> list[str]:
    """Those of the values in which no fault is found."""
    return [value for table in tables for value in table if fault_of(value) is None]


def fault_by(check: Callable[..., None], *given: str) -> str:
    """What the check says against it, and nothing where it says nothing."""
    try:
        check(*given)
    except ValueError as error:
        return str(error)
    return ""


def test_a_uri_is_taken_as_source_and_as_dataschema_and_a_relative_reference_as_source_only() -> None:
    assert taken(fault_of_uri_reference, URIS, REFERENCES, NEITHER) == [*URIS, *REFERENCES]
    assert taken(fault_of_uri, URIS, REFERENCES, NEITHER) == [*URIS]


def test_a_time_of_rfc_3339_is_taken_and_no_other() -> None:
    assert taken(fault_of_time, TIMES, NO_TIMES) == [*TIMES]


def test_a_media_type_is_taken_and_nothing_else() -> None:
    assert taken(fault_of_media_type, MEDIA_TYPES, NO_MEDIA_TYPES) == [*MEDIA_TYPES]


def test_characters_that_no_attribute_has_are_named() -> None:
    for character in ("\x00", "\n", "\x7f", "\x9f", "\ufdd0", "\uffff", "\U0010fffe", "\ud800"):
        assert f"U+{ord(character):04X}" in (fault_of_text(f"a{character}") or ""), repr(character)


def test_all_other_characters_are_text() -> None:
    assert fault_of_text("Euro € 😀 ~ \xa0 \ufdcf \ufdf0 \ufffd \U0010fffd") is None
    assert fault_of_text("") is None


def test_a_hostile_value_costs_one_pass() -> None:
    """Without possessive repetitions the first of these would outlive the test."""
    for value in ("a" * 100_000 + " ", "a:" + "//" * 50_000 + " ", "%41" * 50_000 + "%"):
        assert fault_of_uri_reference(value) is not None
    assert fault_of_media_type("a/b" + "; " * 50_000 + "!=") is not None
    assert fault_of_media_type("a/b" + ' ;a="' + "\\a" * 50_000) is not None
    assert fault_of_time("2018-04-05T17:31:00." + "1" * 100_000) is not None


def test_names_are_letters_and_digits_even_more_than_twenty_and_nothing_else() -> None:
    for name in ("id", "a", "0", "partitionkey", "a" * 40):
        check_name(name)
    for name in ("", "A", "a_b", "a-b", "ü", "a b", "a\n"):
        assert "attribute's name" in fault_by(check_name, name), name
    assert fault_by(check_name, "data") == "an attribute can't be named data"


def test_a_value_that_its_attribute_can_not_have_is_refused() -> None:
    for name, value in (
        *(("specversion", "0.3"), ("specversion", "1.0.2"), ("specversion", ""), ("id", ""), ("type", "")),
        *(("source", "my source"), ("subject", ""), ("time", "yesterday"), ("dataschema", "/relative")),
        *(("datacontenttype", "json"), ("partitionkey", ""), ("anything", "a\nb")),
    ):
        assert fault_by(check_value, name, value), (name, value)


def test_an_extension_may_be_empty() -> None:
    check_value("anything", "")


def test_required_attributes_are_missed_one_by_one() -> None:
    present: set[str] = set()
    missed = []
    while (name := missing_attribute(present)) is not None:
        missed.append(name)
        present.add(name)
    assert missed == ["specversion", "id", "source", "type"]
