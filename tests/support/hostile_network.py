"""A network in simulated time whose peers are brokers of this process, hostile ones where a test says so.

    brokers = InProcessBrokers(3)
    selector = HostileNetwork(clock, brokers, Random(7))

What a broker sends goes byte for byte through a NetworkReceive, as in KafkaChannel, and comes to the client
as frames, or as the end of the connection where the stream can't be read. Addresses that are no broker's
refuse the connection, let it hang, or accept it and are silent. `delivered` and `connects` count what the
network did: they distinguish a busy loop from work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.errors import InvalidReceiveError
from client_core.network.network_receive import NetworkReceive
from client_core.network.selector import DEFAULT_MAX_RECEIVE_BYTES
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from client_core.errors import AuthenticationError
    from client_core.testing.reactions import Sending
    from tests.support.fake_cluster.in_process import InProcessBrokers
    from tests.support.mock_clock import MockClock

#: How long an answer is under way, at most.
_LONGEST_WAY_MS: Final = 5
_PORTS: Final = range(1, 65_536)


class HostileNetwork(MockSelector):
    """MockSelector with brokers behind it."""

    def __init__(self, clock: MockClock, brokers: InProcessBrokers, random: Random) -> None:
        super().__init__(clock, can_connect=self._accepts)
        #: Brokers whose host refuses connections, drops their packets, or whose broker rejects our password.
        self.down: set[int] = set()
        self.unreachable: set[int] = set()
        self.rejecting: set[int] = set()
        #: What they reject us with, if it is not the password; and brokers that close instead.
        self.rejection: AuthenticationError | None = None
        self.closing: set[int] = set()
        #: How much longer a broker takes for a request: by broker and payload, in milliseconds.
        self.delay_ms: Callable[[int, bytes], int] = lambda broker_id, payload: 0
        self._due_ms: dict[int, int] = {}
        self._now_ms = clock.now_ms
        self._brokers = brokers
        self._random = random
        self._streams: dict[int, NetworkReceive] = {}
        self._broker_of: dict[int, int | None] = {}
        self._silent: set[int] = set()
        self._connection_of: dict[int, int] = {}
        #: Frames and ends of connections that were returned to the client.
        self.delivered = 0
        #: Every attempt to connect: node and moment.
        self.connects: list[tuple[int, int]] = []

    def _accepts(self, address: tuple[str, int]) -> bool:
        broker_id = self._brokers.ports.get(address[1])
        return self._random.random() < 0.5 if broker_id is None else broker_id not in self.down

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
        self.connects.append((node_id, self._now_ms()))
        if address[1] not in _PORTS:
            raise OSError(f"no port: {address[1]}")  # what open_socket makes of it
        broker_id = self._brokers.ports.get(address[1])
        self._streams[node_id] = NetworkReceive(DEFAULT_MAX_RECEIVE_BYTES)
        self._broker_of[node_id] = broker_id
        self._silent.discard(node_id)
        self._connection_of[node_id] = len(self.connects)
        self._due_ms.pop(node_id, None)
        is_hostile = self._brokers.hostility is not None and self._random.random() < 0.05
        if is_hostile or broker_id in self.unreachable:
            self.hold_connect(node_id)
        else:
            self._held_connects.discard(node_id)
        if broker_id in self.rejecting | self.closing:
            self.never_ready(node_id)
            self.after(1, lambda: self._reject(node_id) if self.is_open(node_id) else None)
        else:
            self._never_ready.discard(node_id)
        super().connect(node_id, host, address, send_buffer_bytes, receive_buffer_bytes, also=also)

    def _reject(self, node_id: int) -> None:
        if self._broker_of[node_id] in self.closing:
            self.disconnect(node_id)
        else:
            self.fail_authentication(node_id, self.rejection)

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        now_ms = super().poll(timeout_ms, writes_end_it=writes_end_it)
        self.delivered += len(self.completed_receives) + len(self.disconnected) + len(self.connected)
        self.polls.clear()
        self.attempts.clear()
        sent, self.sent = self.sent, []
        for one in sent:
            broker_id = self._broker_of.get(one.node_id)
            if broker_id is None or one.node_id in self._silent:
                continue
            sending = self._brokers.answer(broker_id, one.payload)
            if sending is not None:
                self._deliver_later(one.node_id, sending, self.delay_ms(broker_id, one.payload))
        return now_ms

    def disconnect_all(self) -> None:
        """Every broker ends its connections."""
        for node_id in list(self._addresses):
            self.disconnect(node_id)

    def end_connections_to(self, broker_id: int) -> None:
        """The broker ends its connections, also those that only just begin."""
        for node_id in [node for node in self._addresses if self._broker_of.get(node) == broker_id]:
            self.disconnect(node_id)

    def _deliver_later(self, node_id: int, sending: Sending, delay_ms: int) -> None:
        """Answers of a connection come in their order: a broker answers one request after the other."""
        connection = self._connection_of[node_id]
        if sending.then_silent or sending.then_close:
            self._silent.add(node_id)

        def arrive() -> None:
            if self._connection_of.get(node_id) == connection and self.is_open(node_id):
                self._arrive(node_id, sending)

        now_ms = self._now_ms()
        due_ms = now_ms + connection % (_LONGEST_WAY_MS + 1) + delay_ms
        self._due_ms[node_id] = due_ms = max(due_ms, self._due_ms.get(node_id, 0))
        self.after(due_ms - now_ms, arrive)

    def _arrive(self, node_id: int, sending: Sending) -> None:
        stream = self._streams[node_id]
        try:
            for piece in sending.pieces:
                stream.feed(piece)
                while (payload := stream.take()) is not None:
                    self.receive(node_id, payload)
        except InvalidReceiveError:
            self._end_behind_what_came(node_id)
        else:
            if sending.then_close:
                self._end_behind_what_came(node_id)

    def _end_behind_what_came(self, node_id: int) -> None:
        """The frames before are read first, one a poll, as a channel does."""
        connection = self._connection_of[node_id]

        def end() -> None:
            if self._connection_of.get(node_id) != connection or not self.is_open(node_id):
                return
            if self._inbox[node_id]:
                self.after(1, end)
            else:
                self.disconnect(node_id)

        self.after(1, end)
