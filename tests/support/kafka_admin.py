"""A second opinion on a Kafka cluster: librdkafka makes topics, says who leads, reads back what is there.

None of our own client's code runs here, so that what it wrote is judged by another implementation. Blocking,
bounded by deadlines, one thread at a time. Used with `kraft.py` and, for what it can do, with
`service/process/embedded.py`. What librdkafka has no words for is left to Kafka's own tools (kafka_tools.py).

Each broker learns of a change in its own time, and librdkafka may ask any of them. So the waits here end when
every broker that answers shows the change (tests/support/broker_views.py): afterwards a test may ask any of
them and reads its own change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.broker_views import SeenPartition, views
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from tests.support.kafka_tools import KafkaTools

_REQUEST_TIMEOUT_S: Final = 10.0
#: For one look of many: a broker that a test paused may be asked, and the next look asks another.
LOOK_TIMEOUT_S: Final = 2.0
#: librdkafka's own log on stderr would drown a test's: errors reach us as exceptions.
QUIET: Final[dict[str, Any]] = {"log_level": 0, "error_cb": lambda _: None}
#: Bounded, so that a broker that came back is tried soon.
SOON: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
}
#: TIMESTAMP_NOT_AVAILABLE, CREATE_TIME, LOG_APPEND_TIME as librdkafka numbers them.
_TIMESTAMP_TYPES: Final = (None, "CreateTime", "LogAppendTime")


class ReadRecord(NamedTuple):
    """A record as another client reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: str | None


