"""The head of a request, judged as bytes: its target, its coding, its offer of another protocol, its page."""

from __future__ import annotations

import pytest

from service.admission.guards import is_of_another_page
from service.listener.http_exchange import (
    MAX_TARGET_BYTES,
    RefusedError,
    check_coding,
    settled,
    without_offer,
)

LONGEST = b"http://b/".ljust(MAX_TARGET_BYTES, b"a")


@pytest.mark.parametrize(
    ("method", "target", "path", "host"),
    [
        (b"GET", b"http://b:1/c?d=e?f", b"/c?d=e?f", b"b:1"),
        (b"GET", b"https://b", b"/", b"b"),
        (b"GET", b"HTTP://b?c", b"/?c", b"b"),
        (b"GET", LONGEST, LONGEST[8:], b"b"),
        (b"CONNECT", b"b:443", b"b:443", b"a"),
        (b"OPTIONS", b"*", b"*", b"a"),
    ],
)
def test_a_target_is_its_path_and_its_host_counts(
    method: bytes, target: bytes, path: bytes, host: bytes
) -> None:
    headers = [(b"accept", b"x"), (b"host", b"a"), (b"via", b"y")]
    assert settled(target, method, headers) == path
    assert sorted(headers) == [(b"accept", b"x"), (b"host", host), (b"via", b"y")]


@pytest.mark.parametrize(
    ("method", "target", "status", "detail"),
    [
        (b"GET", LONGEST + b"a", 414, "longer than 32768 bytes"),
        (b"CONNECT", b"b:443#x", 400, "fragment"),
        (b"GET", b"/#", 400, "fragment"),
        (b"GET", b"*", 400, "no URL"),
        (b"OPTIONS", b"**", 400, "no URL"),
        (b"GET", b"http://u@b/", 400, "no URL"),
        (b"GET", b"b:443", 400, "no URL"),
    ],
)
def test_a_target_that_is_none_is_refused(method: bytes, target: bytes, status: int, detail: str) -> None:
    headers = [(b"host", b"a")]
    with pytest.raises(RefusedError) as refused:
        settled(target, method, headers)
    assert refused.value.problem is not None
    assert (refused.value.problem.status, refused.value.problem.written) == (status, "no")
    assert detail in refused.value.problem.detail
    assert headers == [(b"host", b"a")]


@pytest.mark.parametrize(
    ("headers", "is_served"),
    [
        ([], True),
        ([(b"transfer-encoding", b"Chunked")], True),
        ([(b"te", b"gzip"), (b"transfer-encoding", b"chunked")], True),
        ([(b"transfer-encoding", b"gzip")], False),
        ([(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"gzip")], False),
    ],
)
def test_a_body_is_chunked_and_nothing_more(headers: list[tuple[bytes, bytes]], is_served: bool) -> None:
    if is_served:
        check_coding(headers)
        return
    with pytest.raises(RefusedError) as refused:
        check_coding(headers)
    assert refused.value.problem is not None
    assert (refused.value.problem.status, refused.value.problem.written) == (501, "no")


@pytest.mark.parametrize(
    ("headers", "lines"),
    [
        ([(b"host", b"a"), (b"upgrade", b"h2c"), (b"http2-settings", b"A")], b"host: a\r\n"),
        ([(b"connection", b"Upgrade , close,HTTP2-Settings, te")], b"connection: close, te\r\n"),
        ([(b"connection", b"upgrade"), (b"te", b"x")], b"te: x\r\n"),
    ],
)
def test_a_head_is_the_same_without_its_offer(headers: list[tuple[bytes, bytes]], lines: bytes) -> None:
    assert without_offer(b"PUT", b"/b", "1.0", headers) == b"PUT /b HTTP/1.0\r\n" + lines + b"\r\n"


@pytest.mark.parametrize(
    ("site", "method", "mode", "dest", "is_let_in"),
    [
        (b"same-origin", "POST", b"no-cors", b"image", True),
        (b"none", "POST", b"no-cors", b"image", True),
        (b"same-site", "GET", b"navigate", b"document", True),
        (b"cross-site", "HEAD", b"navigate", b"document", True),
        (b"cross-site", "POST", b"navigate", b"document", False),
        (b"cross-site", "GET", b"no-cors", b"document", False),
        (b"cross-site", "GET", b"navigate", b"iframe", False),
        (b"", "GET", b"", b"", False),
    ],
)
def test_of_another_page_only_a_link_that_somebody_follows_is_let_in(
    site: bytes, method: str, mode: bytes, dest: bytes, is_let_in: bool
) -> None:
    headers = [(b"sec-fetch-mode", mode), (b"sec-fetch-dest", dest)]
    assert is_of_another_page({"method": method, "headers": headers}, site) is not is_let_in
