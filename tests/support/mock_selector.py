"""A mock network that a test controls: `Selectable` without sockets.

Connections succeed and sends are taken whole. Answers, connects and disconnects come when the test says: at
the next poll, with the next send to that node, or after so many milliseconds. `poll` waits by advancing a
MockClock, to the next scheduled moment or to its timeout. It does not wait when something is ready or a
wakeup is pending.

One thread, but for `wakeup`. Source: MockSelector, Kafka 4.3, stricter where Selector is: unknown and doubled
ids and a second send are IllegalState.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import (
    AuthenticationError,
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    SaslAuthenticationError,
)
from client_core.network.selectable import (
    AnswerReader,
    ChannelState,
    ChannelStateName,
    CompletedReceive,
    CompletedSend,
    CredentialsVersion,
)
from client_core.network.transport_layer import format_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.mock_clock import MockClock

_SIZE_BYTES: Final = 4

#: A poll that long with nothing scheduled would hang for good: the test or the tested code is wrong.
_LONGEST_POLL_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Attempt:
    """A connect that was asked for."""

    node_id: int
    host: str
    address: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that was sent, its pieces joined, without the size."""

    node_id: int
    payload: bytes


class MockSelector:
    """`can_connect` says which addresses answer; the others are refused at the next poll."""

    def __init__(
        self, clock: MockClock, *, can_connect: Callable[[tuple[str, int]], bool] = lambda _: True
    ) -> None:
        self.attempts: list[Attempt] = []  # every connect, in order
        self.sent: list[Sent] = []  # every frame that went out, in order
        self.polls: list[int] = []  # every poll's timeout
        self.muted: set[int] = set()
        self.is_closed = False
        self.waited_ms = 0  # in polls, by the clock that they advance
        #: The credentials of connections that are made from now on.
        self.credentials = CredentialsVersion()
        self._made_with: dict[int, CredentialsVersion] = {}
        self._clock = clock
        self._can_connect = can_connect
        #: The open connections: node -> remote address, or several until one is established.
        self._addresses: dict[int, list[str]] = {}
        self._established: set[int] = set()
        self._ready: set[int] = set()
        self._held_connects: set[int] = set()
        self._held_sends: set[int] = set()
        self._never_ready: set[int] = set()
        self._under_way: dict[int, Sent] = {}
        self._answers: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self._inbox: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self._schedule: list[tuple[int, int, Callable[[], None]]] = []  # a heap by time, then order
        self._scheduled = 0
        self._wakeup_is_pending = False
        self._next_connected: list[int] = []
        self._next_disconnected: dict[int, ChannelState] = {}
        self._completed_sends: list[CompletedSend] = []
        self._completed_receives: list[CompletedReceive] = []
        self._disconnected: dict[int, ChannelState] = {}
        self._connected: list[int] = []

    # -- controls for tests ----------------------------------------------------------------------------------

    def receive(self, node_id: int, payload: bytes) -> None:
        """The node's next frame: one poll delivers at most one of a node (SEL-05)."""
        self._inbox[node_id].append(payload)

    def answer(self, node_id: int, payload: bytes) -> None:
        """A frame that comes in the poll which completes the next send to the node; one answer a send."""
        self._answers[node_id].append(payload)

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Something that happens so many milliseconds from now, inside the poll that reaches it."""
        self._scheduled += 1
        heapq.heappush(self._schedule, (self._clock.now_ms() + delay_ms, self._scheduled, act))

    def hold_connect(self, node_id: int) -> None:
        """Connects to the node hang until `finish_connect`, `refuse` or `disconnect`."""
        self._held_connects.add(node_id)

    def finish_connect(self, node_id: int, remote_address: str | None = None) -> None:
        """Lets a connect succeed that hangs; the one to `remote_address`, if there are several."""
        self._held_connects.discard(node_id)
        self._establish(node_id, remote_address)

    def refuse(self, node_id: int, remote_address: str | None = None) -> None:
        """Lets a connect fail that hangs; the one to `remote_address`, if there are several."""
        self._held_connects.discard(node_id)
        error = DisconnectError("connection refused")
        self._end(node_id, ChannelStateName.NOT_CONNECTED, error, remote_address)

    def hold_sends(self, node_id: int) -> None:
        """The system takes no more bytes for the node: its sends stay under way."""
        self._held_sends.add(node_id)

    def release_sends(self, node_id: int) -> None:
        self._held_sends.discard(node_id)

    def never_ready(self, node_id: int) -> None:
        """The node's channels connect, but handshake and authentication do not end."""
        self._never_ready.add(node_id)
        self._ready.discard(node_id)

    def become_ready(self, node_id: int) -> None:
        """Handshake and authentication are done after all."""
        self._never_ready.discard(node_id)
        if node_id in self._addresses:
            self._ready.add(node_id)

    def disconnect(self, node_id: int) -> None:
        """The peer closes an open or hanging connection: the next poll returns it."""
        name = ChannelStateName.READY if node_id in self._ready else ChannelStateName.NOT_CONNECTED
        if node_id in self._never_ready:
            name = ChannelStateName.AUTHENTICATE
        self._end(node_id, name, DisconnectError("the peer closed the connection"))

    def fail_authentication(self, node_id: int, error: AuthenticationError | None = None) -> None:
        """The peer refuses our authentication: the next poll returns it."""
        self._end(
            node_id,
            ChannelStateName.AUTHENTICATION_FAILED,
            error or SaslAuthenticationError("Authentication failed"),
        )

    def expire(self, node_id: int) -> None:
        """The connection has been idle for too long: the next poll returns it."""
        self._end(node_id, ChannelStateName.EXPIRED, None)

    def is_open(self, node_id: int) -> bool:
        """Whether there is a connection to the node, be it still connecting."""
        return node_id in self._addresses

    def sent_to(self, node_id: int) -> list[bytes]:
        """The frames that one node was sent, in order."""
        return [sent.payload for sent in self.sent if sent.node_id == node_id]

    # -- Selectable ------------------------------------------------------------------------------------------

    @property
    def completed_sends(self) -> Sequence[CompletedSend]:
        return self._completed_sends

    @property
    def completed_receives(self) -> Sequence[CompletedReceive]:
        return self._completed_receives

    @property
    def disconnected(self) -> Mapping[int, ChannelState]:
        return self._disconnected

    @property
    def connected(self) -> Sequence[int]:
        return self._connected

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
        if node_id in self._addresses and (node_id in self._established or not also):
            raise IllegalStateError(f"There is already a connection for id {node_id}")
        self.attempts.append(Attempt(node_id, host, address))
        self._addresses.setdefault(node_id, []).append(format_address(address))
        self._made_with[node_id] = self.credentials
        if not self._can_connect(address):
            self.refuse(node_id, format_address(address))
        elif node_id not in self._held_connects:
            self._establish(node_id, format_address(address))

    def addresses_of(self, node_id: int) -> Sequence[str]:
        return tuple(self._addresses.get(node_id, ()))

    def wakeup(self) -> None:
        self._wakeup_is_pending = True

    def close(self) -> None:
        for node_id in list(self._addresses):
            self.close_connection(node_id)
        self.is_closed = True

    def close_connection(self, node_id: int) -> None:
        self._forget(node_id)

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        if node_id not in self._addresses:
            raise IllegalStateError(
                "Attempt to retrieve channel for which there is no connection."
                f" Connection id {node_id} existing connections {sorted(self._addresses)}"
            )
        if node_id in self._under_way:
            self._end(node_id, ChannelStateName.FAILED_SEND, None)
            raise IllegalStateError(
                "Attempt to begin a send operation with prior send operation still in progress,"
                f" connection id is {node_id}"
            )
        self._under_way[node_id] = Sent(node_id, b"".join(payload))

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        if timeout_ms < 0:
            raise IllegalArgumentError("timeout should be >= 0")
        self.polls.append(timeout_ms)
        self._clear()
        self._happen(self._clock.now_ms())
        deadline_ms = self._clock.now_ms() + timeout_ms
        while not self._deliver() and not self._wakeup_is_pending and self._clock.now_ms() < deadline_ms:
            self._wait(deadline_ms)
        self._wakeup_is_pending = False
        return self._clock.now_ms()

    def mute(self, node_id: int) -> None:
        self.muted.add(node_id)

    def unmute(self, node_id: int) -> None:
        self.muted.discard(node_id)

    def is_channel_ready(self, node_id: int) -> bool:
        return node_id in self._ready

    def awaits_credentials(self, node_id: int) -> bool:
        return False

    def credentials_of(self, node_id: int) -> CredentialsVersion | None:
        return self._made_with.get(node_id) if node_id in self._addresses else None

    # -- inside ----------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._completed_sends = []
        self._completed_receives = []
        self._disconnected = {}
        self._connected = []

    def _wait(self, deadline_ms: int) -> None:
        """Advances to what is scheduled next, or to the deadline."""
        until_ms = min(self._schedule[0][0], deadline_ms) if self._schedule else deadline_ms
        wait_ms = until_ms - self._clock.now_ms()
        assert wait_ms <= _LONGEST_POLL_MS, f"a poll of {wait_ms} ms with nothing scheduled would never end"
        self._clock.advance(wait_ms)
        self.waited_ms += wait_ms
        self._happen(until_ms)

    def _happen(self, now_ms: int) -> None:
        while self._schedule and self._schedule[0][0] <= now_ms:
            heapq.heappop(self._schedule)[2]()

    def _deliver(self) -> bool:
        """Moves what is ready into the collections; whether there was any."""
        self._connected, self._next_connected = self._next_connected, []
        self._disconnected, self._next_disconnected = self._next_disconnected, {}
        for node_id in [node_id for node_id in self._under_way if node_id not in self._held_sends]:
            sent = self._under_way.pop(node_id)
            self.sent.append(sent)
            self._completed_sends.append(CompletedSend(node_id, _SIZE_BYTES + len(sent.payload)))
            if self._answers[node_id]:
                self._inbox[node_id].append(self._answers[node_id].popleft())
        for node_id, frames in self._inbox.items():
            if frames and node_id in self._addresses and node_id not in self.muted:
                self._completed_receives.append(CompletedReceive(node_id, frames.popleft()))
        return bool(
            self._connected or self._disconnected or self._completed_sends or self._completed_receives
        )

    def _establish(self, node_id: int, remote_address: str | None = None) -> None:
        if node_id not in self._addresses:
            raise AssertionError(f"node {node_id} was not asked to connect")
        self._addresses[node_id] = [remote_address or self._addresses[node_id][0]]
        self._established.add(node_id)
        self._next_disconnected.pop(node_id, None)
        self._next_connected.append(node_id)
        if node_id not in self._never_ready:
            self._ready.add(node_id)

    def _end(
        self,
        node_id: int,
        name: ChannelStateName,
        error: DisconnectError | AuthenticationError | None,
        remote_address: str | None = None,
    ) -> None:
        if node_id not in self._addresses:
            raise AssertionError(f"there is no connection to node {node_id} that could end")
        detail = None if error is None else error.message
        remote_address = remote_address or self._addresses[node_id][0]
        self._next_disconnected[node_id] = ChannelState(name, error, remote_address, detail)
        self._addresses[node_id].remove(remote_address)
        if not self._addresses[node_id]:
            self._forget(node_id)

    def _forget(self, node_id: int) -> None:
        self._addresses.pop(node_id, None)
        self._established.discard(node_id)
        self._ready.discard(node_id)
        self._under_way.pop(node_id, None)
        self._inbox.pop(node_id, None)
        if node_id in self._next_connected:
            self._next_connected.remove(node_id)
