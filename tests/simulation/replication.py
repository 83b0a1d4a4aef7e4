"""The partitions of a simulated cluster: their replicas, who leads them, and what happens to brokers.

    in-sync replicas    a follower that is slow, cut off or dead leaves them after REPLICA_LAG_MS, and comes
                        back once it has caught up
    high watermark      what all of them have; while they are fewer than min.insync.replicas, it stays
                        (KAFKA-15583; in brokers before 3.7 it moves)
    elections           a dead or fenced broker leads until its session ends; then an in-sync replica leads,
                        or nobody, or (unclean) one that lacks acknowledged records
    truncation          a replica that follows another leader drops what that one does not have
    producer state      a broker that was killed knows the last batch of each producer only
    deleted topics      their records are gone; a broker that does not know it yet goes on with its log

Source: Partition, ReplicaFetcherThread, ReplicationControlManager, Kafka 4.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from client_core.testing.metadata_cache import AliveBroker, MetadataCache
from client_core.testing.partition_log import PartitionLog, StoredBatch, StoredRecord, records_of
from tests.simulation.network import Link
from tests.simulation.wire import WireTrace, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random
    from uuid import UUID

    from client_core.testing.controller import TopicConfig
    from client_core.testing.metadata_cache import PartitionState
    from client_core.testing.state import ClusterState
    from tests.simulation.network import SimulatedNetwork
    from tests.simulation.world import World

FIRST_PORT: Final = 9_001
HOST: Final = "10.0.0.1"
#: How long until the controller knows that a broker has ended or is cut off; shorter than Kafka's 9 s.
SESSION_MS: Final = 400
#: replica.lag.time.max.ms, shorter than Kafka's 30 s.
REPLICA_LAG_MS: Final = 600
_FETCH_MS: Final = 3
_FETCH_AGAIN_MS: Final = 40

Place = tuple[str, int]


class Replica:
    """One broker's log of a partition. `hw`: the high watermark, as far as this broker knows."""

    def __init__(self) -> None:
        self.log = PartitionLog()
        self.hw = 0
        #: The leader epoch since which the log agrees with that leader's.
        self.agrees_since = -1
        #: The leader's view of its followers.
        self.ends: dict[int, int] = {}
        self.caught_up_ms: dict[int, int] = {}
        self.fetches = False


