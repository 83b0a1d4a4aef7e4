"""The API's Unix domain socket: creates it with its mode, removes it at the end.

    unauthorized users              can't connect: the mode is set before the socket listens, and a bound
                                    socket refuses until then
    a dead sidecar's file           refuses connections, so it is replaced
    a live one's, or no socket      is left alone and named in the error
    at the end                      the file is removed, unless it has been replaced

Check and bind are atomic among sidecars: both happen under a lock on the folder, which needs no extra file
and ends with the process. Called on the main thread. Source: unix(7), flock(2).
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

#: A live listener accepts at once; a full backlog also means that it is alive.
_PROBE_S: Final = 1.0

#: Another sidecar holds the lock only while it probes. But any reader of the folder could hold it for ever:
#: that must not block a start.
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
        """Stops listening, and removes the file if it is still this socket's. Idempotent; never raises.

        The file goes first: while the socket is open, no other file can have its inode number.
        """
        if self.socket.fileno() == -1:
            return
        with contextlib.suppress(OSError):  # gone already, or its folder is not writable any more
            if _identity(self.path) == self._identity:
                os.unlink(self.path)
        self.socket.close()


def bind_unix_socket(path: str, mode: int, backlog: int) -> UnixSocket:
    """Returns a socket that listens on `path` with `mode`. Raises OSError with the setting and a remedy."""
    if "\0" in path:
        raise OSError(f"api_socket: a path can't contain a zero byte; {_REMEDY}")
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise OSError(
            f"api_socket: {path} has {size} bytes, but a socket's path may have {MAX_PATH_BYTES}; choose "
            "a shorter one"
        )
    try:
        with _locked_folder(path):
            _make_way(path)
            return _bound(path, mode, backlog)
    except OSError as e:
        if e.errno is None:
            raise  # one of ours, already complete
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
    """Removes a dead process's socket. Raises OSError for anything else at the path."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(f"api_socket: {path} exists and is not a socket; remove it, or {_REMEDY}")
    if _somebody_listens(path):
        raise OSError(f"api_socket: another process listens on {path}; end it, or {_REMEDY}")
    with contextlib.suppress(FileNotFoundError):  # a sidecar that ends removes its own
        os.unlink(path)


def _somebody_listens(path: str) -> bool:
    """Returns whether a process accepts connections there. Raises OSError if unknown."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (TimeoutError, BlockingIOError):  # a full backlog has an owner
            return True
        except OSError as e:
            # A socket of another type, such as datagram, is not ours to remove.
            if e.errno == errno.EPROTOTYPE:
                return True
            raise
    return True


@contextlib.contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    """Keeps other sidecars from checking the path at the same time."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(folder)
        yield
    finally:
        os.close(folder)


def _lock(folder: int) -> None:
    """Takes the lock if it is free in time; continues without it on timeout, or if locks are unsupported."""
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
