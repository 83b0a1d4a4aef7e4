"""Threads that take turns: one runs at a time, and the test chooses which, and where it pauses.

    turns = Turns()                                    clock = TurnClock(turns)
    actor = turns.start("caller", work)                a thread that waits for its first turn
    turns.give(actor, lines=40)                        it runs until it pauses, or for 40 lines
    turns.run(choose)                                  or: `choose` returns who goes on, each time, until None

The threads are real, and so are the producer's locks. A thread pauses where it would block (a wait by the
clock, a latch), where it calls `pause`, or after a number of lines in client_core/producer or /metadata. It
never pauses inside a `with` block of a lock, so no other thread finds one taken: the lines outside of locks
are where threads can interfere. A wait on a condition ends by its notification or at its deadline, and not
before, so a notification that is forgotten is noticed.

Nothing depends on wall-clock time: a run is repeated by the same choices. In `run` the thread that pauses
chooses, so that one that goes on by itself costs no switch. Every actor is a daemon: a failed run leaves its
threads paused.
"""

from __future__ import annotations

import ast
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import client_core
from client_core.clock import FOREVER_MS
from client_core.latch import Latch
from client_core.producer.sender.io_thread import IoThread
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

    from client_core.client.kafka_client import ClientResponse

#: What takes longer hangs: a thread blocks on something that no pause represents.
_LONGEST_S: Final = patient(120.0)
_CORE: Final = Path(client_core.__file__).parent
_PAUSED_IN: Final = tuple(f"{_CORE / room}/" for room in ("producer", "metadata"))
_LATCH_WAIT: Final[CodeType] = Latch.wait.__code__
_CONDITION_WAIT_FOR: Final[CodeType] = threading.Condition.wait_for.__code__
_IO_THREAD_RUN: Final[CodeType] = IoThread._run.__code__


@cache
def _lines_under_locks() -> dict[str, frozenset[int]]:
    """The lines inside `with` blocks of locks, by file."""
    return {str(path): _of_file(path) for room in _PAUSED_IN for path in Path(room).rglob("*.py")}


def _of_file(path: Path) -> frozenset[int]:
    held: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.With) and any(map(_is_lock, node.items)):
            held.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(held)


def _is_lock(item: ast.withitem) -> bool:
    name = ast.unparse(item.context_expr).lower()
    return "lock" in name or "listening" in name


class Actor:
    """One thread. Its fields change while it is paused, or by itself."""

    __slots__ = ("_go", "deadline_ms", "is_over", "is_ready", "is_watched", "lines_left", "name", "outermost")

    def __init__(self, name: str) -> None:
        self.name = name
        #: What it waits for: None if it can run. At the deadline it can run anyway.
        self.is_ready: Callable[[], bool] | None = None
        self.deadline_ms = FOREVER_MS
        self.lines_left = 0
        self.is_over = False
        self.outermost: FrameType | None = None
        #: Whether its calls are traced even without lines to count: for its latches, and its end.
        self.is_watched = True
        self._go = threading.Lock()
        self._go.acquire()

    def __repr__(self) -> str:
        return f"<Actor {self.name} over={self.is_over} waits={self.is_ready is not None}>"

    def can_run(self, now_ms: int) -> bool:
        return not self.is_over and (self.is_ready is None or now_ms >= self.deadline_ms or self.is_ready())