class Replication(ABC):
    """Brokers 1..n of one cluster; every topic has a replica on each."""

    def __init__(self, world: World, random: Random, state: ClusterState, count: int) -> None:
        self.world = world
        self.random = random
        self.state = state
        self.ports = {FIRST_PORT + n: n + 1 for n in range(count)}
        self.running: set[int] = set(self.ports.values())
        self.links = {broker_id: Link() for broker_id in self.running}
        self.networks: list[SimulatedNetwork] = []
        #: Brokers that neither the controller nor the others reach.
        self.isolated: set[int] = set()
        #: Additional time of a follower's fetches.
        self.slow: dict[int, int] = {}
        #: How long a broker throttles a client after each request to produce.
        self.throttle_ms: dict[int, int] = {}
        #: Topics whose leader may be a replica that is not in sync.
        self.unclean: set[str] = set()
        #: Values that brokers lost by themselves: behind an unclean election, or with their topic.
        self.lost_by_kafka: set[bytes] = set()
        #: Values that were cut off a log; lost where only the leader had acknowledged them.
        self.truncated: set[bytes] = set()
        #: Whether they are of a version before 3.7.
        self.are_old = False
        #: The highest high watermark of each partition; that of a new leader is behind it for a while.
        self.committed_to: dict[Place, int] = {}
        self.wire: Final = WireTrace()
        #: When a broker has forgotten batches of a producer, by partition.
        self.forgot: dict[Place, list[int]] = {}
        #: When a partition got another leader, or none.
        self.moved_ms: dict[Place, list[int]] = {}
        #: When all brokers forgot all producers.
        self.expired_ms: list[int] = []
        self._replicas: dict[tuple[int, UUID | None, Place], Replica] = {}
        #: By leader, partition and epoch: what a leader with old metadata made of the in-sync replicas.
        self._made_isr: dict[tuple[int, Place, int], Sequence[int]] = {}
        #: The topics that there are.
        self._names: set[str] = set()
        self._addresses = {broker: AliveBroker(broker, HOST, port) for port, broker in self.ports.items()}
        for broker_id, address in self._addresses.items():
            cache = self.state.caches[broker_id] = MetadataCache()
            self.state.controller.broker_started(address, cache)

    @abstractmethod
    def answer_waiting(self, broker_id: int, place: Place) -> None:
        """Answers the requests to a leader that wait for what its replica has now, or for its reign."""

    @abstractmethod
    def topic_is_gone(self, broker_id: int) -> None:
        """Answers the requests to a broker that wait for topics which it does not have any more."""

    @abstractmethod
    def forget_waiting(self, broker_id: int) -> None:
        """Drops the requests to a broker: it was killed."""

    def create_topic(self, name: str, partitions: int, config: TopicConfig, *, unclean: bool) -> None:
        count = len(self.ports)
        self.state.controller.create_topic(
            name, partitions=partitions, replication_factor=count, config=config
        )
        self._names.add(name)
        if unclean:
            self.unclean.add(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records. Copies of them are nobody's concern any more."""
        for (_, _, place), replica in self._replicas.items():
            if place[0] == name:
                self.lost_by_kafka.update(_values(replica.log.batches))
        for value in self.lost_by_kafka:
            kept = [append for append in self.wire.appends.pop(value, ()) if append.place[0] != name]
            if kept:
                self.wire.appends[value] = kept
        for place in list(self.places()):
            if place[0] == name:
                self.committed_to.pop(place, None)
                self._note_forgotten(place)
        self._names.discard(name)
        self.state.controller.delete_topic(name)
        self.world.log("controller", f"{name} is deleted")
        for broker_id in sorted(self.running):
            self.topic_is_gone(broker_id)

    def topic_id(self, broker_id: int, topic: str) -> UUID | None:
        """Returns the id of a topic, as far as a broker knows it."""
        known = self.state.caches[broker_id].topic(topic) or self.state.controller.topic(topic)
        return None if known is None else known.topic_id

    def is_stray(self, broker_id: int, topic: str) -> bool:
        """Returns whether a broker does not know yet that a topic was deleted."""
        true = self.state.controller.topic(topic)
        return true is None or true.topic_id != self.topic_id(broker_id, topic)

    def replica(self, broker_id: int, place: Place) -> Replica:
        topic_id = self.topic_id(broker_id, place[0])
        found = self._replicas.get((broker_id, topic_id, place))
        if found is None:
            found = self._replicas[broker_id, topic_id, place] = Replica()
        return found

    def view(self, broker_id: int, place: Place) -> PartitionState:
        state = self.state.caches[broker_id].partition(*place)
        assert state is not None
        return state

    def is_cut_off(self, broker_id: int, place: Place) -> bool:
        """Returns whether another broker leads the partition now."""
        topic = self.state.controller.topic(place[0])
        return topic is not None and place[1] < len(topic.partitions) and self.true(place).leader != broker_id

    def isr(self, broker_id: int, place: Place) -> Sequence[int]:
        """Returns the in-sync replicas as a leader counts them.

        It changes them itself (AlterPartition), so it knows them even where its metadata is old, unless it is
        cut off from the controller. If another leads meanwhile, it knows what it made of them at last.
        """
        view = self.view(broker_id, place)
        if broker_id in self.isolated or self.is_stray(broker_id, place[0]):
            return view.isr
        true = self.true(place)
        if (true.leader, true.leader_epoch) == (broker_id, view.leader_epoch):
            return true.isr
        return self._made_isr.get((broker_id, place, view.leader_epoch), view.isr)

    def is_under_min_isr(self, broker_id: int, place: Place) -> bool:
        """Returns whether a leader counts too few in-sync replicas for acks=all."""
        config = self.state.controller.config(place[0])
        least = min(config.min_insync_replicas, len(self.view(broker_id, place).replicas))
        return len(self.isr(broker_id, place)) < least

    def _make_isr(self, leader: int, place: Place, isr: Sequence[int]) -> None:
        """Changes the in-sync replicas of a partition that a broker leads."""
        self.state.controller.set_isr(*place, isr)
        view = self.view(leader, place)
        if view.isr != tuple(isr):  # its metadata is old
            self._made_isr[leader, place, view.leader_epoch] = isr

    def advance(self, broker_id: int, place: Place) -> None:
        """Moves a leader's high watermark, and answers what waited for it."""
        if self.state.caches[broker_id].partition(*place) is None:
            return  # its metadata is old: it knows of no such topic
        view = self.view(broker_id, place)
        replica = self.replica(broker_id, place)
        if view.leader == broker_id:
            if self.are_old or not self.is_under_min_isr(broker_id, place):
                isr = self.isr(broker_id, place)
                ends = [replica.log.end_offset]
                ends += [replica.ends.get(other, 0) for other in isr if other != broker_id]
                replica.hw = max(replica.hw, min(ends))
            self.committed_to[place] = max(self.committed_to.get(place, 0), replica.hw)
        self.answer_waiting(broker_id, place)

    # -- replication -----------------------------------------------------------------------------------------

    def replicate(self, leader: int, place: Place) -> None:
        """Has the followers fetch, and looks later whether they have."""
        for follower in self.ports.values():
            if follower != leader:
                self._fetch_soon(follower, place, _FETCH_MS)
        topic_id, end = self.topic_id(leader, place[0]), self.replica(leader, place).log.end_offset

        def shrink() -> None:
            if topic_id == self.topic_id(leader, place[0]):
                self._shrink(leader, place, end)

        self.world.at(REPLICA_LAG_MS, shrink)

    def _fetch_soon(self, follower: int, place: Place, ms: int) -> None:
        replica = self.replica(follower, place)
        if not replica.fetches:
            replica.fetches = True
            slow_ms = self.slow.get(follower, 0)
            self.world.at(self.random.randint(0, ms) + slow_ms, lambda: self._fetch(follower, place))

    def _fetch(self, follower: int, place: Place) -> None:
        mine = self.replica(follower, place)
        mine.fetches = False
        if follower not in self.running:
            return
        view = self.state.caches[follower].partition(*place)
        if view is None:
            if place[0] in self._names:
                self._fetch_soon(follower, place, _FETCH_AGAIN_MS)
            return
        leader = view.leader
        if leader == follower:
            return
        if leader is None or not self._reach(leader, follower):
            self._fetch_soon(follower, place, _FETCH_AGAIN_MS)
            return
        of_leader = self.state.caches[leader].partition(*place)
        is_same = self.topic_id(leader, place[0]) == self.topic_id(follower, place[0])
        if (
            not is_same
            or of_leader is None
            or of_leader.leader != leader
            or of_leader.leader_epoch != view.leader_epoch
        ):
            self._fetch_soon(follower, place, _FETCH_AGAIN_MS)
            return
        theirs = self.replica(leader, place)
        if mine.agrees_since != view.leader_epoch:
            self._truncate(follower, place, theirs)
            mine.agrees_since = view.leader_epoch
        new = [batch for batch in theirs.log.batches if batch.base_offset >= mine.log.end_offset]
        mine.log.replicate(new)
        mine.hw = min(theirs.hw, mine.log.end_offset)
        theirs.ends[follower] = mine.log.end_offset
        if follower not in self.isr(leader, place) and mine.log.end_offset >= theirs.hw:
            self._grow(leader, follower, place)
        self.advance(leader, place)

    def _reach(self, one: int, other: int) -> bool:
        return {one, other} <= self.running and not {one, other} & self.isolated

    def _truncate(self, follower: int, place: Place, theirs: Replica) -> None:
        """Drops what the leader does not have."""
        mine = self.replica(follower, place)
        agreed = 0
        for own, leaders in zip(mine.log.batches, theirs.log.batches, strict=False):
            if own != leaders:
                break
            agreed = own.base_offset + own.record_count
        dropped = [batch for batch in mine.log.batches if batch.base_offset >= agreed]
        if not dropped:
            return
        self.world.reach("a replica was truncated")
        self._note_forgotten(place)
        self.truncated.update(_values(dropped))
        self.world.log(f"broker {follower}", f"truncates {place[0]}-{place[1]} to offset {agreed}")
        mine.log.truncate(agreed)
        mine.hw = min(mine.hw, agreed)

    def _shrink(self, leader: int, place: Place, end: int) -> None:
        """Takes followers out of the in-sync replicas that have not come to `end` in time."""
        if leader not in self.running or leader in self.isolated or self.is_stray(leader, place[0]):
            return
        view = self.state.caches[leader].partition(*place)
        if view is None:
            return
        replica = self.replica(leader, place)
        if view.leader != leader or self.true(place).leader != leader:
            return
        isr = self.isr(leader, place)
        late = [other for other in isr if other != leader and replica.ends.get(other, 0) < end]
        if not late:
            return
        self.world.reach("the in-sync replicas shrank")
        self.world.log(f"broker {leader}", f"{place[0]}-{place[1]}: {late} are not in sync")
        self._make_isr(leader, place, [other for other in isr if other not in late])
        self.advance(leader, place)

    def _grow(self, leader: int, follower: int, place: Place) -> None:
        if self.is_stray(leader, place[0]):
            return
        true = self.true(place)
        if true.leader != leader or {leader, follower} & self.isolated or follower not in self._alive:
            return
        self.world.log(f"broker {leader}", f"{place[0]}-{place[1]}: broker {follower} is in sync again")
        self._make_isr(leader, place, sorted({*true.isr, follower}))

    @property
    def _alive(self) -> frozenset[int]:
        return self.state.controller.alive

    def true(self, place: Place) -> PartitionState:
        topic = self.state.controller.topic(place[0])
        assert topic is not None
        return topic.partitions[place[1]]

    def places(self) -> Iterator[Place]:
        """Yields each partition."""
        for name in sorted(self._names):
            topic = self.state.controller.topic(name)
            for number in range(len(topic.partitions) if topic is not None else 0):
                yield name, number

    # -- brokers that end and return -------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """A broker ends at once. Its files stay; its session ends later."""
        if broker_id not in self.running:
            return
        self.running.discard(broker_id)
        self.forget_waiting(broker_id)
        for network in self.networks:
            network.broker_ended(broker_id)
        self.world.at(SESSION_MS, lambda: self._session_over(broker_id))

    def start(self, broker_id: int) -> None:
        """A broker starts again: of each producer it knows the last batch."""
        if broker_id in self.running:
            return
        self.running.add(broker_id)
        for place in self.places():
            replica = self.replica(broker_id, place)
            replica.log.recover_producers()
            replica.agrees_since = -1
            self._note_forgotten(place)
        self._join(broker_id)

    def isolate(self, broker_id: int) -> None:
        """Cuts a broker off from the controller and the others; clients still reach it."""
        if broker_id in self.isolated or broker_id not in self.running:
            return
        self.isolated.add(broker_id)
        self.state.controller.freeze(broker_id)
        self.world.at(SESSION_MS, lambda: self._session_over(broker_id))

    def rejoin(self, broker_id: int) -> None:
        """Ends `isolate`."""
        if broker_id in self.isolated:
            self.isolated.discard(broker_id)
            self.state.controller.thaw(broker_id)
            self.topic_is_gone(broker_id)
            if broker_id in self.running:
                self._join(broker_id)

    def stick(self, broker_id: int) -> None:
        """A broker stops, as in a long pause of its JVM: nobody reaches it, its connections stay."""
        self.links[broker_id].requests_pass = self.links[broker_id].answers_pass = False
        self.isolate(broker_id)

    def go_on(self, broker_id: int) -> None:
        """Ends `stick`."""
        self.links[broker_id].heal()
        self.rejoin(broker_id)

    def _join(self, broker_id: int) -> None:
        before = self._leaders()
        cache = self.state.caches[broker_id]
        self.state.controller.broker_started(self._addresses[broker_id], cache, catches_up_first=True)
        self._leaders_changed(before)

    def _session_over(self, broker_id: int) -> None:
        if (broker_id in self.running and broker_id not in self.isolated) or broker_id not in self._alive:
            return
        before = self._leaders()
        self.world.reach("a leader was fenced" if broker_id in self.running else "a broker's session ended")
        self.state.controller.broker_failed(broker_id)
        self._leaders_changed(before)
        for place in self.places():
            if self.true(place).leader is None and place[0] in self.unclean:
                self.world.at(REPLICA_LAG_MS, partial(self._elect_uncleanly, place))

    def _elect_uncleanly(self, place: Place) -> None:
        if place not in self.places() or self.true(place).leader is not None:
            return
        able = sorted(self.running & self._alive - self.isolated)
        if not able:
            return
        heir = self.random.choice(able)
        before = self._leaders()
        kept = set(map(id, self.replica(heir, place).log.batches))
        for broker_id in self.ports.values():
            replica = self.replica(broker_id, place)
            lost = [batch for batch in replica.log.batches if id(batch) not in kept]
            self.lost_by_kafka.update(_values(lost))
        self.world.reach("an unclean leader was elected")
        self.world.log("controller", f"{place[0]}-{place[1]}: broker {heir} leads, though it is not in sync")
        self.state.controller.move_leader(*place, heir)
        self.state.controller.set_isr(*place, [heir])
        self._leaders_changed(before)

    def add_partition(self, topic: str) -> None:
        """A topic gets one more partition."""
        before = self.state.controller.topic(topic)
        if before is not None:
            self.state.controller.add_partitions(topic, len(before.partitions) + 1)

    def move_leader(self, place: Place) -> None:
        """An admin moves a leader to another in-sync replica."""
        true = self.true(place)
        others = [b for b in true.isr if b != true.leader and b in self.running and b not in self.isolated]
        if not others:
            return
        before = self._leaders()
        self.state.controller.move_leader(*place, self.random.choice(others))
        self._leaders_changed(before)

    def _leaders(self) -> dict[Place, PartitionState]:
        return {place: self.true(place) for place in self.places()}

    def _leaders_changed(self, before: dict[Place, PartitionState]) -> None:
        """Begins the reign of new leaders, as far as they and the old ones know of it."""
        for place, state in before.items():
            true = self.true(place)
            if true.leader_epoch != state.leader_epoch:
                self.moved_ms.setdefault(place, []).append(self.world.now_ms)
                self.world.log("controller", f"{place[0]}-{place[1]}: leader {true.leader}, isr {true.isr}")
                if true.leader is not None:
                    self.replica(true.leader, place).ends.clear()
                    self.replicate(true.leader, place)
            for broker_id in sorted(self.running):
                self.advance(broker_id, place)
                self._fetch_soon(broker_id, place, _FETCH_MS)

    def thaw(self, broker_id: int) -> None:
        """A broker whose metadata was old gets what it has missed."""
        if broker_id in self.isolated:
            return
        self.state.controller.thaw(broker_id)
        self.topic_is_gone(broker_id)
        for place in self.places():
            self.advance(broker_id, place)
            self._fetch_soon(broker_id, place, _FETCH_MS)

    def forget_producers(self) -> None:
        """All brokers forget all producers, as after producer.id.expiration.ms."""
        self.expired_ms.append(self.world.now_ms)
        for (_, _, place), replica in self._replicas.items():
            replica.log.forget_producers()
            self._note_forgotten(place)

    def _note_forgotten(self, place: Place) -> None:
        self.forgot.setdefault(place, []).append(self.world.now_ms)
        self.wire.note_one(None, "forget")

    # -- for the judge ---------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Ends all faults."""
        for link in self.links.values():
            link.heal()
        self.slow.clear()
        self.throttle_ms.clear()
        self.state.unwritable.clear()
        for broker_id in self.ports.values():
            self.start(broker_id)
            self.rejoin(broker_id)
            self.thaw(broker_id)

    def committed(self) -> dict[bytes, list[tuple[Place, StoredRecord]]]:
        """Returns where each value is in the logs of the present leaders."""
        found: dict[bytes, list[tuple[Place, StoredRecord]]] = {}
        for place in self.places():
            leader = self.true(place).leader
            if leader is None:
                continue
            for record in self.replica(leader, place).log.records(place[1]):
                found.setdefault(identity_of(record), []).append((place, record))
        return found


def _values(batches: Sequence[StoredBatch]) -> Iterator[bytes]:
    return (identity_of(record) for batch in batches for record in records_of(batch))
