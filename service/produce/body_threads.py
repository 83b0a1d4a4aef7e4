"""Parses large bodies on threads, so that the event loop can serve other requests.

    async def …:  records = await threads.read(parse, body)   a light body at once, a heavy one on a thread
                  checked = await threads.do(check)           always on a thread
                  answer = await threads.report(spell)        the same, once records may be written

The threads share the interpreter, and a C call holds it until it returns. So the work must make no long C
calls: the parsers take a large text in parts (`json_parts.py`, `payload.py`). Between two calls a waiting
thread gets the interpreter after 0.5 ms at most (`server.py`). The threads share it evenly, so a small body
does not wait for a large one.

Call `read`, `do` and `report` on the event loop. The work must not use objects of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from service.wire.errors import out_of_memory

T = TypeVar("T")

#: A body up to this length is always light. The worst case, the search for a duplicate name in a body of
#: brackets only, takes 5 ms.
SURELY_LIGHT_BYTES: Final = 8 * 1024
#: A longer body is light if it has few members, items and levels: each takes about 1 us to parse.
_LIGHT_BYTES: Final = 256 * 1024
_LIGHT_MEMBERS: Final = 10_000
#: All bytes except those that begin a member, an item or a level.
_NO_MEMBERS: Final = bytes(set(range(256)) - set(b",[{"))

_FREED_AT_ONCE: Final = 1_000

#: Up to so many records are checked or answered on the loop: 5 ms if each has its own error.
FEW_RECORDS: Final = 2_000


def is_light(body: bytes) -> bool:
    """Returns whether parsing a body takes only a few milliseconds. Scans its bytes at most once."""
    size = len(body)
    if size <= SURELY_LIGHT_BYTES:
        return True
    if size > _LIGHT_BYTES:
        return False
    return len(body.translate(None, _NO_MEMBERS)) <= _LIGHT_MEMBERS


class BodyThreads:
    """The threads of one sidecar. Each is started when it is first needed."""

    def __init__(self, threads: int = 4) -> None:
        """`threads` bodies are parsed at the same time. A look-up may wait for each, 0.5 ms at a time."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pilotfish-bodies")
        #: A slot is free once the result is taken. Else results would pile up while the loop is busy.
        self._slots = asyncio.Semaphore(threads)
        self._is_closed = False

    async def read(self, read: Callable[[bytes], T], body: bytes) -> T:
        """Returns the result of `read`, or raises its error. Raises ProblemError (503) if out of memory."""
        if is_light(body):
            try:
                return read(body)
            except MemoryError as e:
                raise out_of_memory() from e
        return await self.do(partial(read, body))

    async def do(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, or raises its error. A cancelled caller does not stop the work.

        Raises ProblemError (503) if out of memory.
        """
        try:
            return await self.report(work)
        except MemoryError as e:
            raise out_of_memory() from e

    async def report(self, work: Callable[[], T]) -> T:
        """Does the same for an answer about sent records, but raises MemoryError unchanged.

        The problem for it would wrongly say that nothing was written.
        """
        within = partial(copy_context().run, work)  # for context variables, such as the trace
        async with self._slots:
            if self._is_closed:
                raise asyncio.CancelledError  # as work that waits for a thread ends
            return await asyncio.get_running_loop().run_in_executor(self._threads, within)

    def close(self) -> None:
        """Cancels work that has not begun. Does not wait."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def let_go(items: Sequence[object]) -> None:
    """Empties a long list in steps. Freed at once, it would hold the interpreter until its last item.

    The caller must know that the list is not needed any more. Does nothing if it is not a list.
    """
    if isinstance(items, list):
        while items:
            del items[-_FREED_AT_ONCE:]
