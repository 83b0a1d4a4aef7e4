"""Texts that must not be shown, and that may change while the client runs: passwords, keys, certificates.

`SecretSource` is the setting: the text itself, or a file that holds it. `Secret` reads it. A file is looked
at again at each read, and read again once it is another one: a kubelet renews a mounted secret by swapping a
symbolic link, so what is compared is the file that the path leads to. A file that can't be read any more, or
is empty, leaves the last text in force (operators rotate secrets in more than one step), and is complained of
once.

Who calls: whoever makes the config, then the I/O thread; `Secret` has one owner. No Java counterpart: Kafka
reads files through a ConfigProvider, once.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, SecretReloaded

if TYPE_CHECKING:
    from client_core.events import EventSink

log = logging.getLogger(__name__)

#: What stands in place of a secret wherever settings are shown. Java's Password.HIDDEN.
HIDDEN: Final = "[hidden]"

#: Which file a path leads to, and which state of it: device, inode, time of the last change, size.
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, repr=False)
class SecretSource:
    """Where a secret comes from: its text, or else a file. `name` is the setting, for errors."""

    name: str
    text: str | None = None
    path: str | None = None

    def __repr__(self) -> str:
        return f"<SecretSource {self.name} {HIDDEN if self.path is None else self.path}>"


class Secret:
    """The present text of a source. One owner thread."""

    __slots__ = ("_complained_of", "_events", "_source", "_stamp", "_text")

    def __init__(self, source: SecretSource, events: EventSink = NO_EVENTS) -> None:
        """Reads it. Raises ConfigError when there is no such file, or nothing in it."""
        self._source = source
        self._events = events
        self._stamp: _Stamp | None = None
        self._complained_of: str | None = None
        self._text = source.text
        if source.path is not None:
            try:
                self._stamp = _stamp(source.path)
                self._text = _read(source.path)
            except OSError as error:
                raise ConfigError(f"{source.name}: {_reason(error)}", name=source.name) from error
            except ValueError as error:  # it holds what it could not decode
                raise ConfigError(f"{source.name}: {_reason(error)}", name=source.name) from None
        if not self._text:
            raise ConfigError(f"{source.name} is empty", name=source.name)

    @property
    def name(self) -> str:
        return self._source.name

    def read(self) -> str:
        """The text; a file's of now, or its last readable one. Never raises."""
        path = self._source.path
        if path is not None:
            try:
                self._look_again(path)
            except (OSError, ValueError) as error:
                self._complain(_reason(error))
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
            log.warning("%s: %s; what was read before stays in force", self.name, reason)
            self._events.emit(SecretReloaded(self.name, reason))

    def __repr__(self) -> str:
        return f"<Secret {self._source!r}>"


def text(secret: Secret | None) -> str | None:
    """What a secret holds now, if there is one."""
    return None if secret is None else secret.read()


def _stamp(path: str) -> _Stamp:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: str) -> str:
    """A file's text without the line end that editors leave. Raises OSError, ValueError."""
    found = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    if not found:
        raise ValueError(f"{path} is empty")
    return found


def _reason(error: OSError | ValueError) -> str:
    """What went wrong, without a byte of what the file holds."""
    if isinstance(error, OSError):
        return f"can't read {error.filename}: {(error.strerror or str(error)).lower()}"
    if isinstance(error, UnicodeDecodeError):
        return "the file is not UTF-8"
    return str(error)
