"""The last failed requests, for `/v1/status` and the console: who, what, why, and the trace.

    one entry   per caller, call, topic and reason; a repetition is counted, and moves the entry to the front
    bounded     MOST entries, each of bounded texts
    visible     to its caller, and to callers that may read its topic

Refusals of the guards are not kept, because they have no caller. Nothing that a caller sent is kept. Event
loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from client_core import Clock
from service.admission.caller import Caller, caller_of
from service.base.topic_names import MAX_LENGTH
from service.observe.request_trace import current_trace_id
from service.wire.asgi import Scope, method_of
from service.wire.errors import Problem
from service.wire.freshness import rfc3339
from service.wire.trace_context import trace_context_of

#: Entries that are kept.
MOST: Final = 20
_LONGEST_DETAIL: Final = 300
#: Members that an entry has only if they are set, as in a problem document.
_IF_SET: Final = ("written", "phase", "waited_ms", "cause", "place")


class _Key(NamedTuple):
    caller: str
    method: str
    route: str
    topic: str | None
    type: str


@dataclass(slots=True)
class _Failed:
    """The last of some equal failures, and how many there were."""

    problem: Problem
    at_wall_ms: int
    trace_id: str | None
    times: int


class FailedRequests:
    """The failures of one sidecar."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The oldest first.
        self._entries: OrderedDict[_Key, _Failed] = OrderedDict()

    def add(self, scope: Scope, route: str, topic: str | None, problem: Problem) -> None:
        """Keeps a failed request; `topic` is the one that its path names."""
        name = None if topic is None else topic[:MAX_LENGTH]
        reason = problem.said_reason.uri
        key = _Key(caller_of(scope).name, method_of(scope), route, name, reason)
        before = self._entries.pop(key, None)
        context = trace_context_of(scope)
        # Only what the status shows: results and headers may be large.
        kept = Problem(
            problem.status,
            problem.detail[:_LONGEST_DETAIL],
            kafka_error=problem.kafka_error,
            written=problem.written,
            phase=problem.phase,
            waited_ms=problem.waited_ms,
            cause=problem.cause,
            place=None if problem.place is None else problem.place[:_LONGEST_DETAIL],
        )
        self._entries[key] = _Failed(
            kept,
            self._clock.wall_ms(),
            current_trace_id() or (None if context is None else context.trace_id),
            1 if before is None else before.times + 1,
        )
        if len(self._entries) > MOST:
            self._entries.popitem(last=False)

    def seen_by(self, caller: Caller) -> Iterator[Mapping[str, Any]]:
        """Yields the failures that the caller may see as items of `/v1/status`, the last one first."""
        for key, failed in reversed(self._entries.items()):
            if key.caller != caller.name and (key.topic is None or not caller.read.allow(key.topic)):
                continue
            problem = failed.problem
            yield {
                "at": rfc3339(failed.at_wall_ms),
                "times": failed.times,
                **key._asdict(),
                "status": problem.status,
                "detail": problem.detail,
                "kafka_error": problem.kafka_error,
                "trace_id": failed.trace_id,
                **{name: value for name in _IF_SET if (value := getattr(problem, name)) is not None},
            }
