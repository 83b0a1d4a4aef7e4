"""Finds what is wrong with a line as JSON: the slow, exact check for lines that `bronze.py` doubts.

Spark's variant keeps the JSON type of each value. Its fast JSON reader does not: it reads 5 and "5" as the
same text. The variant parser stops at the end of the first value, so one parse would accept `{…}]` and
`{…}}`. So each line is parsed twice: between brackets, and as the value of a key. A line is one JSON value if
and only if both parse to one value. Needs the session's `spark.sql.variant.allowDuplicateKeys` (session.py).

Costs about 50 µs a line. The check is SQL text, because SQL can name a value that is used repeatedly. A
Column is copied at each use, and the plan would hold thousands of copies. Spark interprets lambdas, which
keeps these expressions out of the code generated for the other lines.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, ShortType, StringType

from pipeline import event_v1
from pipeline.event_v1 import NO_VERSION, NOT_AN_OBJECT, NOT_JSON, UNKNOWN_VERSION, WRONG_TYPE

#: Keys of a histogram: bucket numbers up to 247, the bucket of the longest latency that an int64 can hold.
BUCKETS: Final = r"(?:[0-9]{1,2}|1[0-9]{2}|2[0-3][0-9]|24[0-7])"
_HISTOGRAM: Final = "latency_us"
_TWICE: Final = "a duplicate name"
#: The type of a JSON integer of 19 to 38 digits beyond int64. A DECIMAL of fewer digits is a number such as
#: 1.0, which is no JSON integer.
_BEYOND_INT64: Final = r"^DECIMAL[(](?:19|[23][0-9]),0[)]$"

_TEXT: Final = "text"
_NUMBER: Final = "number"
_NUMBERS: Final = "numbers"
_COUNTS: Final = "counts"
_MOST: Final[dict[type[DataType], int]] = {
    ShortType: 2**15 - 1,
    IntegerType: 2**31 - 1,
    LongType: 2**63 - 1,
}


def json_fault(text: str, is_refused: str) -> str:
    """Returns the SQL of struct<reason, detail>; null for a valid text.

    A text is at fault if it is no JSON object, has another version, or has a field of the wrong type.

    `is_refused` is SQL that is true if it is certain that the line has a fault. If every value found has the
    right type nevertheless, the fault is a duplicate name: the variant keeps only its last value, and an
    earlier one had the wrong type. `text` is SQL too.
    """
    value = f"try_variant_get(try_parse_json(concat('[', {text}, ']')), '$[0]', 'variant')"
    fields = _as("value", "map<string,variant>")
    of_value = f"""
        CASE WHEN NOT coalesce(startswith(schema_of_variant(value), 'OBJECT'), false)
             THEN {fault(NOT_AN_OBJECT)}
             ELSE {_let("fields", fields, _fault_of_fields("fields", is_refused))} END"""
    return f"""
        CASE WHEN NOT coalesce({_is_one_value(text)}, false) THEN {fault(NOT_JSON)}
             ELSE {_let("value", value, of_value)} END"""


def fault(reason: str, detail: str = "NULL") -> str:
    """Returns the SQL of struct<reason, detail>; the detail is null if the reason is enough."""
    return f"named_struct('reason', '{reason}', 'detail', CAST({detail} AS STRING))"


def _let(name: str, value: str, body: str) -> str:
    """Returns the SQL of the body, in which the name refers to the value."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def _as(value: str, kind: str) -> str:
    return f"try_variant_get({value}, '$', '{kind}')"


def _is_one_value(text: str) -> str:
    in_brackets = _as(f"try_parse_json(concat('[', {text}, ']'))", "array<variant>")
    behind_a_key = _as(f"""try_parse_json(concat('{{"e":', {text}, '}}'))""", "map<string,variant>")
    return f"(size({in_brackets}) = 1 AND size({behind_a_key}) = 1)"


def _fault_of_fields(fields: str, is_refused: str) -> str:
    number = _as("version", "bigint")
    of_version = f"""
        CASE WHEN coalesce(schema_of_variant(version), 'VOID') = 'VOID' THEN {fault(NO_VERSION)}
             WHEN schema_of_variant(version) = 'BIGINT' AND {number} <> {event_v1.VERSION}
               OR schema_of_variant(version) RLIKE r'{_BEYOND_INT64}'
             THEN {fault(UNKNOWN_VERSION, _as("version", "string"))}
        END"""
    of_types = f"""
        CASE WHEN wrong IS NOT NULL THEN {fault(WRONG_TYPE, "wrong")}
             WHEN {is_refused} THEN {fault(WRONG_TYPE, f"'{_TWICE}'")}
        END"""
    of_the_version = _let("version", f"try_element_at({fields}, 'v')", of_version)
    return f"coalesce({of_the_version}, {_let('wrong', _first_wrong(fields), of_types)})"


def _first_wrong(fields: str) -> str:
    """Returns the SQL of the name of the first field whose type is not that of event v1."""
    wanted = ", ".join(
        f"named_struct('name', '{name}', 'kind', '{_kind(kind)}', 'most', {_most(kind)}L)"
        for name, kind in (event_v1.COMMON | event_v1.FIELDS).items()
    )
    is_wrong = _let("value", f"try_element_at({fields}, field.name)", f"NOT ({_fits('value', 'field')})")
    return f"get(filter(array({wanted}), field -> {is_wrong}), 0).name"


def _fits(value: str, field: str) -> str:
    """Returns SQL: whether a value, which may be absent or null, is allowed for the field."""
    counts = _as(value, "map<string,variant>")
    each_number = _is_number("each", f"{field}.most")
    is_bucket = f"key -> key RLIKE r'^{BUCKETS}$'"
    return f"""
        coalesce(schema_of_variant({value}), 'VOID') = 'VOID' OR coalesce(CASE {field}.kind
            WHEN '{_TEXT}' THEN schema_of_variant({value}) = 'STRING'
            WHEN '{_NUMBER}' THEN {_is_number(value, f"{field}.most")}
            WHEN '{_NUMBERS}' THEN forall({_as(value, "array<variant>")}, each -> {each_number})
            ELSE forall(map_values({counts}), each -> {each_number})
             AND ({field}.name <> '{_HISTOGRAM}' OR forall(map_keys({counts}), {is_bucket}))
        END, false)"""


def _is_number(value: str, most: str) -> str:
    """Returns SQL: whether a variant is a JSON integer within the range of its field's type."""
    return (
        f"(coalesce(schema_of_variant({value}), 'VOID') = 'BIGINT'"
        f" AND {_as(value, 'bigint')} BETWEEN -{most} - 1 AND {most})"
    )


def _kind(kind: DataType) -> str:
    match kind:
        case StringType():
            return _TEXT
        case ArrayType():
            return _NUMBERS
        case MapType():
            return _COUNTS
        case _:
            return _NUMBER


def _most(kind: DataType) -> int:
    """Returns the maximum of a numeric field or of its elements; 0 for a text."""
    match kind:
        case ArrayType():
            return _most(kind.elementType)
        case MapType():
            return _most(kind.valueType)
        case _:
            return _MOST.get(type(kind), 0)
