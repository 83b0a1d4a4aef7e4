"""Each side alone before brokers of its own, which answer truly: what is lost, doubled or out of order?

Where ours sends fewer batches than Kafka's client, both can't be compared any further. So each side runs by
itself, with the same seed, until nothing is open. Then the logs are read: which records are there, how often,
in which order. The outcomes are what the application gets.

    lost         acknowledged, and not in the log
    doubled      more than once in the log
    out of order behind a record that was appended later to the same partition, among acknowledged ones
    failed       by delivery.timeout.ms, though each broker answers: the brokers refuse nothing for good
"""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

from client_core.cluster import TopicPartition
from client_core.protocol.api_keys import ApiKey
from client_core.testing.partition_log import records_of
from tests.lockstep.brokers import HOST, Brokers, Request, read_request
from tests.lockstep.our_side import OurSide
from tests.lockstep.steps import Draw, Event, Profile, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lockstep.java_side import JavaSide
    from tests.lockstep.modes import Mode

_BEGIN_MS: Final = 1_700_000_000_000
_NODES: Final = (0, 1, 2)
_TOPICS: Final = {"ta": 3, "tb": 2}
#: Brokers that fail a lot and never lie; no wait is as long as delivery.timeout.ms.
TRUTHFUL: Final = Profile(0.15, 0.0, 0.0, 0.0, 0.0, 0.15, 0.15, 0.0, 0.0, 0.0, 6, 9_000)
#: Long enough for delivery.timeout.ms.
_MOST_CALM_STEPS: Final = 3_000
_CALM_STEP_MS: Final = 50


class Side(Protocol):
    """One client: its state at each poll that would sleep, and what happens then."""

    def state(self) -> dict[str, Any]: ...

    def step(self, acts: Sequence[Sequence[object]]) -> None: ...


class _Over(BaseException):
    """Ends our side's thread."""


class OursAlone:
    """Our side on a thread of its own, so that it is driven like the JVM."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._states: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._acts: SimpleQueue[Sequence[Sequence[Any]] | None] = SimpleQueue()
        self._ours = OurSide(settings, self._on_step)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def state(self) -> dict[str, Any]:
        return self._states.get(timeout=60)

    def step(self, acts: Sequence[Sequence[object]]) -> None:
        self._acts.put(acts)

    def close(self) -> None:
        self._acts.put(None)
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while True:
                self._ours.turn()
        except _Over:
            pass

    def _on_step(self, timeout_ms: int) -> None:
        state = self._ours.state(timeout_ms)
        state["sent"] = [(node, frame.hex()) for node, frame in state["sent"]]
        self._states.put(state)
        acts = self._acts.get()
        if acts is None:
            raise _Over
        self._ours.happen(acts)


class JavaAlone:
    """Kafka's side in its JVM."""

    def __init__(self, java: JavaSide, settings: dict[str, Any]) -> None:
        self._java = java
        self._first: dict[str, Any] | None = java.begin(settings)

    def state(self) -> dict[str, Any]:
        first, self._first = self._first, None
        return self._java.state() if first is None else first

    def step(self, acts: Sequence[Sequence[object]]) -> None:
        self._java.step(acts)

    def close(self) -> None:
        """The next trace ends this one."""


@dataclass
class Account:
    """What the logs and the application have."""

    records: int = 0
    acknowledged: int = 0
    failed: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    out_of_order: list[int] = field(default_factory=list)
    unsettled: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(
            self.records + other.records,
            self.acknowledged + other.acknowledged,
            self.failed + other.failed,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.out_of_order + other.out_of_order,
            self.unsettled + other.unsettled,
        )

    def __str__(self) -> str:
        return (
            f"{self.records} records, {self.acknowledged} acknowledged, {self.failed} failed, "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.out_of_order)} out of order"
        )


def settings_of(mode: Mode) -> dict[str, Any]:
    """The settings of a trace alone."""
    config = {"client.id": "lockstep", "bootstrap.servers": f"{HOST}:9092", **mode.config}
    return {
        "config": config,
        "now": _BEGIN_MS,
        "topics": _TOPICS,
        "bootstrap": [[HOST, 9092]],
        "producer": [7000, 0],
    }


