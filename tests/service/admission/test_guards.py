"""The guards in front of every path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.admission.guards import hosts_of, without_port
from tests.support.http_app import HttpApp, NativeApp
from tests.support.served import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ONE = b'{"records":[{"value":1}]}'
PATHS = [
    ("GET", "/v1/topics/orders"),
    ("GET", "/v1/status"),
    ("POST", "/v1/topics/orders/records"),
    ("POST", "/v1/leaders"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing"),
]


def web(**settings: Any) -> NativeApp:
    app = NativeApp(**settings)
    app.producer.set_topics({"orders": 3})
    return app


ALLOWED = "https://ops.example"
LOCAL, EVIL = ("host", "localhost"), ("host", "evil.example")
OURS, THEIRS = ("origin", "http://localhost"), ("origin", "https://evil.example")
TWICE = '"place":"Host or Origin"'
REFUSED = [
    ([EVIL], 421, "this Host is not allowed"),
    ([LOCAL, LOCAL], 400, TWICE),
    ([LOCAL, EVIL], 400, TWICE),
    ([EVIL, LOCAL], 400, TWICE),
    ([LOCAL, OURS, THEIRS], 400, TWICE),
    ([LOCAL, THEIRS, OURS], 400, TWICE),
    ([THEIRS], 403, "this Origin is not allowed"),
    ([("origin", "null")], 403, "this Origin is not allowed"),
    ([("sec-fetch-site", "cross-site")], 403, "a page of another site"),
]
REFUSED_TO_WRITE = [
    ([("origin", ALLOWED), ("content-type", "application/x-www-form-urlencoded")], 403, "but not a form"),
    ([("content-length", "-1")], 413, "(max_body_bytes)"),
]


def test_a_refusal_holds_on_every_path_and_nothing_is_written() -> None:
    for method, path in PATHS:
        app = web(allowed_origins=ALLOWED)
        assert app.get("/v1/cluster").status_code == 200, path  # its host is known from here on
        body = ONE if method == "POST" else None
        for headers, status, said in [*REFUSED, *(REFUSED_TO_WRITE if body else [])]:
            answer = app.ask(method, path, headers=headers, content=body)
            assert (answer.status_code, answer.json()["written"]) == (status, "no"), headers
            assert said in answer.text, headers
            assert answer.headers["content-type"] == "application/problem+json", headers
            readable = ("origin", ALLOWED) in headers
            assert ("access-control-allow-origin" in answer.headers) is readable, headers
        assert app.producer.submitted == [], path


def test_loopback_is_let_in_by_any_of_its_names() -> None:
    app = web()
    for host in (
        "localhost",
        "LOCALHOST:8085",
        "localhost:",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:8085",
    ):
        assert app.get("/v1/topics/orders", headers={"host": host}).status_code == 200, host


def test_what_merely_looks_like_loopback_is_not_let_in_however_often_it_asks() -> None:
    app = web()
    for host in (
        "localhost.evil.example",
        "evil.example:8085",
        "",
        "127.0.0.1.nip.io",
        "[::2]",
        "localhost:100000",
    ):
        answers = [app.get("/v1/topics/orders", headers={"host": host}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [421] * 3, host


async def test_only_http_1_0_needs_no_host() -> None:
    """RFC 9112 section 3.2: a server must answer 400 to a request of HTTP/1.1 without the header."""
    for allowed, other in (("localhost", b"421"), ("*", b"200")):
        app = web(allowed_hosts=allowed)
        async with Served(app.app, answer_at_once=app.app.answer_at_once) as served:
            for version, head, status in (
                (b"1.0", b"", other),
                (b"1.1", b"", b"400"),
                (b"1.1", b"Host:\r\n", other),
            ) * 2:
                caller = await served.call()
                caller.send(b"GET /v1/topics/orders HTTP/%s\r\n%sConnection: close\r\n\r\n" % (version, head))
                said = await caller.until_closed()
                assert said[9:12] == status, (allowed, version, head)


def test_hosts_can_be_set() -> None:
    app = web(allowed_hosts="sidecar.internal")
    assert app.get("/v1/cluster", headers={"host": "sidecar.internal:80"}).status_code == 200
    assert app.get("/v1/cluster", headers={"host": "localhost"}).status_code == 421
    assert web(allowed_hosts="*").get("/v1/cluster", headers={"host": "any.thing"}).status_code == 200


def test_a_host_that_thousands_of_links_would_repeat_is_refused() -> None:
    app = HttpApp(allowed_hosts="*")
    app.producer.set_topics({"orders": 300})
    path = f"/v3/clusters/{app.producer.cache.cluster_id}/topics/orders/partitions"
    for host in ("localhost:" + "9" * 60_000, "x" * 513):
        answer = app.get(path, headers={"host": host})
        assert answer.status_code == 400, host[:20]
        assert host not in answer.text
    assert app.get(path, headers={"host": "x" * 512}).status_code == 200


def test_the_address_that_is_listened_on_is_one_of_the_hosts() -> None:
    for api_host, added in (
        ("10.1.2.3", ("10.1.2.3",)),
        ("0.0.0.0", ()),
        ("::", ()),
        ("fd00::1", ("[fd00::1]",)),
    ):
        assert hosts_of(("localhost",), api_host) == ("localhost", *added), api_host


def test_our_own_origin_and_allowed_ones_are_let_in() -> None:
    app = web(allowed_origins="https://ops.example")
    for host, origin in [("localhost:8085", "http://localhost:8085"), ("localhost", "https://ops.example")]:
        assert app.get("/v1/cluster", headers={"host": host, "origin": origin}).status_code == 200
    headers = {"host": "localhost:8085", "origin": "http://localhost:1"}
    assert app.get("/v1/cluster", headers=headers).status_code == 403


def test_an_encoded_slash_divides_no_path_and_is_in_no_name() -> None:
    app = web()
    for path in ("/v1/topics/orders%2Fleader?partition=0", "/v1/topics/a%2fb/records"):
        answer = app.get(path)
        reported = answer.json()
        assert (answer.status_code, reported["place"], reported["written"]) == (400, "path", "no"), path


def test_an_encoded_line_break_at_the_end_of_a_path_is_not_ignored() -> None:
    app = web()
    for method, path in [
        ("GET", "/v1/topics/orders/leader%0a?partition=0"),
        ("GET", "/topics%0A"),
        ("POST", "/v1/topics/orders/records%0a"),
        ("POST", "/v1.0/publish/pubsub/orders%0A"),
    ]:
        body = ONE if method == "POST" else None
        answer = app.ask(method, path, headers=[("content-type", "application/json")], content=body)
        assert answer.status_code == 400, path
    assert app.producer.submitted == []


def test_spellings_of_a_host_are_remembered_in_bounded_number() -> None:
    app = web()
    for port in range(200):
        assert app.get("/v1/topics/orders", headers={"host": f"localhost:{port}"}).status_code == 200
    assert app.get("/v1/topics/orders", headers={"host": "evil.example:1"}).status_code == 421
    assert len(app.app._entry._known_hosts) <= 64


def test_while_it_drains_look_ups_are_answered_and_nothing_else_is_accepted() -> None:
    app = web()
    app.app.sidecar.drain.begun = True
    assert app.get("/v1/topics/orders").status_code == 200
    for path in ("/v1/topics/orders/records", "/v1/leaders", "/v1/metadata/refresh"):
        answer = app.post(path, content=ONE, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        assert (answer.json()["retriable"], answer.json()["written"]) == (True, "no")
    assert app.producer.submitted == []


def test_a_length_that_is_none_is_refused() -> None:
    app = web()
    for length in (b"-1", b"1e3", b"99999999999999999999999999", b"0" * 20 + b"25", b"0" * 5_000 + b"25"):
        for media_type in (b"application/json", b"application/x-ndjson"):
            headers = {b"content-length": length, b"content-type": media_type}
            answer = app.post("/v1/topics/orders/records", headers=headers, content=ONE)
            assert answer.status_code == 413, (length, media_type)


def test_a_length_has_no_more_digits_than_the_longest_number() -> None:
    app = web()
    for length, status in ((b"0" * 17 + b"25", 200), (b"0" * 18 + b"25", 413)):
        headers = {b"content-length": length, b"content-type": b"application/json"}
        answer = app.post("/v1/topics/orders/records", headers=headers, content=ONE)
        assert answer.status_code == status, length


@pytest.mark.parametrize(("max_body_bytes", "status"), [(len(ONE), 200), (len(ONE) - 1, 413)])
def test_a_body_may_be_as_large_as_the_limit(max_body_bytes: int, status: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield ONE[:5]
        yield ONE[5:]

    app = web(max_body_bytes=max_body_bytes)
    headers = {"content-type": "application/json"}
    for content in (ONE, chunks()):
        answer = app.post("/v1/topics/orders/records", headers=headers, content=content)
        assert answer.status_code == status


def test_zeros_in_front_of_a_length_hide_nothing() -> None:
    app = web(max_body_bytes=100)
    headers = {b"content-length": b"0" * 20 + b"101", b"content-type": b"application/octet-stream"}
    answer = app.post("/v1/topics/orders/records", headers=headers, content=b"x" * 101)
    assert answer.status_code == 413
    assert app.producer.submitted == []


def test_a_body_of_unknown_length_is_limited_as_a_whole_and_not_chunk_by_chunk() -> None:
    app = web(max_body_bytes=len(ONE) - 1)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(ONE), 5):
            yield ONE[at : at + 5]

    headers = {"content-type": "application/json"}
    for path in ("/v1/topics/orders/records", "/v1/leaders"):
        answer = app.post(path, headers=headers, content=chunks())
        assert answer.status_code == 413, path
        assert app.producer.submitted == [], path


def test_a_host_is_known_without_its_port() -> None:
    for host, bare in (
        (b"a:1", b"a"),
        (b"a", b"a"),
        (b"[::1]:1", b"[::1]"),
        (b"[::1]", b"[::1]"),
        (b"", b""),
    ):
        assert without_port(host) == bare, host
