"""Lines into events and rejects: each line that is not empty is in exactly one of the two.

    classified = parse(raw)          # raw: line, source, received_at, as sources.py gives them
    events(classified)               # bronze_events: the fields of event v1, times as timestamps
    rejects(classified)              # bronze_rejects: why, and what the line looked like

A line is read once, by Spark's JSON reader, which is quick and too kind: it takes a number or an object for a
text, and the first value of a line for all of it, and of a field that it can't read it says no more than that
there is one. So what it gave is looked at for signs of that, which costs little, and a line that shows them
is read again by one that knows exactly (`json_faults.py`).

Of a field given twice the last one counts, as everywhere in Spark. Fields that event v1 does not have are not
looked at. Native expressions only: no action, no clock, no Python at run time. They are SQL text: as Columns
they would be thousands of calls to Java for each batch.
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

#: Columns of what `parse` gives; events have a field `reason` of their own.
REJECT_REASON: Final = "reject_reason"
REJECT_DETAIL: Final = "reject_detail"
#: An event has some 400 bytes; one with a hundred replicas, or with every error there is, a few thousand.
MAX_LINE_BYTES: Final = 256 * 1024
#: What of a rejected line is kept, in characters.
LINE_HEAD_CHARS: Final = 1_000
#: A clock that is further ahead is wrong, and would put events into hours that are still to come.
MAX_AHEAD_S: Final = 3_600
#: A clock that was never set begins in 1970 or 2000.
OLDEST: Final = "2020-01-01T00:00:00Z"

#: Null beyond the last timestamp that there is, as a file's time may be.
_LATEST: Final = f"try_add(received_at, INTERVAL {MAX_AHEAD_S} SECONDS)"
_OLDEST: Final = f"TIMESTAMP '{OLDEST}'"
_TYPES: Final = ", ".join(f"'{each}'" for each in event_v1.OF_TYPE)

#: Of what every event has: it is null until the brokers have told it.
_MAY_BE_NULL: Final = ("cluster_id",)
_TIMES: Final = ("observed_at", "started_at")
_HISTOGRAM: Final = "latency_us"
#: Behind the time: Z or an offset. Spark alone would take "2026" and "10:00", too.
_RFC_3339: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$"
_NO_TEXT: Final = r"(?m)^(?:[{\[]|(?:true|false|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$)"
_DETAIL_CHARS: Final = 200
#: No broker has this number, and no count is less than 0.
_IN_VAIN: Final = -(2**31)

#: The line is read as the only element of an array, and a mark behind it: whatever ends before its end, or
#: goes on after its value, breaks the whole, makes a second element, or swallows the mark.
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
    # Spark's defaults take both, which JSON does not have.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
#: The line without what may stand around a JSON value: white space, and the mark that some editors put first.
_TEXT: Final = r"""
    CASE WHEN startswith(line, '{') AND endswith(line, '}') THEN line
         ELSE btrim(line, ' \t\r\n\uFEFF') END"""
_IS_READABLE: Final = f"(octet_length(line) <= {MAX_LINE_BYTES} AND is_valid_utf8(line))"
_EVENT: Final = "get(read.lines, 0)"
#: Always true. Spark copies what is free of side effects into the filters above it, to be worked out there
#: again, dozens of times in our case. It leaves alone what may differ from one evaluation to the next, as the
#: number of a partition could; but that is never negative.
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
    """The lines with what they say and what is wrong with them: the columns of bronze_events, and
    `reject_reason` (null: an event), `reject_detail`, `source`, and `line` (null for an event).

    Both tables are made of it: cache it, or its work is done for each of them.
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
    """bronze_events: the lines that are events of version 1."""
    return classified.where(f"{REJECT_REASON} IS NULL").select(*EVENTS_SCHEMA.names)


def rejects(classified: DataFrame) -> DataFrame:
    """bronze_rejects: the other lines. Bytes and hash are of the line as it came."""
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
    """The lines that are not empty, with what the quick reader makes of them in `read`."""
    # In a step before the reading, which Spark interprets together with all that goes into it.
    whole = f"CASE WHEN {_IS_READABLE} AND {_STAYS_HERE} THEN concat('{_BEFORE}', {_TEXT}, '{_AFTER}') END"
    lines = raw.where(f"{_TEXT} <> ''").selectExpr("line", "source", "received_at", f"{whole} AS whole")
    return lines.select("line", "source", "received_at", F.from_json("whole", _READ, _OPTIONS).alias("read"))


