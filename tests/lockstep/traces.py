"""Runs one trace on both sides, up to its end or its first difference.

result = run_trace(java, mode, seed=7)                   drawn steps
result = run_trace(java, mode, seed=7, steps=[...])      given steps, for a replay
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.cluster import TopicPartition
from client_core.protocol.api_keys import ApiKey
from tests.lockstep.brokers import HOST, Brokers, Request
from tests.lockstep.comparison import Compared, Difference, compare
from tests.lockstep.our_side import OurSide
from tests.lockstep.steps import Draw, Event, Step, View

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.lockstep.java_side import JavaSide
    from tests.lockstep.modes import Mode

_BEGIN_MS: Final = 1_700_000_000_000
#: The producer id and epoch that most traces begin with.
_PRODUCER: Final = (7000, 0)
_NODES: Final = (0, 1, 2)
#: So that Java's hash maps and our sorting have one order.
_TOPICS: Final = {"ta": 3, "tb": 2, "tc": 1}
_AT_FIRST: Final = {"tb": 1}


class _Over(BaseException):
    """Leaves a trace from inside its poll."""


@dataclass
class Moment:
    """Both sides at a difference, and the state before."""

    before: dict[str, Any]
    ours: dict[str, Any]
    theirs: dict[str, Any]


@dataclass
class Result:
    """How a trace went."""

    mode: str
    seed: int
    steps: list[Step] = field(default_factory=list)
    equal_steps: int = 0
    differences: list[Difference] = field(default_factory=list)
    moment: Moment | None = None
    #: Whether one of both had no producer id at the difference.
    had_no_id: bool = False
    transitions: set[int] = field(default_factory=set)


class Trace:
    """One trace under way."""

    def __init__(
        self,
        java: JavaSide,
        mode: Mode,
        seed: int,
        *,
        limit: int,
        steps: list[Step] | None = None,
        shadows: Collection[str] = (),
    ) -> None:
        self.mode = mode
        self.random = Random(f"{mode.name} {seed}")
        self.brokers = Brokers(_NODES, _TOPICS, mode.versions(self.random))
        self.brokers.topics.update(_AT_FIRST)
        self.settings: dict[str, Any] = {
            "config": {
                "client.id": "lockstep",
                "bootstrap.servers": f"{HOST}:9092",
                **mode.settings(self.random),
            },
            "now": _BEGIN_MS,
            "topics": _TOPICS,
            "bootstrap": [[HOST, 9092]],
        }
        if java.is_patched:
            self.settings["shadows"] = sorted(shadows)
        if not mode.begins_without_id:
            self.settings["producer"] = _PRODUCER
        self.result = Result(mode.name, seed)
        self._java = java
        self._limit = limit
        self._given = steps
        self._draw = Draw(self.random)
        self._theirs = java.begin(self.settings)
        self.ours = OurSide(self.settings, self._on_step)
        #: Requests that wait for an answer, by node, oldest first: ours and Java's.
        self.open: dict[int, list[tuple[Request, Request]]] = {}
        self._records = 0
        #: Records of topics that the client does not know yet: appended when it does.
        self._parked: list[list[Any]] = []
        self._before: dict[str, Any] = {}
        self._last: Step = []

    def run(self) -> Result:
        try:
            while True:
                self.ours.turn()
        except _Over:
            return self.result

    def _on_step(self, timeout_ms: int) -> None:
        result = self.result
        if result.steps or self._before:
            self._theirs = self._java.state()
        ours, theirs = self.ours.state(timeout_ms), self._theirs
        compared = compare(ours, theirs, self.brokers.names, with_bytes=self.mode.is_uncompressed)
        if compared.differences:
            result.differences = compared.differences
            result.had_no_id = [-1, -1] in (ours.get("pid"), theirs.get("pid"))
            result.moment = Moment(self._before, ours, theirs)
            raise _Over
        self._note(ours, compared)
        if not self.mode.is_uncompressed:
            self.ours.use_ratios(theirs["ratios"])
        if result.steps:
            result.equal_steps += 1
            result.transitions.add(self._transition(ours))
        self._before = ours
        if ("abort",) in self._last:
            raise _Over  # Kafka's thread ends here
        at = len(result.steps)
        if at >= (self._limit if self._given is None else len(self._given)):
            raise _Over
        step = self._draw.step(self._view(timeout_ms)) if self._given is None else self._given[at]
        result.steps.append(step)
        self._last = step
        acts_ours: list[list[Any]] = []
        acts_theirs: list[list[Any]] = []
        known = [act for act in self._parked if self.ours.partition_count(act[2]) > max(act[3], 0)]
        self._parked = [act for act in self._parked if act not in known]
        acts_ours += known
        acts_theirs += known
        for event in step:
            self._act(event, acts_ours, acts_theirs)
        self._java.step(acts_theirs)
        self.ours.happen(acts_ours)

    def _note(self, ours: dict[str, Any], compared: Compared) -> None:
        """Keeps the requests that wait for an answer."""
        pairs = zip(
            sorted(compared.ours, key=lambda request: request.node),
            sorted(compared.theirs, key=lambda request: request.node),
            strict=True,
        )
        for one, other in pairs:
            if not (one.api is ApiKey.PRODUCE and one.acks == 0):
                self.open.setdefault(one.node, []).append((one, other))
            else:
                self.brokers.store(one, self.ours.clock.now_ms())
        # A connection that is closed is made anew by a later step at the earliest.
        for node in ours["closed"]:
            self.open.pop(node, None)

    def _view(self, timeout_ms: int) -> View:
        network = self.ours.network
        return View(
            _NODES,
            sorted(network.connecting),
            sorted(network.open),
            [node for node in sorted(self.open) if self.open[node] and node in network.open],
            self.brokers.topics,
            timeout_ms,
            self.ours.manager is not None and not self.ours.manager.has_producer_id,
        )

    def _transition(self, ours: dict[str, Any]) -> int:
        """Represents a change of state: where from, by what, where to, without ids and offsets."""

        def shape(state: dict[str, Any]) -> tuple[Any, ...]:
            queues = tuple(
                (min(count, 5), *((min(batch[1], 3), batch[2] >= 0) for batch in first))
                for count, _, first in state["queues"]
            )
            leaders = tuple(leader for leader, _ in state["lead"])
            return queues, leaders, tuple(state["inflight"].items()), min(state["t"], 1_000) // 50

        events = tuple(
            (event[0], event[2] if event[0] == "answer" else event[1] if len(event) > 1 else None)
            for event in self._last
            if event[0] not in {"rand", "time", "append"}
        )
        outcomes = tuple(sorted({error or "" for _, _, error in ours["out"]}))
        return hash((shape(self._before), events, outcomes, shape(ours)))

    # -- events ----------------------------------------------------------------------------------------------

    def _act(self, event: Event, ours: list[list[Any]], theirs: list[list[Any]]) -> None:
        """Adds an event to the input of each side, unless it does not apply."""
        kind = event[0]
        if kind == "answer":
            self._answer(event, ours, theirs)
            return
        act: list[Any] | None = None
        if kind == "rand":
            act = ["r", event[1]]
        elif kind == "time":
            act = ["t", event[1]]
        elif kind == "append":
            _, topic, partition, size, seed, key = event
            self._records += 1
            act = ["a", self._records, topic, partition, size, seed, key]
            if self.ours.partition_count(topic) <= max(partition, 0):
                self._parked.append(act)
                act = ["w", topic]
        elif kind == "connect":
            act = ["c", str(event[1])]
        elif kind == "end":
            for one, _ in self.open.pop(event[1], [])[: event[2]]:
                self.brokers.store(one, self.ours.clock.now_ms())
            act = ["d", str(event[1])]
        elif kind == "refuse":
            self.open.pop(event[1], None)
            act = ["u", str(event[1])]
        elif kind == "grow":
            self.brokers.grow(event[1])
        elif kind == "gone":
            self.brokers.leave_or_return(event[1])
        elif kind == "port":
            self.brokers.listen_elsewhere(event[1])
        elif kind == "leader":
            self.brokers.move(TopicPartition(event[1], event[2]), event[3])
        elif kind == "forget":
            self.brokers.logs[TopicPartition(event[1], event[2])].forget_producers()
        else:
            act = {"flush": ["f"], "close": ["x"], "abort": ["k"]}[kind]
        if act is not None:
            ours.append(act)
            theirs.append(act)

    def _answer(self, event: Event, ours: list[list[Any]], theirs: list[list[Any]]) -> None:
        _, node, error, first_only, hints, throttle_ms = event
        waiting = self.open.get(node)
        if not waiting:
            return
        one, other = waiting.pop(0)
        body = self.brokers.answer(
            one,
            self.ours.clock.now_ms(),
            error=error,
            first_only=first_only,
            throttle_ms=throttle_ms,
            hints=hints,
        )
        ours.append(["m", str(node), Brokers.framed(one, body, one.correlation_id).hex()])
        theirs.append(["m", str(node), Brokers.framed(one, body, other.correlation_id).hex()])


def run_trace(
    java: JavaSide,
    mode: Mode,
    seed: int,
    *,
    limit: int = 300,
    steps: list[Step] | None = None,
    shadows: Collection[str] = (),
) -> Result:
    """Runs a trace of `limit` drawn steps, or of the given ones. `shadows`: names of deviations."""
    return Trace(java, mode, seed, limit=limit, steps=steps, shadows=shadows).run()
