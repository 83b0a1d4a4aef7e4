"""Owns all sockets of one client. No other module waits for the operating system.

`poll` serves each ready channel once: finish its connect, continue handshake and authentication, read at most
one frame (SEL-05), write. Four collections hold the results until the next poll. Large responses that arrive
together are spread over polls, because each is decoded as it is read. After TURN_BYTES a poll only writes to
the other channels, and the next poll begins with another channel.

A new send is written in the next poll without waiting for EVENT_WRITE. The socket nearly always accepts it,
which saves two interest changes per request. Only a partial write waits for EVENT_WRITE. Reads come before
writes, as in Java. NetworkClient calls this on the I/O thread; any thread may call `wakeup`. Source:
Selector, Kafka 4.3.

Idle connections expire, the least recently used first, from a dict in order of use (SEL-14). That part is
pure: now_ms is passed in. Source: Selector.IdleExpiryManager, Kafka 4.3.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Final, TypeVar

from client_core import forks
from client_core.errors import (
    AuthenticationError,
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    explains,
)
from client_core.network.kafka_channel import TURN_BYTES
from client_core.network.network_receive import MemoryPool
from client_core.network.network_send import NetworkSend
from client_core.network.selectable import ChannelState, ChannelStateName, CompletedReceive, CompletedSend
from client_core.network.transport_layer import format_address, open_socket
from client_core.network.wakeup import Wakeup

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.network.channel_builder import ChannelBuilder
    from client_core.network.kafka_channel import KafkaChannel
    from client_core.network.selectable import AnswerReader, CredentialsVersion


log = logging.getLogger(__name__)

#: A day. epoll's timeout is an int of milliseconds, so a longer one could overflow. It is harmless if a
#: select ends too early.
_LONGEST_SELECT_MS: Final = 86_400_000

#: How often a channel that awaits a token checks for it; a connecting client polls as often anyway.
_LOOK_FOR_CREDENTIALS_MS: Final = 50

_T = TypeVar("_T")

#: Opens a socket to (address, send buffer, receive buffer); also returns whether it is connected already.
OpenSocket = Callable[[tuple[str, int], int, int], tuple[socket.socket, bool]]


#: The default connections.max.idle.ms of Kafka's clients. The broker's default is ten minutes; this is one
#: minute less, so that the client closes first.
DEFAULT_CONNECTIONS_MAX_IDLE_MS: Final = 540_000

#: Java's clients have no limit. We have one, because a peer with another protocol announces gigabytes: "HTTP"
#: read as a size is 1.2 GB. This is the limit while no response is pending; each response has its own
#: (`AnswerReader.most_bytes`).
DEFAULT_MAX_RECEIVE_BYTES: Final = 1024 * 1024

#: Java's clients have no such pool. Responses are small except metadata, which is read in pieces. 16 MiB
#: never limit an honest cluster, and keep a hundred hostile brokers from using a gigabyte.
DEFAULT_RECEIVE_MEMORY_BYTES: Final = 16 * 1024 * 1024


class IdleExpiry:
    """Connections by last activity. Not thread-safe."""

    def __init__(self, max_idle_ms: int, now_ms: int) -> None:
        self.max_idle_ms = max_idle_ms
        self._last_active_ms: dict[int, int] = {}
        #: No connection expires before this: until then `expired` need not be called.
        self.next_check_ms = now_ms + max_idle_ms

    def touch(self, node_id: int, now_ms: int) -> None:
        """Records that a connection was active."""
        last_active_ms = self._last_active_ms
        if last_active_ms.get(node_id) != now_ms:
            last_active_ms.pop(node_id, None)  # to reinsert it last
            last_active_ms[node_id] = now_ms

    def forget(self, node_id: int) -> None:
        self._last_active_ms.pop(node_id, None)

    def expired(self, now_ms: int) -> int | None:
        """Returns the longest idle connection if it exceeds the limit; at most one per call."""
        if not self._last_active_ms:
            self.next_check_ms = now_ms + self.max_idle_ms
            return None
        node_id, last_active_ms = next(iter(self._last_active_ms.items()))
        self.next_check_ms = last_active_ms + self.max_idle_ms
        return node_id if now_ms > self.next_check_ms else None


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Settings of Selector. None disables a limit."""

    connections_max_idle_ms: int | None = DEFAULT_CONNECTIONS_MAX_IDLE_MS
    max_receive_bytes: int | None = DEFAULT_MAX_RECEIVE_BYTES
    receive_memory_bytes: int = DEFAULT_RECEIVE_MEMORY_BYTES


