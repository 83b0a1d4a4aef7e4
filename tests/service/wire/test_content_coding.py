"""gzip both ways: long answers with an ETag per encoding, and bodies that are bounded while unpacking."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from client_core import Phase, RecordFailure, Written
from client_core import TimeoutError as KafkaTimeoutError
from service.wire.content_coding import LONG_BYTES, PIECE_BYTES, accepts_gzip, unpacking
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

PLAIN = {"accept-encoding": "identity"}
GZIP = {"accept-encoding": "gzip"}
JSON = {"content-type": "application/json"}
PACKED = {**JSON, "content-encoding": "gzip"}
PATH = "/v1/topics/orders/records"
ONE = b'{"records":[{"value":1}]}'
MANY = json.dumps({"records": [{"value": n} for n in range(300)]}).encode()
#: Dapr's.
ENTRIES = json.dumps(
    [{"entryId": str(n), "event": "x", "contentType": "text/plain"} for n in range(300)]
).encode()

LONG = "/v1/topics/orders"
SHORT = "/v1/topics/few"


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 300, "few": 2, "huge": 12_000})
    app.producer.on_brokers = {f"topic-{n}": 3 for n in range(3_000)}
    return app


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        *((value, True) for value in ("gzip", "GZIP", "deflate, gzip;q=0.5", "x-gzip", "*", "br,*;q=0.1")),
        *(
            (value, False)
            for value in ("", "br", "gzip;q=0", "gzip; q=0.000", "identity", "gzip;q=0,*", "*;q=0")
        ),
    ],
)
def test_gzip_is_accepted_by_name_or_by_star(value: str, is_accepted: bool) -> None:
    assert accepts_gzip(value.encode()) is is_accepted


@pytest.mark.parametrize(
    "path",
    [
        LONG,
        "/v1/topics/huge",
        "/v1/topics",
        "/openapi.json",
        "/topics/huge",
        "/v1/brokers/1",
        "/docs/docs.css",
    ],
)
def test_a_long_answer_is_the_same_when_it_is_packed(web: HttpApp, path: str) -> None:
    plain, packed = web.get(path, headers=PLAIN), web.get(path, headers=GZIP)
    assert "content-encoding" not in plain.headers
    if len(plain.content) <= LONG_BYTES:
        assert path == "/docs/docs.css"
        assert "vary" not in plain.headers
        return
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    assert packed.headers["etag"] == plain.headers["etag"][:-1] + '-gzip"'
    assert packed.num_bytes_downloaded < len(plain.content) / 2
    length = packed.headers.get("content-length")
    assert length == (str(packed.num_bytes_downloaded) if len(plain.content) <= PIECE_BYTES else None)


def test_a_short_answer_is_never_packed(web: HttpApp) -> None:
    answer = web.get(SHORT, headers=GZIP)
    assert len(answer.content) < LONG_BYTES
    assert not {"content-encoding", "vary"} & set(answer.headers)


def test_each_encoding_is_revalidated_with_its_own_etag(web: HttpApp) -> None:
    for path in (LONG, "/v1/topics", "/openapi.json", "/"):
        plain, packed = (web.get(path, headers=how).headers["etag"] for how in (PLAIN, GZIP))
        for held, etag in (
            (packed, packed),
            (f'"x", W/{packed}', packed),
            (plain, plain),
            (f'"x-gzip", {plain}', plain),
        ):
            for method in ("GET", "HEAD"):
                answer = web.ask(method, path, headers={**GZIP, "if-none-match": held})
                assert (answer.status_code, answer.headers["etag"]) == (304, etag), held
                assert "content-encoding" not in answer.headers
                assert answer.headers["vary"] == "Accept-Encoding", "as a 200 has it (RFC 9110, 15.4.5)"
        assert web.get(path, headers={**PLAIN, "if-none-match": packed}).status_code == 200
        assert web.get(path, headers={**GZIP, "if-none-match": '"x-gzip"'}).status_code == 200


def test_results_of_many_records_and_long_refusals_are_packed(web: HttpApp) -> None:
    answer = web.post(PATH, content=MANY, headers={**JSON, **GZIP})
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert len(answer.json()["results"]) == 300


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", "/v1/watch/snapshot?topics=orders", b"", {}),
        ("GET", "/v1/watch?topics=orders", b"", {"accept": "application/json"}),
        ("GET", "/v1/watch/changes?topics=orders&last_event_id=x", b"", {}),
        ("POST", "/topics/orders", MANY, {"content-type": "application/vnd.kafka.json.v2+json"}),
        ("POST", "/v3/clusters/cluster/topics/orders/records", b"{}" * 300, JSON),
        ("POST", "/v1.0/publish/bulk/pubsub/orders", ENTRIES, JSON),
    ],
)
def test_long_answers_without_an_etag_are_packed_too(
    web: HttpApp, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    if "/bulk/" in path:
        lost = RecordFailure(
            KafkaTimeoutError("no acknowledgement came"), Phase.DELIVERY, Written.UNKNOWN, 30
        )
        web.producer.outcome_of = lambda index, record: lost
    plain = web.ask(method, path, content=body, headers={**PLAIN, **headers})
    packed = web.ask(method, path, content=body, headers={**GZIP, **headers})
    assert len(plain.content) > LONG_BYTES
    assert (packed.status_code, packed.headers["content-encoding"]) == (plain.status_code, "gzip")
    assert packed.text[:10] == plain.text[:10], "offsets and times differ"
    assert abs(len(packed.content) - len(plain.content)) < len(plain.content) / 10
    assert "Accept-Encoding" in plain.headers.get_list("vary")
    assert packed.headers.get_list("vary") == plain.headers.get_list("vary")


def test_head_describes_what_get_sends(web: HttpApp) -> None:
    for accepted in (GZIP, PLAIN):
        got, head = web.get(LONG, headers=accepted), web.ask("HEAD", LONG, headers=accepted)
        assert head.content == b""
        same = ("etag", "vary", "content-encoding", "content-type")
        assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same]
    assert head.headers["content-length"] == got.headers["content-length"]


def test_http_1_0_knows_no_chunks_and_gets_plain_answers(web: HttpApp) -> None:
    async def old(scope: Any, receive: Any, send: Any) -> None:
        await web.app({**scope, "http_version": "1.0"}, receive, send)

    answer = web.ask("GET", LONG, app=old, headers=GZIP)
    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "Accept-Encoding"


def test_answers_of_callers_vary_by_their_token_too(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 300})
    answer = web.get(LONG, headers={**GZIP, **tokens.of("shop")})
    assert answer.headers.get_list("vary") == ["Accept-Encoding", "Authorization"]
    assert answer.headers["content-encoding"] == "gzip"


# -- bodies --------------------------------------------------------------------------------------------------


def post(web: HttpApp, body: bytes, path: str = PATH, **headers: str) -> httpx.Response:
    given = {**PACKED, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return web.post(path, content=body, headers=given)


#: A produce in each API, and a look-up.
BODIES = {
    PATH: ("application/json", ONE),
    "/v1/records": ("application/json", b'{"records":[{"topic":"orders","value":1}]}'),
    "/v1/leaders": ("application/json", b'{"lookups":[{"topic":"orders","partition":0}]}'),
    "/topics/orders": ("application/vnd.kafka.json.v2+json", ONE),
    "/v3/clusters/cluster/topics/orders/records:batch": (
        "application/json",
        b'{"entries":[{"id":"1","value":{"type":"JSON","data":1}}]}',
    ),
    "/v1.0/publish/pubsub/orders": ("application/json", b"1"),
}


@pytest.mark.parametrize("path", BODIES)
def test_a_packed_body_is_taken_as_a_plain_one(web: HttpApp, path: str) -> None:
    media_type, body = BODIES[path]
    plain = web.post(path, content=body, headers={"content-type": media_type})
    packed = post(web, gzip.compress(body), path, content_type=media_type)
    assert packed.is_success
    assert packed.status_code == plain.status_code
    if web.producer.submitted:
        first, second = web.producer.submitted
        assert [r.key for r in first] == [r.key for r in second]


def test_a_packed_octet_stream_is_its_plain_value(web: HttpApp) -> None:
    value = bytes(range(256)) * 1_000
    answer = post(web, gzip.compress(value), content_type="application/octet-stream")
    assert answer.status_code == 200
    assert web.producer.submitted[0][0].value == value


def test_the_name_of_the_coding_may_be_in_any_case(web: HttpApp) -> None:
    for path, (media_type, body) in BODIES.items():
        answer = post(web, gzip.compress(body), path, content_type=media_type, content_encoding="GZip")
        assert answer.is_success, path


def test_a_packed_request_repeats_the_plain_one(web: HttpApp) -> None:
    first = web.post(PATH, content=ONE, headers={**JSON, "idempotency-key": "k"})
    again = post(web, gzip.compress(ONE), idempotency_key="k")
    assert (again.text, again.headers["pilotfish-replayed"]) == (first.text, "true")


def test_a_body_that_unpacks_to_too_much_is_413_and_not_held() -> None:
    web = HttpApp(max_body_bytes=1_000_000)
    web.producer.set_topics({"orders": 3})
    bomb = gzip.compress(b'{"records":[{"value":"' + b"x" * 200_000_000)
    assert len(bomb) < 1_000_000
    answer = post(web, bomb)
    assert (answer.status_code, answer.json()["place"]) == (413, "body")
    assert web.app.sidecar.admission.bytes == 0
    assert web.producer.submitted == []


DAMAGED = {
    "no gzip": ONE,
    "empty": b"",
    "cut": gzip.compress(ONE)[:-9],
    "without its checksum": gzip.compress(ONE)[:-4],
    "a wrong checksum": gzip.compress(ONE)[:-8] + b"\0" * 8,
    "bytes behind": gzip.compress(ONE) + b"x",
    "two members": gzip.compress(ONE) + gzip.compress(ONE),
    "zlib": zlib.compress(ONE),
    "twice": gzip.compress(gzip.compress(ONE)),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_body_is_400_and_says_where(web: HttpApp, kind: str) -> None:
    answer = post(web, DAMAGED[kind])
    assert (answer.status_code, answer.json()["place"], answer.json()["written"]) == (400, "body", "no")
    assert web.producer.submitted == []


def test_other_codings_and_streams_are_415(web: HttpApp) -> None:
    packed = gzip.compress(ONE)
    for headers in (
        {"content_encoding": "br"},
        {"content_encoding": "gzip, gzip"},
        {"content_encoding": "deflate"},
        {"content_type": "application/x-ndjson"},
    ):
        answer = post(web, packed, **headers)
        assert (answer.status_code, answer.json()["place"]) == (415, "Content-Encoding"), headers
    twice = web.post(PATH, content=packed, headers=[*PACKED.items(), ("content-encoding", "gzip")])
    assert twice.status_code == 415
    for name in ("GZIP", "x-gzip"):
        assert post(web, packed, content_encoding=name).status_code == 200


def in_two_parts(length: int) -> tuple[bytes, list[bytes]]:
    """A body and its packed halves. The first ends with a block, so that the unpacker may hold some of it."""
    body, packer = b"a" * length, zlib.compressobj(wbits=31)
    return body, [packer.compress(body) + packer.flush(zlib.Z_BLOCK), packer.flush()]


def test_what_comes_out_comes_in_pieces_whatever_came_in() -> None:
    body = bytes(range(256)) * 2_000
    packed = gzip.compress(body)
    cut = [
        [packed[at : at + size] for at in range(0, len(packed), size)] for size in (1, 7, 100, len(packed))
    ]
    for body, parts in [
        *((body, parts) for parts in cut),
        *map(in_two_parts, range(PIECE_BYTES, PIECE_BYTES + 300)),
    ]:
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)}
            for at, part in enumerate(parts)
        ]

        async def unpacked(messages: list[dict[str, Any]] = messages) -> list[bytes]:
            async def receive() -> Any:
                return messages.pop(0)

            read, found = unpacking(receive), []
            while True:
                message = await read()
                found.append(message["body"])
                if not message["more_body"]:
                    return found

        found = run(unpacked())
        assert b"".join(found) == body
        assert max(map(len, found)) <= PIECE_BYTES
