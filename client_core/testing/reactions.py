"""A test's reactions: a fake broker delays, damages or drops a response.

    cluster.react_next(ApiKey.PRODUCE, HalfFrame(), times=1, broker_id=2)

A reaction gets the whole response frame (size, header, body) after the request was applied; a Disconnect may
prevent that. Like Kafka, a broker handles a connection's requests one at a time: requests after a held or
silent response wait, too. Values; Hold has its own lock.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.protocol.api_keys import ApiKey
    from client_core.testing.requests import Response

_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sending:
    """The pieces to send, and what happens to the connection afterwards."""

    pieces: Sequence[bytes] = ()
    then_close: bool = False
    then_silent: bool = False
    #: Sends nothing now: the pieces follow the connection's next response.
    then_keep: bool = False


@dataclass(frozen=True, slots=True)
class Reaction:
    """Sends the response unchanged; the base of the others."""

    #: Whether the request is applied (records stored, topics created).
    applies_request: bool = field(default=True, init=False)

    def encode(self, response: Response, version: int) -> bytes:
        """Returns the response's body at a version. Called on the cluster's loop, before `shape`."""
        return response.encode(version)

    def shape(self, frame: bytes) -> Sending:
        """Returns what to send for a whole response frame. Called on the cluster's loop."""
        return Sending((frame,))

    async def pause(self) -> None:
        """Waits before the response. Called on the cluster's loop."""


@dataclass(frozen=True, slots=True)
class Silence(Reaction):
    """The connection stays open without any further response."""

    def shape(self, frame: bytes) -> Sending:
        return Sending(then_silent=True)


@dataclass(frozen=True, slots=True)
class Delay(Reaction):
    """Delays the response by some milliseconds of real time."""

    ms: int = 50

    async def pause(self) -> None:
        await asyncio.sleep(self.ms / 1_000)


class _Gate:
    """Opens once, by any thread; coroutines wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.reached = threading.Event()

    async def passed(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        self.reached.set()
        await event.wait()

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)


@dataclass(frozen=True, slots=True)
class Hold(Reaction):
    """The response waits until the test releases it."""

    _gate: _Gate = field(default_factory=_Gate, init=False)

    async def pause(self) -> None:
        await self._gate.passed()

    @property
    def is_held(self) -> bool:
        """Whether a response has been held. Any thread."""
        return self._gate.reached.is_set()

    def wait_until_held(self, timeout_s: float = _PATIENCE_S) -> None:
        """Waits until a response is held. Raises AssertionError after the timeout."""
        assert self._gate.reached.wait(timeout_s), f"no answer was held within {timeout_s:g} s"

    def release(self) -> None:
        """Releases this response, and all later ones of this Hold."""
        self._gate.open()


@dataclass(frozen=True, slots=True)
class Disconnect(Reaction):
    """Ends the connection without a response; `applied`: whether the request is applied first."""

    applied: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "applies_request", self.applied)

    def shape(self, frame: bytes) -> Sending:
        return Sending(then_close=True)


@dataclass(frozen=True, slots=True)
class HalfFrame(Reaction):
    """Sends the first half of the response, then ends the connection or sends nothing more."""

    then_close: bool = False

    def shape(self, frame: bytes) -> Sending:
        half = frame[: max(len(frame) // 2, _SIZE.size + 1)]
        return Sending((half,), then_close=self.then_close, then_silent=not self.then_close)


@dataclass(frozen=True, slots=True)
class InPieces(Reaction):
    """Sends the response in system calls of a few bytes each."""

    size: int = 3

    def shape(self, frame: bytes) -> Sending:
        return Sending([frame[at : at + self.size] for at in range(0, len(frame), self.size)])


@dataclass(frozen=True, slots=True)
class WrongCorrelationId(Reaction):
    """Changes the response's correlation id."""

    off_by: int = 1_000

    def shape(self, frame: bytes) -> Sending:
        size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(frame)
        return Sending(
            (
                _SIZE_AND_CORRELATION.pack(size, correlation_id + self.off_by)
                + frame[_SIZE_AND_CORRELATION.size :],
            )
        )


@dataclass(frozen=True, slots=True)
class Lost(Reaction):
    """Applies the request and drops its response; later requests on the connection are served."""

    def shape(self, frame: bytes) -> Sending:
        return Sending()


@dataclass(frozen=True, slots=True)
class BehindTheNext(Reaction):
    """Sends the response after the next request's, which no broker may do."""

    def shape(self, frame: bytes) -> Sending:
        return Sending((frame,), then_keep=True)


@dataclass(frozen=True, slots=True)
class Twice(Reaction):
    """Sends the response twice."""

    def shape(self, frame: bytes) -> Sending:
        return Sending((frame, frame))


@dataclass(frozen=True, slots=True)
class Garbage(Reaction):
    """Sends the right size and correlation id, then bytes that match no schema."""

    byte: int = 0xFF

    def shape(self, frame: bytes) -> Sending:
        behind = len(frame) - _SIZE_AND_CORRELATION.size
        return Sending((frame[: _SIZE_AND_CORRELATION.size] + bytes([self.byte]) * behind,))


@dataclass(frozen=True, slots=True)
class WrongSize(Reaction):
    """Sends a wrong size: two gigabytes, or a negative one."""

    size: int = 0x7FFFFFFF

    def shape(self, frame: bytes) -> Sending:
        return Sending((_SIZE.pack(self.size) + frame[_SIZE.size :],))


class Disturbance(Protocol):
    """Chooses reactions by itself, for example at random."""

    def next_answer(self, broker_id: int, api: ApiKey) -> Reaction:
        """Returns the reaction for a broker's next response. Called under the cluster's lock."""
        ...


@dataclass(slots=True)
class Order:
    """A reaction or a change for a number of requests of an API, to one broker or to any."""

    api: ApiKey
    broker_id: int | None
    times_left: int
    reaction: Reaction | None = None
    change: Callable[[Any], Response] | None = None

    def take(self, api: ApiKey, broker_id: int) -> bool:
        """Returns whether the order is for this request; counts it down if so."""
        is_meant = self.api is api and self.broker_id in {None, broker_id} and self.times_left > 0
        self.times_left -= is_meant
        return is_meant


class Orders:
    """The test's orders."""

    def __init__(self) -> None:
        self._orders: list[Order] = []

    def add(self, order: Order) -> None:
        self._orders.append(order)

    def forget_spent(self) -> None:
        """Drops the used-up orders."""
        self._orders = [order for order in self._orders if order.times_left > 0]

    def reaction(self, api: ApiKey, broker_id: int) -> Reaction | None:
        """Returns the reaction to this request; None without an order."""
        for order in self._orders:
            if order.reaction is not None and order.take(api, broker_id):
                return order.reaction
        return None

    def changed(self, api: ApiKey, broker_id: int, response: Response) -> Response:
        """Returns the response with the test's change, if any."""
        for order in self._orders:
            if order.change is not None and order.take(api, broker_id):
                return order.change(response)
        return response

    def holds(self) -> Sequence[Hold]:
        """Returns every ordered Hold, to release them at the end."""
        return [order.reaction for order in self._orders if isinstance(order.reaction, Hold)]
