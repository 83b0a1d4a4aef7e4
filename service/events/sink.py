"""What the event log asks of a place that lines go to. `event_files.py` and `event_topic.py` are two.

A sink takes from its outbox what it can hand on, and puts back what it could not: so there is one rule for
what is lost, and one place that counts it. It tells a fault once, and once that it is over. Event log's
thread, but for the numbers, which any thread may read.
"""

from __future__ import annotations

from typing import Protocol

from service.events.outbox import Outbox


class Sink(Protocol):
    """Where lines go."""

    @property
    def name(self) -> str:
        """A word for labels."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Lines that were taken, and of which it is not known yet whether they arrived."""
        ...

    @property
    def written(self) -> int:
        """Lines that arrived."""
        ...

    @property
    def deleted(self) -> int:
        """Finished files that gave way to newer ones; 0 where there are no files."""
        ...

    def begin(self) -> None:
        """Called once, before the first turn."""
        ...

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        """Hands on what can be handed on now. Never waits for anybody who may not answer."""
        ...

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Hands on what is left, until the deadline, and ends."""
        ...
