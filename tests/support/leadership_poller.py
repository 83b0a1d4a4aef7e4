"""The leaders of partitions as seen by an independent observer: kafka-python polls the brokers.

    with LeadershipPoller(kafka.bootstrap_servers, folder) as poller:
        …
        poller.snapshot()   {(topic id, partition): {leader epoch: leader id}}, in the order they were seen

It uses none of our own code. It polls all topics, in a process of its own (this module as a program), because
kafka-python leaves sockets open when a broker is killed. A poll that fails is repeated.

    python -m tests.support.leadership_poller BOOTSTRAP_SERVERS     a line of JSON for each new fact
"""

from __future__ import annotations

import json
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from tests.support.process_guard import ProcessGuard

_EVERY_S: Final = 0.1
_ROOT: Final = Path(__file__).resolve().parents[2]

#: (topic id, partition): {leader epoch: leader id, -1 for none}
Seen = dict[tuple[str, int], dict[int, int]]


class Sight(NamedTuple):
    """The first time that an epoch of a partition was seen, as a line says it."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    leader: int


class LeadershipPoller:
    """Polls from `__enter__` to `__exit__`. One thread steers."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.support.leadership_poller", bootstrap_servers]
        self._out = folder / "leadership.jsonl"

    def __enter__(self) -> Self:
        self._guard = ProcessGuard()
        self._process = self._guard.start(self._command, log=self._out, cwd=_ROOT)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._guard.close()

    def sights(self) -> list[Sight]:
        """What was seen until now, in its order."""
        assert self._process.poll() is None, f"the poller ended by itself: {self._out.read_text()}"
        lines = self._out.read_text().split("\n")[:-1]
        return [Sight(*json.loads(line)) for line in lines if line.startswith("[")]

    def snapshot(self, *topics: str) -> Seen:
        """What was seen of these topics until now.

        A broker that does not know a leader's address yet returns the epoch without a leader. If another
        answer named the leader, that one counts.
        """
        seen: Seen = {}
        for sight in self.sights():
            if sight.topic in topics:
                epochs = seen.setdefault((sight.topic_id, sight.partition), {})
                epochs[sight.leader_epoch] = max(epochs.get(sight.leader_epoch, -1), sight.leader)
        return seen

    def topic_ids(self, topic: str) -> list[str]:
        """The ids that the topic has had, in their order."""
        return list(dict.fromkeys(sight.topic_id for sight in self.sights() if sight.topic == topic))


def _id_text(topic_id: str) -> str:
    """A topic id, which kafka-python has in hexadecimal, as Kafka's tools print it."""
    return urlsafe_b64encode(UUID(topic_id).bytes).rstrip(b"=").decode()


def _poll_for_ever(bootstrap_servers: str) -> None:
    # Imported only here: its import gives a warning, and a warning is an error in tests.
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    reported: set[Sight] = set()
    client: KafkaAdminClient | None = None
    while True:
        try:
            if client is None:
                client = KafkaAdminClient(
                    bootstrap_servers=bootstrap_servers.split(","), request_timeout_ms=5_000
                )
            for sight in _sights(client.describe_topics()):
                if sight not in reported:
                    reported.add(sight)
                    print(json.dumps(sight), flush=True)
        except (KafkaError, OSError) as failure:
            print(f"{failure!r}", file=sys.stderr, flush=True)
            client = None
        time.sleep(_EVERY_S)


def _sights(topics: list[dict[str, Any]]) -> list[Sight]:
    return [
        Sight(
            topic["name"],
            _id_text(topic["topic_id"]),
            partition["partition_index"],
            partition["leader_epoch"],
            partition["leader_id"],
        )
        for topic in topics
        if not topic["error_code"]
        for partition in topic["partitions"]
    ]


if __name__ == "__main__":
    _poll_for_ever(sys.argv[1])
