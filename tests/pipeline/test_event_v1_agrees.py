"""The pipeline reads what a sidecar writes: names, types, nullable fields, and the histogram."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
)

from pipeline import event_v1 as read
from service.events import event_v1 as written
from service.events.schema import event_schema

DEFINITIONS: dict[str, dict[str, Any]] = event_schema()["$defs"]
WRITTEN = {
    name: DEFINITIONS[kind.__name__]["properties"]
    for name, kind in zip(written.TYPE_NAMES, written.TYPES, strict=True)
}


def of_value(schema: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without the null that it may be."""
    values: list[dict[str, Any]] = schema.get("anyOf", [schema])
    (value,) = [one for one in values if one.get("type") != "null"]
    return value


def spark_type(schema: dict[str, Any]) -> DataType:
    """The type in Spark of what a field holds."""
    if "enum" in schema:
        return ShortType() if schema["enum"] == [written.VERSION] else StringType()
    match schema["type"]:
        case "string":
            return StringType()
        case "integer":
            return IntegerType() if schema["maximum"] == 2**31 - 1 else LongType()
        case "array":
            return ArrayType(spark_type(schema["items"]))
        case "object":
            return MapType(StringType(), spark_type(schema["additionalProperties"]))
        case other:
            raise AssertionError(f"nobody reads a field of type {other}")


def may_be_null(schema: dict[str, Any]) -> bool:
    return {"type": "null"} in schema.get("anyOf", ())


def test_the_version_is_the_same() -> None:
    assert read.VERSION == written.VERSION


def test_the_types_of_events_are_the_same() -> None:
    assert sorted(read.OF_TYPE) == sorted(WRITTEN)


def test_every_field_that_is_written_is_read_as_what_it_is() -> None:
    types = {
        field: spark_type(of_value(schema))
        for properties in WRITTEN.values()
        for field, schema in properties.items()
    }
    assert types == read.COMMON | read.FIELDS


def test_each_type_must_have_what_is_always_written_and_may_lack_what_may_be_null() -> None:
    for name, properties in WRITTEN.items():
        own = {field: schema for field, schema in properties.items() if field not in read.COMMON}
        required = {field for field, schema in own.items() if not may_be_null(schema)}
        asked, optional = read.OF_TYPE[name]
        assert (set(asked), set(optional)) == (required, own.keys() - required), name


def test_the_common_fields_come_first_and_in_the_same_order() -> None:
    for properties in WRITTEN.values():
        assert tuple(properties)[: len(read.COMMON)] == tuple(read.COMMON)


@given(st.integers(-5, 2**45))
def test_the_histogram_has_the_same_buckets(latency_us: int) -> None:
    bucket = written.bucket_of(latency_us)
    assert bucket == read.bucket_of(latency_us)
    assert latency_us < read.upper_bound_us(bucket)
    assert bucket == 0 or read.upper_bound_us(bucket - 1) <= latency_us
