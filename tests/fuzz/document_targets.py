"""Bodies as callers send them: each JSON document, streams of records and lines, attributes of events."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from service.dialects.cloudevents.binary import record_of_binary
from service.dialects.cloudevents.structured import record_of_envelope, records_of_batch
from service.dialects.dapr.bulk_codec import parse_entries
from service.dialects.dapr.envelope import CLOUD_EVENT, Trace
from service.dialects.dapr.event_records import EventRecords
from service.dialects.dapr.event_records import Target as DaprTarget
from service.dialects.dapr.publish_metadata import metadata_of_query
from service.dialects.dapr.publish_metadata import understand as understand_metadata
from service.dialects.rest_v2.records import parse_body
from service.dialects.rest_v3.batch_codec import parse_batch
from service.dialects.rest_v3.concatenated_json import ConcatenatedJson
from service.dialects.rest_v3.posted_body import understand
from service.native.leaders import parse_lookups
from service.produce.ndjson import LineSplitter
from service.produce.records_codec import LineCodec, parse_records
from service.wire.errors import ProblemError
from service.wire.json_parts import BodyLimits
from service.wire.payload import Format
from service.wire.strict_json import BodyError
from tests.fuzz.json_texts import Tree, hostile_scalar, spoilt, tree, written
from tests.fuzz.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RECORD_LIMIT: Final = 1_000
_LIMITS: Final = BodyLimits(_RECORD_LIMIT, 1_000_000)
_LINE_BYTES: Final = 20_000
_BYTES: Final = 1 << 20
_TOKENS: Final = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b"NaN", b"1e999", b"\xef\xbb\xbf", b"\xff"),
    *(rb"\ud800", rb"\u0000", b'"value":', b'"key":', b"\r\n", b"}{", b"\x00", b"[[[[[[[[", b'{"":'),
)
_REFUSALS: Final = (BodyError, ProblemError)


def targets() -> Iterator[Target]:
    """All of them."""
    yield _json("produce, native", _native, lambda data: parse_records("t", data, _LIMITS))
    yield _json("look-ups", _lookups, parse_lookups)
    for form in Format:
        yield _json(f"produce, REST v2 {form.value}", _of_v2, _v2_reader(form))
    yield _json("batch, REST v3", _batch_of_v3, lambda data: parse_batch("t", data))
    yield _json("CloudEvent, structured", _event, lambda data: record_of_envelope("t", data))
    yield _json("CloudEvents, batch", _events, lambda data: records_of_batch("t", data, _LIMITS))
    yield _json("Dapr, bulk", _bulk, _read_bulk)
    yield _json("Dapr, own event", _event, _completed)
    yield _stream("records, REST v3", _of_v3, _read_stream)
    yield _stream("lines of NDJSON", _line, _read_lines)
    yield Target(
        "Dapr, metadata", _metadata, _read_metadata, (ValueError,), (b"metadata.", b"ttl=", b"1h", b"9" * 99)
    )
    yield Target("CloudEvent, binary", _head_of_event, _read_binary, _REFUSALS, _HEAD_TOKENS)


def _json(name: str, value: Callable[[Random], Any], read: Callable[[bytes], object]) -> Target:
    """A document: spoilt as a tree most of the time, as bytes otherwise."""

    def make(random: Random) -> bytes:
        return written(tree(value(random)), random)

    def spoil(random: Random) -> bytes:
        return written(spoilt(tree(value(random)), random), random)

    return Target(name, make, read, _REFUSALS, _TOKENS, spoil)


def _stream(name: str, value: Callable[[Random], Any], read: Callable[[bytes], object]) -> Target:
    """Documents behind each other, one of them spoilt."""

    def texts(random: Random, how: Callable[[Tree, Random], Tree]) -> bytes:
        between = random.choice((b"\n", b"\r\n", b"", b" \n\n"))
        at, count = random.randrange(3), random.choice((1, 3))
        trees = (how(tree(value(random)), random) if n == at else tree(value(random)) for n in range(count))
        return between.join(written(one, random) for one in trees)

    return Target(
        name,
        lambda random: texts(random, lambda node, _: node),
        read,
        _REFUSALS,
        _TOKENS,
        lambda random: texts(random, spoilt),
    )


# -- produce -------------------------------------------------------------------------------------------------


def _payload(random: Random) -> Any:
    return random.choice(("a", "", "YQ==", None, 1, 1.5, {"a": [1, {"b": None}]}, ["x"], True, "🔥"))


def _headers(random: Random) -> Any:
    return random.choice((None, [], [{"key": "h", "value": "YQ=="}], [{"key": "h", "value": None}] * 3))


def _native(random: Random) -> Any:
    document: dict[str, Any] = {
        "records": [_native_record(random) for _ in range(random.choice((1, 1, 2, 40)))]
    }
    for name in ("key_format", "value_format"):
        if random.random() < 0.4:
            document[name] = random.choice(tuple(Format)).value
    return document


def _native_record(random: Random) -> Any:
    record: dict[str, Any] = {"value": _payload(random)}
    if random.random() < 0.5:
        record["key"] = _payload(random)
    if random.random() < 0.3:
        record |= {"partition": 0, "timestamp": 1_700_000_000_000, "headers": _headers(random)}
    return record


def _line(random: Random) -> Any:
    return _native_record(random)


def _lookups(random: Random) -> Any:
    key = {"topic": "orders", "key": _payload(random), "key_format": random.choice(tuple(Format)).value}
    return {"lookups": [random.choice((key, {"topic": "orders", "partition": 1})) for _ in range(3)]}


def _of_v2(random: Random) -> Any:
    document: dict[str, Any] = {"records": [_native_record(random) for _ in range(2)]}
    if random.random() < 0.3:
        document |= {"key_schema": None, "value_schema_id": None}
    return document


def _v2_reader(form: Format) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        return parse_body("t", data, form, None, _LIMITS)

    return read


def _data(random: Random) -> Any:
    return {"type": random.choice(("BINARY", "JSON", "STRING", None)), "data": _payload(random)}


def _of_v3(random: Random) -> Any:
    record = {"partition_id": random.choice((0, "1", None)), "key": _data(random), "value": _data(random)}
    if random.random() < 0.5:
        record |= {"timestamp": "2021-02-05T19:14:42Z", "headers": [{"name": "h", "value": "YQ=="}]}
    return record


def _batch_of_v3(random: Random) -> Any:
    return {"entries": [{"id": f"e{n}", **_of_v3(random)} for n in range(random.choice((1, 2, 10)))]}


def _read_stream(data: bytes) -> None:
    """In pieces that depend on the data alone; what is found must not depend on them."""
    found = _pieces_of(data, random=Random(len(data)))
    assert found == _pieces_of(data, random=None)


def _pieces_of(data: bytes, random: Random | None) -> list[object]:
    splitter, at, found = ConcatenatedJson(_LINE_BYTES), 0, []
    while at < len(data) and not splitter.is_broken:
        size = len(data) if random is None else random.choice((1, 7, 400, 10_000))
        found += splitter.feed(data[at : at + size])
        assert splitter.held_bytes <= _LINE_BYTES
        at += size
    found += splitter.end()
    understand("t", found)
    return [str(one) if isinstance(one, BodyError) else one for one in found]


def _read_lines(data: bytes) -> None:
    lines = _lines_of(data, Random(len(data)))
    assert lines == _lines_of(data, None)
    whole = [line for line in lines if line is not None]
    assert len(LineCodec("t", Format.TEXT, Format.JSON).parse(whole, 0)) == len(whole)


def _lines_of(data: bytes, random: Random | None) -> list[bytes | None]:
    splitter, at, lines = LineSplitter(_LINE_BYTES), 0, []
    while at < len(data):
        size = len(data) if random is None else random.choice((1, 7, 400, 10_000))
        lines += splitter.feed(data[at : at + size])
        assert splitter.held_bytes <= _LINE_BYTES
        at += size
    return lines + splitter.end()


# -- events --------------------------------------------------------------------------------------------------


def _event(random: Random) -> Any:
    event: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/a?b#c", "type": "t"}
    if random.random() < 0.6:
        event |= {
            "time": "2018-04-05T17:31:00.25+01:00",
            "dataschema": "http://a@b:1/c",
            "datacontenttype": 'application/json; charset="utf-8"',
            "partitionkey": "k",
            "n": 7,
        }
    event[random.choice(("data", "data_base64"))] = _payload(random)
    return event


def _events(random: Random) -> Any:
    return [_event(random) for _ in range(random.choice((0, 1, 3)))]


def _bulk(random: Random) -> Any:
    kinds = ("application/json", "text/plain", "application/octet-stream", CLOUD_EVENT)
    return [
        {
            random.choice(("entryId", "entryID")): f"{n}",
            "event": random.choice((_payload(random), _event(random))),
            "contentType": random.choice(kinds),
            "metadata": random.choice(
                (None, {}, {"partitionKey": "k", "ttlInSeconds": "5", "rawPayload": "t"})
            ),
        }
        for n in range(random.choice((1, 2, 4)))
    ]


def _of_dapr() -> EventRecords:
    asked = understand_metadata({"ttl": "1h30m"})
    target = DaprTarget("pubsub", "t", {"ttl": "1h30m"}, asked, Trace("00-a-b-01", "x=y"))
    return EventRecords(target, "app", 1_700_000_000_000, _BYTES)


def _read_bulk(data: bytes) -> None:
    for record in _of_dapr().of(parse_entries(data, "pubsub", "t", _LIMITS)):
        assert record.topic == "t"


def _completed(data: bytes) -> None:
    from service.dialects.dapr.bulk_codec import Entry

    entries = (Entry("entryId", kind, data, kind, {}) for kind in (CLOUD_EVENT, "application/json", "text/x"))
    for record in _of_dapr().of(entries):
        assert record.value


def _metadata(random: Random) -> bytes:
    known = ("ttl", "ttlInSeconds", "partitionKey", "partitionNumber", "rawPayload", "cloudevent.id", "x")
    values = ("1", "1h30m", "-1.5s", "true", "", "k", ".5h", "99999999999999999999", "ü")
    return "\n".join(
        f"metadata.{random.choice(known)}={random.choice(values)}" for _ in range(random.choice((1, 3)))
    ).encode()


def _read_metadata(data: bytes) -> None:
    pairs = (line.partition("=") for line in data.decode(errors="replace").split("\n"))
    understood = understand_metadata(metadata_of_query((name, value) for name, _, value in pairs))
    assert understood.ttl_ms is None or understood.ttl_ms < 1 << 63


_HEAD_TOKENS: Final = (b"ce-", b"%", b"%ff", b"%00", b'"', b"\\", b"\n", b"ce-data: x\n", b";", b"ce-id: 2\n")


def _head_of_event(random: Random) -> bytes:
    event = {name: value for name, value in _event(random).items() if isinstance(value, str)}
    kind = event.pop("datacontenttype", "text/plain")
    lines = [f"ce-{name}: {value}" for name, value in event.items() if not name.startswith("data")]
    if random.random() < 0.3:
        lines.append("ce-x: " + hostile_scalar(random).decode("latin-1")[:2_000])
    return "\n".join([f"content-type: {kind}", *lines]).encode()


def _read_binary(data: bytes) -> None:
    pairs = (line.partition(b":") for line in data.split(b"\n"))
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    record = record_of_binary("t", headers, data)
    assert all(name.isprintable() for name, _ in record.headers)