class Alone:
    """One side before its brokers."""

    def __init__(self, side: Side, seed: int, kill: float = 0.0) -> None:
        """`kill`: how often a step kills a broker."""
        self._side = side
        self._kill_chance = kill
        self._random = Random(seed)
        self._brokers = Brokers(_NODES, _TOPICS)
        self._draw = Draw(self._random, TRUTHFUL)
        self._now_ms = _BEGIN_MS
        self._connecting: set[int] = set()
        self._open: set[int] = set()
        self._asked: dict[int, list[Request]] = {}
        self._known = False
        self._sent_to: dict[int, tuple[str, int]] = {}
        self._outcomes: dict[int, str | None] = {}
        self._records = 0

    def run(self, steps: int) -> Account:
        """Draws so many steps, then lets everything settle, and reads the logs."""
        for _ in range(steps):
            self._take(self._side.state())
            view = View(
                _NODES,
                sorted(self._connecting),
                sorted(self._open),
                [node for node in sorted(self._asked) if self._asked[node] and node in self._open],
                _TOPICS,
                100,
                False,
            )
            acts: list[list[object]] = []
            for event in self._draw.step(view):
                self._act(event, acts)
            if self._random.random() < self._kill_chance:
                self._kill(self._random.choice(_NODES), acts)
            self._side.step(acts)
        self._settle()
        return self._account()

    def _kill(self, node: int, acts: list[list[object]]) -> None:
        """Others lead the partitions of a killed broker, and know the last batch of each producer only."""
        self._act(("end", node, self._random.randrange(6)), acts)
        for tp, leader in self._brokers.leaders.items():
            if leader == node:
                self._brokers.logs[tp].recover_producers()
                self._brokers.move(tp, self._random.choice([other for other in _NODES if other != node]))

    def _settle(self) -> None:
        """Every broker answers, every connection succeeds, each partition has a leader."""
        for tp, leader in self._brokers.leaders.items():
            if leader < 0:
                self._brokers.move(tp, _NODES[0])
        for number in range(_MOST_CALM_STEPS):
            self._take(self._side.state())
            if len(self._outcomes) == self._records and number:
                return
            acts: list[list[object]] = [["t", _CALM_STEP_MS]]
            self._now_ms += _CALM_STEP_MS
            for node in sorted(self._connecting):
                self._act(("connect", node), acts)
            for node in sorted(self._asked):
                if self._asked[node]:
                    self._act(("answer", node, 0, True, True, 0), acts)
            self._side.step(acts)
        self._take(self._side.state())

    def _take(self, state: dict[str, Any]) -> None:
        for node in map(int, state["connect"]):
            self._connecting.add(node)
        for node in map(int, state["closed"]):
            self._forget(node)
        for node, frame in state["sent"]:
            request = read_request(int(node), bytes.fromhex(frame), self._brokers.names)
            self._asked.setdefault(request.node, []).append(request)
            self._known = self._known or request.api is ApiKey.PRODUCE
        for record, _, error in state["out"]:
            self._outcomes[record] = error
        for record, partition, error in state["app"]:
            if error is not None:
                self._outcomes[record] = error
            del partition
        self._has_topics = all(epoch >= 0 for _, epoch in state["lead"])

    def _forget(self, node: int) -> None:
        self._connecting.discard(node)
        self._open.discard(node)
        self._asked.pop(node, None)

    def _act(self, event: Event, acts: list[list[object]]) -> None:
        match event[0]:
            case "rand":
                acts.append(["r", event[1]])
            case "time":
                acts.append(["t", event[1]])
                self._now_ms += event[1]
            case "append":
                self._append(event, acts)
            case "connect":
                self._connecting.discard(event[1])
                self._open.add(event[1])
                acts.append(["c", str(event[1])])
            case "end":
                for request in self._asked.get(event[1], [])[: event[2]]:
                    self._brokers.store(request, self._now_ms)
                self._forget(event[1])
                acts.append(["d", str(event[1])])
            case "leader":
                self._brokers.move(TopicPartition(event[1], event[2]), event[3])
            case "answer":
                self._answer(event, acts)
            case _:
                pass

    def _append(self, event: Event, acts: list[list[object]]) -> None:
        _, topic, partition, size, seed, key = event
        if not self._has_topics:
            acts.append(["w", topic])
            return
        self._records += 1
        self._sent_to[self._records] = topic, max(partition, 0)
        acts.append(["a", self._records, topic, max(partition, 0), size, seed, key])

    def _answer(self, event: Event, acts: list[list[object]]) -> None:
        _, node, error, first_only, hints, throttle_ms = event
        waiting = self._asked.get(node)
        if not waiting:
            return
        request = waiting.pop(0)
        body = self._brokers.answer(
            request,
            self._now_ms,
            error=error,
            first_only=first_only,
            throttle_ms=throttle_ms,
            hints=hints,
        )
        acts.append(["m", str(node), Brokers.framed(request, body, request.correlation_id).hex()])

    def _account(self) -> Account:
        account = Account(records=self._records)
        account.acknowledged = sum(error is None for error in self._outcomes.values())
        account.failed = len(self._outcomes) - account.acknowledged
        account.unsettled = self._records - len(self._outcomes)
        times: dict[int, int] = {}
        for tp, log in self._brokers.logs.items():
            highest = 0
            for batch in log.batches:
                for stored in records_of(batch, tp.partition):
                    record = int.from_bytes((stored.value or b"")[:4], "big")
                    times[record] = times.get(record, 0) + 1
                    if times[record] == 1 and self._outcomes.get(record, "") is None:
                        if record < highest:
                            account.out_of_order.append(record)
                        highest = max(highest, record)
        account.doubled = sorted(record for record, count in times.items() if count > 1)
        account.lost = [
            record for record, error in self._outcomes.items() if error is None and record not in times
        ]
        return account


def ours_alone(mode: Mode, seed: int, *, steps: int = 150, kill: float = 0.0) -> Account:
    """What becomes of our side's records."""
    side = OursAlone(settings_of(mode))
    try:
        return Alone(side, seed, kill).run(steps)
    finally:
        side.close()


def java_alone(java: JavaSide, mode: Mode, seed: int, *, steps: int = 150, kill: float = 0.0) -> Account:
    """What becomes of the records of Kafka's side."""
    settings = settings_of(mode)
    if java.is_patched:
        settings["shadows"] = []
    return Alone(JavaAlone(java, settings), seed, kill).run(steps)
