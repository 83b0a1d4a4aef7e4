"""How far the spool has been delivered, in a file that a killed process leaves whole.

    {"done": 1200, "behind": {"orders": 17}}

Every entry below `done` is delivered or set aside, but for those of the topics in `behind`, of which
everything from that number on may still be to be delivered. A mark that is lost, or older than the truth, has
records delivered again; never one left out.

Delivery's thread, and the CLI's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from service.spool.disk import Disk

_log: Final = logging.getLogger(__name__)

_NAME: Final = "mark.json"


class Mark(msgspec.Struct, frozen=True):
    """See above. Of an empty spool: nothing is done."""

    done: int = 1
    behind: Mapping[str, int] = {}

    @property
    def low(self) -> int:
        """Every entry below it is done, of whatever topic."""
        return min(self.behind.values(), default=self.done)

    def is_done(self, sequence: int, topic: str) -> bool:
        """Whether an entry needs no delivery any more."""
        return sequence < self.done and sequence < self.behind.get(topic, self.done)


def read_mark(folder: Path) -> Mark:
    """The mark, or that of an empty spool where there is none that can be read. Raises OSError."""
    try:
        return msgspec.json.decode((folder / _NAME).read_bytes(), type=Mark)
    except FileNotFoundError:
        return Mark()
    except msgspec.DecodeError as e:
        _log.error(
            "spool: %s/%s is damaged (%s): all that the spool holds is delivered again", folder, _NAME, e
        )
        return Mark()


def write_mark(folder: Path, mark: Mark, disk: Disk) -> None:
    """Has the mark on the disk. Raises OSError."""
    disk.write_whole(folder / _NAME, msgspec.json.encode(mark))
