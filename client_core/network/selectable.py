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
    """How a channel ended (or stands): its state, the error behind it, and the address it spoke to."""

    name: ChannelStateName
    error: KafkaError | None = None
    remote_address: str | None = None
    detail: str | None = None  # a sentence for people: "connection refused", "the peer closed the connection"


class CredentialsVersion(NamedTuple):
    """Which certificates and which credentials: numbers that grow when others come into force."""

    tls: int = 0
    sasl: int = 0


class CompletedSend(NamedTuple):
    """A send whose last byte was handed to the operating system."""

    node_id: int
    size_bytes: int


class CompletedReceive(NamedTuple):
    """One whole frame, without its four bytes of size; empty where it was fed to its AnswerReader."""

    node_id: int
    payload: bytes


class AnswerReader(Protocol):
    """What becomes of the answer to one send, for whoever reads it off the connection."""

    @property
    def most_bytes(self) -> int:
        """How large its frame may be."""
        ...

    @property
    def takes_pieces(self) -> bool:
        """Whether a large frame is to be fed piece by piece, and delivered as an empty payload at its end."""
        ...

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        """Takes the next piece of a frame of so many bytes. Raises ProtocolError."""
        ...


class Selectable(Protocol):
    """Connections to nodes and what happened to them. The result collections hold until the next poll."""

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
        """For how long all polls together have waited for something to become possible."""
        ...

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
    ) -> None:
        """Begins to connect to a resolved address; `host` is the name that TLS verifies.

        Raises IllegalStateError when the id is in use, OSError when the system refuses at once (SEL-01).
        """
        ...

    def wakeup(self) -> None:
        """Makes the current or the next poll return. Any thread; never blocks (SEL-15)."""
        ...

    def close(self) -> None:
        """Closes every connection and the selector."""
        ...

    def close_connection(self, node_id: int) -> None:
        """Closes one connection; it is not told in `disconnected`, its pending data is dropped (SEL-12)."""
        ...

    def send(self, node_id: int, payload: Sequence[bytes], answer: AnswerReader | None = None) -> None:
        """Queues one frame (pieces without the size prefix) on a channel that has none under way.

        `answer` reads the frame that answers it; None where none is expected.
        Raises IllegalStateError without a channel, or when a send is under way (SEL-02, SEL-03).
        """
        ...

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        """Does what I/O is possible, waiting at most timeout_ms for some; returns now_ms thereafter.

        Without `writes_end_it` a poll in which nothing was possible but to write may go on waiting.
        """
        ...

    def mute(self, node_id: int) -> None:
        """Stops reading from a connection."""
        ...

    def unmute(self, node_id: int) -> None:
        """Reads from a connection again."""
        ...

    def is_channel_ready(self, node_id: int) -> bool:
        """Whether the channel is connected and authenticated."""
        ...

    def credentials_of(self, node_id: int) -> CredentialsVersion | None:
        """What the connection was made with, or has last been authenticated anew with; None: there is none.

        It may be older than what was used in truth, never newer.
        """
        ...
