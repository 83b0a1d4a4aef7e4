"""Lines become events or rejects, each with its reason: a catalogue of cases, and many random ones."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import polars
import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType

from pipeline import bronze, event_v1
from pipeline.event_v1 import REASONS
from pipeline.value_rules import COUNTS, LISTS, NUMBERS, TEXTS
from tests.pipeline.event_lines import good, line
from tests.pipeline.fleets import examples_of
from tests.upgrades.make_fixtures import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

_RECEIVED_AT: Final = datetime(2026, 11, 21, 10, 0, 5, tzinfo=UTC)
_ADDED: Final = line().removesuffix("}")


@dataclass(frozen=True, slots=True)
class _Case:
    """A line and its expected rows; `detail` is given if the test is about it."""

    line: str | bytes
    reason: str | None
    detail: str | None = None

    @property
    def raw(self) -> bytes:
        return self.line if isinstance(self.line, bytes) else self.line.encode()


def _with(member: str) -> str:
    """A good line with one more member, written as given."""
    return f"{_ADDED},{member}}}"


def _instead(name: str, value: str, kind: str = event_v1.PARTITION) -> str:
    """A good line with a member's value written as given."""
    return line(kind, **{name: "@"}).replace('"@"', value)


_EVENTS: Final = {f"a good {kind}": _Case(line(kind), None) for kind in event_v1.OF_TYPE}

_WHITE: Final = {
    "a carriage return at the end": _Case(line() + "\r", None),
    "white space around it": _Case(f" \t{line()} \t", None),
    "white space between its members": _Case(json.dumps(good(event_v1.WINDOW), indent=1), None),
    "a byte order mark before it": _Case("\ufeff" + line(), None),
    "a mark within it": _Case(line().replace("checkout-7d9f", "a\ufeffb"), None),
}

_FUTURE: Final = {
    "a field of the future": _Case(_with('"rack":"eu-1a"'), None),
    "an object of the future with fields named like ours, of other types": _Case(
        _with('"next":{"topic":5,"partition":"three","v":2,"isr":[null],"observed_at":{}}'), None
    ),
    "a list of objects of the future": _Case(_with('"next":[{"topic":5},{"topic":6}] '), None),
    "a list of objects of the future, with doubts about another field": _Case(
        _instead("sidecar_id", '"12345"').removesuffix("}") + ',"next":[{"topic":5} ]}', None
    ),
    "a number beyond every integer in a field of the future": _Case(_with(f'"next":{"9" * 60}'), None),
    "a float of the future": _Case(_with('"next":1e400'), None),
    "deep nesting within reason": _Case(_with(f'"next":{"[" * 500}{"]" * 500}'), None),
    "a field with an empty name": _Case(_with('"":1'), None),
    "the same in capitals, which is another field": _Case(_with('"TOPIC":5,"V":2'), None),
    "a reason nobody knows yet": _Case(line(reason="gossip"), None),
}

_LOOKALIKES: Final = {
    "a sidecar whose name is a number": _Case(line(sidecar_id="12345"), None),
    "a topic named true": _Case(line(topic="true"), None),
    "a topic named null": _Case(line(topic="null"), None),
    "a service whose name looks like an object": _Case(line(service="{a}"), None),
    "a service whose name looks like a list": _Case(line(service="[1]"), None),
    "a version that is a number as text": _Case(line(event_v1.HEARTBEAT, version="1.5"), None),
    "an escape for NUL in a text": _Case(line(service="a\0b"), None),
    "half a surrogate pair, escaped": _Case(_instead("service", '"\\ud800"'), None),
}

_NULLS: Final = {
    "no cluster yet": _Case(line(cluster_id=None), None),
    "no leader and no epoch": _Case(line(leader=None, leader_epoch=None, topic_id=None, broker=None), None),
    "without the fields that may be missing": _Case(line(without="broker"), None),
    "a null in a field of another type": _Case(line(records=None, errors=None, isr=[]), None),
    "a window without errors": _Case(line(event_v1.WINDOW, errors={}, latency_us={}, records=0), None),
    "the last bucket": _Case(
        line(event_v1.WINDOW, records=10**12 + 2, latency_us={"0": 1, "99": 1, "247": 10**12}), None
    ),
}

