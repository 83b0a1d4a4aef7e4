"""One connection to a node: its state, the frame being sent, the frames received.

A channel decides what to read, write and wait for; its owner, Selector, does the system calls. At most one
send is under way (SEL-03). Bytes beyond the current frame wait in NetworkReceive. A failed channel is closed
at once. It never reads the socket while it holds a complete frame, so every frame that the peer completed has
been delivered by then (SEL-11). Java's half-closed `closingChannels` are not needed.

    NOT_CONNECTED ──> AUTHENTICATE <─> READY          handshake, then authentication; plaintext passes at once
          │               │  └─> AUTHENTICATION_FAILED <─┘ (TLS 1.3 may refuse us after the handshake)
          └───────────────┴──> EXPIRED, FAILED_SEND, LOCAL_CLOSE

It returns to AUTHENTICATE when a session is about to expire (KIP-368), and the next send waits for the
renewal. Responses to earlier requests arrive meanwhile and are delivered as usual (`take_set_aside`).

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
    from collections.abc import Callable, Mapping

    from client_core.network.authenticator import Authenticator
    from client_core.network.network_receive import MemoryPool
    from client_core.network.selectable import AnswerReader
    from client_core.network.transport_layer import TransportLayer

#: What one read asks for: size, body and often the next frames of an ordinary answer in one system call. It
#: covers what the system holds for us with Kafka's receive.buffer.bytes of 32 KiB, which Linux doubles.
_READ_BYTES: Final = 64 * 1024

#: What one turn reads of a large frame, so that other connections and the rest of the turn get theirs. For
#: hostile Metadata responses of 38 MB the longest turn of the I/O thread took up to 21 ms of CPU.
TURN_BYTES: Final = 128 * 1024

#: Frames above this are fed to their reader as they come, if it takes pieces.
_LARGEST_WHOLE_BYTES: Final = 256 * 1024

#: The largest frame before a connection is ready, when nobody knows the peer yet. No step of a log-in
#: needs as much; it is what brokers themselves take of a client then (sasl.server.max.receive.size).
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
        "_credentials_in_force",
        "_detail",
        "_error",
        "_has_memory",
        "_max_receive_bytes",
        "_max_unasked_bytes",
        "_memory_pool",
        "_mid_write",
        "_receive",
        "_send",
        "_set_aside",
        "_state",
        "_token",
        "_transport",
        "awaits_memory",
        "credentials",
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
        credentials_in_force: Callable[[], CredentialsVersion] = CredentialsVersion,
    ) -> None:
        self.node_id = node_id
        self._credentials_in_force = credentials_in_force
        #: What it was made with, or has last been authenticated anew with.
        self.credentials = credentials
        self.registered_interest = 0  # what the selector has asked the system to watch: Selector's own note
        self._transport = transport
        self._authenticator = authenticator
        self._max_receive_bytes = max_receive_bytes
        self._receive = NetworkReceive(min(max_receive_bytes or maxsize, _LARGEST_BEFORE_READY_BYTES))
        #: How large a frame may be that no request is waiting for.
        self._max_unasked_bytes: int | None = min(max_receive_bytes or maxsize, _LARGEST_BEFORE_READY_BYTES)
        #: Who reads the answers that are awaited, the next one first: a broker answers in order.
        self._answers: deque[AnswerReader] = deque()
        self._memory_pool = memory_pool
        self._has_memory = False  # the current frame has reserved its size
        #: Whether reading waits until the pool has memory, whatever there is to read.
        self.awaits_memory = False
        self._send: NetworkSend | None = None
        self._mid_write = False  # the send was begun and the system did not take all of it
        self._token: NetworkSend | None = None  # the authenticator's frame under way
        self._awaits_answer = False  # the authenticator has spoken, the next word is the broker's
        self._set_aside: bytes | None = None  # an answer that came while the authenticator awaited its own
        self.is_muted = False
        self._state = ChannelStateName.NOT_CONNECTED
        #: Whether the connection was established; it says nothing of handshake and authentication.
        self.is_connected = False
        #: Whether requests may be sent: connected, handshake and authentication done.
        self.ready = False
        self._error: KafkaError | None = None
        self._detail: str | None = None

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def state(self) -> ChannelState:
        """The state as a value for those above, with the reason if it has ended."""
        return ChannelState(self._state, self._error, self._transport.remote_address, self._detail)

    @property
    def remote_address(self) -> str:
        return self._transport.remote_address

    @property
    def has_send(self) -> bool:
        return self._send is not None

    @property
    def has_new_send(self) -> bool:
        """Whether there is a send of which nothing was tried yet: it need not wait for the system's word."""
        return self._send is not None and not self._mid_write

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a read would make progress without the network: a select must not wait for it (SEL-05)."""
        return self._receive.has_frame or self._transport.has_bytes_buffered

    @property
    def awaits_credentials(self) -> bool:
        """Whether it can't go on before a token was fetched elsewhere: `prepare` must be tried again."""
        return self._authenticator.awaits_credentials

    @property
    def wants_to_read(self) -> bool:
        """Whether bytes are of use now. If not, they stay with the system."""
        return not (self.is_muted or self.awaits_memory or self._authenticator.awaits_credentials)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is ready, holds nothing back and only waits for bytes: as after nearly every turn."""
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
        """What to wait for: EVENT_READ and EVENT_WRITE of `selectors`, 0 for neither (SEL-06)."""
        if self._state is ChannelStateName.NOT_CONNECTED:
            return EVENT_WRITE  # which is how the system tells that a connect has ended, well or not
        interest = EVENT_READ if self.wants_to_read else 0
        if self._mid_write or self._token is not None or self._transport.has_pending_writes:
            interest |= EVENT_WRITE
        return interest

    def fileno(self) -> int:
        return self._transport.fileno()

    # -- from connecting to ready ----------------------------------------------------------------------------

    def finish_connect(self) -> bool:
        """Whether the connection is established now. Raises DisconnectError when it could not be made."""
        if not self._transport.finish_connect():
            return False
        self._move(ChannelStateName.AUTHENTICATE)
        return True

    def prepare(self, now_ms: int) -> None:
        """Goes on with handshake and authentication as far as the bytes allow; ready when both are done.

        Raises AuthenticationError, DisconnectError and ProtocolError (SSL-01, SSL-03, SASL-01).
        """
        if not self._transport.ready:
            self._transport.handshake()
            if not self._transport.ready:
                return
        if self._transport.has_pending_writes:  # TLS may answer to what it read, and nobody else sends now
            self._transport.write(())
        if not self._authenticator.complete:
            self._authenticate(now_ms)
        if self._authenticator.complete and self._token is None:
            self._move(ChannelStateName.READY)
            self._max_unasked_bytes = self._max_receive_bytes
            self._limit_receive()

    def maybe_begin_reauthentication(self, now_ms: int) -> bool:
        """Whether the send that is about to be written must wait: the session has to be renewed first
        (SASL-06).

        Not in the middle of a send, whose rest would follow the authenticator's frame, nor of a muted
        channel, which would not read the answer.
        """
        at_ms = self._authenticator.reauthenticates_at_ms
        if at_ms is None or now_ms < at_ms or not self.has_new_send or self.is_muted:
            return False
        # Those of TLS were shown in the handshake, which is not had again.
        self.credentials = self.credentials._replace(sasl=self._credentials_in_force().sasl)
        self._authenticator.reauthenticate()
        self._awaits_answer = False
        self._move(ChannelStateName.AUTHENTICATE)
        self.prepare(now_ms)
        return True

    def take_set_aside(self) -> bytes | None:
        """The frame that the last `prepare` met and that is no answer to the authenticator, if it met one.

        Its memory is the channel's until `release_memory`. Source:
        pollResponseReceivedDuringReauthentication.
        """
        frame, self._set_aside = self._set_aside, None
        return frame

    def _limit_receive(self) -> None:
        """Lets the next frame be as large as the answer that is awaited may be."""
        self._receive.limit(self._answers[0].most_bytes if self._answers else self._max_unasked_bytes)

    def _authenticate(self, now_ms: int) -> None:
        """One step: the broker's frame, if it is its turn, then ours."""
        if self._token is None:
            answer = None
            if self._awaits_answer:
                self.read()
                is_fed = self._comes_in_pieces
                answer = self._take_frame()
                if answer is None:
                    return
                if is_fed or not self._authenticator.expects(answer):
                    self._set_aside = answer
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
        """Makes a frame the one to be sent, and `answer` the reader of what answers it.

        Raises IllegalStateError while another is under way (SEL-03).
        """
        if self._send is not None:
            raise IllegalStateError(
                "Attempt to begin a send operation with prior send operation still in progress,"
                f" connection id is {self.node_id}"
            )
        self._send = send
        if answer is not None:
            self._answers.append(answer)
            if self._receive.frame_bytes is None:
                self._limit_receive()

    def write(self) -> int:
        """Writes what the system takes of the send, and of the transport's own bytes; returns the former."""
        if self._send is None:
            if self._transport.has_pending_writes:
                self._transport.write(())
            return 0
        self._mid_write = True
        return self._send.write_to(self._transport)

    def maybe_complete_send(self) -> NetworkSend | None:
        """The send if its last byte is with the system, which makes room for the next one."""
        send = self._send
        if send is None or not send.completed:
            return None
        self._send = None
        self._mid_write = False
        return send

    # -- receiving -------------------------------------------------------------------------------------------

    def read(self) -> int:
        """Reads once, and on while a large frame has bytes; nothing while a whole frame is still to be taken,
        or while there is no memory for the rest of the current one.

        Returns how many bytes came. Raises DisconnectError at the end of the stream, or the transport's
        AuthenticationError (SSL-04).
        """
        receive = self._receive
        came = 0
        missing = receive.missing_bytes
        while missing and came < TURN_BYTES and self._reserve_memory():
            data = self._transport.read(min(max(missing, _READ_BYTES), TURN_BYTES))
            if data is None:
                break
            receive.feed(data)
            came += len(data)
            missing = receive.missing_bytes
            if missing <= _READ_BYTES:  # the rest of it comes with the next select
                break
        return came

    def _reserve_memory(self) -> bool:
        """Whether the rest of the current frame may be read: its size is not known yet, or is reserved."""
        size_bytes = self._receive.frame_bytes
        if size_bytes is not None and not self._has_memory:
            if self._comes_in_pieces:
                size_bytes = _LARGEST_WHOLE_BYTES
            self._has_memory = self._memory_pool.try_reserve(self.node_id, size_bytes)
            self.awaits_memory = not self._has_memory
            return self._has_memory
        return True

    def maybe_complete_receive(self) -> bytes | None:
        """The current frame without its size, if it is whole. Raises InvalidReceiveError (SEL-08).

        Its memory is the channel's until `release_memory`. A large one goes to its reader as it comes, which
        may raise ProtocolError; at its end the payload is empty.
        """
        payload = self._take_frame()
        if payload is not None:
            self._answer_came()
        return payload

    @property
    def _comes_in_pieces(self) -> bool:
        """Whether the current frame is fed to the reader of the answer that is awaited."""
        size_bytes = self._receive.frame_bytes
        if size_bytes is None or size_bytes <= _LARGEST_WHOLE_BYTES or not self._answers:
            return False
        answer = self._answers[0]
        return answer.takes_pieces and size_bytes <= answer.most_bytes

    def _take_frame(self) -> bytes | None:
        receive = self._receive
        size_bytes = receive.frame_bytes
        if size_bytes is None or not self._comes_in_pieces:
            return receive.take()
        piece, is_last = receive.take_piece()
        self._answers[0].feed(piece, size_bytes)
        return b"" if is_last else None

    def _answer_came(self) -> None:
        if self._answers:
            self._answers.popleft()
        self._limit_receive()

    @property
    def has_memory(self) -> bool:
        """Whether something is reserved for a frame that is here, or under way."""
        return self._has_memory

    def release_memory(self) -> None:
        """Gives back what the frame that was taken had reserved."""
        if self._has_memory:
            self._has_memory = False
            self._memory_pool.release(self.node_id)

    def mute(self) -> None:
        self.is_muted = True
        self._memory_pool.leave_line(self.node_id)

    def unmute(self) -> None:
        self.is_muted = False

    # -- the end ---------------------------------------------------------------------------------------------

    def fail(self, error: KafkaError) -> None:
        """Remembers why the channel ends. Its state stays as it was, unless it is AUTHENTICATION_FAILED."""
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
        """Frees the socket; what was not sent or read is dropped. The state stays to be read."""
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
    """Cuts an error that will be kept loose from the calls it came through: they hold the channel."""
    following: BaseException | None = error
    while following is not None:
        following.__traceback__ = None
        following = following.__cause__ or following.__context__
