"""Simulated time, and the seeded scheduler of all that runs in it.

    world = World(seed)
    world.at(5, act)                        something that happens in 5 ms
    world.add(actor)                        a thread, which takes turns
    world.run_until(lambda: done, 10_000)   runs until it is true, or so many milliseconds have passed

An actor is a thread of the product: the event loop (one callback is a turn), an I/O thread, the writer and
the delivery of the spool, a call in an executor. Whenever a turn ends, the seed chooses who is next among
those that could run. Time passes only where nobody can run, so that work takes none; the seed makes an actor
wait for a few milliseconds now and then, as a busy machine does. A thread that blocks (a slow fsync, `close`)
runs the world itself until it can go on: `run_until` may be called in a turn. In some seeds a thread is also
interrupted amid a turn, where it reads the clock: an I/O thread by the event loop, and the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from asyncio import events
from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextvars import Context

#: Turns without time passing, after which something runs in circles.
MOST_IDLE_STEPS: Final = 20_000
#: How long an actor is kept waiting at most, by a machine that has other things to do.
_LONGEST_WAIT_MS: Final = 8
#: What a coroutine may await while it is closed.
_MOST_AWAITS_OF_AN_END: Final = 10
#: How many turns of others come amid one.
_MOST_AMID: Final = 12
_OTHER: Final = {"loop": "io", "io": "loop"}
_START_MS: Final = 1_000_000
_START_WALL_MS: Final = 1_700_000_000_000


class SimulationError(AssertionError):
    """A rule is broken. `rule` is its short name, by which a smaller failure is known to be the same."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Actor(Protocol):
    """A thread of the product."""

    name: str
    #: Which may run amid its turns: see `World.perhaps_interrupt`.
    kind: str

    def due_ms(self, now_ms: int) -> int | None:
        """Returns when it can run next (at most `now_ms`: now); None: when somebody wakes it."""
        ...

    def run(self) -> None:
        """Takes a turn."""
        ...


class World:
    """See the module."""

    def __init__(self, seed: int, *, story: bool = False) -> None:
        self.now_ms = _START_MS
        self.random = Random(f"schedule {seed}")
        self.steps = 0
        #: What happened, if it is kept: time, who, what.
        self.story: list[tuple[int, str, str]] | None = [] if story else None
        #: How often each hard state was reached.
        self.reached: dict[str, int] = {}
        #: What broke a rule, where it could not be raised: a task of the product would have caught it.
        self.failure: SimulationError | None = None
        #: What waits for a moment, by its name, and is given the number of a broker or 0.
        self.waits_for: dict[str, list[Callable[[int], object]]] = {}
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = 0
        self._actors: list[Actor] = []
        self._weights: dict[str, float] = {}
        self._waits_until: dict[Actor, int] = {}
        self._on_stack: list[Actor] = []
        self._idle_steps = 0
        #: How often an actor that could run is kept waiting.
        self._busy = self.random.choice((0.0, 0.0, 0.002, 0.02))
        # Drawn apart, as the shapes of drawing.py.
        self._holds = Random(f"between turns {seed}")
        self._held = self._holds.choice((0.0, 0.0, 0.8))
        self._amid = Random(f"others run {seed}")
        self._interrupted = self._amid.choice((0.0, 0.0, 0.0, 0.02))

    def log(self, who: str, what: str) -> None:
        """Adds a line to the story."""
        if self.story is not None:
            self.story.append((self.now_ms - _START_MS, who, what))

    def reach(self, state: str) -> None:
        """Counts a hard state."""
        self.reached[state] = self.reached.get(state, 0) + 1

    def moment(self, name: str, broker_id: int = 0) -> None:
        """Has what waits for this moment happen at once, but not within this turn."""
        for act in self.waits_for.pop(name, ()):
            self.at(0, partial(act, broker_id))

    @property
    def elapsed_ms(self) -> int:
        return self.now_ms - _START_MS

    # -- who runs --------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, act: Callable[[], object]) -> None:
        """Has something happen so much later."""
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + max(delay_ms, 0), self._scheduled, act))

    def add(self, actor: Actor) -> None:
        self._actors.append(actor)

    def remove(self, actor: Actor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)
        self._waits_until.pop(actor, None)

    def perhaps_hold(self, actor: Actor) -> None:
        """Perhaps keeps an actor waiting where it has half done something that others can see."""
        if self._held and self._holds.random() < self._held:
            self._waits_until[actor] = self.now_ms + self._holds.randint(1, _LONGEST_WAIT_MS)

    def perhaps_interrupt(self) -> None:
        """Perhaps lets others run amid a turn: the event loop amid an I/O thread's, or such threads amid its.

        No time passes, and nothing happens from outside: only what these threads have to do.
        """
        if not self._interrupted or len(self._on_stack) != 1 or self._amid.random() >= self._interrupted:
            return
        self.reach("a thread was interrupted amid a turn")
        kind = self._on_stack[0].kind
        for _ in range(self._amid.randint(1, _MOST_AMID)):
            others = [
                actor
                for actor in self._actors
                if actor.kind == _OTHER.get(kind) and (due_ms := actor.due_ms(self.now_ms)) is not None
                if due_ms <= self.now_ms
            ]
            if not others:
                return
            self._run(self._amid.choice(others))

    def run_until(self, done: Callable[[], bool], within_ms: int) -> bool:
        """Runs until `done`, or so much time has passed; returns whether it is done."""
        until_ms = self.now_ms + within_ms
        while not done():
            if not self._step(until_ms):
                return done()
        return True

    def _step(self, until_ms: int) -> bool:
        """Has one actor take its turn, or the next thing happen; returns False when the time is over."""
        if self.failure is not None:
            raise self.failure
        now_ms = self.now_ms
        if now_ms > until_ms:
            return False  # another thread blocked for longer, within a turn of this one
        ready: list[Actor] = []
        next_ms = until_ms
        for actor in self._actors:
            if actor in self._on_stack:
                continue
            due_ms = actor.due_ms(now_ms)
            if due_ms is None:
                continue
            due_ms = max(due_ms, self._waits_until.get(actor, 0))
            if due_ms <= now_ms:
                ready.append(actor)
            elif due_ms < next_ms:
                next_ms = due_ms
        happens = bool(self._events) and self._events[0][0] <= now_ms
        if ready or happens:
            self._take_turn(ready, happens=happens)
            return True
        if self._events and self._events[0][0] < next_ms:
            next_ms = self._events[0][0]
        self._idle_steps = 0
        if next_ms >= until_ms:
            self.now_ms = until_ms
            return False
        self.now_ms = next_ms
        return True

    def _take_turn(self, ready: list[Actor], *, happens: bool) -> None:
        self.steps += 1
        self._idle_steps += 1
        if self._idle_steps > MOST_IDLE_STEPS:
            names = ", ".join(actor.name for actor in ready)
            raise SimulationError(
                "circles", f"{names or 'the world'} took {self._idle_steps} turns in no time"
            )
        choices = len(ready) + happens
        chosen = 0 if choices == 1 else self._choose(ready, choices)
        if chosen == len(ready):
            heapq.heappop(self._events)[2]()
            return
        actor = ready[chosen]
        if self._busy and self.random.random() < self._busy:
            self._waits_until[actor] = self.now_ms + self.random.randint(1, _LONGEST_WAIT_MS)
            return
        self._run(actor)

    def _run(self, actor: Actor) -> None:
        self._on_stack.append(actor)
        try:
            actor.run()
        finally:
            self._on_stack.pop()

    def _choose(self, ready: list[Actor], choices: int) -> int:
        """By weights that the seed gives to each thread, and changes now and then."""
        if self.random.random() < 0.01:
            self._weights.clear()
        weights = [self._weight(actor.name) for actor in ready]
        if choices > len(ready):
            weights.append(self._weight(""))
        at = self.random.random() * sum(weights)
        for index, weight in enumerate(weights):
            at -= weight
            if at < 0:
                return index
        return choices - 1

    def _weight(self, name: str) -> float:
        weight = self._weights.get(name)
        if weight is None:
            weight = self._weights[name] = self.random.choice((0.02, 0.3, 1.0, 1.0, 5.0))
        return weight