class KafkaAdmin:
    """Topics and brokers of the cluster behind the bootstrap servers."""

    def __init__(self, bootstrap_servers: str, tools: KafkaTools | None = None) -> None:
        """`tools` are what `move_leader` and `set_client_quota` need."""
        self.bootstrap_servers = bootstrap_servers
        self._tools = tools
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET, **SOON})

    def brokers(self, *, timeout_s: float = _REQUEST_TIMEOUT_S) -> dict[int, tuple[str, int]]:
        """The brokers that the cluster calls alive, by id; empty while nobody answers."""
        try:
            metadata = self._client.list_topics(topic="", timeout=timeout_s)
        except KafkaException:
            return {}
        return {broker.id: (str(broker.host), broker.port) for broker in metadata.brokers.values()}

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Makes a topic and waits until each of its partitions has a leader and all its replicas in sync.

        `assignment` names the replicas of each partition, the preferred leader first, instead of the two
        numbers.
        """
        if assignment is not None:
            new = NewTopic(
                topic,
                len(assignment),
                replica_assignment=[list(r) for r in assignment],
                config=dict(config or {}),
            )
        else:
            new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
        _done(self._client.create_topics([new], request_timeout=_REQUEST_TIMEOUT_S)[topic])
        count = partitions if assignment is None else len(assignment)
        self.wait_until_in_sync(topic, partitions=count, timeout_s=timeout_s)

    def add_partitions(self, topic: str, *, total: int, timeout_s: float = 60.0) -> None:
        """Grows a topic to a number of partitions, and waits until all of them are led."""
        _done(self._client.create_partitions([NewPartitions(topic, total)])[topic])
        self.wait_until_in_sync(topic, partitions=total, timeout_s=timeout_s)

    def delete_topic(self, topic: str, *, timeout_s: float = 60.0) -> None:
        """Removes a topic and waits until the brokers no longer know it."""
        _done(self._client.delete_topics([topic], request_timeout=_REQUEST_TIMEOUT_S)[topic])
        self._wait_until_each_sees(
            topic, lambda seen: seen is None, what=f"topic {topic} is gone", timeout_s=timeout_s
        )

    def has_controller(self) -> bool:
        """Whether a controller answers: it judges a topic that is not made."""
        nothing = NewTopic("is-there-a-controller", 1, 1)
        (future,) = self._client.create_topics([nothing], request_timeout=2.0, validate_only=True).values()
        try:
            _done(future)
        except KafkaException:
            return False
        return True

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, in order."""
        return tuple(sorted(self._client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics))

    def partitions(self, topic: str) -> tuple[SeenPartition, ...] | None:
        """The topic's partitions by their numbers; None while brokers don't know it, or don't answer."""
        try:
            found = self._client.list_topics(topic=topic, timeout=_REQUEST_TIMEOUT_S).topics.get(topic)
        except KafkaException:
            return None
        if found is None or (found.error is not None and not found.partitions):
            return None
        return tuple(
            SeenPartition(number, None if p.leader < 0 else p.leader, tuple(p.replicas), tuple(p.isrs))
            for number, p in sorted(found.partitions.items())
        )

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """Every config of a topic, defaults too."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self._client.describe_configs([resource], request_timeout=_REQUEST_TIMEOUT_S)[resource]
        return {name: entry.value for name, entry in future.result(timeout=_REQUEST_TIMEOUT_S * 3).items()}

    def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Changes one config of a topic, or restores its default, and waits until brokers show it."""
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _done(
            self._client.incremental_alter_configs([resource], request_timeout=_REQUEST_TIMEOUT_S)[resource]
        )
        if value is not None:
            wait_until(lambda: self.topic_configs(topic)[name] == value, what=f"{name} of topic {topic}")

    def elect_preferred_leaders(self, topic: str, *, timeout_s: float = 60.0) -> None:
        """Has the first replica of each partition lead it, and waits until every broker says so."""
        partitions = self.partitions(topic) or ()
        wanted = [TopicPartition(topic, p.partition) for p in partitions]
        # Without a timeout of its own: confluent-kafka 2.16 takes none here (SystemError).
        future = self._client.elect_leaders(ElectionType.PREFERRED, wanted)
        for error in future.result(_REQUEST_TIMEOUT_S * 3).values():
            if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
                raise KafkaException(error)
        for p in partitions:
            self.wait_for_leader(topic, p.partition, p.replicas[0], timeout_s=timeout_s)

    def move_leader(self, topic: str, partition: int, *, timeout_s: float = 60.0) -> int:
        """Has the next replica lead a partition, by another order of its replicas; returns its id."""
        seen = (self.partitions(topic) or ())[partition]
        at = seen.replicas.index(seen.leader) + 1 if seen.leader in seen.replicas else 0
        replicas = (*seen.replicas[at:], *seen.replicas[:at])
        self._kafka_tools().reassign(topic, {partition: replicas})
        self._wait_until_each_sees(
            topic,
            lambda views: bool(views) and (views or ())[partition].replicas == replicas,
            what=f"the replicas of {topic}-{partition} are {replicas}",
            timeout_s=timeout_s,
        )
        self.elect_preferred_leaders(topic, timeout_s=timeout_s)
        return replicas[0]

    def set_client_quota(
        self,
        *,
        client_id: str | None = None,
        user: str | None = None,
        producer_byte_rate: float | None = None,
        request_percentage: float | None = None,
    ) -> None:
        """Sets these quotas of a client id, of a user, or, without either, of every client id.

        Bytes in a second on each broker, and percents of one request thread's time. Brokers heed it soon
        after the call has returned.
        """
        quotas = {"producer_byte_rate": producer_byte_rate, "request_percentage": request_percentage}
        given = {name: value for name, value in quotas.items() if value is not None}
        self._kafka_tools().set_quotas(*_quota_entity(client_id, user), given)

    def remove_client_quotas(self, *, client_id: str | None = None, user: str | None = None) -> None:
        """Takes away every quota of a client id, of a user, or of every client id's default."""
        self._kafka_tools().remove_quotas(*_quota_entity(client_id, user))

    def _kafka_tools(self) -> KafkaTools:
        if self._tools is None:
            raise RuntimeError("this admin has no tools of Kafka's: take the one of a KraftCluster")
        return self._tools

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads a partition now, None if nobody does or it is unknown."""
        return _leader(self.partitions(topic), partition)

    def wait_until_in_sync(
        self, topic: str, *, partitions: int | None = None, timeout_s: float = 60.0
    ) -> None:
        """Waits until all replicas of the topic's partitions are in sync and each has a leader."""

        def in_sync(seen: Sequence[SeenPartition] | None) -> bool:
            return (
                bool(seen)
                and all(p.leader is not None and set(p.isr) == set(p.replicas) for p in seen or ())
                and (partitions is None or len(seen or ()) == partitions)
            )

        self._wait_until_each_sees(topic, in_sync, what=f"topic {topic} is in sync", timeout_s=timeout_s)

    def wait_for_leader_other_than(
        self, topic: str, partition: int, broker_id: int, *, timeout_s: float = 60.0
    ) -> int:
        """Waits until another broker leads the partition, and returns its id."""
        seen = self._wait_until_each_sees(
            topic,
            lambda seen: _leader(seen, partition) not in (None, broker_id),
            what=f"{topic}-{partition} is led by another broker than {broker_id}",
            timeout_s=timeout_s,
        )
        leader = _leader(seen, partition)
        assert leader is not None
        return leader

    def wait_for_leader(self, topic: str, partition: int, broker_id: int, *, timeout_s: float = 60.0) -> None:
        """Waits until this broker leads the partition."""
        self._wait_until_each_sees(
            topic,
            lambda seen: _leader(seen, partition) == broker_id,
            what=f"{topic}-{partition} is led by broker {broker_id}",
            timeout_s=timeout_s,
        )

    def _wait_until_each_sees(
        self,
        topic: str,
        is_awaited: Callable[[Sequence[SeenPartition] | None], bool],
        *,
        what: str,
        timeout_s: float,
    ) -> Sequence[SeenPartition] | None:
        """Waits until every broker that answers sees the topic as awaited; what one of them saw then."""

        def all_see() -> Sequence[Sequence[SeenPartition] | None]:
            seen = list(views(self.brokers(timeout_s=LOOK_TIMEOUT_S), topic).values())
            return seen if all(is_awaited(view) for view in seen) else ()

        return wait_until(
            all_see, what=what, timeout_s=timeout_s, last_seen=lambda: views(self.brokers(), topic)
        )[0]

    def high_watermarks(self, topic: str) -> dict[int, int]:
        """The offset behind the last committed record of each partition."""
        reader = _reader(self.bootstrap_servers)
        try:
            return ends_of(reader, topic, [p.partition for p in self.partitions(topic) or ()], timeout_s=60.0)
        finally:
            reader.close()


