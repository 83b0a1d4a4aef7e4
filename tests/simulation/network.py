"""The network between a sidecar and its brokers: `Selectable` over connections of simulated time.

A connection keeps its order in both ways. A link that is cut keeps what was sent: it arrives when the link is
whole again, as TCP sends it again, also a request whose sender has closed the connection meanwhile. A poll
never waits: it notes for how long it would have, and the I/O thread's actor (sidecar.py) waits instead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError
from client_core.network.network_receive import NetworkReceive
from client_core.network.selector import DEFAULT_MAX_RECEIVE_BYTES
from tests.simulation.wire import is_produce
from tests.simulation.world import SimulationError
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from client_core.network.selectable import AnswerReader
    from tests.simulation.brokers import ReplicatedBrokers
    from tests.simulation.world import World

#: How long a packet is under way, at most, on a link without a fault.
_LONGEST_WAY_MS: Final = 3
#: How long ago is still just now: as late as an answer to a caller may be.
_JUST_MS: Final = 50


@dataclass(slots=True)
class Link:
    """The way between the sidecar and one broker."""

    requests_pass: bool = True
    answers_pass: bool = True
    delay_ms: int = 0
    refuses: bool = False
    #: What waits until the link is whole again.
    held: deque[Callable[[], None]] = field(default_factory=deque)

    def heal(self) -> None:
        """Delivers what was held, in order."""
        self.requests_pass = self.answers_pass = True
        self.refuses = False
        self.delay_ms = 0
        held, self.held = self.held, deque()
        for deliver in held:
            deliver()


class Connection:
    """One connection of a client to a broker. The broker answers one request after the other."""

    def __init__(self, network: SimulatedNetwork, node_id: int, broker_id: int) -> None:
        self.network = network
        self.node_id = node_id
        self.broker_id = broker_id
        self.is_open = True
        #: Each with the time when the client sent it.
        self.requests: deque[tuple[bytes, int]] = deque()
        self.is_busy = False
        #: Of each request without an answer, in order: whether it is one to produce.
        self.produces: deque[bool] = deque()
        #: Until when the broker reads no request, and until when the client may send none (KIP-219).
        self.muted_until_ms = 0
        self.throttled_until_ms = 0
        self.last_request_ms = 0
        self.last_answer_ms = 0


class SimulatedNetwork(MockSelector):
    """The selector of one client. `brokers` are at their ports."""

    def __init__(self, world: World, brokers: ReplicatedBrokers, random: Random, name: str) -> None:
        super().__init__(world)  # type: ignore[arg-type]  # of the clock only `now_ms` is used
        self._world = world
        self._brokers = brokers
        self._random = random
        self.name = name
        self.is_dead = False
        self._connections: dict[int, Connection] = {}
        self._streams: dict[int, NetworkReceive] = {}
        #: Answers that the client has not read: the bytes, their connection, and what to call then.
        self._unread: dict[int, tuple[bytes, Connection, Callable[[], None]]] = {}
        self._answered_ms = 0
        #: Of the last poll: how long it might have waited, and whether there was something.
        self.limit_ms = 0
        self.found_something = True
        #: Called within a poll, before it would wait.
        self.before_wait: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return self._world.now_ms

    # -- Selectable ------------------------------------------------------------------------------------------

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        *,
        also: bool = False,
    ) -> None:
        broker_id = self._brokers.ports[address[1]]
        connection = Connection(self, node_id, broker_id)
        self._connections[node_id] = connection
        self._streams[node_id] = NetworkReceive(DEFAULT_MAX_RECEIVE_BYTES)
        self.hold_connect(node_id)
        super().connect(node_id, host, address, send_buffer_bytes, receive_buffer_bytes, also=also)
        link = self._brokers.links[broker_id]

        def arrive() -> None:
            if not self._has(connection):
                return
            self._world.log(self.name, f"connection to broker {broker_id}")
            if link.refuses or broker_id not in self._brokers.running:
                self.refuse(node_id)
            else:
                self.finish_connect(node_id)

        def go() -> None:
            if link.requests_pass and link.answers_pass:
                self._world.at(self._way_ms(link), arrive)
            else:
                link.held.append(go)

        go()

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        super().send(node_id, payload, answer)
        left_ms = self._connections[node_id].throttled_until_ms - self._world.now_ms
        if left_ms > 0:
            error = f"{self.name} sends a request {left_ms} ms before its throttle time is over"
            self._world.failure = self._world.failure or SimulationError("quota", error)
        self._brokers.wire.sent(self.name, self._world.now_ms, self._under_way[node_id].payload)

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        if timeout_ms < 0:
            raise IllegalArgumentError("timeout should be >= 0")
        self._clear()
        self.limit_ms = timeout_ms
        self.before_wait()
        self.found_something = self._deliver() or self._wakeup_is_pending
        for received in self._completed_receives:
            _, connection, arrives = self._unread.pop(id(received.payload))
            if connection.produces.popleft():
                self._answered_ms = self._world.now_ms
            arrives()
        self._wakeup_is_pending = False
        sent, self.sent = self.sent, []
        for one in sent:
            self._request(self._connections[one.node_id], one.payload)
        self.attempts.clear()
        return self._world.now_ms

    def has_something(self) -> bool:
        """Returns whether a poll would end now."""
        return bool(
            self._next_connected
            or self._next_disconnected
            or self._under_way
            or self._wakeup_is_pending
            or any(
                frames and node in self._addresses and node not in self.muted
                for node, frames in self._inbox.items()
            )
        )

    @property
    def has_requests(self) -> bool:
        """Returns whether a produce request is under way that its client has not given up, or just was."""
        is_new = self._world.now_ms - self._answered_ms < _JUST_MS
        return is_new or any(any(connection.produces) for connection in self._connections.values())

    def waking(self) -> None:
        """Ends the wait of a thread that slept in a poll: a wakeup is used up by it."""
        self._wakeup_is_pending = False

    def close_connection(self, node_id: int) -> None:
        self._drop(node_id)
        super().close_connection(node_id)

    # -- faults ----------------------------------------------------------------------------------------------

    def broker_ended(self, broker_id: int) -> None:
        """Ends the connections to a broker, as far as the client can see it."""
        for node_id, connection in list(self._connections.items()):
            if connection.broker_id == broker_id and connection.is_open:
                self.cut(node_id)

    def cut(self, node_id: int) -> None:
        """The peer ends a connection."""
        connection = self._connections[node_id]
        connection.is_open = False
        connection.requests.clear()
        link = self._brokers.links[connection.broker_id]

        def end() -> None:
            if self._connections.get(node_id) is connection and self.is_open(node_id):
                self._held_connects.discard(node_id)
                self.disconnect(node_id)
                self._drop(node_id)

        if link.answers_pass:
            end()
        else:
            link.held.append(end)

    def cut_all(self) -> None:
        for node_id, connection in list(self._connections.items()):
            if connection.is_open:
                self.cut(node_id)

    def die(self) -> None:
        """The process was killed: the system closes its connections."""
        self.is_dead = True
        for connection in self._connections.values():
            connection.is_open = False
        self._connections.clear()

    # -- the way there and back ------------------------------------------------------------------------------

    def _has(self, connection: Connection) -> bool:
        return self._connections.get(connection.node_id) is connection and self.is_open(connection.node_id)

    def _drop(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.is_open = False
            if any(connection.produces):
                self._answered_ms = self._world.now_ms

    def _way_ms(self, link: Link) -> int:
        return self._random.randint(0, _LONGEST_WAY_MS) + link.delay_ms

    def _request(self, connection: Connection, payload: bytes) -> None:
        link = self._brokers.links[connection.broker_id]
        survives = self._random.random() < 0.5  # what the system sends on after a close, or not
        sent_ms = self._world.now_ms
        connection.produces.append(is_produce(payload))

        def arrive() -> None:
            if connection.is_open or survives:
                connection.requests.append((payload, sent_ms))
                self._serve(connection)

        def go() -> None:
            if not link.requests_pass:
                link.held.append(go)
                return
            at_ms = max(self._world.now_ms + self._way_ms(link), connection.last_request_ms)
            connection.last_request_ms = at_ms
            self._world.at(at_ms - self._world.now_ms, arrive)

        go()

    def _serve(self, connection: Connection) -> None:
        """Has the broker take the next request of a connection, if it has answered the one before."""
        muted_ms = connection.muted_until_ms - self._world.now_ms
        if muted_ms > 0:
            self._world.at(muted_ms, lambda: self._serve(connection))
            return
        while connection.requests and not connection.is_busy:
            connection.is_busy = True
            self._brokers.take(connection, *connection.requests.popleft())

    def answered(
        self, connection: Connection, frame: bytes | None, arrives: Callable[[], None] = lambda: None
    ) -> None:
        """Sends an answer, if there is one, and takes the next request. Called by the brokers.

        `arrives` is called when the client reads the answer: a connection that ends before loses it.
        """
        connection.is_busy = False
        if frame is not None:
            self._answer(connection, frame, arrives)
        self._world.at(0, lambda: self._serve(connection))

    def _answer(self, connection: Connection, frame: bytes, arrives: Callable[[], None]) -> None:
        link = self._brokers.links[connection.broker_id]

        def arrive() -> None:
            if not self._has(connection):
                return
            stream = self._streams[connection.node_id]
            stream.feed(frame)
            while (payload := stream.take()) is not None:
                self._unread[id(payload)] = payload, connection, arrives
                self.receive(connection.node_id, payload)

        def go() -> None:
            if not link.answers_pass:
                link.held.append(go)
                return
            at_ms = max(self._world.now_ms + self._way_ms(link), connection.last_answer_ms)
            connection.last_answer_ms = at_ms
            self._world.at(at_ms - self._world.now_ms, arrive)

        go()
