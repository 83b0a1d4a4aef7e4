"""The caller of a request, and the topics that it may read and produce to.

The guards authenticate the caller and store it in the request's scope; `caller_of` returns it. If no tokens
are in use, every caller is ANYONE, who may do everything. A topic that a caller may not use gets Kafka's
answer, TOPIC_AUTHORIZATION_FAILED, whether or not it exists. Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from client_core import Errors
from service.wire.asgi import Scope
from service.wire.errors import Problem, ProblemError

#: The caller's key in the scope.
_SCOPE_KEY: Final = "pilotfish.caller"


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Topic names: exact ones, prefixes (`orders-*`), or all (`*`)."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @staticmethod
    def of(patterns: Iterable[str]) -> TopicRules:
        """Returns the rules for patterns such as `orders`, `audit-*`, and `*`, which is the empty prefix."""
        given = list(patterns)
        return TopicRules(
            frozenset(pattern for pattern in given if not pattern.endswith("*")),
            tuple(pattern[:-1] for pattern in given if pattern.endswith("*")),
        )

    def allow(self, topic: str) -> bool:
        return topic in self.names or topic.startswith(self.prefixes)


ALL_TOPICS: Final = TopicRules(prefixes=("",))


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller with a token, or ANYONE.

    `name` is not secret; logs and answers use it. The limits apply to this caller alone; None means those of
    the sidecar.
    """

    name: str
    read: TopicRules
    produce: TopicRules
    max_waiting_requests: int | None = None
    max_waiting_bytes: int | None = None

    @property
    def may_read_all(self) -> bool:
        return "" in self.read.prefixes

    def split(self, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Returns the topics that the caller may read, and the others."""
        may: list[str] = []
        may_not: list[str] = []
        for topic in topics:
            (may if self.read.allow(topic) else may_not).append(topic)
        return may, may_not

    def check_read(self, topic: str) -> None:
        """Raises ProblemError (403) for a topic that the caller may not look up."""
        if not self.read.allow(topic):
            raise ProblemError(not_authorized(topic))

    def check_produce(self, topic: str) -> None:
        """Raises ProblemError (403) for a topic that the caller may not produce to."""
        if not self.produce.allow(topic):
            raise ProblemError(not_authorized(topic))


#: Every caller if no tokens are in use.
ANYONE: Final = Caller("anyone", ALL_TOPICS, ALL_TOPICS)


def not_authorized(topic: str) -> Problem:
    """Returns Kafka's own answer, which does not show whether the topic exists."""
    error = Errors.TOPIC_AUTHORIZATION_FAILED
    return Problem(
        403,
        f"not authorized to access topic {topic}",
        kafka_error=error.name,
        code=error.code,
        written="no",
    )


def caller_of(scope: Scope) -> Caller:
    """Returns the caller that the guards stored."""
    caller: Caller = scope.get(_SCOPE_KEY, ANYONE)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    """Stores the caller in the scope. Called by the guards."""
    scope[_SCOPE_KEY] = caller
