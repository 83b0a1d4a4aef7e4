"""A Kafka cluster in this process, controlled by tests: fake brokers over real TCP.

    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        ... a client of any make at cluster.bootstrap_servers ...
        cluster.move_leader("orders", 0, 2)
        cluster.fail_next_produces(Errors.NOT_ENOUGH_REPLICAS, times=2)
        cluster.react_next(ApiKey.METADATA, HalfFrame(then_close=True))
        assert [r.value for r in cluster.records("orders")] == [b"..."]

It implements ApiVersions, Metadata, Produce, InitProducerId, DescribeConfigs, ListOffsets and, if a test
demands it, SaslHandshake and SaslAuthenticate. `versions` lists their versions; other APIs end the
connection. Unless a test changes it, replication is perfect and elections are immediate. A test's Disturbance
may make every response wrong (`disturb`). It has no Fetch, groups, transactions or quotas.

Any thread may call everything; the brokers run on one loop in a thread of their own. Nothing here needs Java.
Its responses follow a real 4.3.1 broker, and `tests/kafka` verifies the same against real ones.
"""

from __future__ import annotations

import threading
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from client_core.protocol.api_keys import ApiKey
from client_core.testing import api_versions, produce, requests
from client_core.testing.broker import Answer, EndConnectionError, FakeBroker
from client_core.testing.controller import FakeClusterError
from client_core.testing.free_ports import free_ports
from client_core.testing.loop_thread import LoopThread
from client_core.testing.metadata_cache import AliveBroker, MetadataCache
from client_core.testing.reactions import Disturbance, Hold, Order, Orders, Reaction
from client_core.testing.requests import SeenRequest
from client_core.testing.state import ClusterState

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from uuid import UUID

    from client_core.error_codes import Errors
    from client_core.protocol.header import RequestHeader
    from client_core.testing.api_versions import Versions
    from client_core.testing.controller import TopicConfig
    from client_core.testing.metadata_cache import PartitionState, TopicMetadata
    from client_core.testing.partition_log import StoredBatch, StoredRecord
    from client_core.testing.requests import Request, Response
    from client_core.testing.sasl import SaslDemand, SaslSession

#: Name of the thread of all brokers of a cluster.
BROKERS_THREAD: Final = "fake-cluster"
_HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 60.0