class SimulatedClock:
    """The clocks of one machine. The wall clock may jump."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wall_offset_ms = _START_WALL_MS - _START_MS
        #: How often the wall clock has jumped: two jumps may cancel each other.
        self.jumps = 0

    def now_ms(self) -> int:
        self._world.perhaps_interrupt()
        return self._world.now_ms

    def wall_ms(self) -> int:
        return self._world.now_ms + self.wall_offset_ms

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        raise AssertionError("no thread of the simulation may block in a wait")


class Job:
    """A function in a thread of an executor, and the future that its caller awaits."""

    def __init__(self, loop: SimulatedLoop, function: Callable[[], Any]) -> None:
        self.name = self.kind = "executor"
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._function = function
        self._has_begun = False

    def due_ms(self, now_ms: int) -> int | None:
        return None if self._has_begun else now_ms

    def run(self) -> None:
        self._has_begun = True
        try:
            result = self._function()
        except Exception as error:  # noqa: BLE001 -- it is the future's
            self._loop.call_soon_threadsafe(self._set, None, error)
        else:
            self._loop.call_soon_threadsafe(self._set, result, None)
        finally:
            self._loop.world.remove(self)

    def _set(self, result: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class SimulatedLoop:
    """asyncio's loop: callbacks in their order, one a turn, and timers by simulated time. No I/O.

    It has the part of AbstractEventLoop that the product uses. `me` is itself as one.
    """

    def __init__(self, world: World) -> None:
        self.me: Final[Any] = self
        self.name, self.kind = "event loop", "loop"
        self.world = world
        self.is_dead = False
        self.faults: list[str] = []
        self._ready: deque[asyncio.Handle] = deque()

    # -- Actor -----------------------------------------------------------------------------------------------

    def due_ms(self, now_ms: int) -> int | None:
        return now_ms if self._ready else None

    def run(self) -> None:
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        before = events._get_running_loop()
        events._set_running_loop(self.me)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)

    # -- the part of a loop that the product uses ------------------------------------------------------------

    def time(self) -> float:
        return self.world.now_ms / 1_000

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self.me, context)
        if not self.is_dead:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self.me, context)

        def due() -> None:
            if not timer.cancelled() and not self.is_dead:
                self._ready.append(timer)

        # Up, as a loop never calls a timer early. Floats of milliseconds need to be rounded first.
        self.world.at(-int(-round(when * 1_000, 3) // 1) - self.world.now_ms, due)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays scheduled, and does nothing."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.me)

    def create_task(
        self, coro: Any, *, name: Any = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self.me, name=name, context=context)

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> asyncio.Future[Any]:
        job = Job(self, lambda: func(*args))
        self.world.add(job)
        return job.future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_dead

    def die(self) -> None:
        """Runs nothing any more: the process was killed. Ends its coroutines, so that none is left over."""
        self.is_dead = True
        for task in asyncio.all_tasks(self.me):
            coroutine = task.get_coro()
            for _ in range(_MOST_AWAITS_OF_AN_END):
                with contextlib.suppress(RuntimeError):  # it awaits something in its `finally`
                    coroutine.close()
                    break
        self._ready.clear()
