"""uvicorn's HTTP/1.1, with three things that it leaves to others.

    no HTTP       never reaches the application, so its problem document is spelled here
    heads         have no limit of uvicorn's own, and are kept until they are complete: here is one
    upgrades      are declined by going on as if none had been offered (RFC 9110 section 7.8). The parser ends
                  at such a head, and uvicorn would lose the body: Java's own HTTP client offers h2c with each
                  first request of a connection, produces among them

One object per connection; event loop only.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import PROBLEM_TYPE, Problem

#: As much as Node and nginx take, give or take. What came in one read with its beginning is not counted.
MAX_HEAD_BYTES: Final = 64 * 1024

#: What belongs to the offer of another protocol; the words of Connection that speak of it too.
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})


class ApiProtocol(HttpToolsProtocol):
    """One connection."""

    #: A head whose end has not come yet, and how much of it came after the read that it began in.
    _head: Mapping[str, object] | None = None
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as e:
            # A callback of ours that fails is uvicorn's, on a target that it can't take apart.
            no_url = isinstance(e, httptools.HttpParserCallbackError)
            self._refuse(Problem(400, f"not HTTP/1.1: {'the target is no URL' if no_url else e}"))
            return
        # None before the first message; the method is put in when a head is complete.
        head = cast("Mapping[str, object] | None", self.scope)
        if head is not None and "method" not in head:
            self._bound(head, len(data))

    def _bound(self, head: Mapping[str, object], came_bytes: int) -> None:
        self._head_bytes = self._head_bytes + came_bytes if head is self._head else 0
        self._head = head
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(Problem(431, f"the head of the request is larger than {MAX_HEAD_BYTES} bytes"))

    def _should_upgrade(self) -> bool:
        """Of a head that offers an upgrade nothing is to be begun: it comes again, without it."""
        return True

    def _decline(self, rest: bytes) -> None:
        """Reads the request again, without the offer, and then what came behind its head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(Problem(400, "not HTTP/1.1: this is no proxy"))
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                value = b", ".join(word for word in words if word.lower() not in _OFFER)
            if name not in _OFFER and value:
                lines.append(b"%s: %s" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _refuse(self, problem: Problem) -> None:
        body = problem.body()
        status = HTTPStatus(problem.status)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        headers = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head + headers % (PROBLEM_TYPE, len(body)) + body)
        self.transport.close()
