"""Observes when a surviving broker first names a partition's new leader: asks each every 20 ms.

It implements the protocol itself, so no client's backoff or refresh interval affects the result. Times are
seconds of the machine's calendar clock.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

_EVERY_S: Final = 0.02
_VERSION: Final = 12
_TIMEOUT_S: Final = 30.0


class LeaderObserver:
    """Requests the leaders of the given partitions of a topic, with one thread per broker."""

    def __init__(
        self, addresses: Iterable[tuple[str, int]], topic: str, partitions: Sequence[int], lost_leader: int
    ) -> None:
        self._topic = topic
        self._partitions = frozenset(partitions)
        self._lost_leader = lost_leader
        self._seen = threading.Event()
        self._seen_s = 0.0
        self._lock = threading.Lock()
        self._over = False
        self._failure: Exception | None = None
        self._threads = [threading.Thread(target=self._watch, args=(address,)) for address in addresses]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()

    def wait(self) -> float:
        """Returns when the first survivor named another leader for any of the partitions."""
        if not self._seen.wait(_TIMEOUT_S):
            raise SystemExit(
                f"no new leader of {self._topic} within {_TIMEOUT_S} s of the kill: {self._failure}"
            )
        return self._seen_s

    def _watch(self, address: tuple[str, int]) -> None:
        try:
            with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not self._over and not self._seen.is_set():
                    if self._is_led_by_another(connection):
                        with self._lock:
                            self._seen_s = self._seen_s or time.time()
                        self._seen.set()
                    time.sleep(_EVERY_S)
        except Exception as error:  # noqa: BLE001 - raised by `wait`, which ends the run
            self._failure = error

    def _is_led_by_another(self, connection: socket.socket) -> bool:
        request = MetadataRequestBuilder((self._topic,), False).encode(_VERSION)
        frame = encode_request_header(ApiKey.METADATA, _VERSION, 0, "observer") + request
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        payload = _exactly(connection, size)
        _, offset = decode_response_header(payload, ApiKey.METADATA, _VERSION)
        response = MetadataResponse.decode(payload[offset:], _VERSION)
        return any(
            partition.leader_id not in {-1, self._lost_leader}
            for topic in response.topics or ()
            for partition in topic.partitions
            if partition.partition_index in self._partitions
        )


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker ended the observer's connection")
        data += part
    return bytes(data)
