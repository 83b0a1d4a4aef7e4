"""How long brokers have refused one topic's records, and when to give up: after wait_ms without a delivery.

For as long again after records were set aside, other records of the topic that are refused for the same reason
are not waited for: a topic with many such records would go on at one record a wait otherwise. A delivery ends
that, too, where the reason is one of the whole topic.

The state is the process's: after a restart a wait begins anew. Delivery's thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from service.spool.aside import Reason

#: Reasons that hold for all records of a topic: one that is delivered shows that they hold no more.
OF_TOPIC: Final = frozenset({"forbidden", "topic_gone"})


class Refusal(NamedTuple):
    """Why records wait, since when (milliseconds of the clock), and the broker's last words."""

    reason: Reason
    since_ms: int
    detail: str


class Patience:
    """One topic's."""

    __slots__ = ("_gave_up_ms", "_since_ms", "refusal")

    def __init__(self) -> None:
        #: The last refusal of records that wait; None where none do.
        self.refusal: Refusal | None = None
        #: Since when records are refused, and when some were last set aside, by the reason.
        self._since_ms: dict[Reason, int] = {}
        self._gave_up_ms: dict[Reason, int] = {}

    def is_over(self, reason: Reason, detail: str, now_ms: int, wait_ms: int) -> bool:
        """Notes that records are refused now; whether they are to be set aside."""
        gave_up_ms = self._gave_up_ms.get(reason)
        since_ms = self._since_ms.setdefault(reason, now_ms)
        if now_ms - since_ms < wait_ms and (gave_up_ms is None or now_ms - gave_up_ms >= wait_ms):
            self.refusal = Refusal(reason, since_ms, detail)
            return False
        self.interrupted()
        self._gave_up_ms[reason] = now_ms
        return True

    def interrupted(self) -> None:
        """Something else than a refusal came in between: the next one is the first again."""
        self.refusal = None
        self._since_ms.clear()

    def delivered(self) -> None:
        """A record of the topic was delivered."""
        self.interrupted()
        for reason in OF_TOPIC:
            self._gave_up_ms.pop(reason, None)

    def begin_anew(self) -> None:
        """Records come back that were set aside: they are waited for again."""
        self.interrupted()
        self._gave_up_ms.clear()
