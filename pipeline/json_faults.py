"""What is wrong with a line as JSON, exactly: the slow second look, for lines that `bronze.py` doubts.

Spark's variant knows what every value was in the text, which its quick JSON reader does not tell: 5 and "5"
are one to it where a text is wanted. A line is read twice, between brackets and behind a key, for a reader
that stops at the end of the first value takes `{…}]` and `{…}}` for whole: it is one JSON value if and only
if both readings end with one. Needs the session's `spark.sql.variant.allowDuplicateKeys` (session.py).

Costs some 50 µs a line. It is SQL, in which one can give a name to what is used more than once: each use of
a Column is a copy, and the plan would have thousands. Spark interprets lambdas, which keeps all this out of
the code that it generates for the other lines.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
)

from pipeline import event_v1
from pipeline.event_v1 import NO_VERSION, NOT_AN_OBJECT, NOT_JSON, UNKNOWN_VERSION, WRONG_TYPE

#: Keys of a histogram: numbers of buckets, up to that of the longest latency an int64 holds (247).
BUCKETS: Final = r"(?:[0-9]{1,2}|1[0-9]{2}|2[0-3][0-9]|24[0-7])"
_HISTOGRAM: Final = "latency_us"
_TWICE: Final = "a duplicate name"
#: The type of a JSON integer of 19 to 38 digits that no int64 holds; one of few digits is a float like 1.0.
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
    """struct<reason, detail> of a text that is no JSON object, of another version, or has a field of the
    wrong type; null for one in order.

    `is_refused` is whether there is a fault in any case. Then, where every value is of the right type, it
    lies in one that another of the same name has taken the place of. SQL takes and gives SQL.
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
    """struct<reason, detail>, the detail null where the reason says it all."""
    return f"named_struct('reason', '{reason}', 'detail', CAST({detail} AS STRING))"


def _let(name: str, value: str, body: str) -> str:
    """SQL for the body, in which the name stands for the value."""
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
    """The name of the first field whose value is of another type than event v1 has it."""
    wanted = ", ".join(
        f"named_struct('name', '{name}', 'kind', '{_kind(kind)}', 'most', {_most(kind)}L)"
        for name, kind in (event_v1.COMMON | event_v1.FIELDS).items()
    )
    is_wrong = _let("value", f"try_element_at({fields}, field.name)", f"NOT ({_fits('value', 'field')})")
    return f"get(filter(array({wanted}), field -> {is_wrong}), 0).name"


def _fits(value: str, field: str) -> str:
    """Whether a value, absent or null or there, is one that the field may have."""
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
    """Whether a variant is a JSON integer, and no greater than the type of its field allows."""
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
    """The greatest number that a field, or an element of it, can hold; 0 for a text."""
    match kind:
        case ArrayType():
            return _most(kind.elementType)
        case MapType():
            return _most(kind.valueType)
        case _:
            return _MOST.get(type(kind), 0)
