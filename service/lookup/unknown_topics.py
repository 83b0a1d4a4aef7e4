"""Remembers topics that the brokers do not know, and limits new ones per second.

Each unknown name costs the brokers at least one Metadata request. A caller that invents names must not load
the cluster, nor use up the limit of others. So callers with tokens share each second's names by the rule of
admission control. A topic that turns out to exist does not count: a caller may look up hundreds at once after
a start. A name is remembered for memory_ms. It has no effect once the topic appears, because look-ups read
the snapshot first. Event loop only; takes now_ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client_core import KafkaError
from service.admission.admission_control import is_one_too_many
from service.admission.caller import ANYONE, Caller
from service.wire.errors import Problem, ProblemError
from service.wire.reasons import MANY_UNKNOWN

#: Maximum of remembered names. With a memory of an hour, the limit per second would allow 720,000.
MOST_NAMES: Final = 10_000


@dataclass(slots=True)
class _Question:
    """A question to the brokers: how many callers wait for its answer, and for whom it counts."""

    second: int
    caller: str
    waiting: int = 0


class UnknownTopics:
    """The remembered names, and the limit of new ones."""

    def __init__(self, memory_ms: int, names_per_second: int) -> None:
        self._memory_ms = memory_ms
        self._names_per_second = names_per_second
        #: By expiry time, the earliest first.
        self._until: dict[str, tuple[int, KafkaError]] = {}
        self._being_asked: dict[str, _Question] = {}
        self._second = 0
        self._asked = 0
        self._asked_by: dict[str, int] = {}

    @property
    def remembered_names(self) -> int:
        """The number of names in memory, expired ones included."""
        return len(self._until)

    def remembered(self, topic: str, now_ms: int) -> KafkaError | None:
        """Returns the brokers' recent error for the topic, unless it has expired."""
        found = self._until.get(topic)
        return found[1] if found is not None and now_ms < found[0] else None

    def remember(self, topic: str, error: KafkaError, now_ms: int) -> None:
        """Keeps the error for memory_ms. Drops expired names, and the oldest ones beyond MOST_NAMES."""
        if not self._memory_ms:
            return
        self._until.pop(topic, None)
        while self._until and not self._is_kept(next(iter(self._until)), now_ms):
            del self._until[next(iter(self._until))]
        self._until[topic] = (now_ms + self._memory_ms, error)

    def _is_kept(self, oldest: str, now_ms: int) -> bool:
        return now_ms < self._until[oldest][0] and len(self._until) < MOST_NAMES

    def begin(self, topic: str, now_ms: int, caller: Caller = ANYONE) -> None:
        """Counts a question to the brokers. Raises ProblemError (429) for too many new names this second."""
        question = self._being_asked.get(topic)
        if question is None:
            self._count(topic, now_ms, caller)
            question = self._being_asked[topic] = _Question(self._second, caller.name)
        question.waiting += 1

    def end(self, topic: str, *, exists: bool) -> None:
        """Ends one `begin`: its caller does not wait any more. A topic that exists was no unknown one."""
        question = self._being_asked[topic]
        question.waiting -= 1
        if question.waiting:
            return
        del self._being_asked[topic]
        if exists and question.second == self._second:
            self._asked -= 1
            self._asked_by[question.caller] -= 1

    def _count(self, topic: str, now_ms: int, caller: Caller) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._second, self._asked, self._asked_by = second, 0, {}
        if self._asked >= self._names_per_second:
            detail = f"too many unknown topics in this second: {topic} and {self._asked} others; try again"
            raise ProblemError(Problem(429, detail, retriable=True, written="no", reason=MANY_UNKNOWN))
        own = self._asked_by.get(caller.name, 0)
        if is_one_too_many(caller, own, self._asked, self._names_per_second):
            detail = (
                f"too many unknown topics of {caller.name} in this second: {topic} and {own} others;"
                " try again"
            )
            raise ProblemError(Problem(429, detail, retriable=True, written="no", reason=MANY_UNKNOWN))
        self._asked += 1
        self._asked_by[caller.name] = own + 1
