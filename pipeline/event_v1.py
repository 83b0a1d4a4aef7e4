"""Event v1 for Spark: one flat row for all types; fields of other types are null.

The sidecar owns the format (docs/events.md, docs/event-v1.schema.json); a test checks that both are equal.
Fields added by a later sidecar are not read; a missing field is null. Times are texts here, RFC 3339 with
microseconds in UTC, and become timestamps in bronze.

Also here: the reasons why a line is rejected. If several apply, the first one in the list is reported.
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
    StructField,
    StructType,
)

VERSION: Final = 1

PARTITION: Final = "metadata.partition"
TOPIC: Final = "metadata.topic"
REFRESH: Final = "metadata.refresh"
WINDOW: Final = "produce.window"
CONNECTION: Final = "connection"
HEARTBEAT: Final = "heartbeat"

#: The fields of every event.
COMMON: Final[dict[str, DataType]] = {
    "v": ShortType(),
    "type": StringType(),
    "cluster_id": StringType(),
    "sidecar_id": StringType(),
    "service": StringType(),
    "boot_id": LongType(),
    "seq": LongType(),
    "observed_at": StringType(),
}

#: Further fields of some types. A name means the same in all of them.
FIELDS: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "topic_id": StringType(),
    "partition": IntegerType(),
    "leader": IntegerType(),
    "leader_epoch": IntegerType(),
    "isr": ArrayType(IntegerType()),
    "replicas": ArrayType(IntegerType()),
    "offline": ArrayType(IntegerType()),
    "metadata_version": LongType(),
    "broker": IntegerType(),
    "reason": StringType(),
    "change": StringType(),
    "partitions": IntegerType(),
    "topics": IntegerType(),
    "changed": IntegerType(),
    "duration_us": LongType(),
    "outcome": StringType(),
    "started_at": StringType(),
    "records": LongType(),
    "batches": LongType(),
    "bytes": LongType(),
    "retries": LongType(),
    "errors": MapType(StringType(), LongType()),
    "latency_us": MapType(StringType(), LongType()),
    "state": StringType(),
    "uptime_ms": LongType(),
    "dropped": LongType(),
    "metadata_max_age_ms": LongType(),
    "version": StringType(),
}

#: The fields of each type: the required ones, then those that may be null or missing.
OF_TYPE: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    PARTITION: (
        ("topic", "partition", "isr", "replicas", "offline", "metadata_version", "reason"),
        ("topic_id", "leader", "leader_epoch", "broker"),
    ),
    TOPIC: (("topic", "change", "metadata_version"), ("topic_id", "partitions")),
    REFRESH: (
        ("duration_us", "topics", "partitions", "changed", "reason", "outcome", "metadata_version"),
        ("broker",),
    ),
    WINDOW: (
        (
            "topic",
            "partition",
            "started_at",
            "records",
            "batches",
            "bytes",
            "retries",
            "errors",
            "latency_us",
        ),
        ("broker",),
    ),
    CONNECTION: (("broker", "state"), ("reason",)),
    HEARTBEAT: (("uptime_ms", "dropped", "topics", "partitions", "metadata_max_age_ms", "version"), ()),
}

SCHEMA: Final = StructType([StructField(name, kind) for name, kind in (COMMON | FIELDS).items()])

#: The latency histogram maps a bucket's number to a number of records. Four buckets per doubling, so a bound
#: is at most a quarter above the measured value. Histograms can be added up.
SUB_BUCKETS: Final = 4
#: The bucket of the longest latency that an int64 can hold, in microseconds.
LAST_BUCKET: Final = 247


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


def bucket_of(latency_us: int) -> int:
    if latency_us < SUB_BUCKETS:
        return max(latency_us, 0)
    shift = latency_us.bit_length() - 3
    return SUB_BUCKETS * shift + (latency_us >> shift)


def upper_bound_us(bucket: int) -> int:
    """Returns the first latency above the bucket, in microseconds."""
    if bucket < SUB_BUCKETS:
        return bucket + 1
    shift, mantissa = bucket // SUB_BUCKETS - 1, bucket % SUB_BUCKETS + SUB_BUCKETS
    return (mantissa + 1) << shift
