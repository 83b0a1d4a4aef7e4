"""Reads a request's body within its time and limits.

A caller that sends its body slowly holds a permit and the bytes that it announced. So the body has no more
time than the rest of the request. When the drain begins, a body that is not complete is refused: nothing of
it could be accepted any more, and the caller may repeat the request elsewhere at once. Event loop only.
"""

from __future__ import annotations

import asyncio

from service.admission.admission_control import Permit
from service.admission.guards import CLOSE, DRAINING
from service.wire.asgi import BODY, Body, Receive, Scope, header
from service.wire.errors import WHOLE_BODY, ProblemError, out_of_memory, refused
from service.wire.waiting import CallerGoneError


def announced_bytes(scope: Scope) -> int:
    """Returns Content-Length, which the guards have checked; 0 if the length is unknown."""
    return int(header(scope, b"content-length") or 0)


async def read_body(scope: Scope, receive: Receive, permit: Permit, within_ms: int) -> bytes:
    """Returns the whole body. Bytes beyond the announced length are counted as they arrive.

    Raises CallerGoneError, or ProblemError: 408 if the body is late, 429 if it does not fit, 503 if there is
    not enough memory for it or the drain begins.
    """
    of_server: Body | None = scope.get(BODY)
    here = None if of_server is None else of_server()
    if here is not None:  # most bodies arrive in one piece with their head
        permit.grow_to(len(here))
        return here
    drain = permit.drain
    try:
        async with asyncio.timeout(within_ms / 1000) as limit:
            with drain.ending(limit):
                return await _read(receive, permit)
    except TimeoutError as e:
        if drain.begun:
            raise ProblemError(DRAINING) from e
        detail = f"did not arrive within {within_ms} ms"
        raise refused(408, detail, CLOSE, place=WHOLE_BODY, retriable=True) from e
    except MemoryError as e:
        raise out_of_memory() from e


async def _read(receive: Receive, permit: Permit) -> bytes:
    body = bytearray()  # not a list: chunks of one byte each would take fifty times the memory
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError("the caller closed the connection before the end of its body")
        chunk: bytes = message.get("body", b"")
        permit.grow_to(len(body) + len(chunk))
        more = message.get("more_body", False)
        if not more and not body:
            return chunk
        body += chunk
        if not more:
            return bytes(body)
