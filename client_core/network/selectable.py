"""The network interface that NetworkClient uses: connections, sends, and a poll.

Two implementations: `Selector` (real sockets) and `tests/support/mock_selector.py`. I/O thread only, except
`wakeup`, which any thread may call. Source: Selectable, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.errors import KafkaError


class ChannelStateName(Enum):
    """The states of a channel (SEL-18)."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    EXPIRED = "expired"
    FAILED_SEND = "failed send"
    AUTHENTICATION_FAILED = "authentication failed"
    LOCAL_CLOSE = "local close"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel's current or final state, its error, and the peer's address."""

    name: ChannelStateName
    error: KafkaError | None = None
    remote_address: str | None = None
    detail: str | None = None  # for people: "connection refused", "the peer closed the connection"


class CredentialsVersion(NamedTuple):
    """Versions of certificates and credentials: numbers that grow with each change."""

    tls: int = 0
    sasl: int = 0


class CompletedSend(NamedTuple):
    """A send whose last byte the operating system has."""

    node_id: int
    size_bytes: int


class CompletedReceive(NamedTuple):
    """One whole frame, without its four bytes of size; empty if it was fed to its AnswerReader."""

    node_id: int
    payload: bytes


class AnswerReader(Protocol):
    """Reads the response to one send."""

    @property
    def most_bytes(self) -> int:
        """The size limit of its frame."""
        ...

    @property
    def takes_pieces(self) -> bool:
        """Whether to feed a large frame in pieces, and deliver an empty payload at its end."""
        ...

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        """Takes the next piece of a frame of `frame_bytes` bytes. Raises ProtocolError."""
        ...


class Selectable(Protocol):
    """Connections to nodes and their events. The result collections are valid until the next poll."""

    @property
    def completed_sends(self) -> Sequence[CompletedSend]: ...

    @property
    def completed_receives(self) -> Sequence[CompletedReceive]: ...

    @property
    def disconnected(self) -> Mapping[int, ChannelState]: ...

    @property
    def connected(self) -> Sequence[int]: ...

    @property
    def waited_ms(self) -> int:
        """The total time that all polls waited for I/O."""
        ...

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
        """Begins to connect to a resolved address; TLS verifies the name `host`.

        `also`: even while the node is connecting to other addresses. The first connection that is established
        is the node's, and the others are closed; `disconnected` reports each that fails before (CONN-14).
        Raises IllegalStateError when the id is in use, OSError when the system refuses at once (SEL-01).
        """
        ...

    def addresses_of(self, node_id: int) -> Sequence[str]:
        """Returns `host:port` of the node's connection, or of each one that is not yet established."""
        ...

    def wakeup(self) -> None:
        """Makes the current or the next poll return. Any thread; never blocks (SEL-15)."""
        ...

    def close(self) -> None:
        """Closes every connection and the selector."""
        ...

    def close_connection(self, node_id: int) -> None:
        """Closes one connection and drops its pending data; `disconnected` does not report it (SEL-12)."""
        ...

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        """Queues one frame (pieces without the size prefix) on a channel without a send in progress.

        `answer` reads the response; None if there is none.
        Raises IllegalStateError without a channel, or when a send is in progress (SEL-02, SEL-03).
        """
        ...

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        """Does the possible I/O, waiting at most timeout_ms for it; returns now_ms afterwards.

        Without `writes_end_it` a poll that could only write may continue to wait.
        """
        ...

    def mute(self, node_id: int) -> None:
        """Stops reading from a connection."""
        ...

    def unmute(self, node_id: int) -> None:
        """Reads from a connection again."""
        ...

    def is_channel_ready(self, node_id: int) -> bool:
        """Returns whether the channel is connected and authenticated."""
        ...

    def awaits_credentials(self, node_id: int) -> bool:
        """Returns whether the connection waits for a token that is being fetched elsewhere."""
        ...

    def credentials_of(self, node_id: int) -> CredentialsVersion | None:
        """Returns the credentials of its creation; None without a connection.

        The version may be older than the one really used, never newer.
        """
        ...
