"""Large bodies are understood aside, on threads of their own: the event loop serves everybody else meanwhile.

    async def …:  records = await aside.read(parse, body)     a light body at once, a heavy one on a thread
                  checked = await aside.do(check)             on a thread in any case
                  answer = await aside.tell(spell)            the same, once records may be written

A thread shares the interpreter, and a call into C keeps it until it returns: what runs here must make no long
ones. The parsers see to that (`json_parts.py`, `payload.py`): they take a large text in parts. Between two of
their calls the interpreter goes to whoever waits for it, after 0.5 ms at most (`server.py`); several threads
share it evenly, so that a body of a moment does not wait for one of a second.

`read`, `do` and `tell` on the event loop; the work touches nothing that belongs to the loop.
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

#: How many bodies are understood at the same time. Each further thread that is busy is one more that a
#: look-up may have to wait for, 0.5 ms at a time.
_THREADS: Final = 4

#: A body up to this length is light whatever stands in it: what takes longest, the search for a duplicate
#: name in brackets alone, takes 5 ms.
SURELY_LIGHT_BYTES: Final = 8 * 1024
#: A longer one is light as long as it has few members, items and levels: some 1 us each for the parsers.
_LIGHT_BYTES: Final = 256 * 1024
_LIGHT_MEMBERS: Final = 10_000
#: All but what begins a member, an item or a level.
_NO_MEMBERS: Final = bytes(set(range(256)) - set(b",[{"))

_FREED_AT_ONCE: Final = 1_000

#: So many records are told of, or checked, at once: 5 ms where each has its own reason.
FEW_RECORDS: Final = 2_000


def is_light(body: bytes) -> bool:
    """Whether to understand a body is a matter of few milliseconds. One look at its bytes at most."""
    size = len(body)
    if size <= SURELY_LIGHT_BYTES:
        return True
    if size > _LIGHT_BYTES:
        return False
    return len(body.translate(None, _NO_MEMBERS)) <= _LIGHT_MEMBERS


class BodyThreads:
    """The threads of one sidecar. None is started before there is something for it to do."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pilotfish-bodies")

    async def read(self, read: Callable[[bytes], T], body: bytes) -> T:
        """What `read` makes of a body, and raises. ProblemError (503) where memory does not hold it."""
        if is_light(body):
            try:
                return read(body)
            except MemoryError as e:
                raise out_of_memory() from e
        return await self.do(partial(read, body))

    async def do(self, work: Callable[[], T]) -> T:
        """What the work returns, and raises. Who is cancelled does not end it: its result is dropped.

        ProblemError (503) where memory does not hold it.
        """
        try:
            return await self.report(work)
        except MemoryError as e:
            raise out_of_memory() from e

    async def report(self, work: Callable[[], T]) -> T:
        """The same for an answer about records that were sent: a MemoryError is raised as it is.

        Nobody may be told then that nothing was written.
        """
        within = partial(copy_context().run, work)  # whose trace it is, and the like
        return await asyncio.get_running_loop().run_in_executor(self._threads, within)

    def close(self) -> None:
        """Begins nothing more. Does not wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def let_go(items: Sequence[object]) -> None:
    """Empties a long list bit by bit: one that is freed whole keeps the interpreter until its last item is.

    For who knows that nobody needs it any more. Does nothing to what is no list.
    """
    if isinstance(items, list):
        while items:
            del items[-_FREED_AT_ONCE:]
