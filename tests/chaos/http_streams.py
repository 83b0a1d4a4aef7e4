"""HTTP/1.1 by asyncio's streams, as much as the load needs: a request, its answer, or the answer's pieces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HOST: Final = "127.0.0.1"


class NobodyListensError(Exception):
    """No connection could be made: nothing was sent."""


class AnsweredTwiceError(AssertionError):
    """More bytes came than the answer had."""


class Connection:
    """One connection. EOFError and OSError of its methods: it ended before the answer had."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        """A new one. NobodyListensError."""
        try:
            return cls(*await asyncio.open_connection(HOST, port))
        except OSError:
            raise NobodyListensError from None

    async def is_idle(self) -> bool:
        """Whether another request may be sent. AnsweredTwiceError where bytes came that nobody asked for."""
        try:
            async with asyncio.timeout(0):
                more = await self._reader.read(1_000)
        except TimeoutError:
            return not self._reader.at_eof()
        except OSError:
            return False
        if more:
            raise AnsweredTwiceError(f"more came than the answer: {more!r}")
        return False

    async def send(self, path: str, headers: Mapping[str, str], body: bytes | None) -> None:
        """The request; without a body its chunks are to follow."""
        length = {"Transfer-Encoding": "chunked"} if body is None else {"Content-Length": str(len(body))}
        lines = (f"{name}: {value}\r\n" for name, value in {"Host": HOST, **headers, **length}.items())
        head = f"POST {path} HTTP/1.1\r\n{''.join(lines)}\r\n"
        self._writer.write(head.encode() + (body or b""))
        await self._writer.drain()

    async def send_chunk(self, data: bytes) -> None:
        """A piece of the body; its end if there is none."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Reads the answer: sets `status` before the first piece of its body."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        self.status = int(head[0].split(" ")[1])
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            yield b""
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readexactly(2)
        else:
            yield await self._reader.readexactly(int(headers.get("content-length", 0)))

    async def answer(self) -> tuple[int, bytes]:
        """Status and body."""
        body = b"".join([piece async for piece in self.pieces()])
        return self.status, body

    def cut(self) -> None:
        """Ends it, now."""
        self._writer.transport.abort()
