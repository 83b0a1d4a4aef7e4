"""Our messages as kio's and back, and random messages that both can hold.

kio generates its classes from the same definitions of Kafka's, independently of us: one class per version,
a timedelta where we keep milliseconds, an enum where we keep an error's number, None where we keep the zero
uuid. Fields are matched by name here, so that a field that one of the two lacks is a KeyError and not
overlooked.

Values that are narrower than Kafka's own range, since kio can't hold more:

    error codes           those that kio has a name for
    log_append_time       -1 (no time) or a time before the year 10000; kio has a datetime
    session_lifetime      within 2**52 ms either way; kio calculates it as a float of seconds

These messages have no unknown tags: kio raises KeyError on them.
"""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.protocol.messages import GeneratedMessage, field_notes, is_in_version

_ZERO_UUID: Final = UUID(int=0)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME_MS: Final = -1
_YEAR_10000_MS: Final = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MAX_ELEMENTS: Final = 2

#: kio keeps Kafka's name where a NamedTuple can't: tuples have a method `index`.
_RENAMED: Final = {"index": "partition_index"}
#: Types that have a unit in our name, and none in kio's.
_TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})

_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_RANGES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "string": _TEXTS,
    "bytes": st.binary(max_size=4),
    "records": st.binary(max_size=4),
    "uuid": st.just(_ZERO_UUID) | st.uuids(),
    "error_code": st.sampled_from(sorted(ErrorCode)).map(int),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
    "timedelta_i64": st.integers(-(2**52), 2**52),
    "datetime_i64": st.just(_NO_TIME_MS) | st.integers(0, _YEAR_10000_MS),
}


class Field(NamedTuple):
    """A field of a struct in one version, on both sides."""

    ours: str
    kios: str
    kafka_type: str | None  # None for a struct
    struct: tuple[Any, Any] | None  # ours and kio's
    is_array: bool
    is_nullable: bool


def kio_class(message: GeneratedMessage, version: int) -> Any:
    """kio's class of a message in a version."""
    load = load_request_schema if message.name.endswith("Request") else load_response_schema
    return load(message.api_key, version)


def kio_writes(message: Any) -> bytes:
    """The bytes that kio makes of a message or a header of its own."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def kio_reads(kind: Any, data: bytes, offset: int = 0) -> Any:
    """The message or header of kio's in these bytes, of which it must leave none."""
    message, size = entity_reader(kind)(data, offset)
    assert offset + size == len(data), f"kio left {len(data) - offset - size} bytes of {kind.__name__}"
    return message


@cache
def both_can_hold(ours: Any, kios: Any) -> st.SearchStrategy[Any]:
    """Messages of ours in which everything that kio's version has differs from its default."""
    drawn = {field.ours: _strategy(field) for field in fields_of(ours, kios)}
    return st.fixed_dictionaries(drawn).map(lambda values: ours(**values))


def _strategy(field: Field) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        values = both_can_hold(*field.struct)
    else:
        assert field.kafka_type is not None
        values = _RANGES[field.kafka_type]
    if field.is_array:
        values = st.lists(values, max_size=_MAX_ELEMENTS).map(tuple)
    return st.none() | values if field.is_nullable else values


def as_kios(message: Any, kios: Any) -> Any:
    """A message of ours as kio's."""
    ours: Any = type(message)
    return kios(
        **{
            field.kios: _converted(getattr(message, field.ours), field, as_kios, _kio_value, kios_side=True)
            for field in fields_of(ours, kios)
        }
    )


def as_ours(message: Any, ours: Any) -> Any:
    """A message of kio's as ours."""
    kios: Any = type(message)
    return ours(
        **{
            field.ours: _converted(getattr(message, field.kios), field, as_ours, _our_value, kios_side=False)
            for field in fields_of(ours, kios)
        }
    )


def _converted(value: Any, field: Field, struct: Any, primitive: Any, *, kios_side: bool) -> Any:
    if value is None and (field.is_array or field.struct is not None):
        return None

    def one(element: Any) -> Any:
        if field.struct is not None:
            return struct(element, field.struct[1 if kios_side else 0])
        return primitive(element, field.kafka_type)

    return tuple(map(one, value)) if field.is_array else one(value)


def _kio_value(value: Any, kafka_type: str) -> Any:
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * _MILLISECOND
        case "datetime_i64":
            return None if value == _NO_TIME_MS else _EPOCH + value * _MILLISECOND
        case "uuid":
            return None if value == _ZERO_UUID else value
    return value


def _our_value(value: Any, kafka_type: str) -> Any:
    match kafka_type:
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // _MILLISECOND
        case "datetime_i64":
            # kio reads it as a float of seconds: a microsecond may be missing.
            return _NO_TIME_MS if value is None else round((value - _EPOCH) / _MILLISECOND)
        case "uuid":
            return _ZERO_UUID if value is None else value
    return value


@cache
def fields_of(ours: Any, kios: Any) -> tuple[Field, ...]:
    """The fields that a struct has in kio's version, in kio's order. KeyError for one that we lack."""
    hints = get_type_hints(ours)
    return tuple(_field(field, hints) for field in dataclasses.fields(kios))


def _field(field: dataclasses.Field[Any], hints: dict[str, Any]) -> Field:
    kafka_type = field.metadata.get("kafka_type")
    ours = _RENAMED.get(field.name, field.name)
    if kafka_type in _TIMES and ours not in hints:
        ours = f"{ours}_ms"
    kio_type, kio_nullable = _without_none(field.type)
    our_type, _ = _without_none(hints[ours])
    is_array = get_origin(kio_type) is tuple
    if is_array:
        kio_type, our_type = get_args(kio_type)[0], get_args(our_type)[0]
    struct = (our_type, kio_type) if dataclasses.is_dataclass(kio_type) else None
    # kio's None is a number of ours there, and not the wire's null.
    is_value = kafka_type in ("uuid", "datetime_i64")
    return Field(ours, field.name, kafka_type, struct, is_array, kio_nullable and not is_value)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    options = get_args(annotation)
    if NoneType not in options:
        return annotation, False
    [left] = [option for option in options if option is not NoneType]
    return left, True


def our_fields(ours: Any, version: int) -> dict[str, bool]:
    """The fields that we have in a version, and whether they may be null there."""
    return {
        name: NoneType in get_args(annotation) and is_in_version(field_notes(ours)[name].null_in, version)
        for name, annotation in get_type_hints(ours).items()
        if is_in_version(field_notes(ours)[name].versions, version)
    }


def structs_of(ours: Any, kios: Any) -> list[tuple[Any, Any]]:
    """A struct and all those within it, ours and kio's."""
    inner = [field.struct for field in fields_of(ours, kios) if field.struct is not None]
    return [(ours, kios), *(pair for struct in inner for pair in structs_of(*struct))]
