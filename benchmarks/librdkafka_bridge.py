"""The peer for HTTP produce: a minimal bridge of uvicorn and confluent-kafka. Arguments: PORT BOOTSTRAP ACKS.

It is the obvious implementation: parse the body, produce each record with a callback, answer when all are
acknowledged. The callbacks run on a polling thread, and each passes its offset to the event loop.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any, Final

import uvicorn
from confluent_kafka import Producer

#: Kafka's default, which all contestants use here. librdkafka's own is 1 MB.
BATCH_BYTES: Final = 16_384


class Bridge:
    def __init__(self, bootstrap: str, acks: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "linger.ms": 0,
                "batch.size": BATCH_BYTES,
                "enable.idempotence": acks == "all",
            }
        )
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        while True:
            self.producer.poll(0.1)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = await self._produce(scope["path"].split("/")[3], json.loads(body)) if body else b"{}"
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _produce(self, topic: str, request: dict[str, Any]) -> bytes:
        loop = asyncio.get_running_loop()
        records = request["records"]
        futures = [loop.create_future() for _ in records]
        for record, future in zip(records, futures, strict=True):
            self.producer.produce(topic, record["value"].encode(), on_delivery=self._settle(loop, future))
        delivered = await asyncio.gather(*futures)
        results = [
            {"partition": m.partition(), "offset": m.offset(), "timestamp": m.timestamp()[1]}
            for m in delivered
        ]
        return json.dumps({"topic": topic, "results": results}).encode()

    @staticmethod
    def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                loop.call_soon_threadsafe(future.set_exception, RuntimeError(str(error)))
            else:
                loop.call_soon_threadsafe(future.set_result, message)

        return on_delivery


if __name__ == "__main__":
    uvicorn.run(
        Bridge(sys.argv[2], sys.argv[3]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        lifespan="off",
    )
