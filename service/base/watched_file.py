"""Reloads files that change, such as tokens and certificates.

    def make(contents: Sequence[bytes]) -> Tokens: ...      # raises FileFaultError if they are invalid

    files = WatchedFiles("tokens_file", [path], make, reported=client_metrics.emit)
    files.in_force                                          # what `make` returned: one attribute read
    files.watch(asyncio.get_running_loop())                 # checks the files from now on
    files.close()

The constructor reads the files first, and raises FileFaultError, because there is no earlier value to keep.
Later, a change that can't be used is logged and counted once, and the last good value stays in use. Files
that belong together (a certificate and its key) are passed together, so that they are checked together.

A check compares contents, not times. So it does not matter whether the kubelet swaps the `..data` link, an
editor replaces the file, or `cp` overwrites it. New content is used only after it was unchanged for
SETTLE_MS. So a half-written file, or a key that is newer than its certificate, is not used.

`InForce` is the pure part: it gets readings and times, and returns what to report. Event loop only.
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

#: Pause between two checks. A change is in use at the second check after it.
LOOK_S: Final = 2.0

#: How long content must be unchanged: longer than any program takes to write a file of this size.
SETTLE_MS: Final = 1_000

#: The largest file. It is read on the event loop, in half a millisecond from the page cache. Certificates and
#: tokens need a few kilobytes.
MAX_FILE_BYTES: Final = 256 * 1024


class FileFaultError(Exception):
    """A file can't be read or used. The message names the file, the position in it, and the remedy."""


class FileTooLargeError(FileFaultError):
    """A file is larger than the limit."""


class Reading(NamedTuple):
    """The contents of the files at one moment, in the order of their paths, or why they can't be read."""

    contents: tuple[bytes, ...] = ()
    fault: str | None = None


class Reload(NamedTuple):
    """A change that was checked. `fault` says why it is not used; None means that it is in use."""

    fault: str | None


class InForce(Generic[_Made]):
    """The last good value, and the reading that it was made of. Pure except for `make`."""

    def __init__(self, make: Callable[[Sequence[bytes]], _Made], first: Reading) -> None:
        """Makes the first value. Raises FileFaultError if it is not possible."""
        self._make = make
        self.made: _Made = self._made_of(first)
        self._judged = self._good = first
        self._seen = first
        self._seen_since_ms = 0

    def take(self, reading: Reading, now_ms: int) -> Reload | None:
        """Returns what to report of this reading; None if it is not new, or not unchanged for long enough."""
        if reading != self._seen:
            self._seen, self._seen_since_ms = reading, now_ms
        if reading == self._judged or now_ms - self._seen_since_ms < SETTLE_MS:
            return None
        fault = None
        if reading != self._good:  # else the good content is back after a fault, which is reported
            try:
                self.made, self._good = self._made_of(reading), reading
            except FileFaultError as error:
                fault = str(error)
        self._judged = reading  # last: after another exception, such as MemoryError, it is tried again
        return Reload(fault)

    def _made_of(self, reading: Reading) -> _Made:
        if reading.fault is not None:
            raise FileFaultError(reading.fault)
        return self._make(reading.contents)


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """The methods of an event loop that periodic checks need."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class WatchedFiles(Generic[_Made]):
    """Files that are checked periodically."""

    def __init__(
        self,
        setting: str,
        paths: Sequence[str | Path],
        make: Callable[[Sequence[bytes]], _Made],
        *,
        reported: Callable[[Event], None],
    ) -> None:
        """`setting` names the files in logs and events. `reported` gets an event for each reload."""
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
        """Returns the value made of the last valid files."""
        return self._in_force.made

    def watch(self, loop: Timers) -> None:
        """Checks the files every LOOK_S seconds from now on, until `close`."""

        def turn() -> None:
            self.watch(loop)  # scheduled first, because `look` may raise
            self.look(int(loop.time() * 1000))

        self._timer = loop.call_later(LOOK_S, turn)

    def close(self) -> None:
        """Stops checking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self, now_ms: int) -> None:
        """Checks the files once; logs and reports a reload."""
        reload = self._in_force.take(read_files(self._paths), now_ms)
        if reload is None:
            return
        if reload.fault is None:
            _log.info("%s: read again", self._setting)
        else:
            _log.warning("%s: %s; the earlier value stays in use", self._setting, reload.fault)
        self._reported(SecretReloaded(self._setting, reload.fault))


def read_files(paths: Sequence[Path]) -> Reading:
    """Returns the contents of all files. Never raises, and never blocks on a path that is not a file."""
    try:
        return Reading(tuple(read_file(path) for path in paths))
    except FileFaultError as error:
        return Reading(fault=str(error))


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Returns the content of a file. Raises FileFaultError; never blocks on a path that is not a file."""
    try:
        # Checked before opening: opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFaultError(f"{path} is not a file; name one")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileFaultError(
            f"can't read {_shown(path)}: {reason}; name a file that this process may read"
        ) from None
    if len(content) > max_bytes:
        raise FileTooLargeError(f"{path} is larger than {max_bytes} bytes; check that it is the right file")
    return content


def _shown(path: Path) -> str:
    """Returns a path that can't be read, unless it is the content of a file, such as a key."""
    text = str(path)
    is_content = "-----BEGIN" in text or "\n" in text
    return "a file whose name is hidden (it is no path, and may be a secret)" if is_content else text