def _quota_entity(client_id: str | None, user: str | None) -> tuple[str, str | None]:
    """A kind and a name as Kafka's tools have them; no name is the kind's default."""
    return ("users", user) if user is not None else ("clients", client_id)


def _leader(seen: Sequence[SeenPartition] | None, partition: int) -> int | None:
    return next((p.leader for p in seen or () if p.partition == partition), None)


def read_back(bootstrap_servers: str, topic: str, *, timeout_s: float = 60.0) -> list[ReadRecord]:
    """Every record of the topic that is committed by now, ordered by partition and offset.

    Reads with librdkafka, isolation read_uncommitted, without a group, up to the ends that leaders name. The
    end of what a fetch returns is not enough: a new leader knows the high watermark of some time ago until
    its followers have asked. AssertionError when the ends are not reached within timeout_s, or when the topic
    does not exist.
    """
    reader = _reader(bootstrap_servers)
    try:
        known = reader.list_topics(topic, timeout=_REQUEST_TIMEOUT_S).topics[topic]
        if known.error is not None and not known.partitions:
            raise AssertionError(f"topic {topic} can't be read back: {known.error}")
        ends = ends_of(reader, topic, known.partitions, timeout_s)
        reader.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        return sorted(read_to_the_ends(reader, ends, timeout_s))
    finally:
        reader.close()


def _reader(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "read-back",  # asked for by librdkafka; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "auto.offset.reset": "earliest",
            **QUIET,
            **SOON,
        }
    )


def ends_of(reader: Consumer, topic: str, partitions: Iterable[int], timeout_s: float) -> dict[int, int]:
    """The offset behind the last committed record of each partition.

    A leader whose high watermark is behind its election has no answer (OFFSET_NOT_AVAILABLE, KIP-207, since
    Kafka 2.2), and is asked again, as one that moves.
    """

    ends: dict[int, int] = {}
    unnamed = set(partitions)
    errors: dict[int, str] = {}

    def all_are_named() -> bool:
        for partition in sorted(unnamed):
            asked = TopicPartition(topic, partition)
            try:
                both_ends = reader.get_watermark_offsets(asked, timeout=LOOK_TIMEOUT_S, cached=False)
            except KafkaException as error:
                errors[partition] = str(error)
                continue
            if both_ends is not None:
                ends[partition] = both_ends[1]
                unnamed.discard(partition)
        return not unnamed

    wait_until(all_are_named, what=f"the ends of {topic}", timeout_s=timeout_s, last_seen=lambda: errors)
    return ends


def read_to_the_ends(reader: Consumer, ends: Mapping[int, int], timeout_s: float) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    open_partitions = set(ends)

    def one_turn() -> bool:
        for message in reader.consume(num_messages=1_000, timeout=0.1):
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = message.partition() or 0, message.offset() or 0
                if offset >= ends[partition]:
                    open_partitions.discard(partition)
        return not open_partitions

    wait_until(
        one_turn,
        what="the topic was read to its ends",
        timeout_s=timeout_s,
        every_s=0.0,
        last_seen=lambda: f"{len(records)} records, partitions {sorted(open_partitions)} still open",
    )
    return records


def _record(message: Message) -> ReadRecord:
    timestamp_type, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = tuple(_header(header) for header in message.headers() or ())
    key, value = message.key(), message.value()
    return ReadRecord(partition, offset, key, value, headers, timestamp_ms, _TIMESTAMP_TYPES[timestamp_type])


def _header(header: tuple[str, str | bytes | None] | str) -> tuple[str, bytes | None]:
    """A header as librdkafka gives it; its type knows forms that only a producer takes."""
    assert not isinstance(header, str)
    name, value = header
    return name, value.encode() if isinstance(value, str) else value


def _done(future: Future[None]) -> None:
    """Waits for an admin call; raises KafkaException with the broker's answer."""
    future.result(timeout=_REQUEST_TIMEOUT_S * 3)
