"""What the allocators of this process have given out: Python's own, and the C library's.

Memory that was given back to an allocator may stay with it, in pieces. Where a process grows and these
numbers don't, nothing is kept but room.
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
    """Blocks of Python's allocator that are in use; of the C heap what is in use, and what it has.

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
