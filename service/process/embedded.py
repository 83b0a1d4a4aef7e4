"""A Kafka cluster inside this process, to try the sidecar without Java or Docker.

It is the cluster of `client_core.testing`: brokers on loopback TCP ports that keep records in memory. An HTTP
API on the admin listener stops, starts and delays them, and moves leaders:

    GET  /embedded                                      brokers, topics, leaders, end offsets
    POST /embedded/brokers/2/stop, …/start              one broker
    POST /embedded/delay/8000                           acknowledgements come 8 s late; 0 ends it
    POST /embedded/topics/demo/partitions/0/leader/3    another leader
    GET  /embedded/topics/demo/records                  the newest records

`pilotfish embedded` calls this API. With a folder, the cluster is saved when it ends, and restored at the
next start. For demonstrations and first tests, not for data.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from client_core.testing import (
    ApiKey,
    BadBatchError,
    Delay,
    FakeCluster,
    FakeClusterError,
    Reaction,
    StoredBatch,
    read_batch,
)
from service.wire.asgi import Receive, Scope, Send, respond_with

_log: Final = logging.getLogger(__name__)

#: The topic that exists from the start.
DEMO_TOPIC: Final = "demo"
_PARTITIONS: Final = 4

#: Bytes that a partition keeps, and the most records in one answer.
_RETAIN_BYTES: Final = 16 * 1024 * 1024
_SHOWN_RECORDS: Final = 100

#: The longest delay. It is below request.timeout.ms (30 s), after which the sidecar would reconnect and send
#: again.
MAX_DELAY_MS: Final = 20_000

_NUMBER: Final = r"([0-9]{1,9})"

_SNAPSHOT: Final = "cluster.json"
_SNAPSHOT_VERSION: Final = 1


class EmbeddedClusterError(RuntimeError):
    """The embedded cluster can't do this; the message names the remedy."""


