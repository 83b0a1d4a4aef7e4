"""Why a line is not an event. Where several fit, the one that comes first here is told."""

from __future__ import annotations

from typing import Final

TOO_LONG: Final = "too_long"
INVALID_UTF8: Final = "invalid_utf8"
NOT_JSON: Final = "not_json"
NOT_AN_OBJECT: Final = "not_an_object"
NO_VERSION: Final = "no_version"
UNKNOWN_VERSION: Final = "unknown_version"
WRONG_TYPE: Final = "wrong_type"
UNKNOWN_TYPE: Final = "unknown_type"
MISSING_FIELD: Final = "missing_field"
BAD_TIME: Final = "bad_time"
CLOCK_AHEAD: Final = "clock_ahead"
TOO_OLD: Final = "too_old"
OUT_OF_RANGE: Final = "out_of_range"
INCONSISTENT: Final = "inconsistent"

REASONS: Final = (
    TOO_LONG,
    INVALID_UTF8,
    NOT_JSON,
    NOT_AN_OBJECT,
    NO_VERSION,
    UNKNOWN_VERSION,
    WRONG_TYPE,
    UNKNOWN_TYPE,
    MISSING_FIELD,
    BAD_TIME,
    CLOCK_AHEAD,
    TOO_OLD,
    OUT_OF_RANGE,
    INCONSISTENT,
)