class Selector:
    """Connections by node id; `Selectable` over real sockets. One owner thread, except for `wakeup`."""

    def __init__(
        self,
        config: NetworkConfig,
        channel_builder: ChannelBuilder,
        clock: Clock,
        open_socket: OpenSocket = open_socket,
    ) -> None:
        self._max_receive_bytes = config.max_receive_bytes
        self._memory_pool = MemoryPool(config.receive_memory_bytes)
        self._channel_builder = channel_builder
        self._clock = clock
        self._open_socket = open_socket
        self._idle_expiry = (
            None
            if config.connections_max_idle_ms is None
            else IdleExpiry(config.connections_max_idle_ms, clock.now_ms())
        )
        self._channels: dict[int, KafkaChannel] = {}
        # Further connects of nodes that are still connecting, each to another address.
        self._rivals: dict[int, list[KafkaChannel]] = {}
        # Channels that get a turn without an event: they have a buffered frame or a new send, or were
        # connected at once.
        self._due: dict[int, KafkaChannel] = {}
        # Channels that wait for a credential, for which there is no event: each poll gives them a turn.
        self._awaiting_credentials: dict[int, KafkaChannel] = {}
        # Disconnects outside of a poll, or in an interrupted one: the next poll reports them.
        self._unreported: dict[int, ChannelState] = {}
        # Channels whose receives are completed. Each keeps the memory of its receive until the next poll.
        self._delivered: list[KafkaChannel] = []
        # Results of the last poll, valid until the next.
        self.completed_sends: list[CompletedSend] = []
        self.completed_receives: list[CompletedReceive] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.connected: list[int] = []
        self.waited_ms = 0
        self._wakeup = Wakeup.open()
        #: Makes the current or the next poll return. Any thread; never blocks (SEL-15).
        self.wakeup: Final = self._wakeup.wakeup
        self._selector = selectors.DefaultSelector()
        forks.close_in_child(self._selector)
        self._selector.register(self._wakeup, EVENT_READ)
        self._is_woken = False
        self._is_closed = False
        # The bytes to decode in this poll, and whether there were so many that some channels were not read.
        # If so, the next poll begins with another channel.
        self._turn_bytes = 0
        self._left_unread = False
        self._begins_at = 0

    # -- connections -----------------------------------------------------------------------------------------

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
        """Begins to connect to a resolved address (SEL-01); a later poll reports the result.

        `also`: even while the node is connecting to other addresses (CONN-14). Raises IllegalStateError when
        the id is in use, OSError when it can't even begin.
        """
        present = self._channels.get(node_id)
        if present is not None and (present.is_connected or not also):
            raise IllegalStateError(f"There is already a connection for id {node_id}")
        connection, is_connected = self._open_socket(address, send_buffer_bytes, receive_buffer_bytes)
        try:
            channel = self._channel_builder.build_channel(
                node_id, host, connection, format_address(address), self._max_receive_bytes, self._memory_pool
            )
            self._watch(channel)
        except BaseException as error:
            connection.close()
            if isinstance(error, KafkaError):
                raise OSError(
                    f"no channel for node {node_id} at {format_address(address)}: {error}"
                ) from error
            raise
        if present is None:
            self._channels[node_id] = channel
        else:
            self._rivals.setdefault(node_id, []).append(channel)
        if is_connected:
            self._due[node_id] = channel
        if self._idle_expiry is not None:
            self._idle_expiry.touch(node_id, self._clock.now_ms())

    def addresses_of(self, node_id: int) -> Sequence[str]:
        """Returns `host:port` of the node's connection, or of each one that is not yet established."""
        return [channel.remote_address for channel in self._attempts(node_id)]

    def _attempts(self, node_id: int) -> Sequence[KafkaChannel]:
        """Returns the node's channel, or each one that is not yet established."""
        channel = self._channels.get(node_id)
        return () if channel is None else (channel, *self._rivals.get(node_id, ()))

    def close_connection(self, node_id: int) -> None:
        """Closes one connection and drops its pending data; `disconnected` does not report it (SEL-12)."""
        for channel in self._attempts(node_id):
            channel.end(ChannelStateName.LOCAL_CLOSE, "closed by this client")
            self._close_channel(channel)

    def close(self) -> None:
        """Closes every connection and frees all descriptors, even if one close raises. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as closing:
            closing.callback(self._channel_builder.close)
            closing.callback(self._wakeup.close)
            closing.callback(self._selector.close)
            for node_id in self._channels:
                closing.callback(self.close_connection, node_id)

    def is_channel_ready(self, node_id: int) -> bool:
        channel = self._channels.get(node_id)
        return channel is not None and channel.ready

    def awaits_credentials(self, node_id: int) -> bool:
        return node_id in self._awaiting_credentials

    def credentials_of(self, node_id: int) -> CredentialsVersion | None:
        """Returns the version of the credentials with which the connection was last authenticated.

        None if there is no connection.
        """
        channel = self._channels.get(node_id)
        return None if channel is None else channel.credentials

    def mute(self, node_id: int) -> None:
        """Stops reading from a connection. Raises IllegalStateError if there is none."""
        channel = self._channel_or_fail(node_id)
        channel.mute()
        self._watch(channel)

    def unmute(self, node_id: int) -> None:
        """Reads from a connection again. Raises IllegalStateError if there is none."""
        channel = self._channel_or_fail(node_id)
        channel.unmute()
        self._watch(channel)
        if channel.has_bytes_buffered or channel.awaits_memory:
            self._due[node_id] = channel

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        """Queues one frame for the next poll (SEL-02); `answer` reads the response.

        Raises IllegalStateError while another send is in progress. Then the connection is closed, because its
        requests would get mixed up, and the next poll reports it as FAILED_SEND (SEL-03).
        """
        channel = self._channel_or_fail(node_id)
        try:
            channel.set_send(NetworkSend(node_id, payload), answer)
        except IllegalStateError:
            log.error("Unexpected exception during send, closing connection to node %s", node_id)
            channel.end(ChannelStateName.FAILED_SEND, "a send was begun while another one was under way")
            self._close_channel(channel)
            self._unreported[node_id] = channel.state
            raise
        self._due[node_id] = channel

    # -- the turn --------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        """Does the possible I/O, waiting at most timeout_ms for it; returns now_ms afterwards.

        The collections hold the results until the next poll (SEL-04). If `writes_end_it` is False, a
        poll that did nothing but write goes on waiting, because its caller has nothing to do before the next
        event.

        Raises IllegalArgumentError for a negative timeout.
        """
        if timeout_ms < 0:
            raise IllegalArgumentError("timeout should be >= 0")
        self._clear()
        if self._memory_pool.waiting:
            starved = self._memory_pool.next_in_line()
            if starved is not None:
                self._due[starved] = self._channels[starved]
        if self._awaiting_credentials:
            timeout_ms = min(timeout_ms, _LOOK_FOR_CREDENTIALS_MS)
        if timeout_ms and self._due and not writes_end_it:
            self._write_new_sends()
        # Don't wait when there is something to do or report; Java would delay the report.
        now_ms = self._take_turns(0 if self._due or self.disconnected else timeout_ms)
        if timeout_ms and not writes_end_it and not self._has_completed:
            now_ms = self._take_turns(timeout_ms)
        idle_expiry = self._idle_expiry
        if idle_expiry is not None and now_ms > idle_expiry.next_check_ms:
            self._close_idle_connection(idle_expiry, now_ms)
        return self._clock.now_ms()

    def _write_new_sends(self) -> None:
        """Gives a turn, without a select before it, to each channel that can do nothing but write."""
        now_ms = self._clock.now_ms()
        for node_id, channel in tuple(self._due.items()):
            if channel.has_new_send and not (channel.has_bytes_buffered or channel.awaits_memory):
                del self._due[node_id]
                self._take_turn(channel, 0, now_ms)

    @property
    def _has_completed(self) -> bool:
        """Whether this poll has something to report or do at once, or was woken."""
        return bool(
            self._is_woken
            or self.completed_receives
            or self.connected
            or self.disconnected
            or self._due
            or self._awaiting_credentials
        )

    def _take_turns(self, timeout_ms: int) -> int:
        """Gives each ready channel one turn; returns now_ms after the wait for them."""
        due, self._due = self._due, {}
        was_left, self._left_unread, self._turn_bytes = self._left_unread, False, 0
        asleep_ms = self._clock.now_ms() if timeout_ms else None
        try:
            ready = self._selector.select(min(timeout_ms, _LONGEST_SELECT_MS) / 1000)
            now_ms = self._clock.now_ms()
            if asleep_ms is not None:
                self.waited_ms += now_ms - asleep_ms
            # The caller must see the end of each wait, even a timeout.
            self._is_woken = timeout_ms > 0
            if self._awaiting_credentials:
                due.update(self._awaiting_credentials)
            if was_left:
                self._begins_at += 1
                ready = self._from_another(ready)
                due = dict(self._from_another([*due.items()]))
            for key, mask in ready:
                channel: KafkaChannel | None = key.data
                if channel is None:
                    self._wakeup.clear()
                    self._is_woken = True
                    continue
                due.pop(channel.node_id, None)
                self._take_turn(channel, mask, now_ms)
            while due:
                self._take_turn(due.popitem()[1], 0, now_ms)
        finally:
            self._due.update(due)  # an exception or a signal interrupted this poll: keep the remaining sends
        return now_ms

    def _from_another(self, turns: list[_T]) -> list[_T]:
        """Returns the same list, rotated so that each channel is first in some poll."""
        at = self._begins_at % len(turns) if turns else 0
        return turns[at:] + turns[:at]

    def _clear(self) -> None:
        self.completed_sends.clear()
        self.completed_receives.clear()
        self.connected.clear()
        self.disconnected.clear()
        if self._delivered:
            for channel in self._delivered:
                channel.release_memory()
            self._delivered.clear()
        if self._unreported:
            self.disconnected.update(self._unreported)
            self._unreported.clear()

    def _take_turn(self, channel: KafkaChannel, mask: int, now_ms: int) -> None:
        """Does a channel's possible I/O; closes it when its connection is lost."""
        if not channel.is_connected and channel not in self._attempts(channel.node_id):
            return  # in this poll another address was faster, and it was closed
        if self._idle_expiry is not None:
            self._idle_expiry.touch(channel.node_id, now_ms)
        try:
            self._do_io(channel, mask, now_ms)
        except KafkaError as error:
            _log_failure(channel, error)
            channel.fail(error)
            self._close_channel(channel)
            self.disconnected[channel.node_id] = channel.state
        except BaseException:
            # Not the peer's fault, so re-raised; closed because every later poll would fail, too.
            self._close_channel(channel)
            self._unreported[channel.node_id] = channel.state
            raise

    def _do_io(self, channel: KafkaChannel, mask: int, now_ms: int) -> None:
        if not channel.is_connected:
            if not channel.finish_connect():
                return
            if self._rivals:
                self._close_rivals_of(channel)
            self.disconnected.pop(channel.node_id, None)  # another address failed in this poll
            self.connected.append(channel.node_id)
            log.debug("Connected to node %s at %s", channel.node_id, channel.remote_address)
        if not channel.ready:
            channel.prepare(now_ms)
            self._deliver(channel, channel.take_earlier_response())
        if channel.ready:
            wants_to_read = mask & EVENT_READ or channel.has_bytes_buffered or channel.awaits_memory
            if wants_to_read and not channel.is_muted:
                if self._turn_bytes < TURN_BYTES:
                    self._read(channel)
                else:
                    self._left_unread = True
            wants_to_write = mask & EVENT_WRITE or channel.has_new_send
            if wants_to_write and not channel.maybe_begin_reauthentication(now_ms):
                self._write(channel)
        is_watched = channel.registered_interest == EVENT_READ
        if is_watched and channel.is_at_rest and not self._awaiting_credentials:
            return
        self._watch(channel)
        if channel.awaits_credentials:
            self._awaiting_credentials[channel.node_id] = channel
        else:
            self._awaiting_credentials.pop(channel.node_id, None)
        if channel.has_bytes_buffered and channel.wants_to_read:
            self._due[channel.node_id] = channel

    def _read(self, channel: KafkaChannel) -> None:
        came_bytes = channel.read()
        payload = channel.maybe_complete_receive()
        # A whole frame counts completely in the poll that decodes it, even if its first bytes came earlier. A
        # frame that is read in pieces counts as the pieces come.
        self._turn_bytes += came_bytes if payload is None else max(came_bytes, len(payload))
        self._deliver(channel, payload)

    def _deliver(self, channel: KafkaChannel, payload: bytes | None) -> None:
        if payload is not None:
            if channel.has_memory:
                self._delivered.append(channel)
            self.completed_receives.append(CompletedReceive(channel.node_id, payload))

    def _write(self, channel: KafkaChannel) -> None:
        channel.write()
        send = channel.maybe_complete_send()
        if send is not None:
            self.completed_sends.append(CompletedSend(channel.node_id, send.size_bytes))

    def _close_idle_connection(self, idle_expiry: IdleExpiry, now_ms: int) -> None:
        """Closes at most one connection, the longest idle (SEL-14)."""
        node_id = idle_expiry.expired(now_ms)
        if node_id is None:
            return
        channel = self._channels[node_id]
        log.debug("Closing the connection to node %s at %s: idle", node_id, channel.remote_address)
        channel.end(ChannelStateName.EXPIRED, f"idle for more than {idle_expiry.max_idle_ms} ms")
        self._close_channel(channel)
        self.disconnected[node_id] = channel.state

    # -- book-keeping ----------------------------------------------------------------------------------------

    def _watch(self, channel: KafkaChannel) -> None:
        """Registers the channel's interest with the system, but only if it changed (SEL-06).

        The registration is a system call.
        """
        interest = channel.interest
        if interest == channel.registered_interest:
            return
        if not interest:
            self._selector.unregister(channel)
        elif channel.registered_interest:
            self._selector.modify(channel, interest, channel)
        else:
            self._selector.register(channel, interest, channel)
        channel.registered_interest = interest

    def _close_rivals_of(self, channel: KafkaChannel) -> None:
        """Makes an established channel its node's only one."""
        node_id = channel.node_id
        for rival in self._attempts(node_id):
            if rival is not channel:
                self._free(rival)
        self._channels[node_id] = channel
        self._rivals.pop(node_id, None)

    def _has_left_rivals(self, channel: KafkaChannel) -> bool:
        """Removes a channel that is not established; returns False if it was its node's only one."""
        others = [other for other in self._attempts(channel.node_id) if other is not channel]
        if not others:
            return False
        self._channels[channel.node_id], *self._rivals[channel.node_id] = others
        if len(others) == 1:
            del self._rivals[channel.node_id]
        return True

    def _close_channel(self, channel: KafkaChannel) -> None:
        self._free(channel)
        if self._rivals and self._has_left_rivals(channel):
            return
        node_id = channel.node_id
        del self._channels[node_id]
        self._due.pop(node_id, None)
        self._awaiting_credentials.pop(node_id, None)
        if self._idle_expiry is not None:
            self._idle_expiry.forget(node_id)
        if node_id in self.connected:  # connected, then failed in one poll: report the failure (SEL-16)
            self.connected.remove(node_id)

    def _free(self, channel: KafkaChannel) -> None:
        """Frees the channel's socket and registration."""
        if channel.registered_interest:
            self._selector.unregister(channel)
            channel.registered_interest = 0
        channel.close()

    def _channel_or_fail(self, node_id: int) -> KafkaChannel:
        channel = self._channels.get(node_id)
        if channel is None:
            raise IllegalStateError(
                "Attempt to retrieve channel for which there is no connection."
                f" Connection id {node_id} existing connections {sorted(self._channels)}"
            )
        return channel

    def __repr__(self) -> str:
        return f"<Selector {list(self._channels.values())!r}>"


def _log_failure(channel: KafkaChannel, error: KafkaError) -> None:
    """Logs each attempt at DEBUG: the connection's owner logs a lasting failure once."""
    where = f"node {channel.node_id} at {channel.remote_address}"
    if isinstance(error, DisconnectError):
        log.debug("Connection to %s disconnected: %s", where, explains(error))
    elif isinstance(error, AuthenticationError):
        log.debug("Failed authentication with %s (%s)", where, error.message)
    else:
        log.debug("Unexpected error from %s; closing connection: %s", where, explains(error))
