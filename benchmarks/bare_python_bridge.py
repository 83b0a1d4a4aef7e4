"""The ceiling for HTTP produce: uvicorn and a bare producer's thread. Arguments: PORT BOOTSTRAP TOPIC.

It parses a body of text values, submits them, and answers with a receipt for each. Any invalid body is a
server error. bare_producer.py lists what it leaves out.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import uvicorn

from benchmarks.bare_producer import BareProducer, Handed

#: The sidecar's value: with the interpreter's default of 5 ms, one busy thread blocks the other.
_SWITCH_INTERVAL_S = 0.0005


class _Record(msgspec.Struct, gc=False):
    value: str


class _Body(msgspec.Struct):
    records: list[_Record]


_decode = msgspec.json.Decoder(_Body).decode


class Bridge:
    """The ASGI application."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._producer: BareProducer | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        message = await receive()
        body = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        answer = await self._produce(body) if body else b"{}"
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _produce(self, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        if self._producer is None:
            self._producer = BareProducer(self._bootstrap_servers, self._topic, loop.call_soon_threadsafe)
        future: asyncio.Future[Handed] = loop.create_future()
        values = [record.value.encode() for record in _decode(body).records]
        self._producer.hand_over(Handed(values, future.set_result))
        receipts = sorted((await future).receipts)
        results = ",".join(
            [
                f'{{"partition":{partition},"offset":{offset},"timestamp":{timestamp_ms}}}'
                for _, count, partition, first, timestamp_ms in receipts
                for offset in range(first, first + count)
            ]
        )
        return f'{{"topic":"{self._topic}","results":[{results}]}}'.encode()


if __name__ == "__main__":
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    uvicorn.run(
        Bridge(sys.argv[2], sys.argv[3]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        lifespan="off",
    )
