"""A caller that sends any bytes and reads the answers.

    said = await Prober(address).send(pieces)           all that came until the server ended it, or was quiet
    statuses(said)                                      of the answers in it

asyncio; each `send` is a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The longest that a server may take to end what it must end; its own times are fractions of a second here.
DEADLINE_S: Final = patient(60.0)
#: How often a 408 is tried again: a server that gets no turn for its request_timeout_ms must answer so.
TRIES: Final = 5
#: Between the bytes of a caller who is slow.
_PAUSE_S: Final = 0.02
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_FINE: Final = b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Prober:
    """Connections to one address."""

    address: tuple[str, int]

    async def send(self, pieces: Sequence[bytes], *, quiet_s: float | None = None) -> bytes:
        """All that came. Raises AssertionError where the server does not end it in time.

        With `quiet_s` it is enough that nothing comes for so long: for complete requests that keep it open.
        """
        return await self._send(iter(pieces), 0.0, quiet_s)

    async def _send(self, pieces: Iterator[bytes], pause_s: float, quiet_s: float | None) -> bytes:
        reader, writer = await asyncio.open_connection(*self.address)
        said = bytearray()
        writing = asyncio.create_task(_write(writer, pieces, pause_s))
        try:
            async with asyncio.timeout(DEADLINE_S):
                with contextlib.suppress(ConnectionError):
                    while part := await asyncio.wait_for(reader.read(65_536), quiet_s):
                        said += part
        except TimeoutError as error:
            if quiet_s is None:
                raise AssertionError(f"not ended after {DEADLINE_S} s: {bytes(said[:500])!r}") from error
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return bytes(said)

    async def dribble(self, beginning: bytes) -> bytes:
        """The answer to a caller that begins so and then sends a byte now and then, for as long as it may."""

        def bytes_without_end() -> Iterator[bytes]:
            yield beginning
            while True:
                yield b"a"

        return await self._send(bytes_without_end(), _PAUSE_S, None)

    async def is_answered(self) -> None:
        """A plain request on another connection is answered."""
        for _ in range(TRIES):
            said = await self.send((_FINE,))
            if statuses(said) != [408]:
                break
        assert statuses(said) == [200], said[:500]


async def _write(writer: asyncio.StreamWriter, pieces: Iterator[bytes], pause_s: float) -> None:
    with contextlib.suppress(ConnectionError):  # it was refused before it was all there
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)


def statuses(said: bytes) -> list[int]:
    """Of all answers, in order."""
    return [int(status) for status in _STATUS.findall(said)]
