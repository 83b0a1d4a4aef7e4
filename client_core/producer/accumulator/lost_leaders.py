"""Brokers whose connection ended and is not back: records without a key may go to other partitions meanwhile.

Kafka takes some nine seconds to elect leaders for the partitions of a broker that died. Java's partitioner
goes on giving them records, which wait for that long. A record without a key need not: any partition will do.
So while a broker is lost, partitions that it leads are not chosen, and what waits for them and was never sent
is given to others. It is tried again every `probe_interval_ms`, without a record being risked for it, and is
back when it can be sent to; while records wait, the others are asked as often who leads their partitions now.
Records with a key or a partition, and those that were sent, wait as in Java; and so do all where every leader
is lost.

An interval of 0 turns this off: nobody is ever lost. Kafka's client has no such option. The I/O thread alone
changes it; `node_ids` is swapped whole, and any thread may read it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

_log: Final = logging.getLogger(__name__)


class LostLeaders:
    """Who is lost, and when to try each again."""

    def __init__(self, probe_interval_ms: int) -> None:
        self._probe_interval_ms = probe_interval_ms
        self._next_probe_ms: dict[int, int] = {}
        #: Those that are lost now: the very same set for as long as they are.
        self.node_ids: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<LostLeaders {sorted(self.node_ids)}>"

    def lost(self, node_id: int, now_ms: int) -> None:
        """Its connection ended, or could not be made."""
        if self._probe_interval_ms <= 0 or node_id in self.node_ids:
            return
        _log.info("Records without a key keep away from node %s: its connection ended", node_id)
        self._next_probe_ms[node_id] = now_ms + self._probe_interval_ms
        self.node_ids = frozenset(self._next_probe_ms)

    def found(self, node_id: int) -> None:
        """It can be sent to again, or is no broker any more."""
        if node_id in self.node_ids:
            _log.info("Records without a key go to node %s again, or it is no broker any more", node_id)
            del self._next_probe_ms[node_id]
            self.node_ids = frozenset(self._next_probe_ms)

    def due(self, now_ms: int) -> Sequence[int]:
        """Those that are to be tried now; the next time is an interval away."""
        due = [node_id for node_id, probe_ms in self._next_probe_ms.items() if probe_ms <= now_ms]
        for node_id in due:
            self._next_probe_ms[node_id] = now_ms + self._probe_interval_ms
        return due

    @property
    def next_probe_ms(self) -> int:
        """When the next is due; FOREVER_MS while nobody is lost."""
        return min(self._next_probe_ms.values(), default=FOREVER_MS)
