"""Secrets that may change while the client runs, and the values built from them.

`SecretSource` is the setting: the text itself, or a file that holds it. `Secret` reads it. Each read checks
the file, and reads it again if the path leads to another file. A kubelet renews a mounted secret by swapping
a symbolic link. An unreadable or empty file is logged once, and the last text stays in use, because operators
rotate secrets in several steps. Called by the builder of the config, then by the I/O thread; one owner.

A value built from such texts (an SSLContext, credentials, a token) is rebuilt when they change. If that
fails, the last good value stays in use: operators replace key and certificate, or name and password, one
after the other. An invalid state in between is logged once, and not tried again until the texts change. One
owner thread.

No Java counterpart: Kafka's clients read such files once, through a ConfigProvider.
"""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, SecretReloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.events import EventSink


#: Replaces a secret wherever settings are shown. Java's Password.HIDDEN.
HIDDEN: Final = "[hidden]"

#: Identifies a file and its state: device, inode, time of the last change, size.
_Stamp = tuple[int, int, int, int]


log = logging.getLogger(__name__)

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class InForce(Generic[_Given, _Made]):
    """The last good value, and the texts that it was built from."""

    __slots__ = ("_events", "_made", "_made_of", "_make", "_read", "_refused", "_version")

    def __init__(
        self, read: Callable[[], _Given], make: Callable[[_Given], _Made], events: EventSink
    ) -> None:
        """`read` returns the current texts and never raises; `make` raises ConfigError for invalid ones.

        Builds the first value. Raises ConfigError: there is no earlier value to keep.
        """
        self._read = read
        self._make = make
        self._events = events
        self._made_of = read()
        self._made = make(self._made_of)
        self._refused: _Given | None = None
        self._version = 0

    def now(self) -> _Made:
        """Returns the value for the current texts, or the last good one. Never raises."""
        given = self._read()
        if given not in (self._made_of, self._refused):
            try:
                self._made, self._made_of, self._refused = self._make(given), given, None
                self._version += 1
            except ConfigError as error:
                self._refused = given
                self._complain(error)
        return self._made

    def version(self) -> int:
        """Returns a number that grows with each new value. Never raises."""
        self.now()
        return self._version

    def _complain(self, error: ConfigError) -> None:
        log.warning("%s; the earlier value stays in use", error)
        self._events.emit(SecretReloaded(error.name or "", error.message))

    def __repr__(self) -> str:
        return f"<InForce {type(self._made).__name__}>"


@dataclass(frozen=True, slots=True, repr=False)
class SecretSource:
    """The origin of a secret: its text, or else a file. `name` is the setting, for errors."""

    name: str
    text: str | None = None
    path: str | None = None

    def __repr__(self) -> str:
        return f"<SecretSource {self.name} {HIDDEN if self.path is None else self.path}>"


class Secret:
    """The current text of a source. One owner thread."""

    __slots__ = ("_complained_of", "_events", "_source", "_stamp", "_text")

    def __init__(self, source: SecretSource, events: EventSink = NO_EVENTS) -> None:
        """Reads it. Raises ConfigError when the file is missing, empty or no file."""
        self._source = source
        self._events = events
        self._stamp: _Stamp | None = None
        self._complained_of: str | None = None
        self._text = source.text
        if source.path is not None:
            try:
                self._stamp = _stamp(source.path)
                self._text = _read(source.path)
            except (OSError, ValueError) as error:  # a chained one would hold undecodable bytes, or the path
                raise ConfigError(f"{source.name}: {self._reason(error)}", name=source.name) from None
        if not self._text:
            raise ConfigError(f"{source.name} is empty", name=source.name)

    @property
    def name(self) -> str:
        return self._source.name

    def read(self) -> str:
        """Returns the text; of a file, the current or last readable one. Never raises."""
        path = self._source.path
        if path is not None:
            try:
                self._look_again(path)
            except (OSError, ValueError) as error:
                self._complain(self._reason(error))
        assert self._text is not None
        return self._text

    def _look_again(self, path: str) -> None:
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        found = _read(path)
        self._stamp, self._complained_of = stamp, None
        if found != self._text:
            self._text = found
            log.info("%s was read again from %s", self.name, path)
            self._events.emit(SecretReloaded(self.name, None))

    def _complain(self, reason: str) -> None:
        if reason != self._complained_of:
            self._complained_of = reason
            log.warning("%s: %s; the earlier value stays in use", self.name, reason)
            self._events.emit(SecretReloaded(self.name, reason))

    def _reason(self, error: OSError | ValueError) -> str:
        """Returns the cause, without a byte of the file."""
        if isinstance(error, OSError):
            return f"can't read {self._shown_path()}: {(error.strerror or str(error)).lower()}"
        if isinstance(error, UnicodeDecodeError):
            return "the file is not UTF-8"
        return str(error)

    def _shown_path(self) -> str:
        """Returns the path of what can't be read, unless it may be the secret itself in its path's place."""
        path = str(self._source.path)
        is_path = path.startswith("/") or self._source.name.endswith(".location")
        if is_path and path.isprintable() and "-----BEGIN" not in path:
            return path
        return "a file whose name is hidden (it is no absolute path, and may be a secret)"

    def __repr__(self) -> str:
        return f"<Secret {self._source!r}>"


def text(secret: Secret | None) -> str | None:
    """Returns a secret's current text, or None without one."""
    return None if secret is None else secret.read()


def _stamp(path: str) -> _Stamp:
    """Raises OSError; ValueError for anything but a file: to open a pipe would wait for its writer."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a file")
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: str) -> str:
    """Returns a file's text without the byte order mark of some editors and the final line end.

    Raises OSError, ValueError.
    """
    found = Path(path).read_text(encoding="utf-8-sig").rstrip("\r\n")
    if not found:
        raise ValueError(f"{path} is empty")
    return found