class EmbeddedCluster:
    """Brokers 1 to n in this process. Any thread; `start`, `close` and the control calls block briefly."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        topics: Sequence[str] = (),
        first_port: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`topics` exist when `start` returns; others are created for clients that ask for auto-creation.

        Broker n listens on port `first_port` + n - 1; if `first_port` is 0, brokers use free ports. `folder`
        keeps topics and records from one run to the next. Raises EmbeddedClusterError if the saved cluster
        can't be read.
        """
        if brokers < 1:
            raise ValueError(f"an embedded cluster needs at least one broker, not {brokers}")
        self._topics = tuple(topics)
        self._folder = folder
        self._saved = _read(folder)
        #: The brokers, for inspection from this process.
        self.kafka: Final = FakeCluster(
            brokers,
            auto_create=True,
            auto_create_partitions=_PARTITIONS,
            ports=range(first_port, first_port + brokers) if first_port else (),
            retain_bytes=_RETAIN_BYTES,
            keep_requests=0,
            seed=int.from_bytes(os.urandom(8)),
            cluster_id=self._saved.get("cluster_id"),
        )
        self._is_running = False

    @property
    def bootstrap_servers(self) -> str:
        """Returns host:port of every broker. Raises EmbeddedClusterError if the cluster is not running."""
        if not self._is_running:
            raise EmbeddedClusterError("the embedded cluster is not running")
        return self.kafka.bootstrap_servers

    def start(self) -> str:
        """Starts the brokers and creates the topics; returns the bootstrap servers. Idempotent.

        Raises EmbeddedClusterError if a port is in use.
        """
        if not self._is_running:
            try:
                self.kafka.start()
            except OSError as e:
                raise EmbeddedClusterError(
                    f"the embedded cluster can't listen: {e.strerror or e}; choose another --embedded-port"
                ) from e
            self._is_running = True
            for topic, found in self._saved.get("topics", {}).items():
                self._restore_topic(topic, found)
            for topic in self._topics:
                self.add_topic(topic)
        return self.kafka.bootstrap_servers

    def add_topic(self, topic: str) -> None:
        """Creates a topic if it does not exist."""
        if topic not in self.kafka.topic_names():
            self.kafka.create_topic(topic, partitions=_PARTITIONS, replication_factor=3)

    def close(self) -> None:
        """Stops the brokers, and saves the cluster if it has a folder. Idempotent."""
        if self._is_running:
            self._is_running = False
            self.kafka.close()
            self._save()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- control ---------------------------------------------------------------------------------------------

    def stop_broker(self, broker_id: int) -> None:
        """Stops a broker and closes its connections; others lead its partitions. Idempotent."""
        self._check_broker(broker_id)
        self.kafka.kill(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Starts a stopped broker on its old port. Idempotent."""
        self._check_broker(broker_id)
        if not self.kafka.is_alive(broker_id):
            self.kafka.revive(broker_id)

    def delay_acknowledgements(self, delay_ms: int) -> None:
        """Delays each answer to a produce; 0 ends this. Records are stored at once."""
        if delay_ms > MAX_DELAY_MS:
            raise EmbeddedClusterError(f"a delay is at most {MAX_DELAY_MS} ms, not {delay_ms}")
        self.kafka.disturb(_SlowProduce(delay_ms) if delay_ms else None)

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Makes a running broker the leader of a partition."""
        self._check_broker(broker_id)
        if not self.kafka.is_alive(broker_id):
            raise EmbeddedClusterError(f"broker {broker_id} is stopped and can't lead; start it first")
        count = self._partition_count(topic)
        if not 0 <= partition < count:
            raise EmbeddedClusterError(f"topic {topic} has the partitions 0 to {count - 1}, not {partition}")
        self.kafka.move_leader(topic, partition, broker_id)

    def status(self) -> Mapping[str, object]:
        """Returns brokers, topics, leaders and end offsets, for JSON."""
        cluster = self.kafka
        return {
            "brokers": [
                {"id": n, "address": "{}:{}".format(*cluster.address(n)), "running": cluster.is_alive(n)}
                for n in cluster.broker_ids
            ],
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition": p, "leader": found.leader, "isr": found.isr, "end_offset": end}
                        for p in range(cluster.partition_count(topic))
                        for found, end in [(cluster.partition(topic, p), cluster.end_offset(topic, p))]
                    ],
                }
                for topic in cluster.topic_names()
            ],
        }

    def records(self, topic: str) -> Sequence[Mapping[str, object]]:
        """Returns the newest records of a topic, for JSON. Bytes that are not UTF-8 are escaped."""
        self._partition_count(topic)
        newest = sorted(self.kafka.records(topic), key=lambda record: record.timestamp_ms)[-_SHOWN_RECORDS:]
        return [
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": _shown(record.key),
                "value": _shown(record.value),
                "headers": [(name, _shown(value)) for name, value in record.headers],
            }
            for record in newest
        ]

    def _check_broker(self, broker_id: int) -> None:
        if broker_id not in self.kafka.broker_ids:
            last = max(self.kafka.broker_ids)
            raise EmbeddedClusterError(f"there is no broker {broker_id}; there are 1 to {last}")

    def _partition_count(self, topic: str) -> int:
        try:
            return self.kafka.partition_count(topic)
        except FakeClusterError:
            names = ", ".join(self.kafka.topic_names()) or "none"
            raise EmbeddedClusterError(f"there is no topic {topic}; there are: {names}") from None

    # -- the folder ------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._folder is None:
            return
        cluster = self.kafka
        topics = {
            topic: {
                "id": cluster.topic_id(topic).hex,
                "partitions": [
                    {
                        "replicas": cluster.partition(topic, p).replicas,
                        "epoch": cluster.partition(topic, p).leader_epoch,
                        "batches": [_packed(batch) for batch in cluster.batches(topic, p)],
                    }
                    for p in range(cluster.partition_count(topic))
                ],
            }
            for topic in cluster.topic_names()
        }
        saved = {"version": _SNAPSHOT_VERSION, "cluster_id": cluster.cluster_id, "topics": topics}
        draft = self._folder / f".{_SNAPSHOT}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(saved), encoding="utf-8")
            draft.replace(self._folder / _SNAPSHOT)
        except OSError as e:
            _log.error("the embedded cluster was not saved in %s: %s", self._folder, e.strerror or e)

    def _restore_topic(self, topic: str, found: Mapping[str, Any]) -> None:
        known = set(self.kafka.broker_ids)
        partitions = found["partitions"]
        self.kafka.create_topic(
            topic,
            assignment=[[b for b in p["replicas"] if b in known] or [min(known)] for p in partitions],
            leader_epoch=max(p["epoch"] for p in partitions) + 1,
            topic_id=UUID(hex=found["id"]),
        )
        for number, partition in enumerate(partitions):
            self.kafka.restore_batches(topic, number, map(_unpacked, partition["batches"]))


