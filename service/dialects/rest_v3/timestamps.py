"""Timestamps as REST Proxy v3 writes them: RFC 3339 in, what Java's Instant prints out. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from service.wire.freshness import rfc3339

#: RFC 3339 section 5.6; T and Z may be small, the offset is of hours and minutes.
_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WHOLE_SECOND: Final = ".000Z"

#: The last time that RFC 3339 can write.
LAST_MS: Final = 253_402_300_799_999


def ms_of_rfc3339(text: str) -> int:
    """`2021-02-05T19:14:42Z` as milliseconds since 1970; what is finer than those is cut off.

    Raises ValueError for another form, for no time that there is, for one before 1970, which no record can
    have, and for one that its offset moves beyond the year 9999.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("must be a time as RFC 3339 writes it, such as 2021-02-05T19:14:42Z")
    *digits, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, digits)
    try:
        zone = _zone(sign, int(hours), int(minutes)) if sign else UTC
        at = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as e:
        raise ValueError(f"is no time that there is: {e}") from e
    at_ms = (at - _EPOCH) // _MILLISECOND + int(((fraction or "") + "000")[:3])
    if at_ms < 0:
        raise ValueError("is before 1970: Kafka's timestamps begin there")
    if at_ms > LAST_MS:
        raise ValueError("is after the year 9999")
    return at_ms


def text_of_ms(at_ms: int) -> str:
    """Milliseconds from 0 to LAST_MS as `2021-02-05T19:14:42Z`, with three digits where they are not zero."""
    text = rfc3339(at_ms)
    return text.removesuffix(_WHOLE_SECOND) + "Z" if text.endswith(_WHOLE_SECOND) else text


def _zone(sign: str, hours: int, minutes: int) -> timezone:
    if minutes > 59:
        raise ValueError("an hour has 60 minutes")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if sign == "-" else offset)
