"""A transport layer that is a list of bytes, and an authenticator that is a list of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.errors import KafkaError
    from client_core.network.transport_layer import Piece


class FakeTransport:
    """Returns the given entries, one for each read: None is nothing now, an error is raised."""

    def __init__(
        self,
        reads: Sequence[bytes | KafkaError | None] = (),
        *,
        takes: Sequence[int] = (),
        handshake_steps: int = 0,
        handshake_error: KafkaError | None = None,
        descriptor: int = 99,
    ) -> None:
        self.reads = list(reads)
        self.asked: list[int] = []  # how many bytes each read asked for
        self.takes = list(takes)  # then: everything
        self.written = bytearray()
        self.writes = 0
        self.pending_writes = 0  # bytes that were taken and lie in the layer's own buffer
        self.is_closed = False
        self.is_connected = False
        self.handshakes = 0
        self._handshake_steps = handshake_steps
        self._handshake_error = handshake_error
        self._descriptor = descriptor

    @property
    def remote_address(self) -> str:
        return "10.0.0.1:9092"

    @property
    def ready(self) -> bool:
        return self.is_connected and self.handshakes >= self._handshake_steps

    @property
    def has_bytes_buffered(self) -> bool:
        return False

    @property
    def has_pending_writes(self) -> bool:
        return self.pending_writes > 0

    def fileno(self) -> int:
        return self._descriptor

    def finish_connect(self) -> bool:
        self.is_connected = True
        return True

    def handshake(self) -> None:
        if self._handshake_error is not None:
            raise self._handshake_error
        self.handshakes += 1

    def read(self, max_bytes: int) -> bytes | None:
        self.asked.append(max_bytes)
        if not self.reads:
            return None
        data = self.reads.pop(0)
        if isinstance(data, Exception):
            raise data
        if data is not None and len(data) > max_bytes:
            self.reads.insert(0, data[max_bytes:])
            return data[:max_bytes]
        return data

    def write(self, pieces: Sequence[Piece]) -> int:
        self.writes += 1
        if not pieces:
            self.pending_writes = 0
            return 0
        data = b"".join(pieces)
        if self.takes:
            data = data[: self.takes.pop(0)]
        self.written += data
        return len(data)

    def close(self) -> None:
        self.is_closed = True


class ScriptedAuthenticator:
    """Sends `frames`, each but the first after an answer; complete after the last answer.

    From `reauthenticates_at_ms` on it wants to authenticate again, once. Frames that then begin with
    `foreign` are not for it.
    """

    def __init__(
        self,
        frames: Sequence[bytes],
        *,
        refuse: KafkaError | None = None,
        reauthenticates_at_ms: int | None = None,
        foreign: bytes = b"answer",
    ) -> None:
        self.received: list[bytes | None] = []
        self.reauthenticates_at_ms = reauthenticates_at_ms
        self._again = list(frames)
        self._foreign = foreign
        self._frames = list(frames)
        self._answers_awaited = len(frames)
        self._refuse = refuse

    @property
    def complete(self) -> bool:
        return self._answers_awaited == 0

    @property
    def awaits_credentials(self) -> bool:
        return False

    def reauthenticate(self) -> None:
        self.reauthenticates_at_ms = None
        self._frames = list(self._again)
        self._answers_awaited = len(self._frames)

    def expects(self, frame: bytes) -> bool:
        return not frame.startswith(self._foreign)

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        self.received.append(received)
        if received is not None:
            if self._refuse is not None:
                raise self._refuse
            self._answers_awaited -= 1
        return (self._frames.pop(0),) if self._frames else None
