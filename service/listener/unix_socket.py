"""A Unix domain socket that the API listens on: made, guarded by its mode, and taken away at the end.

    nobody may connect who must not    the mode is set before the socket listens, and not connecting is
                                       all that can be done to a bound socket until then
    a dead sidecar's file              refuses connections, so it is replaced
    a living one's, or no socket       is left alone and named
    at the end                         the file goes, unless somebody has put another in its place

Looking and binding are one step against other sidecars: both happen under a lock on the folder, which takes
no file of its own and ends with the process. Who calls: the main thread.
Source: unix(7), flock(2).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from typing import Final

#: sun_path holds 108 bytes, the last of them 0. Source: unix(7).
MAX_PATH_BYTES: Final = 107

#: A listener that lives takes a connection at once, or its backlog is full, which it is only if it lives.
_PROBE_S: Final = 1.0

#: Another sidecar has the lock for a moment, as long as it probes; anybody who may read the folder could have
#: it for ever, and keeps nobody from starting.
_LOCK_S: Final = 1.0
_LOCK_TRY_S: Final = 0.02

_REMEDY: Final = "choose another with --api-socket or PILOTFISH_API_SOCKET"


class UnixSocket:
    """A listening socket and its file."""

    def __init__(self, listening: socket.socket, path: str, identity: tuple[int, int]) -> None:
        self.socket: Final = listening
        self.path: Final = path
        self._identity = identity

    def close(self) -> None:
        """Stops listening, and takes the file away if it is still this socket's. Idempotent; never raises.

        The file first: while the socket is open no other file can have its number.
        """
        if self.socket.fileno() == -1:
            return
        with contextlib.suppress(OSError):  # it is gone already, or its folder may not be written any more
            if _identity(self.path) == self._identity:
                os.unlink(self.path)
        self.socket.close()


def bind_unix_socket(path: str, mode: int, backlog: int) -> UnixSocket:
    """A socket that listens on a path, guarded by `mode`. Raises OSError naming the setting and a remedy."""
    if "\0" in path:
        raise OSError(f"api_socket: a path can't hold a zero byte; {_REMEDY}")
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise OSError(
            f"api_socket: {path} takes {size} bytes, and a socket's path may take {MAX_PATH_BYTES};"
            " choose a shorter one"
        )
    try:
        with _locked_folder(path):
            _make_way(path)
            return _bound(path, mode, backlog)
    except OSError as e:
        if e.errno is None:
            raise  # one of ours, which says it all
        raise OSError(f"api_socket: can't listen on {path}: {os.strerror(e.errno)}; {_REMEDY}") from e


def _bound(path: str, mode: int, backlog: int) -> UnixSocket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        identity = _identity(path)
        try:
            os.chmod(path, mode)
            listening.listen(backlog)
        except BaseException:
            os.unlink(path)
            raise
    except BaseException:
        listening.close()
        raise
    return UnixSocket(listening, path, identity)


def _make_way(path: str) -> None:
    """Removes the socket of somebody who is dead. Raises OSError for anything else that is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(f"api_socket: {path} exists and is not a socket; remove it, or {_REMEDY}")
    if _somebody_listens(path):
        raise OSError(f"api_socket: another process listens on {path}; end it, or {_REMEDY}")
    os.unlink(path)


def _somebody_listens(path: str) -> bool:
    """Whether a connection is taken. Raises OSError where that can't be found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except (TimeoutError, BlockingIOError):  # a full backlog is somebody's
            return True
        except OSError as e:
            # A socket of another kind, datagrams for one, is not ours to judge.
            if e.errno == errno.EPROTOTYPE:
                return True
            raise
    return True


@contextlib.contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    """Keeps other sidecars from looking at the path while this one does."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(folder)
        yield
    finally:
        os.close(folder)


def _lock(folder: int) -> None:
    """Takes the lock if it can be had in time; on a file system without locks there is none to take."""
    deadline_s = time.monotonic() + _LOCK_S
    while time.monotonic() < deadline_s:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_TRY_S)
        except OSError:
            return


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
