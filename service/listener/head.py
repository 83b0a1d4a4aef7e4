"""HEAD: what GET would answer, without the body (RFC 9110 section 9.3.2).

The request goes on as a GET, so that every path that can be read knows HEAD, the prepared ones included, and
is counted as one. Its answer ends with its head: an answer that goes on, such as a watch, ends there too, and
whoever writes it finds that its caller has left. Event loop only.
"""

from __future__ import annotations

from service.asgi import ANSWER, Message, Scope, Send


def as_get(scope: Scope) -> Scope:
    """The same request as a GET. The server keeps its own, which says HEAD."""
    got = {**scope, "method": "GET"}
    got.pop(ANSWER, None)
    return got


def head_of(send: Send) -> Send:
    """Sends the head of an answer and nothing that comes after it."""

    async def head_only(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return head_only
