"""Files that may change while the sidecar runs, such as tokens and certificates: what is made of them.

    def make(contents: Sequence[bytes]) -> Tokens: ...      # raises FileFaultError where they won't do

    files = WatchedFiles("tokens_file", [path], make, told=client_metrics.emit)
    files.in_force                                          # what is made of them: one attribute read
    files.watch(asyncio.get_running_loop())                 # from here on they are looked at
    files.close()

The first read is made by the constructor, which raises FileFaultError: nothing is there yet that could stay
in force. After that a change that can't be used is told once and counted, and the last good thing stays.
Files that belong together (a certificate and its key) are given together, so that they are judged together.

A look compares contents, not times: a file that a kubelet swaps by its `..data` link, that an editor
replaces or that `cp` writes into is the same to it. Content counts when it has stood still for SETTLE_MS, so
a file that is half written, and a key that is newer than its certificate, are not taken for what was meant.

`InForce` is the pure part: readings and times go in, what is to be told comes out. Event loop only.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from client_core import Event, SecretReloaded

_log: Final = logging.getLogger(__name__)

_Made = TypeVar("_Made")

#: Between two looks. A change is in force after SETTLE_MS, and this once or twice.
LOOK_S: Final = 2.0

#: How long content must stand still: longer than any program takes to write a file of this size.
SETTLE_MS: Final = 1_000

#: What is read at once, on the event loop: half a millisecond from the page cache. Certificates and tokens
#: take a few kilobytes.
MAX_FILE_BYTES: Final = 256 * 1024


class FileFaultError(Exception):
    """A file can't be read or can't be used. The message names the file, the place in it, and the remedy."""


class FileTooLargeError(FileFaultError):
    """A file is larger than what is read at once."""


class Reading(NamedTuple):
    """What the files hold at one moment, in the order of their paths, or why that can't be said."""

    contents: tuple[bytes, ...] = ()
    fault: str | None = None


class Reload(NamedTuple):
    """A change that was judged. `fault` is why it is not used; None: it is in force now."""

    fault: str | None


class InForce(Generic[_Made]):
    """The last good thing, and what it was made of. Pure but for `make`."""

    def __init__(self, make: Callable[[Sequence[bytes]], _Made], first: Reading) -> None:
        """Makes the first one; raises FileFaultError where that can't be."""
        self._make = make
        self.made: _Made = self._made_of(first)
        self._judged = self._good = first
        self._seen = first
        self._seen_since_ms = 0

    def take(self, reading: Reading, now_ms: int) -> Reload | None:
        """What is to be told of this reading; None where it is not new, or has not stood still yet."""
        if reading != self._seen:
            self._seen, self._seen_since_ms = reading, now_ms
        if reading == self._judged or now_ms - self._seen_since_ms < SETTLE_MS:
            return None
        self._judged = reading
        if reading == self._good:
            # Back to what is in force: there is nothing to make, but whoever was told of a fault is told.
            return Reload(None)
        try:
            self.made = self._made_of(reading)
        except FileFaultError as error:
            return Reload(str(error))
        self._good = reading
        return Reload(None)

    def _made_of(self, reading: Reading) -> _Made:
        if reading.fault is not None:
            raise FileFaultError(reading.fault)
        return self._make(reading.contents)


class Timer(Protocol):
    """Something that will be called unless it is cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """What of an event loop is needed to look again and again."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class WatchedFiles(Generic[_Made]):
    """Files, looked at again and again."""

    def __init__(
        self,
        setting: str,
        paths: Sequence[str | Path],
        make: Callable[[Sequence[bytes]], _Made],
        *,
        reported: Callable[[Event], None],
    ) -> None:
        """`setting` is what the files are called in logs, and to `told`, which hears of each reload."""
        self._setting = setting
        self._paths = [Path(path) for path in paths]
        self._reported = reported
        try:
            self._in_force = InForce(make, read_files(self._paths))
        except FileFaultError as error:
            raise FileFaultError(f"{setting}: {error}") from error
        self._timer: Timer | None = None

    @property
    def in_force(self) -> _Made:
        """What was made of the last files that could be used."""
        return self._in_force.made

    def watch(self, loop: Timers) -> None:
        """Looks at the files every LOOK_S from now on, until `close`."""

        def turn() -> None:
            self.watch(loop)  # the next look is set before this one can fail
            self.look(int(loop.time() * 1000))

        self._timer = loop.call_later(LOOK_S, turn)

    def close(self) -> None:
        """Looks no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self, now_ms: int) -> None:
        """Looks once; logs and counts what came of it."""
        reload = self._in_force.take(read_files(self._paths), now_ms)
        if reload is None:
            return
        if reload.fault is None:
            _log.info("%s: read again", self._setting)
        else:
            _log.warning("%s: %s; the earlier value stays in use", self._setting, reload.fault)
        self._reported(SecretReloaded(self._setting, reload.fault))


def read_files(paths: Sequence[Path]) -> Reading:
    """What all of them hold. Never raises, and never waits on what is no file."""
    try:
        return Reading(tuple(read_file(path) for path in paths))
    except FileFaultError as error:
        return Reading(fault=str(error))


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """What a file holds. Raises FileFaultError; never waits on what is no file."""
    try:
        # Asked before it is opened: a pipe would wait for somebody who writes.
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFaultError(f"{path} is no file; name one")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileFaultError(
            f"can't read {path}: {reason}; name a file that this process may read"
        ) from error
    if len(content) > max_bytes:
        raise FileTooLargeError(f"{path} is larger than {max_bytes} bytes; it is hardly the right file")
    return content