_TWICE: Final = {
    "a field twice, both right": _Case(_with('"topic":"second"'), None),
    "a text twice, the first of another type": _Case(_instead("topic", '5,"topic":"second"'), None),
    "a number twice, the first of another type": _Case(
        _instead("partition", '"x","partition":2'), "wrong_type", "a duplicate name"
    ),
    "a text twice, the last of another type": _Case(_with('"topic":5'), "wrong_type", "topic"),
    "an error's name twice": _Case(
        _instead("errors", '{"A":1,"A":2}', event_v1.WINDOW), "wrong_type", "a duplicate name"
    ),
}

_NO_JSON: Final = {
    "half a line": _Case(line()[:100], "not_json"),
    "all but its end": _Case(line()[:-1], "not_json"),
    "its second half": _Case(line()[100:], "not_json"),
    "two events in a line": _Case(line() + line(), "not_json"),
    "two events with a comma": _Case(f"{line()},{line()}", "not_json"),
    "a bracket too many": _Case(line() + "]", "not_json"),
    "a brace too many": _Case(line() + "}", "not_json"),
    "both, as our own reading of it ends": _Case(line() + "]}", "not_json"),
    "words behind it": _Case(line() + " and more", "not_json"),
    "a comma too many": _Case(line()[:-1] + ",}", "not_json"),
    "single quotes": _Case(line().replace('"', "'"), "not_json"),
    "a comment": _Case(line()[:-1] + "/* no */}", "not_json"),
    "a leading zero": _Case(_instead("partition", "03"), "not_json"),
    "NaN": _Case(_instead("leader", "NaN"), "not_json"),
    "Infinity in a field of the future": _Case(_with('"next":Infinity'), "not_json"),
    "a raw NUL in a text": _Case(_instead("service", '"a\0b"'), "not_json"),
    "a NUL behind it": _Case(line() + "\0", "not_json"),
    "NULs only, as a crashed disk leaves them": _Case("\0" * 300, "not_json"),
    "an unescaped tab in a text": _Case(_instead("service", '"a\tb"'), "not_json"),
    "nested too deeply": _Case(_with(f'"next":{"[" * 5_000}{"]" * 5_000}'), "not_json"),
    "a number of two thousand digits": _Case(_with(f'"next":{"9" * 2_000}'), "not_json"),
    "a word": _Case("hello", "not_json"),
    "a brace": _Case("{", "not_json"),
    "a list that is cut off": _Case("[1,2", "not_json"),
    "two lists": _Case("[],[]", "not_json"),
}

_NO_OBJECT: Final = {
    "a list": _Case("[1,2]", "not_an_object"),
    "an event in a list": _Case(f"[{line()}]", "not_an_object"),
    "a number": _Case("5", "not_an_object"),
    "a text": _Case('"hello"', "not_an_object"),
    "null": _Case("null", "not_an_object"),
    "true": _Case("true", "not_an_object"),
    "an empty list": _Case("[]", "not_an_object"),
}

_VERSIONS: Final = {
    "an empty object": _Case("{}", "no_version"),
    "no version": _Case(line(without="v"), "no_version"),
    "a version that is null": _Case(line(v=None), "no_version"),
    "no version, and a field of a wrong type": _Case(line(without="v", partition="x"), "no_version"),
    "version 2": _Case(line(v=2), "unknown_version", "2"),
    "version 0": _Case(line(v=0), "unknown_version", "0"),
    "version 2, with fields of other types": _Case(line(v=2, topic=["a"], isr={}), "unknown_version", "2"),
    "a version beyond int16": _Case(line(v=70_000), "unknown_version", "70000"),
    "a version beyond int64": _Case(line(v=2**70), "unknown_version", str(2**70)),
    "a version as text": _Case(line(v="1"), "wrong_type", "v"),
    "a version of half a step": _Case(line(v=1.5), "wrong_type", "v"),
    "a version with a point": _Case(line(v=1.0), "wrong_type", "v"),
    "a version that is true": _Case(line(v=True), "wrong_type", "v"),
}


def _wrong(name: str, value: str, kind: str = event_v1.PARTITION) -> _Case:
    return _Case(_instead(name, value, kind), "wrong_type", name)


