"""Event v1 as it is written: each type's fields in their order, times, the samples of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from service.events.event_v1 import TYPE_NAMES, TYPES, Event, bucket_of, encode, time_text
from service.events.schema import event_schema, schema_text

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

COMMON = ("v", "type", "cluster_id", "sidecar_id", "service", "boot_id", "seq", "observed_at")
FIELDS = {
    "metadata.partition": (
        *("topic", "topic_id", "partition", "leader", "leader_epoch", "isr", "replicas", "offline"),
        *("metadata_version", "broker", "reason"),
    ),
    "metadata.topic": ("change", "topic", "topic_id", "partitions", "metadata_version"),
    "metadata.refresh": (
        *("duration_us", "broker", "topics", "partitions", "changed", "reason", "outcome"),
        "metadata_version",
    ),
    "produce.window": (
        *("started_at", "topic", "partition", "broker", "records", "batches", "bytes", "retries"),
        *("errors", "latency_us"),
    ),
    "connection": ("broker", "state", "reason"),
    "heartbeat": ("uptime_ms", "dropped", "topics", "partitions", "metadata_max_age_ms", "version"),
}
KINDS: dict[str, type[Event]] = dict(zip(TYPE_NAMES, TYPES, strict=True))


def samples() -> list[str]:
    """The lines of events that the documentation shows."""
    return re.findall(r"^\{\"v\":1.*\}$", (DOCS / "events.md").read_text(), re.MULTILINE)


def test_each_type_has_its_fields_in_their_order() -> None:
    assert {name: kind.__struct_fields__ for name, kind in KINDS.items()} == {
        name: (*COMMON, *fields) for name, fields in FIELDS.items()
    }


def test_the_schema_in_the_documentation_is_that_of_the_code() -> None:
    assert (DOCS / "event-v1.schema.json").read_text() == schema_text()


@pytest.mark.parametrize("line", samples(), ids=lambda line: json.loads(line)["type"])
def test_a_sample_of_the_documentation_is_what_a_sidecar_writes(line: str) -> None:
    event = json.loads(line)
    assert jsonschema_rs.Draft202012Validator(event_schema()).is_valid(event)
    assert encode(msgspec.json.decode(line, type=KINDS[event["type"]])).decode() == line


def test_the_documentation_shows_a_sample_of_each_type() -> None:
    assert sorted(json.loads(line)["type"] for line in samples()) == sorted(TYPE_NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": 2},
        {"seq": "1"},
        {"observed_at": "2026-11-21T10:00:00Z"},
        {"type": "unheard.of"},
        {"topic": None},
    ],
)
def test_the_schema_refuses_what_no_sidecar_writes(wrong: dict[str, Any]) -> None:
    (line,) = (line for line in samples() if '"metadata.partition"' in line)
    event = json.loads(line)
    validator = jsonschema_rs.Draft202012Validator(event_schema())
    assert not validator.is_valid({**event, **wrong})
    assert not validator.is_valid({name: value for name, value in event.items() if name != "isr"})
    assert validator.is_valid({**event, "a_later_field": 1})


@pytest.mark.parametrize(
    ("wall_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_795_255_200_123, "2026-11-21T10:00:00.123000Z"),
        (1_795_255_200_007, "2026-11-21T10:00:00.007000Z"),
    ],
)
def test_a_time_has_six_digits_and_is_utc(wall_ms: int, text: str) -> None:
    assert time_text(wall_ms) == text


def test_a_bucket_is_a_quarter_of_a_doubling() -> None:
    assert [bucket_of(us) for us in (-1, 0, 1, 3, 4, 7, 8, 9, 10, 16, 1_000, 60_000_000)] == [
        *(0, 0, 1, 3, 4, 7, 8, 8, 9, 12, 35, 99),
    ]
