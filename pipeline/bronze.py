"""Parses lines into events and rejects: each non-empty line becomes exactly one of the two.

    classified = parse(raw)          # raw: line, source, received_at, as sources.py gives them
    events(classified)               # bronze_events: the fields of event v1, times as timestamps
    rejects(classified)              # bronze_rejects: why, and what the line looked like

Each line is first read by Spark's JSON reader. It is fast but too tolerant: it accepts a number or an object
as a text, and the first value of a line as the whole line. For a field that it can't read it reports only
that there is one. So its result is checked for signs of this, which is cheap. A line with such a sign is read
again by an exact check (`json_faults.py`).

If a field occurs twice, the last one counts, as everywhere in Spark. Fields that event v1 does not have are
ignored. Native expressions only: no action, no clock, no Python at run time. They are SQL text, because
Columns would need thousands of calls to Java for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline import event_v1
from pipeline.event_v1 import (
    BAD_TIME,
    CLOCK_AHEAD,
    INVALID_UTF8,
    MISSING_FIELD,
    NO_VERSION,
    TOO_LONG,
    TOO_OLD,
    UNKNOWN_TYPE,
    UNKNOWN_VERSION,
)
from pipeline.json_faults import BUCKETS, fault, json_fault
from pipeline.value_rules import breaks_a_rule, fault_of_histogram, fault_of_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

#: Columns of `parse`'s result. Events have a field `reason` of their own.
REJECT_REASON: Final = "reject_reason"
REJECT_DETAIL: Final = "reject_detail"
#: An event has about 400 bytes; one with a hundred replicas, or with every possible error, a few thousand.
MAX_LINE_BYTES: Final = 256 * 1024
#: How much of a rejected line is kept, in characters.
LINE_HEAD_CHARS: Final = 1_000
#: A clock further ahead is wrong, and would put events into future hours.
MAX_AHEAD_S: Final = 3_600
#: Clocks that were never set start in 1970 or 2000.
OLDEST: Final = "2020-01-01T00:00:00Z"

#: Null beyond the last possible timestamp; the modification time of a file can be that large.
_LATEST: Final = f"try_add(received_at, INTERVAL {MAX_AHEAD_S} SECONDS)"
_OLDEST: Final = f"TIMESTAMP '{OLDEST}'"
_TYPES: Final = ", ".join(f"'{each}'" for each in event_v1.OF_TYPE)

#: Common fields that may be null: cluster_id is, until the brokers have answered.
_MAY_BE_NULL: Final = ("cluster_id",)
_TIMES: Final = ("observed_at", "started_at")
_HISTOGRAM: Final = "latency_us"
#: Requires Z or an offset after the time. Spark alone would also accept "2026" and "10:00".
_RFC_3339: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$"
_NO_TEXT: Final = r"(?m)^(?:[{\[]|(?:true|false|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$)"
_DETAIL_CHARS: Final = 200
#: A value that occurs in no array or map: no broker has this number, and no count is below 0.
_IN_VAIN: Final = -(2**31)

#: The line is read as the only element of an array, followed by a mark. A line that ends too early, or has
#: more text after its value, makes the whole invalid, adds a second element, or swallows the mark.
_BEFORE: Final = '{"lines":['
_AFTER: Final = '],"end":1}'
_READ: Final = StructType(
    [
        StructField("lines", ArrayType(event_v1.SCHEMA)),
        StructField("end", IntegerType()),
        StructField("refused", StringType()),
    ]
)
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "refused",
    # Spark accepts both by default; JSON has neither.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
#: The line without what may surround a JSON value: white space, and the byte order mark of some editors.
_TEXT: Final = r"""
    CASE WHEN startswith(line, '{') AND endswith(line, '}') THEN line
         ELSE btrim(line, ' \t\r\n\uFEFF') END"""
_IS_READABLE: Final = f"(octet_length(line) <= {MAX_LINE_BYTES} AND is_valid_utf8(line))"
_EVENT: Final = "get(read.lines, 0)"
#: Always true. Spark copies deterministic expressions into the filters above them and evaluates them again,
#: dozens of times in this case. It does not copy non-deterministic ones, and spark_partition_id() counts as
#: one; its value is never negative.
_STAYS_HERE: Final = "(spark_partition_id() >= 0)"

_KINDS: Final[dict[str, DataType]] = event_v1.COMMON | event_v1.FIELDS


def _event_fields() -> list[StructField]:
    return [StructField(name, TimestampType() if name in _TIMES else kind) for name, kind in _KINDS.items()]


EVENTS_SCHEMA: Final = StructType([*_event_fields(), StructField("received_at", TimestampType())])
REJECTS_SCHEMA: Final = StructType(
    [
        StructField("reason", StringType()),
        StructField("detail", StringType()),
        StructField("line_head", StringType()),
        StructField("line_bytes", IntegerType()),
        StructField("line_sha256", StringType()),
        StructField("source", StringType()),
        StructField("received_at", TimestampType()),
    ]
)


def parse(raw: DataFrame) -> DataFrame:
    """Returns the lines with their fields and faults: the columns of bronze_events, and
    `reject_reason` (null: an event), `reject_detail`, `source`, and `line` (null for an event).

    Both tables are made from it: cache it, or the work is done twice.
    """
    found = _doubted(_read(raw)).selectExpr(
        *(f"{_as_it_is_kept(name)} AS {name}" for name in EVENTS_SCHEMA.names),
        f"coalesce(CASE WHEN is_doubted THEN coalesce({_line_fault()}, {_event_fault()}) END,"
        f" {fault_of_histogram(_said)}) AS fault",
        "source",
        "line",
    )
    return found.selectExpr(
        *EVENTS_SCHEMA.names,
        f"fault.reason AS {REJECT_REASON}",
        f"left(fault.detail, {_DETAIL_CHARS}) AS {REJECT_DETAIL}",
        "source",
        "CASE WHEN fault IS NOT NULL THEN line END AS line",
    )


def events(classified: DataFrame) -> DataFrame:
    """Returns bronze_events: the lines that are events of version 1."""
    return classified.where(f"{REJECT_REASON} IS NULL").select(*EVENTS_SCHEMA.names)


def rejects(classified: DataFrame) -> DataFrame:
    """Returns bronze_rejects: the other lines. Size and hash are those of the original line."""
    return classified.where(f"{REJECT_REASON} IS NOT NULL").selectExpr(
        f"{REJECT_REASON} AS reason",
        f"{REJECT_DETAIL} AS detail",
        f"make_valid_utf8(left(line, {LINE_HEAD_CHARS})) AS line_head",
        "octet_length(line) AS line_bytes",
        "sha2(CAST(line AS BINARY), 256) AS line_sha256",
        "source",
        "received_at",
    )


def _read(raw: DataFrame) -> DataFrame:
    """Returns the non-empty lines; the column `read` has the result of Spark's JSON reader."""
    # A step of its own: Spark interprets from_json together with the expressions inside it.
    whole = f"CASE WHEN {_IS_READABLE} AND {_STAYS_HERE} THEN concat('{_BEFORE}', {_TEXT}, '{_AFTER}') END"
    lines = raw.where(f"{_TEXT} <> ''").selectExpr("line", "source", "received_at", f"{whole} AS whole")
    return lines.select("line", "source", "received_at", F.from_json("whole", _READ, _OPTIONS).alias("read"))


