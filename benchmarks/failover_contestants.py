"""One client library that sends to a topic at a steady rate. Arguments: NAME BOOTSTRAP. Own process.

    start TOPIC ACKS PER_SECOND     a new client, which sends records of a few bytes to partition 0
    acknowledged SECONDS            whether a record was acknowledged later than that
    stop                            closes the client and returns the records' outcomes
    events SECONDS                  our own client's events since then (ours only)

All use linger 0, 64 KiB batches (one batch holds all records of an election, or aiokafka would stop sending),
and idempotence. Settings about a lost broker (backoffs, refreshes, timeouts) are each library's defaults, and
the sidecar's for ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from benchmarks.line_peer import answer_lines
from benchmarks.steady_load import SteadyLoad
from client_core import NO_EVENTS, KafkaProducer, ProducerConfig, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_core import Event, EventSink, FutureRecordMetadata

BATCH_BYTES: Final = 65_536
_CLOSE_S: Final = 5.0


class Client(Protocol):
    """A producer of any library."""

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None: ...
    def close(self) -> None: ...


class Ours:
    def __init__(self, bootstrap: str, acks: str, events: EventSink = NO_EVENTS) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": "0",
            "batch.size": str(BATCH_BYTES),
            # The sidecar's value; the library's default is off.
            "partitioner.lost.leader.probe.interval.ms": "300",
        }
        self._producer = KafkaProducer(ProducerConfig.from_mapping(settings), events=events)
        self._producer.start()

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        def ended(future: FutureRecordMetadata) -> None:
            error = future.exception(0)
            done(None if error is None else str(error))

        self._producer.send(ProducerRecord(topic, value, partition=0), ended)

    def close(self) -> None:
        self._producer.close(int(_CLOSE_S * 1_000))


class ConfluentKafka:
    def __init__(self, bootstrap: str, acks: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "linger.ms": 0,
                "batch.size": BATCH_BYTES,
                "enable.idempotence": acks == "all",
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        self._open = True
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while self._open:
            self._producer.poll(0.05)

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        self._producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: done(None if error is None else str(error)),
        )

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._producer.flush(_CLOSE_S)


class KafkaPython:
    def __init__(self, bootstrap: str, acks: str) -> None:
        from kafka import KafkaProducer as Theirs

        self._producer: Any = Theirs(
            bootstrap_servers=bootstrap.split(","),
            acks=acks if acks == "all" else int(acks),
            linger_ms=0,
            batch_size=BATCH_BYTES,
            enable_idempotence=acks == "all",
        )

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        future = self._producer.send(topic, value, partition=0)
        future.add_callback(lambda _: done(None))
        future.add_errback(lambda error: done(str(error)))

    def close(self) -> None:
        self._producer.close(timeout=_CLOSE_S)


class AioKafka:
    """Runs on its own loop; records are submitted to it from other threads."""

    def __init__(self, bootstrap: str, acks: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._producer: Any = self._run(self._start(bootstrap, acks))

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self, bootstrap: str, acks: str) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            enable_idempotence=acks == "all",
        )
        await producer.start()
        return producer

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        asyncio.run_coroutine_threadsafe(self._send(topic, value, done), self._loop)

    async def _send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None:
        try:
            await (await self._producer.send(topic, value, partition=0))
        except Exception as error:  # noqa: BLE001 - with any error the record was not acknowledged
            done(str(error))
        else:
            done(None)

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._run(asyncio.wait_for(self._producer.stop(), _CLOSE_S))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Timeline:
    """An EventSink that records the time of each event."""

    def __init__(self) -> None:
        self.events: list[tuple[float, Event]] = []

    def emit(self, event: Event, /) -> None:
        self.events.append((time.time(), event))

    def since(self, moment_s: float) -> list[tuple[float, str]]:
        return [(at, repr(event)) for at, event in tuple(self.events) if at >= moment_s]


MAKES: Final[Mapping[str, Callable[[str, str], Client]]] = {
    "aiokafka": AioKafka,
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
}


class Contestant:
    """The commands. One load at a time."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._timeline = Timeline()
        self._client: Client | None = None
        self._load: SteadyLoad | None = None

    def start(self, topic: str, acks: str, per_second: str) -> Mapping[str, object]:
        self._timeline = Timeline()
        make = MAKES.get(self._name)
        self._client = (
            Ours(self._bootstrap, acks, self._timeline) if make is None else make(self._bootstrap, acks)
        )
        self._load = SteadyLoad(self._client, self._name, topic, float(per_second))
        return {"started": True}

    def acknowledged(self, moment_s: str) -> Mapping[str, object]:
        assert self._load is not None
        return {"acknowledged": self._load.acknowledged_after(float(moment_s))}

    def stop(self) -> Mapping[str, object]:
        assert self._load is not None
        assert self._client is not None
        books = self._load.stop()
        self._client.close()
        return books

    def events(self, moment_s: str) -> Mapping[str, object]:
        return {"events": self._timeline.since(float(moment_s))}


def main(name: str, bootstrap: str) -> None:
    # A lost broker fills a log, but only the records are evaluated.
    logging.disable(logging.CRITICAL)
    contestant = Contestant(name, bootstrap)
    answer_lines(
        {
            "start": contestant.start,
            "acknowledged": contestant.acknowledged,
            "stop": contestant.stop,
            "events": contestant.events,
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
