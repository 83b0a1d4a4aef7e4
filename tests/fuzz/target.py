"""What is fuzzed: a decoder, how valid input for it is made, and which errors it may raise.

    judge(target, data)      READ or REFUSED; FaultError for anything else

The rules: a value or an error of the documented types, within `DEADLINE_S`, and memory in proportion to the
input. The error's message can be shown as text. Main thread only: the deadline is a signal's.
"""

from __future__ import annotations

import faulthandler
import signal
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from tests.fuzz.mutation import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

#: Of this process's own time, for one input of at most 200,000 bytes.
DEADLINE_S: Final = 10
#: C code that does not check for signals ends the process, with a stack.
_HARD_DEADLINE_S: Final = 100

#: The peak memory of a decoder: for each byte of input, and besides. An empty struct of a wire format is one
#: byte there and some ninety here, beside its place in a list and a tuple.
BYTES_PER_BYTE: Final = 220
BYTES_AT_LEAST: Final = 150_000


class DeliveryOutcome(Enum):
    """How a decoder that kept its promise ended."""

    READ = "read"
    REFUSED = "refused"


class FaultError(AssertionError):
    """A decoder broke its promise."""


class _TooLateError(BaseException):
    """Passes by every `except Exception` of the code under test."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One decoder.

    `make` gives valid input, `read` decodes, `refusals` are its documented errors. `spoil` makes the input to
    try from a Random; by default it is valid input, mutated as bytes with `tokens`.
    """

    name: str
    make: Callable[[Random], bytes]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    tokens: tuple[bytes, ...] = ()
    spoil: Callable[[Random], bytes] | None = None
    bytes_per_byte: int = BYTES_PER_BYTE
    bytes_at_least: int = BYTES_AT_LEAST
    #: Whether its errors are sent as UTF-8; those about our own settings go to a terminal and need not be.
    is_reported: bool = True

    def __repr__(self) -> str:
        return f"<Target {self.name}>"

    def input(self, random: Random) -> bytes:
        """One input to try."""
        if self.spoil is not None and random.random() < 0.6:
            spoilt = self.spoil(random)
            if random.random() < 0.7:
                return spoilt
        else:
            spoilt = self.make(random)
        return mutated(spoilt, lambda: self.make(random), self.tokens, random)


def judge(target: Target, data: bytes, *, weighs: bool = False) -> DeliveryOutcome:
    """Decodes once; with `weighs` a second time, and looks at the memory."""
    outcome = _read(target, data)
    if weighs:
        # Once before: what is imported or prepared at first use is not this input's.
        allowed = target.bytes_at_least + target.bytes_per_byte * len(data)
        peak = min(_peak_bytes(target, data) for _ in range(2))
        if peak > allowed:
            raise FaultError(f"{target.name}: {len(data)} bytes took {peak} at their peak: {shown(data)}")
    return outcome


def _read(target: Target, data: bytes) -> DeliveryOutcome:
    try:
        target.read(data)
    except target.refusals as refusal:
        try:
            str(refusal).encode(errors="strict" if target.is_reported else "backslashreplace")
        except UnicodeEncodeError as error:
            raise FaultError(f"{target.name}: {refusal!r} can't be shown: {shown(data)}") from error
        return DeliveryOutcome.REFUSED
    except _TooLateError as error:
        raise FaultError(f"{target.name}: not over in time: {shown(data)}") from error
    except Exception as error:
        raise FaultError(f"{target.name}: {type(error).__name__}: {error}: {shown(data)}") from error
    return DeliveryOutcome.READ


def _peak_bytes(target: Target, data: bytes) -> int:
    tracemalloc.start()
    try:
        _read(target, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def shown(data: bytes) -> str:
    """Input for a message: all of it, or its beginning and how long it is."""
    return repr(data) if len(data) <= 2_000 else f"{data[:2_000]!r}... ({len(data)} bytes)"


class Deadline:
    """The alarm that ends a decoder which goes on; `begin` before each input."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self) -> None:
        """From now on; and again after that, should the code under test have swallowed it."""
        signal.setitimer(signal.ITIMER_PROF, self._seconds, max(self._seconds, 1.0))


@contextmanager
def deadline(seconds: float = DEADLINE_S) -> Iterator[Deadline]:
    """Within this block, decoders end. Main thread only."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGPROF, end)
    try:
        yield Deadline(seconds)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(slots=True)
class Tried:
    """How many inputs a decoder read, how many it refused, and where it broke its promise."""

    read: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    #: The inputs that made them.
    broke: list[bytes] = field(default_factory=list)


def try_inputs(target: Target, name: str, numbers: range, *, weigh_every: int = 16) -> Tried:
    """Judges an input for each number; all of it depends on them, the target and the name alone."""
    tried = Tried()
    with deadline() as alarm:
        for number in numbers:
            data = target.input(Random(f"{name}/{target.name}/{number}"))
            alarm.begin()
            try:
                outcome = judge(target, data, weighs=number % weigh_every == 0)
            except FaultError as fault:
                tried.faults.append(f"seed {name}, input {number}: {fault}")
                tried.broke.append(data)
            else:
                tried.read += outcome is DeliveryOutcome.READ
                tried.refused += outcome is DeliveryOutcome.REFUSED
    return tried


@contextmanager
def ended_when_stuck() -> Iterator[Callable[[], None]]:
    """Ends this process, with every stack, if the yielded function is not called for a while."""

    def still_here() -> None:
        faulthandler.dump_traceback_later(_HARD_DEADLINE_S, exit=True)

    still_here()
    try:
        yield still_here
    finally:
        faulthandler.cancel_dump_traceback_later()