def _doubted(read: DataFrame) -> DataFrame:
    """With `is_doubted`: whether anything may be wrong with a line; and its times, which took some reading.

    This is what every line goes through, so it is quick: signs, no reasons. A step of its own, which Spark
    turns into one piece of code; with lambdas in it, as the exact look has, it would be a hundred.
    """
    times = read.selectExpr("*", *(f"{_time(name)} AS {_read_as(name)}" for name in _TIMES))
    return times.selectExpr("*", f"({' OR '.join(_signs())} OR NOT {_STAYS_HERE}) AS is_doubted")


def _said(name: str) -> str:
    """A field as the line has it; null if it has it not, or as what event v1 does not want."""
    return f"{_EVENT}.{name}"


def _time(name: str) -> str:
    """A field as a timestamp; null if it is no time by RFC 3339."""
    return f"CASE WHEN {_said(name)} RLIKE r'{_RFC_3339}' THEN try_cast({_said(name)} AS TIMESTAMP) END"


def _read_as(name: str) -> str:
    """The column with a field as a timestamp."""
    return f"{name}_read"


def _as_it_is_kept(name: str) -> str:
    """A column of bronze_events."""
    if name == "received_at":
        return name
    return _read_as(name) if name in _TIMES else _said(name)


def _signs() -> list[str]:
    """What no event shows, and every line that is none."""
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
    """Whether an event is of no type that is known, or has null in a field that its type must have.

    By two numbers of as many bits as there are fields: which are null, and which must not be.
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
    """Whether a time was not read, or is none that an event can have."""
    read = _read_as(name)
    return f"({_said(name)} IS NOT NULL AND coalesce({read} > {_LATEST} OR {read} < {_OLDEST}, true))"


def _may_be_no_text() -> str:
    """Whether a text may have been a number, a truth value, an array or an object: those look like this.

    All texts are looked at as the lines of one. The type is none of them, it is known; nor are times.
    """
    names = [name for name, kind in _KINDS.items() if isinstance(kind, StringType)]
    texts = ", ".join(_said(name) for name in names if name not in (*_TIMES, "type"))
    return rf"concat_ws('\n', {texts}) RLIKE r'{_NO_TEXT}'"


def _has_null(value: str) -> str:
    """Whether an array holds a null: only then the answer to a search in vain is neither yes nor no."""
    return f"({value} IS NOT NULL AND array_contains({value}, {_IN_VAIN}) IS NULL)"


def _has_odd_entry(value: str) -> str:
    """Whether a map holds a null, or a key twice."""
    has_null = f"array_contains(map_values({value}), {_IN_VAIN}L) IS NULL"
    return f"({value} IS NOT NULL AND size({value}) > 0 AND ({has_null} OR {_has_key_twice(value)}))"


def _has_key_twice(value: str) -> str:
    return f"size(array_distinct(map_keys({value}))) <> size({value})"


def _is_no_histogram(value: str) -> str:
    """Whether a map has a key that is no bucket. All are one text, a comma behind each and none within."""
    keys = f"concat(array_join(map_keys({value}), ','), ',')"
    commas = f"octet_length({keys}) - octet_length(replace({keys}, ',', ''))"
    are_buckets = f"({keys} RLIKE r'^(?:{BUCKETS},)*$' AND {commas} = size({value}))"
    return f"({value} IS NOT NULL AND size({value}) > 0 AND NOT {are_buckets})"


def _line_fault() -> str:
    """What is wrong with the line, as far as it can be told without knowing what the fields mean."""
    maps = [name for name, kind in _KINDS.items() if isinstance(kind, MapType)]
    has_key_twice = " OR ".join(f"coalesce({_has_key_twice(_said(name))}, false)" for name in maps)
    return f"""CASE
        WHEN octet_length(line) > {MAX_LINE_BYTES} THEN {fault(TOO_LONG, "octet_length(line) || ' bytes'")}
        WHEN NOT is_valid_utf8(line) THEN {fault(INVALID_UTF8)}
        ELSE {json_fault(_TEXT, f"(read.refused IS NOT NULL OR {has_key_twice})")} END"""


def _event_fault() -> str:
    """What is wrong with an event whose fields are of the right types."""
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
    """The name of the first field that an event of its type must have and has not; null if it has all."""
    common = [name for name in event_v1.COMMON if name not in _MAY_BE_NULL]
    by_type = " ".join(
        f"WHEN '{kind}' THEN {_first_null(required)}" for kind, (required, _) in event_v1.OF_TYPE.items()
    )
    return f"coalesce({_first_null(common)}, CASE {_said('type')} {by_type} END)"


def _first_null(names: Iterable[str]) -> str:
    return "CASE " + " ".join(f"WHEN {_said(name)} IS NULL THEN '{name}'" for name in names) + " END"