def _read(folder: Path | None) -> dict[str, Any]:
    """Returns the saved cluster, checked as far as a start needs it; empty if there is none."""
    path = None if folder is None else folder / _SNAPSHOT
    if path is None or not path.exists():
        return {}
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["version"] != _SNAPSHOT_VERSION:
            raise ValueError(f"it has version {saved['version']}, not {_SNAPSHOT_VERSION}")
        for topic in saved["topics"].values():
            UUID(hex=topic["id"])
            for partition in topic["partitions"]:
                for batch in map(_unpacked, partition["batches"]):
                    read_batch(batch.data)
                assert all(isinstance(n, int) for n in (*partition["replicas"], partition["epoch"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, BadBatchError) as e:
        raise EmbeddedClusterError(
            f"{path} can't be read as a saved cluster ({e!r}); delete it, or choose another folder"
        ) from e
    return dict(saved)


def _packed(batch: StoredBatch) -> Sequence[object]:
    return [*batch[:-1], base64.b64encode(batch.data).decode()]


def _unpacked(saved: Sequence[Any]) -> StoredBatch:
    return StoredBatch._make([*saved[:-1], base64.b64decode(saved[-1])])


def _shown(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


class _SlowProduce:
    """Delays the answers to Produce requests."""

    def __init__(self, delay_ms: int) -> None:
        self._delay: Final = Delay(delay_ms)

    def next_answer(self, broker_id: int, api: ApiKey) -> Reaction:
        return self._delay if api is ApiKey.PRODUCE else Reaction()


class EmbeddedControl:
    """The ASGI application below /embedded, on the admin listener's loop. Cluster calls use a thread."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._calls: Final[Sequence[tuple[str, re.Pattern[str], Callable[..., object]]]] = (
            ("GET", re.compile(r"/embedded"), cluster.status),
            ("GET", re.compile(r"/embedded/topics/([^/]+)/records"), cluster.records),
            ("POST", re.compile(rf"/embedded/brokers/{_NUMBER}/stop"), lambda n: cluster.stop_broker(int(n))),
            (
                "POST",
                re.compile(rf"/embedded/brokers/{_NUMBER}/start"),
                lambda n: cluster.start_broker(int(n)),
            ),
            (
                "POST",
                re.compile(rf"/embedded/delay/{_NUMBER}"),
                lambda ms: cluster.delay_acknowledgements(int(ms)),
            ),
            (
                "POST",
                re.compile(rf"/embedded/topics/([^/]+)/partitions/{_NUMBER}/leader/{_NUMBER}"),
                lambda topic, partition, n: cluster.move_leader(topic, int(partition), int(n)),
            ),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, answer = await self._answer(scope["method"], scope["path"])
        await respond_with(send, status, b"application/json", json.dumps(answer).encode(), [])

    async def _answer(self, method: str, path: str) -> tuple[int, object]:
        calls = [(m, p.fullmatch(path), call) for m, p, call in self._calls]
        for wanted, matched, call in calls:
            if matched is not None and wanted == method:
                try:
                    found = await asyncio.to_thread(call, *matched.groups())
                    return 200, self._cluster.status() if found is None else found
                except EmbeddedClusterError as e:
                    return 404, {"detail": str(e)}
        if any(matched for _, matched, _ in calls):
            return 405, {"detail": f"{path} does not support {method}"}
        return 404, {"detail": "no such path of the embedded cluster"}


def lines_to_try(api_url: str, stop_broker: str) -> str:
    """Returns example commands for a sidecar on an embedded cluster. `stop_broker` is one of them."""
    topic = f"{api_url}/v1/topics/{DEMO_TOPIC}"
    return f"""Pilotfish runs on a Kafka inside its own process. Try:

  curl -s '{topic}/leader?key=customer-7'
  curl -s {topic}/records -H 'Content-Type: application/json' \\
       -d '{{"key_format":"text","records":[{{"key":"customer-7","value":{{"total":12.50}}}}]}}'
  curl -s {api_url}/v1/status
  {stop_broker}      # a broker dies; ask for the leader again

Ctrl-C ends it.
"""
