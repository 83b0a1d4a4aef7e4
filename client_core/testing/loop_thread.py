"""An asyncio loop on its own thread, for a test's servers: fake cluster, proxy.

`run` runs a coroutine from any other thread and waits for its result. `close` ends every task and joins the
thread.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

#: Real-time limit of a call; longer is a failure.
_PATIENCE_S: Final = 120.0


class LoopThread:
    """A running event loop. Any thread may call, except the loop's own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Runs a coroutine on the loop; returns its result or raises its exception."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_PATIENCE_S)

    def close(self) -> None:
        """Cancels the running tasks and ends the thread. Idempotent."""
        if self._loop.is_closed():
            return
        self.run(end_other_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"


async def end_other_tasks() -> None:
    """Cancels every other task of this loop, and those that they start, until none is left.

    Each of them starts first: a task cancelled before its start runs nothing, not even the `finally` that
    closes its connection.
    """
    while True:
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        await asyncio.sleep(0)  # the newest of them start now
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stop_accepting(server: asyncio.Server) -> None:
    """Closes a server's listener, after the server's callback got all accepted connections.

    asyncio leaks a connection accepted right before its server closes.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(10):  # more iterations than from the accept to the callback
        await asyncio.sleep(0)
    server.close()
