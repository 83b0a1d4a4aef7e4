"""One connection to a node: its state, the frame being sent, the frames received.

A channel decides what to read, write and wait for; its owner, Selector, waits for the system. At most one
send is in progress (SEL-03). Bytes after the current frame wait in NetworkReceive. A failed channel is closed
at once, and loses no complete frame (SEL-11): a channel that holds one does not read the socket, so it reads
the end of the stream only after all of them were delivered. Java's half-closed `closingChannels` are not
needed.

    NOT_CONNECTED ──> AUTHENTICATE <─> READY          handshake, then authentication; plaintext passes at once
          │               │  └─> AUTHENTICATION_FAILED <─┘ (TLS 1.3 may refuse us after the handshake)
          └───────────────┴──> EXPIRED, FAILED_SEND, LOCAL_CLOSE

It returns to AUTHENTICATE when a session is about to expire (KIP-368), and the next send waits for the
renewal. Responses to earlier requests are still delivered meanwhile (`take_earlier_response`).

Called by Selector on the I/O thread. Source: KafkaChannel, ChannelState, Kafka 4.3 (SEL-18).
"""

from __future__ import annotations

from collections import deque
from selectors import EVENT_READ, EVENT_WRITE
from sys import maxsize
from typing import TYPE_CHECKING, Final

from client_core.errors import AuthenticationError, IllegalStateError, KafkaError
from client_core.network.network_receive import NetworkReceive
from client_core.network.network_send import NetworkSend
from client_core.network.selectable import ChannelState, ChannelStateName, CredentialsVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.network.authenticator import Authenticator
    from client_core.network.network_receive import MemoryPool
    from client_core.network.selectable import AnswerReader
    from client_core.network.transport_layer import TransportLayer

#: Bytes of one read: enough for size, body and often the next frames of a usual response. Covers the socket
#: buffer with Kafka's receive.buffer.bytes of 32 KiB, which Linux doubles.
_READ_BYTES: Final = 64 * 1024

#: Most bytes of a large frame read per poll, so that other connections get their share. With hostile Metadata
#: responses of 38 MB the longest poll of the I/O thread took up to 21 ms of CPU.
TURN_BYTES: Final = 128 * 1024

#: A frame above this size is fed to its reader in pieces, if the reader accepts pieces.
_LARGEST_WHOLE_BYTES: Final = 256 * 1024

#: The largest frame before a connection is ready, when the peer is unknown. No step of an authentication
#: needs more; brokers have the same limit for clients (sasl.server.max.receive.size).
_LARGEST_BEFORE_READY_BYTES: Final = 512 * 1024

_ENDS: Final = frozenset(
    {ChannelStateName.EXPIRED, ChannelStateName.FAILED_SEND, ChannelStateName.LOCAL_CLOSE}
)

_MOVES: Final[Mapping[ChannelStateName, frozenset[ChannelStateName]]] = {
    ChannelStateName.NOT_CONNECTED: _ENDS | {ChannelStateName.AUTHENTICATE},
    ChannelStateName.AUTHENTICATE: _ENDS | {ChannelStateName.READY, ChannelStateName.AUTHENTICATION_FAILED},
    ChannelStateName.READY: _ENDS | {ChannelStateName.AUTHENTICATE, ChannelStateName.AUTHENTICATION_FAILED},
}