def _doubted(read: DataFrame) -> DataFrame:
    """Adds `is_doubted`, whether anything may be wrong with a line, and the parsed times.

    Every line passes through here, so it is fast: it looks for signs and gives no reasons. It is a separate
    step, which Spark compiles into one piece of code. The exact check has lambdas, which would split it up.
    """
    times = read.selectExpr("*", *(f"{_time(name)} AS {_read_as(name)}" for name in _TIMES))
    return times.selectExpr("*", f"({' OR '.join(_signs())} OR NOT {_STAYS_HERE}) AS is_doubted")


def _said(name: str) -> str:
    """Returns the SQL of a field; null if it is missing or has a type that event v1 does not allow."""
    return f"{_EVENT}.{name}"


def _time(name: str) -> str:
    """Returns the SQL of a field as a timestamp; null if it is no RFC 3339 time."""
    return f"CASE WHEN {_said(name)} RLIKE r'{_RFC_3339}' THEN try_cast({_said(name)} AS TIMESTAMP) END"


def _read_as(name: str) -> str:
    """Returns the name of the column with this field as a timestamp."""
    return f"{name}_read"


def _as_it_is_kept(name: str) -> str:
    """Returns the SQL of a column of bronze_events."""
    if name == "received_at":
        return name
    return _read_as(name) if name in _TIMES else _said(name)


def _signs() -> list[str]:
    """Returns conditions; one is true for each line with a fault other than its histogram's sum."""
    arrays = [name for name, kind in _KINDS.items() if isinstance(kind, ArrayType)]
    maps = [name for name, kind in _KINDS.items() if isinstance(kind, MapType)]
    return [
        f"coalesce(read.end IS NULL OR size(read.lines) <> 1 OR {_EVENT} IS NULL, true)",
        "read.refused IS NOT NULL",
        f"coalesce({_said('v')} <> {event_v1.VERSION}, true)",
        _lacks_a_field(),
        _may_be_no_text(),
        *map(_is_no_time, _TIMES),
        *(_has_null(_said(name)) for name in arrays),
        *(_has_odd_entry(_said(name)) for name in maps),
        _is_no_histogram(_said(_HISTOGRAM)),
        breaks_a_rule(_said, _read_as),
    ]


def _lacks_a_field() -> str:
    """Returns SQL: whether the event's type is unknown, or a field required by its type is null.

    Compares two bit sets with a bit for each field: the fields that are null, and those that must not be.
    """
    bits = {name: 1 << at for at, name in enumerate(_KINDS)}
    common = sum(bits[name] for name in event_v1.COMMON if name not in _MAY_BE_NULL)
    needed = " ".join(
        f"WHEN '{kind}' THEN {common | sum(bits[name] for name in required)}L"
        for kind, (required, _) in event_v1.OF_TYPE.items()
    )
    null = " | ".join(f"IF({_said(name)} IS NULL, {bit}L, 0L)" for name, bit in bits.items())
    return f"coalesce((({null}) & CASE {_said('type')} {needed} END) <> 0, true)"