class Turns:
    """The actors, and the one that runs."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        #: How often a thread was paused between two lines of the producer.
        self.preempted = 0
        self._current: Actor | None = None
        self._choose: Callable[[], tuple[Actor, int] | None] | None = None
        self._error: BaseException | None = None
        self._back = threading.Lock()
        self._back.acquire()
        self._under_locks = _lines_under_locks()

    # -- the chooser -----------------------------------------------------------------------------------------

    def start(self, name: str, work: Callable[[], None]) -> Actor:
        """A new thread. `work` begins at its first turn; what it raises, `give` raises."""
        actor = Actor(name)
        self.actors.append(actor)
        threading.Thread(target=self._run, args=(actor, work), name=name, daemon=True).start()
        return actor

    def give(self, actor: Actor, *, lines: int = 0) -> None:
        """Lets it run until it pauses. With `lines`: also after so many lines of the producer."""
        self._begin_turn(actor, lines)
        actor._go.release()
        self.wait_for_pause()

    def run(self, choose: Callable[[], tuple[Actor, int] | None]) -> None:
        """Gives turns to the actors that `choose` returns, with a number of lines each, until None.

        Raises what an actor or `choose` raises.
        """
        self._choose = choose
        self._end_turn(None)
        self.wait_for_pause()

    def wait_for_pause(self) -> None:
        """Waits until the running thread pauses, or a thread that was started elsewhere is adopted."""
        if not self._back.acquire(timeout=_LONGEST_S):
            raise AssertionError(f"{self._current!r} hangs: it blocks on something that is no pause")
        if self._error is not None:
            raise self._error

    def _begin_turn(self, actor: Actor, lines: int) -> None:
        actor.lines_left = lines
        actor.is_ready, actor.deadline_ms = None, FOREVER_MS
        self._current = actor

    def _end_turn(self, paused: Actor | None) -> None:
        """Hands over to the next actor, or to the chooser's thread; returns in this one's next turn."""
        chosen: Actor | None = None
        if self._choose is not None and self._error is None:
            try:
                choice = self._choose()
            except BaseException as error:  # noqa: BLE001 -- raised by `run`
                self._error, choice = error, None
            if choice is not None:
                chosen, lines = choice
                self._begin_turn(chosen, lines)
        if chosen is not None and chosen is paused:
            return
        (self._back if chosen is None else chosen._go).release()
        if paused is not None:
            paused._go.acquire()

    # -- the actors ------------------------------------------------------------------------------------------

    def _run(self, actor: Actor, work: Callable[[], None]) -> None:
        actor._go.acquire()
        sys.settrace(self._on_call)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised by `give` or `run`
            self._error = error
        finally:
            sys.settrace(None)
            actor.is_over = True
            self._end_turn(None)

    def adopt(self, name: str) -> Actor:
        """Makes an actor of this thread: the producer's I/O thread, at its first reading of the clock.

        Its last turn ends when its outermost function returns: call `watch_end` on it before.
        """
        actor = Actor(name)
        self.actors.append(actor)
        sys.settrace(self._on_call)
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not _IO_THREAD_RUN:
            frame = frame.f_back
        assert frame is not None, "not on the I/O thread"
        actor.outermost = frame
        frame.f_trace = self._on_line
        actor.is_watched = False  # it waits for no latch
        self._back.release()
        actor._go.acquire()
        self._trace_frames(actor)
        return actor

    def watch_end(self) -> None:
        """Notices when the I/O thread ends. On that thread, when it is about to."""
        actor = self._current
        assert actor is not None
        actor.is_watched = True
        sys.settrace(self._on_call)

    def pause(self, is_ready: Callable[[], bool] | None = None, deadline_ms: int = FOREVER_MS) -> None:
        """Ends this thread's turn; the next one begins when it `is_ready`, or at the deadline."""
        actor = self._current
        assert actor is not None
        actor.is_ready, actor.deadline_ms, actor.lines_left = is_ready, deadline_ms, 0
        self._end_turn(actor)
        self._trace_frames(actor)

    def wait_on(self, condition: threading.Condition, deadline_ms: int) -> None:
        """What Condition.wait does, as a pause: the condition is held before and after, and not meanwhile."""
        notified = threading.Lock()
        notified.acquire()
        waiters = condition._waiters  # type: ignore[attr-defined]
        waiters.append(notified)
        saved = condition._release_save()  # type: ignore[attr-defined]
        self.pause(lambda: not notified.locked(), deadline_ms)
        condition._acquire_restore(saved)  # type: ignore[attr-defined]
        if notified in waiters:
            waiters.remove(notified)

    # -- tracing ---------------------------------------------------------------------------------------------

    def _trace_frames(self, actor: Actor) -> None:
        """Has the lines counted of the functions that this thread is in already."""
        if not actor.lines_left:
            if not actor.is_watched:
                sys.settrace(None)
            return
        sys.settrace(self._on_call)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_PAUSED_IN):
                frame.f_trace = self._on_line
            frame = frame.f_back

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is _LATCH_WAIT:
            self._wait_on_latch(frame)
            return None
        if frame.f_code is _CONDITION_WAIT_FOR:
            self._wait_on_condition(frame)
            return None
        actor = self._current
        if actor is None or not actor.lines_left or not frame.f_code.co_filename.startswith(_PAUSED_IN):
            return None
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        actor = self._current
        assert actor is not None
        if event == "line" and actor.lines_left:
            actor.lines_left -= 1
            if not actor.lines_left:
                if self._holds_lock(frame):
                    actor.lines_left = 1
                else:
                    self.preempted += 1
                    self.pause()
        elif event == "return" and frame is actor.outermost:
            sys.settrace(None)
            actor.outermost, actor.is_over = None, True
            self._end_turn(None)
        return self._on_line

    def _holds_lock(self, frame: FrameType) -> bool:
        within: FrameType | None = frame
        while within is not None:
            if within.f_lineno in self._under_locks.get(within.f_code.co_filename, ()):
                return True
            within = within.f_back
        return False

    def _wait_on_latch(self, frame: FrameType) -> None:
        """Pauses before Latch.wait, which then finds the latch set.

        If not, at its deadline, Latch.wait itself blocks for its whole length: schedule.py's are short.
        """
        latch, timeout_s = frame.f_locals["self"], frame.f_locals["timeout_s"]
        now_ms = self.now_ms()
        deadline_ms = FOREVER_MS if timeout_s is None else min(now_ms + int(timeout_s * 1_000), FOREVER_MS)
        if not latch.is_set:
            self.pause(lambda: latch.is_set, deadline_ms)

    def _wait_on_condition(self, frame: FrameType) -> None:
        """Pauses before Condition.wait_for, which then finds its predicate true. It has no limit."""
        condition, predicate = frame.f_locals["self"], frame.f_locals["predicate"]
        assert frame.f_locals["timeout"] is None, "a wait that takes wall-clock time"
        while not predicate():
            self.wait_on(condition, FOREVER_MS)

    #: The clock's time: set by TurnClock.
    now_ms: Callable[[], int]


