"""A Kafka cluster inside this process, for trying the sidecar out: no Java, no Docker, only a wheel.

It is librdkafka's mock cluster, from the optional `confluent-kafka` wheel. Its brokers listen on real TCP
ports of loopback and keep records in memory until they are closed. Unlike Kafka it refuses ApiVersions 3 and
up with error 35 (a client must fall back), puts a stray byte behind flexible Metadata answers, gives every
topic four partitions, and acknowledges records with the timestamp 1234. For demonstrations and first tests,
not for data.

Called by the command line and by tests, on one thread; `start` blocks for some milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

#: The topic that is there from the start.
DEMO_TOPIC: Final = "demo"

_ANSWER_TIMEOUT_S: Final = 10.0
_TOPIC_ATTEMPTS: Final = 20


class EmbeddedClusterError(RuntimeError):
    """The embedded cluster can't be had; the message says what to do."""


class EmbeddedCluster:
    """Brokers in this process. Not thread-safe: one thread starts and closes; clients come over TCP."""

    def __init__(self, *, brokers: int = 3, topics: Sequence[str] = ()) -> None:
        """`topics` are there when `start` returns; others appear when a client that may create asks."""
        if brokers < 1:
            raise ValueError(f"an embedded cluster needs at least one broker, not {brokers}")
        self._broker_count = brokers
        self._topics = tuple(topics)
        self._admin: AdminClient | None = None  # owns the mock cluster: it ends with this object
        self._bootstrap_servers: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker. Raises EmbeddedClusterError while the cluster does not run."""
        if self._bootstrap_servers is None:
            raise EmbeddedClusterError("the embedded cluster is not running")
        return self._bootstrap_servers

    def start(self) -> str:
        """Starts the brokers, makes the topics, returns the bootstrap servers; at once when it runs already.

        Raises EmbeddedClusterError without the confluent-kafka wheel.
        """
        if self._bootstrap_servers is None:
            self._admin = _mock_cluster(self._broker_count)
            found = self._admin.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers.values()
            for topic in self._topics:
                self._create_topic(self._admin, topic)
            brokers = sorted(found, key=lambda broker: broker.id)
            self._bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self._bootstrap_servers

    def add_topic(self, topic: str) -> None:
        """Makes one more topic, unless it is there; raises EmbeddedClusterError where that fails."""
        if self._admin is None:
            raise EmbeddedClusterError("the embedded cluster is not running")
        self._create_topic(self._admin, topic)

    @staticmethod
    def _create_topic(admin: AdminClient, topic: str) -> None:
        """Asks for a topic until the cluster, which creates what it is asked for, has it."""
        for _ in range(_TOPIC_ATTEMPTS):
            found = admin.list_topics(topic, timeout=_ANSWER_TIMEOUT_S).topics[topic]
            if found.error is None and found.partitions:
                return
        raise EmbeddedClusterError(f"the embedded cluster did not create topic {topic}: {found.error}")

    def close(self) -> None:
        """Ends the brokers; what they held is gone. Idempotent."""
        self._bootstrap_servers = None
        self._admin = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _mock_cluster(brokers: int) -> AdminClient:
    """A client of librdkafka that has brought its own cluster."""
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise EmbeddedClusterError(
            "the embedded cluster needs librdkafka's wheel: pip install confluent-kafka"
        ) from error
    return AdminClient(
        {
            "bootstrap.servers": "ignored",
            "test.mock.num.brokers": brokers,
            "allow.auto.create.topics": True,
            "log_level": 0,  # it warns on stderr that mocking is experimental
        }
    )


def lines_to_try(api_url: str) -> str:
    """What to type at a sidecar on an embedded cluster."""
    topic = f"{api_url}/v1/topics/{DEMO_TOPIC}"
    return f"""Pilotfish runs on a Kafka inside its own process. Try:

  curl -s '{topic}/leader?key=customer-7'
  curl -s {topic}/records -H 'Content-Type: application/json' \\
       -d '{{"key_format":"text","records":[{{"key":"customer-7","value":{{"total":12.50}}}}]}}'
  curl -s {api_url}/v1/status

Records get the timestamp 1234 here; a real Kafka gives them the time. Ctrl-C ends it.
"""
