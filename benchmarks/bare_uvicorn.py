"""The ceiling for look-ups: uvicorn (uvloop, httptools) with a fixed body and nothing else.

Arguments: PORT, and optionally a file with the body; the default body is that of a leader.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn

BODY = (
    b'{"topic":"demo","partition":0,"leader":{"id":1,"host":"127.0.0.1","port":9092,"rack":null},'
    b'"leader_epoch":0}'
)


class FixedAnswer:
    """The ASGI application."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": self._body})


if __name__ == "__main__":
    uvicorn.run(
        FixedAnswer(Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else BODY),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        lifespan="off",
    )
