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
    from random import Random

    from client_core.testing.reactions import Sending
    from tests.support.fake_cluster.in_process import InProcessBrokers
    from tests.support.mock_clock import MockClock

#: How long an answer is under way, at most.
_LONGEST_WAY_MS: Final = 5
_PORTS: Final = range(1, 65_536)


class HostileNetwork(MockSelector):
    """MockSelector with brokers behind it."""

    def __init__(self, clock: MockClock, brokers: InProcessBrokers, random: Random) -> None:
        super().__init__(
            clock, can_connect=lambda address: address[1] in brokers.ports or random.random() < 0.5
        )
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

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
    ) -> None:
        self.connects.append((node_id, self._now_ms()))
        if address[1] not in _PORTS:
            raise OSError(f"no port: {address[1]}")  # what open_socket makes of it
        broker_id = self._brokers.ports.get(address[1])
        self._streams[node_id] = NetworkReceive(DEFAULT_MAX_RECEIVE_BYTES)
        self._broker_of[node_id] = broker_id
        self._silent.discard(node_id)
        self._connection_of[node_id] = len(self.connects)
        if self._brokers.hostility is not None and self._random.random() < 0.05:
            self.hold_connect(node_id)
        else:
            self._held_connects.discard(node_id)
        super().connect(node_id, host, address, send_buffer_bytes, receive_buffer_bytes)

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
                self._deliver_later(one.node_id, sending)
        return now_ms

    def disconnect_all(self) -> None:
        """Every broker ends its connections."""
        for node_id in list(self._addresses):
            self.disconnect(node_id)

    def _deliver_later(self, node_id: int, sending: Sending) -> None:
        """Answers of a connection come in their order: all of them are under way for as long."""
        connection = self._connection_of[node_id]
        if sending.then_silent or sending.then_close:
            self._silent.add(node_id)

        def arrive() -> None:
            if self._connection_of.get(node_id) == connection and self.is_open(node_id):
                self._arrive(node_id, sending)

        self.after(connection % (_LONGEST_WAY_MS + 1), arrive)

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
