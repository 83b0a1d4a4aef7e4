"""What of failing batches is news: a partition that fails is told once for each error, until it works again.

When a broker dies, each batch of each partition that it led fails, and goes on failing at each retry: that is
a thousand lines for one event. What is no news is told at DEBUG. One owner, the I/O thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from client_core.cluster import TopicPartition
    from client_core.error_codes import Errors

_log: Final = logging.getLogger(__name__)

#: Lines about failures in a minute. Who looks for the other partitions finds them in metrics and status.
MOST_LINES: Final = 20
WINDOW_MS: Final = 60_000
#: Partitions, and topics with large batches, that are remembered; one that is gone never works again.
_MOST_REMEMBERED: Final = 1_000


class ProduceNews:
    """The partitions whose failures were told."""

    def __init__(self) -> None:
        #: By partition, the errors that were told of it; empty while everything works.
        self.told: Final[dict[TopicPartition, set[tuple[Errors, bool]]]] = {}
        self._told_too_large: Final[dict[str, None]] = {}
        self._window_ms = 0
        self._lines = 0

    def failed(self, partition: TopicPartition, error: Errors, now_ms: int, *, for_good: bool = False) -> int:
        """The level at which to tell of a batch that failed: it is tried again, or given up for good."""
        told = self.told.get(partition)
        if told is not None and (error, for_good) in told:
            return logging.DEBUG
        if not self._has_room(now_ms):
            return logging.DEBUG
        if told is None:
            if len(self.told) >= _MOST_REMEMBERED:
                del self.told[next(iter(self.told))]
            told = self.told[partition] = set()
        told.add((error, for_good))
        return logging.WARNING

    def succeeded(self, partition: TopicPartition) -> None:
        """A batch was acknowledged."""
        if self.told.pop(partition, None) is not None:
            _log.info("Produce to %s works again", partition)

    def too_large(self, topic: str) -> int:
        """The level at which to tell that a batch is split: that goes on until somebody changes a setting."""
        if topic in self._told_too_large or len(self._told_too_large) >= _MOST_REMEMBERED:
            return logging.DEBUG
        self._told_too_large[topic] = None
        return logging.WARNING

    def _has_room(self, now_ms: int) -> bool:
        if now_ms - self._window_ms >= WINDOW_MS:
            self._window_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines == MOST_LINES + 1:
            _log.warning("Produce fails for more partitions than are named in a minute (%d)", MOST_LINES)
        return self._lines <= MOST_LINES