class KafkaChannel:
    """A connection with its state. One owner: the Selector, on the I/O thread."""

    __slots__ = (
        "__weakref__",
        "_answers",
        "_authenticator",
        "_awaits_answer",
        "_detail",
        "_earlier_response",
        "_error",
        "_max_receive_bytes",
        "_max_unasked_bytes",
        "_memory_pool",
        "_mid_write",
        "_receive",
        "_send",
        "_state",
        "_token",
        "_transport",
        "awaits_memory",
        "credentials",
        "has_memory",
        "has_new_send",
        "is_connected",
        "is_muted",
        "node_id",
        "ready",
        "registered_interest",
    )

    def __init__(
        self,
        node_id: int,
        transport: TransportLayer,
        authenticator: Authenticator,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
        credentials: CredentialsVersion = CredentialsVersion(),  # noqa: B008 -- immutable
    ) -> None:
        self.node_id = node_id
        #: Those of its creation, which also renew its session.
        self.credentials = credentials
        self.registered_interest = 0  # the events registered with the system; set by Selector
        self._transport = transport
        self._authenticator = authenticator
        self._max_receive_bytes = max_receive_bytes
        self._receive = NetworkReceive(min(max_receive_bytes or maxsize, _LARGEST_BEFORE_READY_BYTES))
        #: Size limit of a frame that no request is waiting for.
        self._max_unasked_bytes: int | None = min(max_receive_bytes or maxsize, _LARGEST_BEFORE_READY_BYTES)
        #: Readers of the pending responses, next one first: a broker responds in order.
        self._answers: deque[AnswerReader] = deque()
        self._memory_pool = memory_pool
        #: Whether memory is reserved for a frame, complete or not.
        self.has_memory = False
        #: Whether reading waits until the pool has memory.
        self.awaits_memory = False
        self._send: NetworkSend | None = None
        #: Whether there is a send without a write attempt: it need not wait for EVENT_WRITE.
        self.has_new_send = False
        self._mid_write = False  # the system took only part of the send so far
        self._token: NetworkSend | None = None  # the authenticator's frame being sent
        self._awaits_answer = False  # the authenticator's frame was sent, the broker's is next
        #: A response to an earlier request that arrived during re-authentication.
        self._earlier_response: bytes | None = None
        self.is_muted = False
        self._state = ChannelStateName.NOT_CONNECTED
        #: Whether the connection was established; handshake and authentication may still be pending.
        self.is_connected = False
        #: Whether requests may be sent: connected, handshake and authentication done.
        self.ready = False
        self._error: KafkaError | None = None
        self._detail: str | None = None

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ChannelState:
        """The state as a value, with the reason if the channel ended."""
        return ChannelState(self._state, self._error, self._transport.remote_address, self._detail)

    @property
    def remote_address(self) -> str:
        return self._transport.remote_address

    @property
    def has_send(self) -> bool:
        return self._send is not None

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a read makes progress without the network, so a select must not wait for it (SEL-05)."""
        receive = self._receive
        return (receive.frame_bytes is not None and receive.has_frame) or self._transport.has_bytes_buffered

    @property
    def awaits_credentials(self) -> bool:
        """Whether a token must be fetched elsewhere first; then `prepare` must be tried again."""
        return self._authenticator.awaits_credentials

    @property
    def wants_to_read(self) -> bool:
        """Whether to read now. If not, the bytes stay with the system."""
        return not (self.is_muted or self.awaits_memory or self._authenticator.awaits_credentials)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is ready, has no work left and only waits for bytes, as after nearly every turn."""
        transport = self._transport
        return (
            self.ready
            and not self._mid_write
            and self._token is None
            and self._receive.frame_bytes is None
            and not (self.is_muted or self.awaits_memory)
            and not (transport.has_bytes_buffered or transport.has_pending_writes)
        )

    @property
    def interest(self) -> int:
        """The events to wait for: EVENT_READ and EVENT_WRITE of `selectors`, 0 for neither (SEL-06)."""
        if self._state is ChannelStateName.NOT_CONNECTED:
            return EVENT_WRITE  # the system signals the end of a connect by it, success or failure
        interest = EVENT_READ if self.wants_to_read else 0
        if self._mid_write or self._token is not None or self._transport.has_pending_writes:
            interest |= EVENT_WRITE
        return interest

    def fileno(self) -> int:
        return self._transport.fileno()

    # -- from connecting to ready ----------------------------------------------------------------------------

    def finish_connect(self) -> bool:
        """Returns whether the connection is established now. Raises DisconnectError when it failed."""
        if not self._transport.finish_connect():
            return False
        self._move(ChannelStateName.AUTHENTICATE)
        return True

    def prepare(self, now_ms: int) -> None:
        """Continues handshake and authentication as far as the bytes allow; ready when both are done.

        Raises AuthenticationError, DisconnectError and ProtocolError (SSL-01, SSL-03, SASL-01).
        """
        if not self._transport.ready:
            self._transport.handshake()
            if not self._transport.ready:
                return
        if self._transport.has_pending_writes:  # TLS may respond to what it read, and nothing else sends now
            self._transport.write(())
        if not self._authenticator.complete:
            self._authenticate(now_ms)
        if self._authenticator.complete and self._token is None:
            self._move(ChannelStateName.READY)
            self._max_unasked_bytes = self._max_receive_bytes
            self._limit_receive()

    def maybe_begin_reauthentication(self, now_ms: int) -> bool:
        """Begins to renew the session if due; returns whether the new send must wait for it (SASL-06).

        Never in the middle of a send: its rest would follow the authenticator's frame. Never on a muted
        channel: it would not read the response.
        """
        at_ms = self._authenticator.reauthenticates_at_ms
        if at_ms is None or now_ms < at_ms or not self.has_new_send or self.is_muted:
            return False
        self._authenticator.reauthenticate()
        self._awaits_answer = False
        self._move(ChannelStateName.AUTHENTICATE)
        self.prepare(now_ms)
        return True

    def take_earlier_response(self) -> bytes | None:
        """Returns the response to an earlier request that the last `prepare` received, if any.

        The channel holds the frame's memory until `release_memory`. Source:
        pollResponseReceivedDuringReauthentication.
        """
        frame, self._earlier_response = self._earlier_response, None
        return frame

    def _limit_receive(self) -> None:
        """Limits the next frame to the size allowed for the awaited response."""
        self._receive.limit(self._answers[0].most_bytes if self._answers else self._max_unasked_bytes)

    def _authenticate(self, now_ms: int) -> None:
        """Does one step: reads the broker's frame if it is next, then sends ours."""
        if self._token is None:
            answer = None
            # While a token is fetched elsewhere, responses to earlier requests may arrive, and the peer may
            # leave.
            awaits_credentials = self._authenticator.awaits_credentials
            if self._awaits_answer or awaits_credentials:
                self.read()
                is_earlier = awaits_credentials or self._comes_in_pieces
                answer = self._take_frame()
                if answer is None and not awaits_credentials:
                    return
                if answer is not None:
                    if is_earlier or not self._authenticator.expects(answer):
                        self._earlier_response = answer
                        self._answer_came()
                        return
                    self.release_memory()
            pieces = self._authenticator.authenticate(answer, now_ms)
            if pieces is None:
                return
            self._token = NetworkSend(self.node_id, pieces)
            self._awaits_answer = True
        self._token.write_to(self._transport)
        if self._token.completed:
            self._token = None

    # -- sending ---------------------------------------------------------------------------------------------

    def set_send(self, send: NetworkSend, answer: AnswerReader | None = None) -> None:
        """Sets the next frame to send, and `answer` as the reader of its response.

        Raises IllegalStateError while another send is in progress (SEL-03).
        """
        if self._send is not None:
            raise IllegalStateError(
                "Attempt to begin a send operation with prior send operation still in progress,"
                f" connection id is {self.node_id}"
            )
        self._send = send
        self.has_new_send = True
        if answer is not None:
            self._answers.append(answer)
            if self._receive.frame_bytes is None:
                self._limit_receive()

    def write(self) -> int:
        """Writes what the system takes of the send, and of the transport's own bytes.

        Returns the number of bytes of the send that were written.
        """
        if self._send is None:
            if self._transport.has_pending_writes:
                self._transport.write(())
            return 0
        self._mid_write = True
        self.has_new_send = False
        return self._send.write_to(self._transport)

    def maybe_complete_send(self) -> NetworkSend | None:
        """Returns the send and makes room for the next, if the system has its last byte."""
        send = self._send
        if send is None or not send.completed:
            return None
        self._send = None
        self._mid_write = False
        return send

    # -- receiving -------------------------------------------------------------------------------------------

    def read(self) -> int:
        """Reads once, and continues while a large frame has bytes; returns the number of bytes read.

        Reads nothing while a complete frame waits to be taken, or memory for the rest of a frame is missing.
        Raises DisconnectError at the end of the stream, or the transport's AuthenticationError (SSL-04).
        """
        receive = self._receive
        came = 0
        missing = receive.missing_bytes
        while missing and came < TURN_BYTES and (receive.frame_bytes is None or self._reserve_memory()):
            data = self._transport.read(min(max(missing, _READ_BYTES), TURN_BYTES))
            if data is None:
                break
            receive.feed(data)
            came += len(data)
            missing = receive.missing_bytes
            if missing <= _READ_BYTES:  # the next select brings the rest
                break
        return came

    def _reserve_memory(self) -> bool:
        """Returns whether to read on: the current frame's size is reserved."""
        size_bytes = self._receive.frame_bytes
        if size_bytes is not None and not self.has_memory:
            if self._comes_in_pieces:
                size_bytes = _LARGEST_WHOLE_BYTES
            self.has_memory = self._memory_pool.try_reserve(self.node_id, size_bytes)
            self.awaits_memory = not self.has_memory
            return self.has_memory
        return True

    def maybe_complete_receive(self) -> bytes | None:
        """Returns the current frame without its size, if it is whole. Raises InvalidReceiveError (SEL-08).

        The channel holds the frame's memory until `release_memory`. A large frame is fed to its reader in
        pieces, which may raise ProtocolError; at its end the payload is empty.
        """
        payload = self._take_frame()
        if payload is not None:
            self._answer_came()
        return payload

    @property
    def _comes_in_pieces(self) -> bool:
        """Whether the current frame is fed in pieces to the reader of the awaited response."""
        size_bytes = self._receive.frame_bytes
        if size_bytes is None or size_bytes <= _LARGEST_WHOLE_BYTES or not self._answers:
            return False
        answer = self._answers[0]
        return answer.takes_pieces and size_bytes <= answer.most_bytes

    def _take_frame(self) -> bytes | None:
        receive = self._receive
        size_bytes = receive.frame_bytes
        if size_bytes is None or size_bytes <= _LARGEST_WHOLE_BYTES or not self._comes_in_pieces:
            return receive.take()
        piece, is_last = receive.take_piece()
        self._answers[0].feed(piece, size_bytes)
        return b"" if is_last else None

    def _answer_came(self) -> None:
        if self._answers:
            self._answers.popleft()
        self._limit_receive()

    def release_memory(self) -> None:
        """Releases the memory of the frame that was taken."""
        if self.has_memory:
            self.has_memory = False
            self._memory_pool.release(self.node_id)

    def mute(self) -> None:
        self.is_muted = True
        self._memory_pool.leave_line(self.node_id)

    def unmute(self) -> None:
        self.is_muted = False

    # -- the end ---------------------------------------------------------------------------------------------

    def fail(self, error: KafkaError) -> None:
        """Records why the channel ends. Its state changes only for an AuthenticationError."""
        _forget_frames(error)
        self._error = error
        self._detail = error.message
        if isinstance(error, AuthenticationError):
            self._move(ChannelStateName.AUTHENTICATION_FAILED)

    def end(self, state: ChannelStateName, detail: str) -> None:
        """Ends the channel for a reason of our own: EXPIRED, FAILED_SEND or LOCAL_CLOSE."""
        self._move(state)
        self._detail = detail

    def close(self) -> None:
        """Frees the socket; unsent and unread bytes are dropped. The state stays readable."""
        self._memory_pool.leave_line(self.node_id)
        self.release_memory()
        self._transport.close()

    def _move(self, to: ChannelStateName) -> None:
        if to not in _MOVES.get(self._state, ()):
            raise IllegalStateError(
                f"channel of node {self.node_id} can't go from {self._state.name} to {to.name}"
            )
        self._state = to
        self.is_connected = to is not ChannelStateName.NOT_CONNECTED
        self.ready = to is ChannelStateName.READY

    def __repr__(self) -> str:
        return f"<KafkaChannel node={self.node_id} {self._state.name} {self._transport.remote_address}>"


def _forget_frames(error: BaseException) -> None:
    """Removes the tracebacks of a kept error and its causes: their frames hold the channel."""
    following: BaseException | None = error
    while following is not None:
        following.__traceback__ = None
        following = following.__cause__ or following.__context__