_WRONG_TYPES: Final = {
    "a number as text": _wrong("partition", '"3"'),
    "an empty text for a number": _wrong("leader", '""'),
    "a float for an integer": _wrong("partition", "3.0"),
    "an exponent for an integer": _wrong("seq", "1e3"),
    "true for a number": _wrong("broker", "true"),
    "beyond int32": _wrong("leader", str(2**31)),
    "below int32": _wrong("leader", str(-(2**31) - 1)),
    "beyond int64": _wrong("seq", str(2**63)),
    "a number for a text": _wrong("topic", "5"),
    "a negative number for a text": _wrong("service", "-5"),
    "a float for a text": _wrong("sidecar_id", "1.5"),
    "a number with an exponent for a text": _wrong("sidecar_id", "1e300"),
    "true for a text": _wrong("cluster_id", "true"),
    "false for a text": _wrong("reason", "false"),
    "an object for a text": _wrong("topic", '{"name":"orders"}'),
    "a list for a text": _wrong("topic", '["orders"]'),
    "a number for a time": _wrong("observed_at", "1763719200"),
    "a number for the type": _wrong("type", "5"),
    "a number for a list": _wrong("isr", "2"),
    "a text in a list": _wrong("isr", '[2,"3"]'),
    "a null in a list": _wrong("replicas", "[2,null]"),
    "a float in a list": _wrong("offline", "[1.5]"),
    "an object for a list": _wrong("isr", "{}"),
    "a list of lists": _wrong("isr", "[[2]]"),
    "beyond int32 in a list": _wrong("isr", f"[{2**31}]"),
    "a list for counts": _wrong("errors", "[]", event_v1.WINDOW),
    "a text as a count": _wrong("errors", '{"TIMEOUT":"3"}', event_v1.WINDOW),
    "a null as a count": _wrong("errors", '{"TIMEOUT":null}', event_v1.WINDOW),
    "an object as a count": _wrong("errors", '{"TIMEOUT":{"a":1}}', event_v1.WINDOW),
    "a bucket that is no number": _wrong("latency_us", '{"fast":1}', event_v1.WINDOW),
    "a bucket beyond the last": _wrong("latency_us", '{"248":1}', event_v1.WINDOW),
    "a negative bucket": _wrong("latency_us", '{"-1":1}', event_v1.WINDOW),
    "an empty bucket's name": _wrong("latency_us", '{"":1}', event_v1.WINDOW),
    "two buckets in one name": _wrong("latency_us", '{"1,2":1}', event_v1.WINDOW),
    "a wrong type before an unknown type": _Case(line(type="new", partition="x"), "wrong_type", "partition"),
}

_TYPES_AND_FIELDS: Final = {
    "an unknown type": _Case(line(type="metadata.rumour"), "unknown_type", "metadata.rumour"),
    "an unknown type without anything else": _Case('{"v":1,"type":"x"}', "unknown_type", "x"),
    "no type": _Case(line(without="type"), "missing_field", "type"),
    "no topic id of a cluster that has none": _Case(line(without="topic_id"), None),
} | {
    f"a {kind} without {name}": _Case(line(kind, without=name), "missing_field", name)
    for kind, (required, _) in event_v1.OF_TYPE.items()
    for name in ("sidecar_id", "service", "boot_id", "seq", "observed_at", *required)
}


def _at(text: str, reason: str | None) -> _Case:
    return _Case(line(observed_at=text), reason, None if reason is None else f"observed_at: {text}")


