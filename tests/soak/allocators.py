"""The memory that the allocators of this process have handed out: Python's own, and the C library's.

Memory that was freed may stay with the allocator, in pieces. If a process grows and these numbers don't, only
free memory has grown.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final


class _MallInfo2(ctypes.Structure):
    """struct mallinfo2 of glibc (2.33 and newer), in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


_LIBC: Final = ctypes.CDLL(None)


def allocated() -> dict[str, int]:
    """The used blocks of Python's allocator; the used bytes of the C heap, and its size.

    The C heap is included where the C library reports it (glibc). Texts and numbers are Python's blocks, too;
    no inventory of objects shows them.
    """
    found = {"python_blocks": sys.getallocatedblocks()}
    heap = _heap()
    if heap is not None:
        found["c_heap_used_bytes"] = heap.uordblks + heap.hblkhd
        found["c_heap_bytes"] = heap.arena + heap.hblkhd
    return found


def mapped_bytes() -> int | None:
    """Of blocks that the C library has mapped each by itself; None where it cannot say."""
    heap = _heap()
    return None if heap is None else heap.hblkhd


def _heap() -> Any:
    if not hasattr(_LIBC, "mallinfo2"):
        return None
    _LIBC.mallinfo2.restype = _MallInfo2
    return _LIBC.mallinfo2()
