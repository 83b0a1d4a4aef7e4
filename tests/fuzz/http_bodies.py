"""Bodies that are hard to read: deep, long, with duplicates, no numbers, no text; and their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Path and content type; each reads its body by code of its own.
PATHS: Final = (
    ("/v1/topics/orders/records", "application/json"),
    ("/v1/topics/orders/records", "application/x-ndjson"),
    ("/v1/topics/orders/records", "application/octet-stream"),
    ("/v1/leaders", "application/json"),
    ("/topics/orders", "application/vnd.kafka.json.v2+json"),
    ("/topics/orders", "application/vnd.kafka.binary.v2+json"),
    ("/v3/clusters/cluster/topics/orders/records", "application/json"),
    ("/v3/clusters/cluster/topics/orders/records:batch", "application/json"),
    ("/cloudevents/orders", "application/cloudevents+json"),
    ("/cloudevents/orders", "application/cloudevents-batch+json"),
    ("/v1.0/publish/pubsub/orders", "application/json"),
    ("/v1.0-alpha1/publish/bulk/pubsub/orders", "application/json"),
)


def bodies() -> Iterator[tuple[str, bytes]]:
    """A name and its bytes; some are megabytes."""
    yield "nothing", b""
    yield "blanks", b" \t\r\n" * 250_000
    yield "NULs", bytes(100_000)
    yield "a byte order mark", b"\xef\xbb\xbf" + _records(b"1")
    yield "UTF-16", _records(b"1").decode().encode("utf-16")
    yield "no UTF-8", _records(b'"\xff\xfe"')
    yield "an encoded surrogate", _records(b'"\xed\xa0\x80"')
    yield "100,000 brackets", b"[" * 100_000
    yield "100,000 brackets, closed", b"[" * 100_000 + b"]" * 100_000
    yield "100,000 objects in each other", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield "16 MB of brackets", b"[" * 16_000_000
    for depth in (127, 128, 129, 133, 134, 900, 1_000, 5_000):
        yield f"a value {depth} deep", _records(b"[" * depth + b"]" * depth)
    for number in (
        *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1E400", b"-0", b"01", b"0x1", b"1."),
    ):
        yield f"the number {number.decode()}", _records(number)
        yield f"{number.decode()} for a partition", _record(b'"value":1,"partition":' + number)
    yield "a number of a million digits", _records(b"9" * 1_000_000)
    yield "an exponent of a million digits", _records(b"1e" + b"9" * 1_000_000)
    yield "a partition of a million digits", _record(b'"value":1,"partition":' + b"9" * 1_000_000)
    for text in (rb"\ud800", rb"\udc00\ud800", rb"\u0000", rb"\uD83D", rb"\u12", rb"\x", "\n"):
        raw = text if isinstance(text, bytes) else text.encode()
        yield f"the text {raw!r}", _records(b'"%s"' % raw)
        yield f"the name {raw!r}", _record(b'"value":1,"%s":1' % raw)
    yield "a name twice", _record(b'"value":1,"value":2')
    yield "records twice", b'{"records":[{"value":1}],"records":[{"value":2}]}'
    yield "a name twice, once with escapes", _record(rb'"value":1,"v\u0061lue":2')
    yield "200,000 members", b"{" + b",".join(b'"n%d":1' % n for n in range(200_000)) + b"}"
    yield "200,000 members of one name", b"{" + b",".join([b'"n":1'] * 200_000) + b"}"
    yield "200,000 records", b'{"records":[' + b",".join([b'{"value":1}'] * 200_000) + b"]}"
    yield "a million empty records", b'{"records":[' + b",".join([b"{}"] * 1_000_000) + b"]}"
    yield "a million nulls", b"[" + b",".join([b"null"] * 1_000_000) + b"]"
    yield (
        "200,000 headers",
        _record(b'"value":1,"headers":[' + b",".join([b'{"key":"a","value":""}'] * 200_000) + b"]"),
    )
    yield "a text of 8 MB", _records(b'"' + b"a" * 8_000_000 + b'"')
    yield "a text of a million escapes", _records(b'"' + rb"\u0061" * 1_000_000 + b'"')
    yield "base64 that is none", _records(b'"' + b"=" * 100_000 + b'"')
    yield "lines without an end", b"a" * 8_000_000
    yield "a million lines", b"\n" * 1_000_000
    yield "a text without an end", b'{"records":[{"value":"' + b"a" * 100_000


def _record(members: bytes) -> bytes:
    return b'{"records":[{' + members + b"}]}"


def _records(value: bytes) -> bytes:
    return _record(b'"value":' + value)