_TIMES: Final = {
    "a time in words": _at("yesterday at 5", "bad_time"),
    "a year": _at("2026", "bad_time"),
    "a day": _at("2026-11-21", "bad_time"),
    "an hour of today": _at("T10:00:00Z", "bad_time"),
    "a time without zone": _at("2026-11-21T10:00:00", "bad_time"),
    "a time with a space": _at("2026-11-21 10:00:00Z", "bad_time"),
    "a zone with a name": _at("2026-11-21T10:00:00 Europe/Rome", "bad_time"),
    "the 30th of February": _at("2026-02-30T10:00:00Z", "bad_time"),
    "hour 25": _at("2026-11-21T25:00:00Z", "bad_time"),
    "an empty time": _at("", "bad_time"),
    "without a fraction": _at("2026-11-21T10:00:00Z", None),
    "with nine digits": _at("2026-11-21T10:00:00.123456789Z", None),
    "with an offset": _at("2026-11-21T12:00:00+02:00", None),
    "as far ahead as may be": _at("2026-11-21T11:00:05.000000Z", None),
    "a microsecond further": _at("2026-11-21T11:00:05.000001Z", "clock_ahead"),
    "ten years ahead": _at("2036-11-21T10:00:00.123000Z", "clock_ahead"),
    "ahead by its offset": _at("2026-11-21T10:00:00-05:00", "clock_ahead"),
    "the first day that is taken": _at("2020-01-01T00:00:00.000000Z", None),
    "a microsecond before": _at("2019-12-31T23:59:59.999999Z", "too_old"),
    "a clock that was never set": _at("1970-01-01T00:01:00.000000Z", "too_old"),
    "a bad start of a window": _Case(
        line(event_v1.WINDOW, started_at="at noon"), "bad_time", "started_at: at noon"
    ),
    "a window that starts in ten years": _Case(
        line(event_v1.WINDOW, started_at="2036-11-21T10:00:00Z"), "clock_ahead"
    ),
    "a window of 1970": _Case(line(event_v1.WINDOW, started_at="1970-01-01T00:00:00Z"), "too_old"),
}


_INT32S: Final = [name for name, kind in event_v1.FIELDS.items() if isinstance(kind, IntegerType)]


def _bounds() -> list[tuple[str, int, int]]:
    """Each field that is a number, with its least and its greatest value."""
    return [(name, *bounds) for name, bounds in NUMBERS.items()]


def _kind_with(name: str) -> str:
    """A type that has the field."""
    kinds = (
        kind for kind, (required, optional) in event_v1.OF_TYPE.items() if name in (*required, *optional)
    )
    return next(kinds, event_v1.PARTITION)


