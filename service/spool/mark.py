"""How far the spool has been delivered, in a file that a killed process leaves whole.

    {"done": 1200, "behind": {"orders": 17}, "undone": 40, "check": 2868365343}

Every entry below `done` is delivered or set aside, but for those of the topics in `behind`, of which
everything from that number on may still be to be delivered; of these topics together `undone` entries below
`done` are. `check` is the CRC-32C of the others as JSON: a number that the disk changed would have records
left out. A mark that is lost, or older than the truth, has records delivered again; never one left out.

Delivery's thread, and the CLI's.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from service.base.disk import Disk

_log: Final = logging.getLogger(__name__)

_NAME: Final = "mark.json"


class Mark(msgspec.Struct, frozen=True):
    """See above. Of an empty spool: nothing is done."""

    done: int = 1
    behind: Mapping[str, int] = {}
    undone: int = 0

    @property
    def low(self) -> int:
        """Every entry below it is done, of whatever topic."""
        return min(self.behind.values(), default=self.done)

    def is_done(self, sequence: int, topic: str) -> bool:
        """Whether an entry needs no delivery any more."""
        return sequence < self.done and sequence < self.behind.get(topic, self.done)


class _Checked(msgspec.Struct, frozen=True):
    done: int
    behind: Mapping[str, int]
    undone: int
    check: int


def read_mark(folder: Path, disk: Disk) -> Mark:
    """The mark, or that of an empty spool where there is none that can be read. Raises OSError."""
    try:
        found = msgspec.json.decode(disk.read_whole(folder / _NAME), type=_Checked)
    except FileNotFoundError:
        return Mark()
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return _damaged(folder, e.strerror or str(e))
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        return _damaged(folder, str(e))
    mark = Mark(found.done, found.behind, found.undone)
    return mark if found.check == _check_of(mark) else _damaged(folder, "its checksum is another")


def write_mark(folder: Path, mark: Mark, disk: Disk) -> None:
    """Has the mark on the disk. Raises OSError."""
    checked = _Checked(mark.done, mark.behind, mark.undone, _check_of(mark))
    disk.write_whole(folder / _NAME, msgspec.json.encode(checked))


def _check_of(mark: Mark) -> int:
    return crc32c(msgspec.json.encode(mark))


def _damaged(folder: Path, why: str) -> Mark:
    _log.error(
        "spool: %s/%s is damaged (%s): all that the spool holds is delivered again", folder, _NAME, why
    )
    return Mark()
