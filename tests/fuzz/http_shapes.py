"""Requests as attackers write them, byte for byte, and the answer that each must get.

    Shape("two lengths", b"POST ...", {400})            the one answer that it may get
    Shape("half a head", b"GET / HT", {408})            the server must end it: nobody else will

Most contain SMUGGLED: a request for a topic that does not exist. It is part of a body. If the server takes it
for a request of its own, a producer is asked for that topic, and there is one answer too many.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.record.codecs import compression_for
from client_core.record.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "orders"
SMUGGLED_TOPIC: Final = "smuggled"
SMUGGLED: Final = b"GET /v1/topics/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PATH: Final = b"/v1/topics/orders/records"
#: The same, for bodies that never come whole: the time for a request is that for its body.
HURRIED: Final = _PATH + b"?timeout_ms=600"
_JSON: Final = b"Content-Type: application/json\r\n"
_RECORD: Final = b'{"records":[{"value":1}]}'


@dataclass(frozen=True, slots=True)
class Shape:
    """What is sent, in one piece or more, and the statuses of all answers, in order, each one of some."""

    name: str
    pieces: tuple[bytes, ...]
    answers: tuple[frozenset[int], ...]

    def __repr__(self) -> str:
        return f"<Shape {self.name}>"


def shapes() -> Iterator[Shape]:
    """All of them."""
    yield from _half()
    yield from _lengths()
    yield from _chunks()
    yield from _lines()
    yield from _targets()
    yield from _large()
    yield from _packed()


def _shape(name: str, sent: bytes, *answers: int | set[int]) -> Shape:
    return Shape(name, (sent,), tuple(frozenset({a} if isinstance(a, int) else a) for a in answers))


def _post(headers: bytes, body: bytes, path: bytes = _PATH) -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s" % (path, _JSON, headers, body)


def _get(headers: bytes = b"", target: bytes = b"/v1/cluster") -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (target, headers)


# -- requests that do not come whole -------------------------------------------------------------------------


def _half() -> Iterator[Shape]:
    chunked = b"Transfer-Encoding: chunked\r\n"
    whole = _post(b"Content-Length: 25\r\n", _RECORD, HURRIED)
    yield _shape("nothing at all", b"", 408)
    for name, end in (
        ("method", 3),
        ("target", 20),
        ("version", 37),
        ("header", 60),
        ("head", whole.find(b"{") - 1),
    ):
        yield _shape(f"half a {name}", whole[:end], 408)
    yield _shape("half a body", whole[:-5], 408)
    yield _shape("no body", _post(b"Content-Length: 25\r\n", b"", HURRIED), 408)
    yield _shape("half a chunk", _post(chunked, b"19\r\n" + _RECORD[:9], HURRIED), 408)
    yield _shape("no last chunk", _post(chunked, b"19\r\n" + _RECORD + b"\r\n", HURRIED), 408)
    yield Shape("a byte at a time", tuple(bytes((byte,)) for byte in whole), (frozenset({200}),))


# -- how long a body is --------------------------------------------------------------------------------------


def _lengths() -> Iterator[Shape]:
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n"
    yield _shape("CL and TE", _post(both % 4, b"0\r\n\r\n" + SMUGGLED), 400)
    yield _shape("CL and TE, the other way", _post(both % len(SMUGGLED), b"0\r\n\r\n" + SMUGGLED), 400)
    yield _shape(
        "two lengths", _post(b"Content-Length: 25\r\nContent-Length: 0\r\n", _RECORD + SMUGGLED), 400
    )
    yield _shape("one length twice", _post(b"Content-Length: 25\r\nContent-Length: 25\r\n", _RECORD), 400)
    yield _shape("a list of lengths", _post(b"Content-Length: 25, 25\r\n", _RECORD + SMUGGLED), 400)
    for length in (
        *(b"+25", b"-25", b"-0", b"0x19", b"2 5", b"25.0", b"2_5", b"", b"\xd9\xa2", b"25;a=b", b"1e1"),
    ):
        sent = _post(b"Content-Length: %s\r\n" % length, _RECORD + SMUGGLED)
        yield _shape(f"length {length!r}", sent, 400)
    yield _shape("length of 2^64", _post(b"Content-Length: 18446744073709551616\r\n", SMUGGLED), 400)
    yield _shape("length of 2^63", _post(b"Content-Length: 9223372036854775808\r\n", SMUGGLED), {400, 413})
    yield _shape("length of 40 digits", _post(b"Content-Length: %s\r\n" % (b"9" * 40), SMUGGLED), 400)
    yield _shape(
        "thirty zeros in front", _post(b"Content-Length: %s25\r\n" % (b"0" * 30), _RECORD), {200, 400, 413}
    )
    yield _shape("length before a tab", _post(b"Content-Length:\t25\t\r\n", _RECORD), {200, 400, 413})
    yield _shape("length of a GET", _get(b"Content-Length: %d\r\n" % len(SMUGGLED)) + SMUGGLED, {200, 400})
    for coding in (
        *(b"chunked, chunked", b"identity", b"gzip, chunked", b"chunked, gzip", b"xchunked", b"chunked;a=b"),
        *(b'"chunked"', b"chun ked", b"chunked\x0b", b"chunked\x00", b", chunked"),
        *(b"chunked,", b"\x0bchunked"),
    ):
        sent = _post(b"Transfer-Encoding: %s\r\n" % coding, b"0\r\n\r\n" + SMUGGLED)
        yield _shape(f"coding {coding!r}", sent, {400, 501})
    for header in (
        b"Transfer-Encoding : chunked",
        b" Transfer-Encoding: chunked",
        b"Transfer-Encoding:\n chunked",
    ):
        sent = _post(b"Content-Length: 5\r\n" + header + b"\r\n", b"0\r\n\r\n" + SMUGGLED)
        yield _shape(f"header {header!r}", sent, 400)
    # A name of its own, as underscores are letters: the length counts.
    sent = _post(b"Content-Length: 25\r\nTransfer_Encoding: chunked\r\n", _RECORD)
    yield _shape("an underscore for the dash", sent, 200)
    sent = b"POST %s HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % _PATH
    yield _shape("chunks in HTTP/1.0", sent + SMUGGLED, {400, 415})
    yield _shape("a body behind a GET", _get(b"Connection: close\r\n") + b"garbage", 200)
    yield _shape(
        "garbage behind a body",
        _post(b"Content-Length: 25\r\n", _RECORD + b"\x00\xff nothing\r\n\r\n"),
        200,
        400,
    )


# -- chunks --------------------------------------------------------------------------------------------------


def _chunked(body: bytes) -> bytes:
    return _post(b"Transfer-Encoding: chunked\r\n", body, HURRIED)


def _chunks() -> Iterator[Shape]:
    whole = b"19\r\n" + _RECORD + b"\r\n0\r\n"
    yield _shape("chunks as they should be", _chunked(whole + b"\r\n"), 200)
    yield _shape(
        "a chunk extension", _chunked(b'19;a=b;c="d"\r\n' + _RECORD + b"\r\n0;x\r\n\r\n"), {200, 400}
    )
    yield _shape(
        "a chunk extension with a bare LF", _chunked(b"19;\n" + _RECORD + b"\r\n0\r\n\r\n" + SMUGGLED), 400
    )
    for size in (
        *(b"-1", b"+19", b"0x19", b"1 9", b"G", b"", b" 19", b"19 ", b"\t19", b"1_9", b"19\x00", b"\xc3\xbc"),
    ):
        sent = _chunked(size + b"\r\n" + _RECORD + b"\r\n0\r\n\r\n" + SMUGGLED)
        answers: set[int] = {400} if size.strip() != b"19" else {200, 400}
        yield _shape(f"chunk size {size!r}", sent if answers == {400} else sent[: -len(SMUGGLED)], answers)
    for digits in (16, 17, 33, 4_000):
        sent = _chunked(b"F" * digits + b"\r\n" + SMUGGLED)
        yield _shape(f"chunk size of {digits} digits", sent, {400, 408, 413})
    yield _shape("chunk size 2^64 + 25", _chunked(b"10000000000000019\r\n" + _RECORD + b"\r\n0\r\n\r\n"), 400)
    yield _shape("a chunk longer than it says", _chunked(b"5\r\n" + _RECORD + b"\r\n0\r\n\r\n"), 400)
    yield _shape("a chunk without its line end", _chunked(b"19\r\n" + _RECORD + b"0\r\n\r\n" + SMUGGLED), 400)
    yield _shape("LF behind a chunk", _chunked(b"19\r\n" + _RECORD + b"\n0\r\n\r\n" + SMUGGLED), 400)
    yield _shape(
        "CR CR LF behind a chunk size", _chunked(b"19\r\r\n" + _RECORD + b"\r\n0\r\n\r\n" + SMUGGLED), 400
    )
    trailers = b"Content-Length: 0\r\nTransfer-Encoding: gzip\r\nHost: evil\r\nAuthorization: Bearer x\r\n"
    yield _shape("trailers that nobody may send", _chunked(whole + trailers + b"\r\n"), {200, 400})
    yield _shape("trailers without an end", _chunked(whole + b"X: y\r\n" * 60_000), {431})
    yield _shape("extensions without an end", _chunked(b"19;" + b"x" * 200_000), {431, 400})
    expects = _post(b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", b"F" * 17 + b"\r\n", HURRIED)
    yield _shape("broken chunks that nobody asked for", expects, 400)
    many = b"".join(b"1\r\n%c\r\n" % byte for byte in _RECORD)
    yield _shape("a chunk for each byte", _chunked(many + b"0\r\n\r\n"), 200)


# -- lines and names -----------------------------------------------------------------------------------------


def _lines() -> Iterator[Shape]:
    for name, header in (
        ("a folded header", b"X: a\r\n b\r\n"),
        ("a folded length", b"Content-Length:\r\n 5\r\n"),
        ("a bare CR", b"X: a\rTransfer-Encoding: chunked\r\n"),
        ("a NUL in a value", b"X: a\x00b\r\n"),
        ("a NUL in a name", b"X\x00: a\r\n"),
        ("a blank in a name", b"X Y: a\r\n"),
        ("no name", b": a\r\n"),
        ("no colon", b"Xa\r\n"),
        ("a name of UTF-8", b"\xc3\xbc: a\r\n"),
        ("no Host", b"X: y\r\nHost:\r\n"),
        ("two Hosts", b"Host: evil.example\r\n"),
        ("two Hosts, equal", b"Host: localhost\r\n"),
    ):
        yield _shape(name, _get(header) + SMUGGLED if "Host" not in name else _get(header), {400, 403, 421})
    yield _shape("bare LFs", b"GET /v1/cluster HTTP/1.1\nHost: localhost\n\n", {200, 400})
    yield _shape("a bare LF that hides a header", _get(b"X: a\nContent-Length: 53\r\n") + SMUGGLED, {400})
    yield _shape("blank lines in front", b"\r\n\r\n" + _get(b"Connection: close\r\n"), 200)
    yield _shape("NULs in front", b"\x00\x00" + _get(), 400)
    yield _shape(
        "a value of all bytes",
        _get(b"X: " + bytes(range(128, 256)) + b"\r\nConnection: close\r\n"),
        {200, 400},
    )
    for version in (
        *(b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/11", b"http/1.1", b"HTTP/1.1 ", b"HTTP/1.1x", b"ICY"),
    ):
        yield _shape(
            f"version {version!r}",
            b"GET /v1/cluster %s\r\nHost: localhost\r\n\r\n" % version,
            505 if version in (b"HTTP/0.9", b"HTTP/2.0") else {200, 400},
        )
    yield _shape("HTTP/0.9", b"GET /v1/cluster\r\n\r\n", 505)
    yield _shape("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400)
    yield _shape("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), 400)
    yield _shape(
        "Expect that nobody knows", _post(b"Expect: 200-ok\r\nContent-Length: 25\r\n", _RECORD), {200, 417}
    )


# -- targets -------------------------------------------------------------------------------------------------


def _targets() -> Iterator[Shape]:
    yield _shape(
        "another host's target", _get(b"Connection: close\r\n", b"http://evil.example/v1/cluster"), 421
    )
    yield _shape(
        "our own in absolute form", _get(b"Connection: close\r\n", b"http://localhost/v1/cluster"), 200
    )
    connect = b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield _shape("CONNECT", connect + SMUGGLED, {400, 405, 501})
    upgrade = b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
    yield _shape("an offer of h2c", _get(upgrade), 200)
    yield _shape(
        "an offer of a WebSocket", _get(b"Connection: upgrade, close\r\nUpgrade: websocket\r\n"), 200
    )
    for target in (
        *(
            b"/v1/topics/%2e%2e%2f%2e%2e%2fetc",
            b"/../../etc/passwd",
            b"/v1/topics/\xff\xfe",
            b"/v1/topics/a%00b",
        ),
        *(
            b"/v1/topics/%",
            b"/v1/topics/%zz",
            b"/v1/topics/a#b",
            b"a",
            b"*",
            b"",
            b"//",
            b"/\\",
            b"/v1/topics/a%0d%0aX:y",
        ),
        *(
            b"ftp://localhost/",
            b"http://",
            b"http:///a",
            b"http://a@localhost/v1/cluster",
            b"/" + b"a" * 33_000,
        ),
    ):
        sent = _get(b"Connection: close\r\n", target)
        yield _shape(f"target {target[:40]!r}", sent, {400, 403, 404, 414, 422, 503})
    yield _shape("a method of 70 KB", b"G" * 70_000 + b" / HTTP/1.1\r\n\r\n", {400, 431})
    yield _shape(
        "a method that nobody knows",
        _get(b"Connection: close\r\n").replace(b"GET", b"FROBNICATE"),
        {400, 405, 501},
    )


# -- sizes ---------------------------------------------------------------------------------------------------


def _large() -> Iterator[Shape]:
    yield _shape("a header of 1 MB", _get(b"X: " + b"a" * 1_000_000 + b"\r\n"), {431})
    yield _shape("a name of 1 MB", _get(b"a" * 1_000_000 + b": x\r\n"), {431})
    yield _shape("100,000 headers", _get(b"X: y\r\n" * 100_000), {431})
    yield _shape("5,000 headers", _get(b"Connection: close\r\n" + b"X: y\r\n" * 5_000), {200, 431})
    yield _shape("a target of 1 MB", _get(target=b"/" + b"a" * 1_000_000), {414})
    yield _shape(
        "a query of 30 KB",
        _get(b"Connection: close\r\n", b"/v1/topics/orders/leader?key=" + b"a" * 30_000),
        {200, 400, 414, 422},
    )
    announced = _post(b"Content-Length: 100000000\r\n", b"x" * 1_000)
    yield _shape("a body of 100 MB is announced", announced, 413)
    large = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    yield _shape("a body of 24 MB in chunks", _chunked(large * 24 + b"0\r\n\r\n"), 413)
    pipelined = _get() * 20 + _get(b"Connection: close\r\n")
    yield Shape("a pipeline", (pipelined,), (frozenset({200}),) * 21)


# -- packed bodies -------------------------------------------------------------------------------------------


def _packed() -> Iterator[Shape]:
    plain = b'{"records":[{"value":"' + b"a" * 10_000_000 + b'"}]}'
    once = gzip.compress(plain, mtime=0)
    bomb = gzip.compress(b" " * 200_000_000, mtime=0)
    for coding, packed in (
        (b"gzip", once),
        (b"gzip", bomb),
        (b"gzip", once[: len(once) // 2]),
        (b"gzip, gzip", gzip.compress(once, mtime=0)),
        (b"x-gzip", once),
        (b"deflate", zlib.compress(plain)),
        (b"zstd", compression_for(Codec.ZSTD).compress(plain)),
        (b"br", b"\x1b\xff\xff\xff\x00" * 20),
        (b"identity, gzip", once),
        (b"nothing", b"{}"),
    ):
        headers = b"Content-Encoding: %s\r\nContent-Length: %d\r\n" % (coding, len(packed))
        for path in (
            _PATH,
            b"/topics/orders",
            b"/v1/leaders",
            b"/cloudevents/orders",
            b"/v1.0/publish/p/orders",
        ):
            name = f"{coding.decode()} of {len(packed)} bytes to {path.decode()}"
            # Only gzip is unpacked: to a record or a body that is too large, or to what is cut.
            refused = {400, 404, 413, 415} if coding in (b"gzip", b"x-gzip") else {400, 404, 415}
            yield _shape(name, _post(headers, packed, path), refused)