def _in_sense(name: str, value: int) -> dict[str, Any]:
    """What the event must have beside that value."""
    match name:
        case "records":
            return {"latency_us": {"40": value} if value else {}}
        case "dropped":
            return {"seq": max(value // 2, 1)}
        case _:
            return {}


def _extremes(name: str) -> list[tuple[str, int]]:
    bits = 32 if name in _INT32S else 64
    return [("least", -(2 ** (bits - 1))), ("greatest", 2 ** (bits - 1) - 1)]


def _outside(name: str, value: Any, kind: str = event_v1.PARTITION, **others: Any) -> _Case:
    detail = f"{name}: {value}" if isinstance(value, int) else None
    return _Case(line(kind, **{name: value}, **others), "out_of_range", detail)


_RANGES: Final = (
    {
        f"the least {name}": _Case(line(_kind_with(name), **{name: least} | _in_sense(name, least)), None)
        for name, least, _ in _bounds()
    }
    | {
        f"the greatest {name}": _Case(line(_kind_with(name), **{name: most} | _in_sense(name, most)), None)
        for name, _, most in _bounds()
    }
    | {
        f"a {name} below the least": _outside(name, least - 1, _kind_with(name))
        for name, least, _ in _bounds()
    }
    | {
        f"a {name} beyond the greatest": _outside(name, most + 1, _kind_with(name))
        for name, _, most in _bounds()
        if most < 2**31 - 1 or (name not in _INT32S and most < 2**63 - 1)
    }
    | {
        f"the {which} of its type as {name}": _outside(name, value, _kind_with(name))
        for name, least, most in _bounds()
        for which, value in _extremes(name)
        if not least <= value <= most
    }
    | {
        "a topic without a name": _outside("topic", ""),
        "a topic's name as long as Kafka allows": _Case(line(topic="t" * 249), None),
        "a topic's name a letter longer": _outside("topic", "t" * 250),
        "a sidecar without a name": _outside("sidecar_id", ""),
        "a service without a name": _Case(line(service=""), None),
        "a service's name of a hundred thousand letters": _outside("service", "s" * 100_000),
        "an empty topic id": _outside("topic_id", ""),
        "replicas on a hundred thousand brokers": _outside("replicas", [1] * 100_000, isr=[]),
        "a broker below 0 in sync": _outside("isr", [2, -1], replicas=[2, -1]),
        "a broker below 0 that is offline": _outside("offline", [-(2**31)]),
        "replicas nowhere": _Case(line(isr=[], replicas=[]), None),
        "a window on a bootstrap server": _outside("broker", -1, event_v1.WINDOW),
        "fewer than no errors": _outside("errors", {"A": -1}, event_v1.WINDOW),
        "errors beyond counting": _outside("errors", {"A": 2**63 - 1}, event_v1.WINDOW),
        "an error without a name": _outside("errors", {"": 1}, event_v1.WINDOW),
        "an error with a strange name": _Case(line(event_v1.WINDOW, errors={"<b>\u202e\n": 1}), None),
        "ten thousand errors": _outside("errors", {f"E{n}": 1 for n in range(10_000)}, event_v1.WINDOW),
        "a latency of fewer than no records": _outside("latency_us", {"1": 1001, "2": -1}, event_v1.WINDOW),
        "latencies whose sum no BIGINT holds": _outside(
            "latency_us", {"1": 2**63 - 1, "2": 2**63 - 1}, event_v1.WINDOW
        ),
    }
)


def _contradicts(name: str, value: Any, kind: str = event_v1.WINDOW) -> _Case:
    return _Case(line(kind, **{name: value}), "inconsistent")


_SENSE: Final = {
    "a window that ends when it starts": _Case(
        line(event_v1.WINDOW, started_at="2026-11-21T10:00:00.123000Z"), None
    ),
    "a window that ends before it starts": _contradicts("started_at", "2026-11-21T10:00:00.123001Z"),
    "a histogram with a record too many": _contradicts("latency_us", {"40": 900, "41": 101}),
    "a histogram with a record too few": _contradicts("latency_us", {"40": 999}),
    "a histogram that is empty": _contradicts("latency_us", {}),
    "a replica in sync that is none": _contradicts("isr", [2, 4], event_v1.PARTITION),
    "more lost than numbered, for each of two sinks": _contradicts("dropped", 86, event_v1.HEARTBEAT),
    "all lost, for each of two sinks": _Case(line(event_v1.HEARTBEAT, dropped=84), None),
    "a sidecar that never refreshes by itself": _Case(
        line(event_v1.HEARTBEAT, metadata_max_age_ms=2**63 - 1), None
    ),
}


def _of_bytes(number: int) -> str:
    """A good line of so many bytes."""
    empty = _with('"pad":""')
    return _with(f'"pad":"{"x" * (number - len(empty))}"')


_SOUND: Final = line().encode()
_BYTES: Final = {
    "a byte that UTF-8 does not have": _Case(_SOUND[:30] + b"\xff" + _SOUND[30:], "invalid_utf8"),
    "half a character at the end": _Case(_SOUND + b"\xe2\x82", "invalid_utf8"),
    "half a character at the beginning": _Case(b"\xbf" + _SOUND, "invalid_utf8"),
    "Latin-1": _Case(_SOUND.replace(b"checkout-7d9f", b"caff\xe8"), "invalid_utf8"),
    "a surrogate in UTF-8": _Case(_SOUND.replace(b"checkout-7d9f", b"\xed\xa0\x80"), "invalid_utf8"),
    "nothing but such bytes": _Case(b"\xff\xfe\xfd", "invalid_utf8"),
    "characters beyond ASCII": _Case(line().replace("checkout-7d9f", "ταμείο-😀"), None),
    "as long as may be": _Case(_of_bytes(bronze.MAX_LINE_BYTES), None),
    "a byte longer": _Case(_of_bytes(bronze.MAX_LINE_BYTES + 1), "too_long", "262145 bytes"),
    "a huge line": _Case(_of_bytes(3_000_000), "too_long"),
    "a huge line that is no UTF-8": _Case(b"\xff" * 300_000, "too_long"),
}

_NOTHING: Final = ("", " ", "\r", "\t \r", "\ufeff", "\ufeff\r")

_CATALOGUE: Final = (
    _EVENTS
    | _WHITE
    | _FUTURE
    | _LOOKALIKES
    | _NULLS
    | _TWICE
    | _NO_JSON
    | _NO_OBJECT
    | _VERSIONS
    | _WRONG_TYPES
    | _TYPES_AND_FIELDS
    | _TIMES
    | _RANGES
    | _SENSE
    | _BYTES
)


_RAW: Final = "line binary, source string, received_at timestamp"


@pytest.fixture(scope="module")
def classified(spark: SparkSession) -> DataFrame:
    """All lines of this module, read at once: Spark takes seconds to make code of the rules."""
    lines: list[tuple[bytes | None, str]] = [(case.raw, name) for name, case in _CATALOGUE.items()]
    lines += [(each.encode(), f"nothing {each!r}") for each in _NOTHING]
    lines += [(None, "no line at all")]
    lines += [(each, f"drawn {at}") for at, each in enumerate(_drawn())]
    rows = [(None if each is None else bytearray(each), name, _RECEIVED_AT) for each, name in lines]
    received_at = datetime.fromisoformat(max(json.loads(each)["observed_at"] for each in _OLDER))
    rows += [(bytearray(each), f"older {at}", received_at) for at, each in enumerate(_OLDER)]
    # Lines as a source gives them: unchecked bytes.
    raw = spark.createDataFrame(rows, _RAW).withColumn("line", F.col("line").cast("string"))
    return bronze.parse(raw).localCheckpoint()


@pytest.fixture(scope="module")
def outcomes(classified: DataFrame) -> dict[str, list[Row]]:
    """By the name of the case, the rows that its line became."""
    found: dict[str, list[Row]] = {}
    for row in classified.drop("line").collect():
        found.setdefault(row["source"], []).append(row)
    return found


def _reasons_of(kind: str, outcomes: dict[str, list[Row]]) -> dict[int, list[str | None]]:
    """By the number of such a line, the reasons of the rows that it became."""
    names = {name.removeprefix(kind): rows for name, rows in outcomes.items() if name.startswith(kind)}
    return {int(name): [row[bronze.REJECT_REASON] for row in rows] for name, rows in names.items()}


def test_a_line_is_what_the_catalogue_says(outcomes: dict[str, list[Row]]) -> None:
    found = {
        name: [
            (row[bronze.REJECT_REASON], None if case.detail is None else row[bronze.REJECT_DETAIL])
            for row in outcomes.get(name, ())
        ]
        for name, case in _CATALOGUE.items()
    }
    wanted = {name: [(case.reason, case.detail)] for name, case in _CATALOGUE.items()}
    assert {name: rows for name, rows in found.items() if rows != wanted[name]} == {}


def test_every_reason_is_in_the_catalogue() -> None:
    assert {case.reason for case in _CATALOGUE.values()} == {None, *REASONS}


def test_an_empty_line_is_nothing(outcomes: dict[str, list[Row]]) -> None:
    names = {name for name in outcomes if not name.startswith(("drawn ", "older "))}
    assert names == _CATALOGUE.keys()


def test_an_event_has_the_values_that_its_line_has(outcomes: dict[str, list[Row]]) -> None:
    for kind in event_v1.OF_TYPE:
        (found,) = outcomes[f"a good {kind}"]
        wanted: dict[str, Any] = dict.fromkeys(event_v1.SCHEMA.names) | good(kind)
        got = {name: found[name] for name in event_v1.SCHEMA.names}
        for name in ("observed_at", "started_at"):
            if wanted[name] is not None:
                wanted[name] = datetime.fromisoformat(wanted[name])
                got[name] = got[name].astimezone(UTC)
        assert got == wanted


def test_the_last_of_a_field_given_twice_counts(outcomes: dict[str, list[Row]]) -> None:
    assert [row["topic"] for row in outcomes["a field twice, both right"]] == ["second"]


def test_both_tables_have_the_columns_that_they_are_said_to_have(classified: DataFrame) -> None:
    assert bronze.events(classified).schema == bronze.EVENTS_SCHEMA
    assert [(field.name, field.dataType) for field in bronze.rejects(classified).schema] == [
        (field.name, field.dataType) for field in bronze.REJECTS_SCHEMA
    ]


def test_every_line_is_an_event_or_a_reject_and_none_is_both(classified: DataFrame, tmp_path: Path) -> None:
    """Read as by another program: texts are valid UTF-8 whatever the line was."""
    catalogue = classified.where("NOT source RLIKE '^(drawn|older) '")
    bronze.events(catalogue).write.parquet(str(tmp_path / "events"))
    bronze.rejects(catalogue).write.parquet(str(tmp_path / "rejects"))
    events = polars.read_parquet(tmp_path / "events" / "*.parquet")
    rejects = {
        row["source"]: row for row in polars.read_parquet(tmp_path / "rejects" / "*.parquet").to_dicts()
    }
    wrong = {name: case for name, case in _CATALOGUE.items() if case.reason is not None}
    assert events.height == len(_CATALOGUE) - len(wrong)
    assert rejects.keys() == wrong.keys()
    for name, case in wrong.items():
        assert rejects[name]["line_bytes"] == len(case.raw), name
        assert rejects[name]["line_sha256"] == hashlib.sha256(case.raw).hexdigest(), name
        assert rejects[name]["received_at"] == _RECEIVED_AT, name
    text = wrong["half a line"].raw.decode()
    assert rejects["half a line"]["line_head"] == text[: bronze.LINE_HEAD_CHARS]
    assert rejects["a byte that UTF-8 does not have"]["line_head"] == (
        _SOUND[:30] + b"\xff" + _SOUND[30:]
    ).decode(errors="replace")
    assert len(rejects["a huge line"]["line_head"]) == bronze.LINE_HEAD_CHARS


# -- random lines --------------------------------------------------------------------------------------------

_LINES: Final = 2_000
_A_NAME_TWICE: Final = "a name twice"
_SCRAPS: Final = (
    *(each.encode() for each in "\"'{}[],:\\-0é\ufeff"),
    *(b"null", b"true", b"1e5", b"\\u0041", b"\\ud83d", b"/*", b"NaN"),
    *(b" ", b"\0", b"\r", b"\t", b"\n", b"\xff", b"\xc3"),
)
_VALUES: Final[tuple[object, ...]] = (
    None, True, False, 0, -1, 5, [3, 4], 2**31, 2**63, 1.5, 1e300, "", "5", "true", "x", [],
    [1], ["x"], [None], {},
    {"a": 1}, {"1": 2}, {"a": None}, [[1]], "2026-11-21T10:00:00Z", "2026-11-21", 1763719200,
)  # fmt: skip


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A good line to which something happened: in its text, or in its members."""
    kind = draw(st.sampled_from(sorted(event_v1.OF_TYPE)))
    members = good(kind)
    for _ in range(draw(st.integers(0, 2))):
        members[draw(st.sampled_from([*sorted(members), "next", "rack"]))] = draw(st.sampled_from(_VALUES))
    if draw(st.booleans()):
        del members[draw(st.sampled_from(sorted(members)))]
    text = json.dumps(members, separators=(",", ":")).encode()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(("cut", "put", "drop", "twice"))):
            case "cut":
                text = text[:at]
            case "put":
                text = text[:at] + draw(st.sampled_from(_SCRAPS)) + text[at:]
            case "drop":
                text = text[:at] + text[at + draw(st.integers(1, 8)) :]
            case _:
                text = text + text[at:]
    return text


class _BadNumberError(ValueError):
    """NaN or Infinity, which Python takes for JSON."""


def _refuse(name: str) -> None:
    raise _BadNumberError(name)


def _fits(value: object, kind: DataType) -> bool:
    """Whether a value as Python reads it is one that the field may have."""
    match kind:
        case _ if value is None:
            return True
        case StringType():
            return isinstance(value, str)
        case ArrayType():
            return isinstance(value, list) and all(
                each is not None and _fits(each, kind.elementType) for each in value
            )
        case MapType():
            return isinstance(value, dict) and all(
                each is not None and _fits(each, kind.valueType) for each in value.values()
            )
        case _:
            bits = {"smallint": 16, "int": 32, "bigint": 64}[kind.simpleString()]
            return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _fault_of_time(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", text, re.ASCII) is None:
        return "bad_time"
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return "bad_time"
    if at > _RECEIVED_AT + timedelta(hours=1):
        return "clock_ahead"
    return "too_old" if at < datetime(2020, 1, 1, tzinfo=UTC) else None


def _reason(raw: bytes) -> str | None:
    """The contract for a line, written again in Python. An empty line has no row."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "invalid_utf8"
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)
        return dict(pairs)

    try:
        event = json.loads(text.strip(" \t\r\n\ufeff"), object_pairs_hook=members, parse_constant=_refuse)
    except ValueError:
        return "not_json"
    if twice:
        return _A_NAME_TWICE
    if not isinstance(event, dict):
        return "not_an_object"
    if event.get("v") is None:
        return "no_version"
    if type(event["v"]) is int and event["v"] != event_v1.VERSION:
        return "unknown_version"
    kinds = event_v1.COMMON | event_v1.FIELDS
    is_bucket = re.compile(r"\d{1,2}|1\d\d|2[0-3]\d|24[0-7]", re.ASCII).fullmatch
    if not all(_fits(event.get(name), kind) for name, kind in kinds.items()) or not all(
        is_bucket(key) for key in event.get("latency_us") or {}
    ):
        return "wrong_type"
    if event.get("type") is not None and event["type"] not in event_v1.OF_TYPE:
        return "unknown_type"
    required = ["type", "sidecar_id", "service", "boot_id", "seq", "observed_at"]
    if event.get("type") is not None:
        required += event_v1.OF_TYPE[event["type"]][0]
    if any(event.get(name) is None for name in required):
        return "missing_field"
    faults = [_fault_of_time(name, event.get(name)) for name in ("observed_at", "started_at")]
    faults += ["out_of_range" for name in kinds if not _is_in_range(name, event.get(name))]
    if not any(faults) and _contradicts_itself(event):
        return "inconsistent"
    of_values = ("bad_time", "clock_ahead", "too_old", "out_of_range")
    return next((each for each in of_values if each in faults), None)


def _is_in_range(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name in NUMBERS:
        return bool(NUMBERS[name][0] <= value <= NUMBERS[name][1])
    if name in TEXTS:
        return TEXTS[name][0] <= len(value) <= TEXTS[name][1]
    if name in LISTS:
        return len(value) <= 1_000 and all(each >= 0 for each in value)
    return name not in COUNTS or (all(0 <= each <= 10**15 for each in value.values()) and "" not in value)


def _contradicts_itself(event: dict[str, Any]) -> bool:
    """Of an event whose fields are each in order."""
    histogram = event["type"] == event_v1.WINDOW and sum(event["latency_us"].values()) != event["records"]
    isr, replicas = event.get("isr"), event.get("replicas")
    not_replicas = isr is not None and replicas is not None and not {*isr} <= {*replicas}
    started = event.get("started_at")
    is_backwards = started is not None and datetime.fromisoformat(started) > datetime.fromisoformat(
        event["observed_at"]
    )
    dropped = event.get("dropped")
    return histogram or not_replicas or is_backwards or (dropped is not None and dropped // 2 > event["seq"])


_OLDER: Final = (FIXTURES / "events.jsonl").read_bytes().splitlines()


def test_the_lines_of_an_older_sidecar_are_events(outcomes: dict[str, list[Row]]) -> None:
    """Of the tree before this one: tests/upgrades/fixtures."""
    assert _reasons_of("older ", outcomes) == {at: [None] for at in range(len(_OLDER))}


@functools.cache
def _drawn() -> list[bytes]:
    lines = [each for each in examples_of(_mutated(), _LINES) if each.strip(b" \t\r\n\xef\xbb\xbf")]
    # Whether the examples happen to hold a line that contradicts itself is their strategy's secret.
    return [*lines, *(case.raw for case in _SENSE.values())]


def test_a_line_that_nobody_thought_of_gets_the_reason_that_the_contract_gives(
    outcomes: dict[str, list[Row]],
) -> None:
    """Python's reader and Spark's may read a duplicate name differently: that is allowed."""
    given = _reasons_of("drawn ", outcomes)
    assert sorted(given) == list(range(len(_drawn())))
    wanted = {at: _reason(each) for at, each in enumerate(_drawn())}
    differing = {
        _drawn()[at]: (given[at], reason)
        for at, reason in wanted.items()
        if reason != _A_NAME_TWICE and given[at] != [reason]
    }
    assert differing == {}
    assert {reason for reasons in given.values() for reason in reasons} == {None, *REASONS} - {
        "too_long",
        "clock_ahead",
        "too_old",
    }
