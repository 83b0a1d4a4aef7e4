"""The ceiling for look-ups: uvicorn (uvloop, httptools) with a fixed body and nothing else."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

BODY = (
    b'{"topic":"demo","partition":0,"leader":{"id":1,"host":"127.0.0.1","port":9092,"rack":null},'
    b'"leader_epoch":0}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        lifespan="off",
    )