def _is_no_time(name: str) -> str:
    """Returns SQL: whether a time could not be parsed, or is out of the accepted range."""
    read = _read_as(name)
    return f"({_said(name)} IS NOT NULL AND coalesce({read} > {_LATEST} OR {read} < {_OLDEST}, true))"


def _may_be_no_text() -> str:
    """Returns SQL: whether a text field may have been a number, a boolean, an array or an object in the JSON.

    Checks all text fields at once, each on a line of its own. The type and the times are checked elsewhere.
    """
    names = [name for name, kind in _KINDS.items() if isinstance(kind, StringType)]
    texts = ", ".join(_said(name) for name in names if name not in (*_TIMES, "type"))
    return rf"concat_ws('\n', {texts}) RLIKE r'{_NO_TEXT}'"


def _has_null(value: str) -> str:
    """Returns SQL: whether an array has a null. A search for an absent value then gives null, not false."""
    return f"({value} IS NOT NULL AND array_contains({value}, {_IN_VAIN}) IS NULL)"


def _has_odd_entry(value: str) -> str:
    """Returns SQL: whether a map contains null, or the same key twice."""
    has_null = f"array_contains(map_values({value}), {_IN_VAIN}L) IS NULL"
    return f"({value} IS NOT NULL AND size({value}) > 0 AND ({has_null} OR {_has_key_twice(value)}))"


def _has_key_twice(value: str) -> str:
    return f"size(array_distinct(map_keys({value}))) <> size({value})"


def _is_no_histogram(value: str) -> str:
    """Returns SQL: whether a map has a key that is no bucket. Joins all keys, each followed by a comma."""
    keys = f"concat(array_join(map_keys({value}), ','), ',')"
    commas = f"octet_length({keys}) - octet_length(replace({keys}, ',', ''))"
    are_buckets = f"({keys} RLIKE r'^(?:{BUCKETS},)*$' AND {commas} = size({value}))"
    return f"({value} IS NOT NULL AND size({value}) > 0 AND NOT {are_buckets})"


def _line_fault() -> str:
    """Returns the SQL of the fault of a line, as far as it does not depend on the meaning of fields."""
    maps = [name for name, kind in _KINDS.items() if isinstance(kind, MapType)]
    has_key_twice = " OR ".join(f"coalesce({_has_key_twice(_said(name))}, false)" for name in maps)
    return f"""CASE
        WHEN octet_length(line) > {MAX_LINE_BYTES} THEN {fault(TOO_LONG, "octet_length(line) || ' bytes'")}
        WHEN NOT is_valid_utf8(line) THEN {fault(INVALID_UTF8)}
        ELSE {json_fault(_TEXT, f"(read.refused IS NOT NULL OR {has_key_twice})")} END"""


def _event_fault() -> str:
    """Returns the SQL of the fault of an event whose fields have the right types."""
    version, kind, missing = _said("v"), _said("type"), _missing_field()
    found = [
        (f"{version} IS NULL", fault(NO_VERSION)),
        (f"{version} <> {event_v1.VERSION}", fault(UNKNOWN_VERSION, version)),
        (f"{kind} NOT IN ({_TYPES})", fault(UNKNOWN_TYPE, kind)),
        (f"{missing} IS NOT NULL", fault(MISSING_FIELD, missing)),
    ]
    reported = {name: f"'{name}: ' || {_said(name)}" for name in _TIMES}
    unread = {name: f"{_said(name)} IS NOT NULL AND {_read_as(name)} IS NULL" for name in _TIMES}
    found += [(unread[name], fault(BAD_TIME, reported[name])) for name in _TIMES]
    found += [(f"{_read_as(name)} > {_LATEST}", fault(CLOCK_AHEAD, reported[name])) for name in _TIMES]
    found += [(f"{_read_as(name)} < {_OLDEST}", fault(TOO_OLD, reported[name])) for name in _TIMES]
    of_fields = "CASE " + " ".join(f"WHEN {is_so} THEN {what}" for is_so, what in found) + " END"
    return f"coalesce({of_fields}, {fault_of_values(_said, _read_as)})"


def _missing_field() -> str:
    """Returns the name of the first required field that the event lacks; null if it has all."""
    common = [name for name in event_v1.COMMON if name not in _MAY_BE_NULL]
    by_type = " ".join(
        f"WHEN '{kind}' THEN {_first_null(required)}" for kind, (required, _) in event_v1.OF_TYPE.items()
    )
    return f"coalesce({_first_null(common)}, CASE {_said('type')} {by_type} END)"


def _first_null(names: Iterable[str]) -> str:
    return "CASE " + " ".join(f"WHEN {_said(name)} IS NULL THEN '{name}'" for name in names) + " END"
