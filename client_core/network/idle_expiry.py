"""Which connection has been idle for too long: the least recently used one, if any.

A dict in order of last use; the oldest is looked at no earlier than it can have expired. Pure: now_ms comes
in. Owned by Selector, on the I/O thread. Source: Selector.IdleExpiryManager, Kafka 4.3 (SEL-14).
"""

from __future__ import annotations


class IdleExpiry:
    """The connections by last activity. Not thread-safe."""

    def __init__(self, max_idle_ms: int, now_ms: int) -> None:
        self.max_idle_ms = max_idle_ms
        self._last_active_ms: dict[int, int] = {}
        #: Nobody can have expired before this.
        self.next_check_ms = now_ms + max_idle_ms

    def touch(self, node_id: int, now_ms: int) -> None:
        """Notes that a connection was active."""
        last_active_ms = self._last_active_ms
        if last_active_ms.get(node_id) != now_ms:
            last_active_ms.pop(node_id, None)  # so that it is put last
            last_active_ms[node_id] = now_ms

    def forget(self, node_id: int) -> None:
        self._last_active_ms.pop(node_id, None)

    def expired(self, now_ms: int) -> int | None:
        """The connection that has been idle longest, if that is longer than the limit; one a call at most."""
        if now_ms <= self.next_check_ms:
            return None
        if not self._last_active_ms:
            self.next_check_ms = now_ms + self.max_idle_ms
            return None
        node_id, last_active_ms = next(iter(self._last_active_ms.items()))
        self.next_check_ms = last_active_ms + self.max_idle_ms
        return node_id if now_ms > self.next_check_ms else None
