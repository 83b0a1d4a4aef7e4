"""The parts of a request's head: targets, queries, media types, keys, traces, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from service.admission.guards import without_port
from service.base.topic_names import fault_of_topic_name
from service.dialects.cloudevents import attributes
from service.dialects.rest_v2.media_types import check_accept
from service.dialects.rest_v2.media_types import format_of as format_of_v2
from service.dialects.rest_v3.record_codec import ms_of_rfc3339, text_of_ms
from service.dialects.rest_v3.requests import utf8_reader
from service.listener.http_exchange import RefusedError, check_coding, settled, without_offer
from service.produce.idempotency import key_of
from service.produce.produce_endpoint import topic_of_path
from service.produce.produce_forms import PARAMETERS, form_of, parameters, record_without_value, times_of
from service.produce.producing import Times
from service.wire.asgi import header_values
from service.wire.errors import ProblemError
from service.wire.freshness import matches, parse_version
from service.wire.json_parts import NO_LIMITS
from service.wire.strict_json import BodyError
from service.wire.trace_context import MAX_STATE_BYTES, trace_context
from tests.fuzz.mutation import EXTREMES
from tests.fuzz.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

_REFUSALS: Final = (ProblemError, BodyError)
_TOKENS: Final = (
    *(b"%", b"%2f", b"%00", b"%ff", b"&", b"=", b";", b",", b'"', b"\\", b"#", b"?", b"/", b"*", b"@", b":"),
    *(b"-", b"[", b"]", b"\xff", b"\xc3\xbc", b" ", b"\t", b"q=nan", b"q=1e999", b"9" * 30, b"charset="),
)
_TIMES: Final = Times(60_000, 120_000)


def targets() -> Iterator[Target]:
    """All of them."""
    yield _target("target of a request", ("/v1/a?b=c", "http://a:1/b?c", "*", "/a#b"), _settle, RefusedError)
    yield _target("head offered anew", ("connection: upgrade, x\nupgrade: h2c\na: b",), _offer_anew)
    yield _target("transfer-encoding", ("chunked", "gzip, chunked", "identity"), _coding, RefusedError)
    yield _target("query of a produce", ("max_block_ms=5&timeout_ms=7", "key=%C3%BC&partition=3"), _query)
    yield _target("head of a produce", _HEADS, _form)
    yield _target("head of an octet-stream", _HEADS, _octet_stream)
    yield _target("head of REST v3", _HEADS, lambda data: utf8_reader(_scope(data)))
    yield _target("head of REST v2", _HEADS, _head_of_v2)
    yield _target("Accept of REST v2", ("application/json;q=0.5, */*;q=0", "text/html"), check_accept)
    yield _target("Idempotency-Key", ('"a\\"b"', "abc-1"), lambda data: key_of(data.split(b"\n")))
    yield _target("traceparent and tracestate", (_TRACE, _TRACE + "\na=b,c@d=e"), _trace)
    yield _target("If-None-Match", ('"a", W/"b"', "*"), lambda data: matches(data, b'"a"'))
    yield _target("version of a snapshot", ("1a2b-7", "x-0"), _version, ValueError)
    yield _target("path of a produce", ("/v1/topics/orders/records",), _path)
    yield _target("Host", ("localhost:8085", "[::1]:8085"), without_port)
    yield _target(
        "time of REST v3", ("2021-02-05T19:14:42.5Z", "9999-12-31T23:59:59+23:59"), _time, ValueError
    )
    yield _target("syntax of CloudEvents", _VALUES, _syntax)


_TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_HEADS: Final = (
    "content-type: application/json; charset=utf-8\ncontent-encoding: identity\n?max_block_ms=1",
    "content-type: application/octet-stream\npilotfish-key: k\n"
    "pilotfish-headers: YQ==:Yg==,Yw==\n?timestamp=1",
    "content-type: application/vnd.kafka.json.v2+json\n?key=a&key_format=base64&partition=2",
    "content-type: application/json; charset=iso-8859-1\ncontent-length: 0",
)
_VALUES: Final = (
    "http://user@[::1]:80/a;b/c?d#e",
    "urn:a:b",
    "../a/b",
    "2018-04-05T17:31:00Z",
    'text/plain; charset="utf-8"; a=b',
    "a\u200bb",
)


def _target(
    name: str, valid: tuple[str, ...], read: Callable[[bytes], object], *refusals: type[Exception]
) -> Target:
    def make(random: Random) -> bytes:
        return random.choice(valid).encode()

    return Target(name, make, read, refusals or _REFUSALS, (*_TOKENS, *EXTREMES[:8]))


def _pairs(data: bytes) -> list[tuple[bytes, bytes]]:
    """Headers as the parser hands them on: lower names, values without white space around them."""
    lines = (line.partition(b":") for line in data.split(b"\n") if not line.startswith(b"?"))
    return [(name.strip().lower(), value.strip(b" \t\r")) for name, _, value in lines]


def _scope(data: bytes) -> dict[str, Any]:
    """What the parser and the guards let through: of lengths one, which is one."""
    query = next((line[1:] for line in data.split(b"\n") if line.startswith(b"?")), b"")
    pairs = _pairs(data)
    lengths = [p for p in pairs if p[0] == b"content-length" and p[1].isdigit() and len(p[1]) < 20]
    headers = [p for p in pairs if p[0] != b"content-length"] + lengths[:1]
    return {"type": "http", "headers": headers, "query_string": bytes(b for b in query if b < 0x80)}


# -- heads ---------------------------------------------------------------------------------------------------


def _settle(data: bytes) -> None:
    headers = [(b"host", b"localhost")]
    target = settled(data, b"GET", headers)
    assert target.startswith(b"/")
    assert len(headers) == 1


def _offer_anew(data: bytes) -> None:
    again = without_offer(b"POST", b"/", "1.1", _pairs(data))
    assert again.endswith(b"\r\n\r\n")
    assert b"\nupgrade:" not in again


def _coding(data: bytes) -> None:
    check_coding([(b"transfer-encoding", data)])
    assert data.lower() == b"chunked"


def _query(data: bytes) -> None:
    times_of(parameters(bytes(b for b in data if b < 0x80), PARAMETERS), _TIMES)


def _form(data: bytes) -> None:
    form_of("t", _scope(data), _TIMES, NO_LIMITS)


def _octet_stream(data: bytes) -> None:
    scope = _scope(data)
    given = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
    record = record_without_value("t", scope, given)
    assert record.key is None or isinstance(record.key, bytes)


def _head_of_v2(data: bytes) -> None:
    scope = _scope(data)
    types, encodings = (header_values(scope, name) for name in (b"content-type", b"content-encoding"))
    format_of_v2(types[0] if types else None, encodings[0] if encodings else None)


def _trace(data: bytes) -> None:
    parent, _, state = data.partition(b"\n")
    context = trace_context(parent, state)
    if context is not None:
        assert (len(context.trace_id), len(context.span_id)) == (32, 16)
        assert context.flags < 256
        assert len(context.state) <= MAX_STATE_BYTES


def _version(data: bytes) -> None:
    boot, number = parse_version(data.decode(errors="replace"))
    assert boot
    assert number >= 0


def _path(data: bytes) -> None:
    topic = topic_of_path(data)
    if topic is not None:
        fault_of_topic_name(topic)


def _time(data: bytes) -> None:
    assert text_of_ms(ms_of_rfc3339(data.decode(errors="replace")))


def _syntax(data: bytes) -> None:
    value = data.decode(errors="surrogateescape")
    for fault_of in (
        attributes.fault_of_text,
        attributes.fault_of_uri_reference,
        attributes.fault_of_uri,
        attributes.fault_of_time,
        attributes.fault_of_media_type,
    ):
        fault_of(value)
