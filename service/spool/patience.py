"""How long brokers have refused one topic's records, and when to give up: after wait_ms without a delivery.

A reason that was waited for in vain is not waited for again, until for as long nothing of the topic was set
aside: a topic with many such records would go on at one record a wait otherwise. A delivery ends that, too,
where the reason is one of the whole topic.

The state is the process's: after a restart a wait begins anew. Delivery's thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from service.spool.dead_letters import Reason

#: Reasons that hold for all records of a topic: one that is delivered shows that they hold no more.
OF_TOPIC: Final = frozenset({"forbidden", "topic_gone"})


class Refusal(NamedTuple):
    """Why records wait, since when (milliseconds of the clock), and the broker's last words."""

    reason: Reason
    since_ms: int
    detail: str


class Patience:
    """One topic's."""

    __slots__ = ("_given_up", "_given_up_ms", "_since_ms", "refusal")

    def __init__(self) -> None:
        #: The last refusal of records that wait; None where none do.
        self.refusal: Refusal | None = None
        #: Since when records are refused, by the reason.
        self._since_ms: dict[Reason, int] = {}
        #: The reasons that were waited for in vain, and when something was last set aside.
        self._given_up: set[Reason] = set()
        self._given_up_ms = 0

    def is_over(self, reason: Reason, detail: str, now_ms: int, wait_ms: int) -> bool:
        """Notes that records are refused now; whether they are to be set aside."""
        if reason not in self._since_ms:
            self._since_ms[reason] = now_ms
            if now_ms - self._given_up_ms >= wait_ms:
                self._given_up.clear()
        since_ms = self._since_ms[reason]
        if now_ms - since_ms < wait_ms and reason not in self._given_up:
            self.refusal = Refusal(reason, since_ms, detail)
            return False
        self.interrupted()
        self._given_up.add(reason)
        self._given_up_ms = now_ms
        return True

    def interrupted(self) -> None:
        """Something else than a refusal came in between: the next one is the first again."""
        self.refusal = None
        self._since_ms.clear()

    def delivered(self) -> None:
        """A record of the topic was delivered."""
        self.interrupted()
        self._given_up -= OF_TOPIC

    def begin_anew(self) -> None:
        """Records come back that were set aside: they are waited for again."""
        self.interrupted()
        self._given_up.clear()
