"""When a certificate expires, against what `cryptography` says. Pure."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from client_core.network.certificate_expiry import certificate_expires_at_s
from tests.support.certificates import LONG_AGO, Authority, with_validity

ISSUED = Authority().issue("localhost")


def expiry_of(der: bytes) -> int:
    return int(x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp())


def test_it_is_what_the_certificate_says() -> None:
    assert certificate_expires_at_s(ISSUED.der) == expiry_of(ISSUED.der)


@pytest.mark.parametrize(
    "end",
    [
        datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),  # UTCTime's last moment
        datetime.datetime(2050, 1, 1, tzinfo=datetime.UTC),  # GeneralizedTime from here on
        datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),  # RFC 5280: no end
        datetime.datetime(2001, 6, 1, tzinfo=datetime.UTC),
    ],
)
def test_both_kinds_of_time_are_read(end: datetime.datetime) -> None:
    made = with_validity("localhost", LONG_AGO, end)
    assert certificate_expires_at_s(made.der) == int(end.timestamp())


@pytest.mark.parametrize("end_year", [1950, 1951, 1999])
def test_years_of_the_last_century_are(end_year: int) -> None:
    end = datetime.datetime(end_year, 6, 1, tzinfo=datetime.UTC)
    made = with_validity("localhost", datetime.datetime(1950, 1, 1, tzinfo=datetime.UTC), end)
    assert certificate_expires_at_s(made.der) == int(end.timestamp())


@given(st.integers(0, len(ISSUED.der) - 1))
def test_a_certificate_that_is_cut_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="cut"):
        certificate_expires_at_s(ISSUED.der[:size])


def test_a_validity_without_an_end_is_none() -> None:
    only_its_beginning = "300c 300a 0200 3000 3000 3002 1700"
    with pytest.raises(ValueError, match="cut"):
        certificate_expires_at_s(bytes.fromhex(only_its_beginning))


@given(st.binary(max_size=300))
def test_other_bytes_are_none(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each byte has its own complaint
        certificate_expires_at_s(data)
    with pytest.raises(ValueError):  # noqa: PT011
        certificate_expires_at_s(b"\x30\x81" + bytes([len(data) % 256]) + data)