class TurnClock(MockClock):
    """A clock whose waits are pauses. Only the chooser advances it."""

    def __init__(self, turns: Turns, *, now_ms: int) -> None:
        super().__init__(now_ms=now_ms)
        self._turns = turns
        turns.now_ms = self.now_ms
        #: Called once, by the first thread that reads the time after it was set.
        self.at_next_reading: Callable[[], object] | None = None

    def now_ms(self) -> int:
        if self.at_next_reading is not None:
            call, self.at_next_reading = self.at_next_reading, None
            call()
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms + self._wall_offset_ms

    def advance(self, ms: int) -> None:
        """Whoever waits for that time can run now: see Actor.can_run."""
        self._now_ms += ms

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        while not predicate():
            if self._now_ms >= deadline_ms:
                return False
            self._turns.wait_on(condition, deadline_ms)
        return True


class TurnClient(MockClient):
    """A network whose poll is a pause: until an answer, a wakeup or a timeout."""

    #: Set by its user.
    turns: Turns
    metadata_now: Callable[[], bytes]
    _is_woken = False
    #: Requests without an answer when it was closed: their batches' memory is never returned.
    open_at_close = 0
    #: Whether the I/O thread is in `poll`, with nothing to do.
    is_idle = False

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        deadline_ms = min(now_ms + timeout_ms, self._next_event_ms(now_ms), FOREVER_MS)
        self.is_idle = True
        self.turns.pause(self._has_news, deadline_ms)
        self.is_idle = self._is_woken = False
        return super().poll(0, self._clock.now_ms())

    def _has_news(self) -> bool:
        return self._is_woken or bool(self._responses)

    def _next_event_ms(self, now_ms: int) -> int:
        assert self._metadata is not None
        times_out_ms = min((r.created_ms + r.request_timeout_ms for r in self.requests), default=FOREVER_MS)
        return min(now_ms + self._metadata.time_to_next_update(now_ms), times_out_ms)

    def _update_metadata_if_due(self, now_ms: int) -> None:
        assert self._metadata is not None
        due = self._metadata.time_to_next_update(now_ms) <= 0
        if due and self.least_loaded_node(now_ms).node is not None:
            self.update_metadata(self.metadata_now(), 13)

    def wakeup(self) -> None:
        self._is_woken = True

    def close(self) -> None:
        self.open_at_close = len(self.requests) + len(self._responses)
        self.turns.watch_end()
        super().close()