class FakeCluster:
    """Brokers 1..n. One lock guards the state; it is never held while waiting for the loop."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        versions: Versions = api_versions.KAFKA_4_3,
        auto_create: bool = False,
        auto_create_partitions: int = 1,
        racks: Sequence[str] = (),
        seed: int = 0,
        tls: ssl.SSLContext | None = None,
        ports: Sequence[int] = (),
        retain_bytes: int | None = None,
        keep_requests: int | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Creates a cluster without starting it.

        `versions`: the API versions of all brokers. `auto_create`: whether a Metadata request may create a
        topic, with `auto_create_partitions`. With `tls` brokers accept nothing else. `ports`: one per broker;
        free ones if empty. `retain_bytes`: limit of a partition's bytes, `keep_requests`: of the requests in
        `requests()`; None keeps all.
        """
        if ports and len(ports) != brokers:
            raise ValueError(f"{brokers} brokers need {brokers} ports, not {len(ports)}")
        random = Random(seed)  # noqa: S311 - ids of a fake
        self._tls = tls
        self._changed = threading.Condition(threading.RLock())
        self._state = ClusterState(
            random,
            cluster_id=cluster_id or f"fake-{random.getrandbits(32):08x}",
            auto_create=auto_create,
            auto_create_partitions=auto_create_partitions,
            replication_factor=min(3, brokers),
            retain_bytes=retain_bytes,
        )
        self._versions = dict.fromkeys(range(1, brokers + 1), versions)
        self._racks = {i + 1: rack for i, rack in enumerate(racks)}
        self._ports = dict(zip(range(1, brokers + 1), ports or free_ports(brokers), strict=True))
        self._brokers = {broker_id: self._new_broker(broker_id) for broker_id in self._ports}
        self._orders = Orders()
        self._disturbance: Disturbance | None = None
        self._seen: deque[SeenRequest] = deque(maxlen=keep_requests)
        self._loop: LoopThread | None = None

    def _new_broker(self, broker_id: int) -> FakeBroker:
        return FakeBroker(broker_id, self._react, self._handle)

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loop = LoopThread(BROKERS_THREAD)
        try:
            for broker_id in self._brokers:
                self.revive(broker_id)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops all brokers. Idempotent."""
        if self._loop is None:
            return
        with self._changed:
            holds = self._orders.holds()
        for hold in holds:
            hold.release()
        for broker in self._brokers.values():
            self._loop.run(broker.stop())
        self._loop.close()
        self._loop = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- state for tests -------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self._state.cluster_id

    @property
    def broker_ids(self) -> Sequence[int]:
        """Every broker, alive or not."""
        return sorted(self._brokers)

    def address(self, broker_id: int) -> tuple[str, int]:
        """Returns a broker's address, also while it is down."""
        self._broker(broker_id)
        return _HOST, self._ports[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, alive or not."""
        return ",".join(f"{host}:{port}" for host, port in map(self.address, self.broker_ids))

    def partition(self, topic: str, partition: int) -> PartitionState:
        """Returns a partition's state by the controller."""
        with self._changed:
            return self._state.controller.known_partition(topic, partition)

    def _topic(self, topic: str) -> TopicMetadata:
        with self._changed:
            return self._state.controller.known_topic(topic)

    def _broker(self, broker_id: int) -> FakeBroker:
        """Returns a broker. Raises FakeClusterError for an unknown one, as the controller does."""
        if broker_id not in self._brokers:
            raise FakeClusterError(f"there is no broker {broker_id}: there are {self.broker_ids}")
        return self._brokers[broker_id]

    def topic_id(self, topic: str) -> UUID:
        """Returns the topic's id. Raises FakeClusterError for an unknown topic."""
        return self._topic(topic).topic_id

    def partition_count(self, topic: str) -> int:
        """Returns a topic's number of partitions. Raises FakeClusterError for an unknown topic."""
        return len(self._topic(topic).partitions)

    def is_alive(self, broker_id: int) -> bool:
        """Returns whether a broker listens."""
        return self._broker(broker_id).is_listening

    def topic_names(self) -> Sequence[str]:
        """Returns the topics that at least one broker knows."""
        with self._changed:
            return sorted({name for cache in self._state.caches.values() for name in cache.topic_names})

    def connections(self, broker_id: int) -> int:
        """Returns the number of clients connected to a broker."""
        return self._broker(broker_id).connections

    def batches(self, topic: str, partition: int = 0) -> Sequence[StoredBatch]:
        """Returns the batches of a partition as stored."""
        with self._changed:
            log = self._state.logs.get((topic, partition))
            return list(log.batches) if log is not None else []

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Returns the offset of a partition's next record."""
        with self._changed:
            return self._state.log(topic, partition).end_offset

    def records(self, topic: str, partition: int | None = None) -> Sequence[StoredRecord]:
        """Returns the records of a topic, or of one partition, by partition and offset."""
        with self._changed:
            logs = {
                p: log for (t, p), log in self._state.logs.items() if t == topic and partition in {None, p}
            }
            return [record for number in sorted(logs) for record in logs[number].records(number)]

    def requests(self, api: ApiKey | None = None, *, broker_id: int | None = None) -> Sequence[SeenRequest]:
        """Returns the requests that arrived, oldest first."""
        with self._changed:
            return [s for s in self._seen if api in {None, s.api} and broker_id in {None, s.broker_id}]

    def wait_for_requests(
        self, api: ApiKey, count: int = 1, *, broker_id: int | None = None, timeout_s: float = _PATIENCE_S
    ) -> Sequence[SeenRequest]:
        """Waits until `count` requests of an API have arrived since the start, and returns them."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: len(self.requests(api, broker_id=broker_id)) >= count, timeout_s
            )
            seen = self.requests(api, broker_id=broker_id)
        if not came:
            raise FakeClusterError(f"{len(seen)} of {count} {api} requests came within {timeout_s:g} s")
        return seen

    # -- brokers ---------------------------------------------------------------------------------------------

    def kill(self, broker_id: int, *, elect: bool = True) -> None:
        """Stops a broker and its connections. Without `elect` its failure stays unnoticed: it still leads."""

        def fails() -> None:
            if elect:
                self.notice_death(broker_id)

        # A client that asks as soon as its connection ends gets the new leader.
        self._running().run(self._broker(broker_id).stop(fails))

    def notice_death(self, broker_id: int) -> None:
        """Ends the session of a broker killed without election: other brokers lead now."""
        with self._changed:
            self._state.controller.broker_failed(broker_id)

    def revive(self, broker_id: int, *, new_port: bool = False) -> None:
        """Starts a broker (again), at its old port or a new one; it rejoins its replicas' ISRs."""
        loop, broker = self._running(), self._broker(broker_id)
        if broker.is_listening:
            loop.run(broker.stop())
        if new_port:
            (self._ports[broker_id],) = free_ports(1)
        cache = MetadataCache()
        with self._changed:
            self._state.caches[broker_id] = cache
            alive = AliveBroker(broker_id, _HOST, self._ports[broker_id], self._racks.get(broker_id))
            self._state.controller.broker_started(alive, cache)
        loop.run(broker.listen(_HOST, self._ports[broker_id], self._tls))

    def add_broker(self) -> int:
        """Adds a broker; returns its id."""
        broker_id = max(self._brokers) + 1
        self._versions[broker_id] = self._versions[min(self._versions)]
        (self._ports[broker_id],) = free_ports(1)
        self._brokers[broker_id] = self._new_broker(broker_id)
        self.revive(broker_id)
        return broker_id

    def change_tls(self, change: Callable[[ssl.SSLContext], None]) -> None:
        """Calls `change` with all brokers' TLS context between two handshakes: to replace a certificate."""
        if self._tls is None:
            raise FakeClusterError("the cluster has no TLS: give FakeCluster(tls=...)")
        self._running().run(_changed(self._tls, change))

    def drop_connections(self, broker_id: int) -> None:
        """Ends a broker's connections; it still listens."""
        self._running().run(self._broker(broker_id).drop_connections())

    def set_versions(self, versions: Versions, *, broker_id: int | None = None) -> None:
        """Sets the API versions of a broker, or of all, from now on, as after an upgrade."""
        if broker_id is not None:
            self._broker(broker_id)
        with self._changed:
            for known in self._versions:
                if broker_id in {None, known}:
                    self._versions[known] = versions

    def freeze_metadata(self, broker_id: int) -> None:
        """Withholds updates from a broker: it returns outdated metadata."""
        with self._changed:
            self._state.controller.freeze(broker_id)

    def thaw_metadata(self, broker_id: int) -> None:
        """Delivers the withheld updates to a broker."""
        with self._changed:
            self._state.controller.thaw(broker_id)

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
        config: TopicConfig | None = None,
        leader_epoch: int = 0,
        topic_id: UUID | None = None,
    ) -> None:
        """Creates a topic: partition p is led by broker 1 + p mod n, or by the first of its assignment."""
        with self._changed:
            self._state.controller.create_topic(
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=assignment,
                config=config,
                leader_epoch=leader_epoch,
                topic_id=topic_id,
            )

    def restore_batches(self, topic: str, partition: int, batches: Iterable[StoredBatch]) -> None:
        """Adds batches of another cluster to an empty partition, with their offsets."""
        with self._changed:
            self._state.log(topic, partition).restore(batches)

    def set_config(self, topic: str, config: TopicConfig) -> None:
        """Changes the settings of a topic, for the next Produce request."""
        with self._changed:
            self._state.controller.set_config(topic, config)

    def delete_topic(self, topic: str) -> None:
        """Removes a topic and its records; a later one of the same name has another id."""
        with self._changed:
            self._state.controller.delete_topic(topic)
            for key in [key for key in self._state.logs if key[0] == topic]:
                del self._state.logs[key]

    def begin_deletion(self, topic: str, partition: int | None = None) -> None:
        """Makes the brokers forget a partition, or all of a topic's; the records stay."""
        with self._changed:
            self._state.controller.begin_deletion(topic, partition)

    def add_partitions(self, topic: str, total: int) -> None:
        with self._changed:
            self._state.controller.add_partitions(topic, total)

    def move_leader(
        self, topic: str, partition: int, leader: int | None, *, epoch: int | None = None
    ) -> None:
        """Sets the leader from now on (None: no leader), at the next leader epoch or the given one."""
        with self._changed:
            self._state.controller.move_leader(topic, partition, leader, epoch=epoch)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        with self._changed:
            self._state.controller.set_isr(topic, partition, isr)

    def forbid(self, topic: str, *, describe: bool = True) -> None:
        """Denies writing to a topic and, with `describe`, describing it."""
        with self._changed:
            (self._state.undescribable if describe else self._state.unwritable).add(topic)

    def forbid_configs(self, topic: str) -> None:
        """Denies describing the configs of a topic; the topic can be described and written to."""
        with self._changed:
            self._state.unconfigurable.add(topic)

    def permit(self, topic: str) -> None:
        """Reverts `forbid`."""
        with self._changed:
            self._state.undescribable.discard(topic)
            self._state.unwritable.discard(topic)

    def forget_producers(self) -> None:
        """Makes every partition forget its producers."""
        with self._changed:
            for log in self._state.logs.values():
                log.forget_producers()

    def recover_producers(self) -> None:
        """Keeps only each producer's last batch per partition, as after a kill of all brokers."""
        with self._changed:
            for log in self._state.logs.values():
                log.recover_producers()

    def forget_history(self) -> None:
        """Drops recorded requests and stored batches; offsets continue."""
        with self._changed:
            self._seen.clear()
            self._orders.forget_spent()
            for log in self._state.logs.values():
                log.forget_batches()

    # -- orders for the next requests ------------------------------------------------------------------------

    def react_next(
        self, api: ApiKey, reaction: Reaction, *, times: int = 1, broker_id: int | None = None
    ) -> None:
        """Applies a reaction to the next responses of an API (reactions.py); the oldest order comes first."""
        self._order(Order(api, broker_id, times, reaction=reaction))

    def hold_next(self, api: ApiKey, *, times: int = 1, broker_id: int | None = None) -> Hold:
        """Withholds the next responses of an API until the returned Hold is released."""
        hold = Hold()
        self.react_next(api, hold, times=times, broker_id=broker_id)
        return hold

    def change_next(
        self,
        api: ApiKey,
        change: Callable[[Any], Response],
        *,
        times: int = 1,
        broker_id: int | None = None,
    ) -> None:
        """Passes the next responses of an API through a function: `lambda r: r._replace(brokers=())`.

        The request is applied before; for a produce that fails unapplied see fail_next_produces.
        """
        self._order(Order(api, broker_id, times, change=change))

    def throttle_next(
        self, api: ApiKey, throttle_ms: int, *, times: int = 1, broker_id: int | None = None
    ) -> None:
        """Adds a throttle time to the next responses of an API."""
        self.change_next(
            api, lambda r: r._replace(throttle_time_ms=throttle_ms), times=times, broker_id=broker_id
        )

    def fail_next_produces(
        self,
        error: Errors | int,
        *,
        times: int = 1,
        topic: str | None = None,
        partition: int | None = None,
        appended: bool = False,
        message: str | None = None,
    ) -> None:
        """Fails the next batches with an error, one count per batch; with `appended` they are stored."""
        code = error if isinstance(error, int) else error.code
        with self._changed:
            self._state.produce_faults.append(
                produce.ProduceFault(code, times, topic, partition, appended, message)
            )

    def meanwhile(self, topic: str, partition: int, act: Callable[[], None]) -> None:
        """Calls `act` once, in the middle of the next produce request with this partition.

        That is right before the broker checks the partition's batch, after it stored earlier ones of the
        request. `act` runs on the cluster's loop. It may change the cluster, but not start or stop brokers.
        """
        with self._changed:
            self._state.meanwhile.append((topic, partition, act))

    def fail_next_init_producer_ids(self, error: Errors | int, *, times: int = 1) -> None:
        code = error if isinstance(error, int) else error.code
        with self._changed:
            self._state.init_producer_id_errors.extend([code] * times)

    def demand_sasl(self, demand: SaslDemand | None) -> None:
        """Makes every connection authenticate from now on, or end at its next request; None: none may."""
        with self._changed:
            self._state.sasl = demand

    def disturb(self, disturbance: Disturbance | None) -> None:
        """Makes `disturbance` choose the reaction for each response without an order; None ends that."""
        with self._changed:
            self._disturbance = disturbance

    def _order(self, order: Order) -> None:
        if order.broker_id is not None:
            self._broker(order.broker_id)
        with self._changed:
            self._orders.add(order)

    # -- called by the brokers, on the loop ------------------------------------------------------------------

    def _react(self, broker_id: int, header: RequestHeader) -> Reaction:
        with self._changed:
            ordered = self._orders.reaction(header.api, broker_id)
            if ordered is not None:
                return ordered
            if self._disturbance is not None:
                return self._disturbance.next_answer(broker_id, header.api)
            return Reaction()

    def _handle(
        self,
        broker_id: int,
        header: RequestHeader,
        payload: bytes,
        reaction: Reaction,
        session: SaslSession,
    ) -> Answer:
        """Records and applies a request. Raises EndConnectionError where the broker ends the connection."""
        api, version = header.api, header.version
        with self._changed:
            versions = self._versions[broker_id]
            if api is ApiKey.API_VERSIONS:
                self._note(broker_id, header, None)
                reported, version = api_versions.answer(versions, payload, version, header.body_offset)
                body = reaction.encode(self._orders.changed(api, broker_id, reported), version)
                return Answer(body, version)
            low, high = versions.get(api.id, (0, -1))
            if not (low <= version <= high and api.min_version <= version <= api.max_version):
                raise EndConnectionError
            requests.check_session(self._state, session, api)
            request = requests.decode(header, payload)
            self._note(broker_id, header, request)
            if not reaction.applies_request:
                raise EndConnectionError
            answer = requests.answer(self._state, broker_id, request, version, session)
            if answer is None:
                return Answer(None, version)
            answer = self._orders.changed(api, broker_id, answer)
            body = reaction.encode(answer, version)
            return Answer(body, version, is_last=requests.is_refusal(answer))

    def _note(self, broker_id: int, header: RequestHeader, request: Request | None) -> None:
        api, version, correlation_id, client_id, _ = header
        self._seen.append(SeenRequest(broker_id, api, version, correlation_id, client_id, request))
        self._changed.notify_all()

    def _running(self) -> LoopThread:
        if self._loop is None:
            raise FakeClusterError("the cluster does not run: call start(), or use it in a `with` block")
        return self._loop


async def _changed(tls: ssl.SSLContext, change: Callable[[ssl.SSLContext], None]) -> None:
    """Runs on the loop of the handshakes, so that none is in progress."""
    change(tls)
