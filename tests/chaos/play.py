"""Plays one fault, from warm-up to outcome.

    warm-up                 every caller, and Java's client, has successes
    the fault is injected   and is mended
    recovery                every caller has successes that it asked for after that
    the load ends           every open request is answered
    read back               all brokers are there; librdkafka reads the topic; the judge judges

A fault counts as not withstood in three cases: a promise is broken (judge.py), the gap is longer than that of
Java's client by more than the judge allows, or a step waited in vain. The window of "longest time without
success" is from injection to recovery.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.duplicates import Circumstances
from tests.chaos.judge import gap_sentence, judge
from tests.chaos.load import Load
from tests.chaos.routes import by_their_own_addresses
from tests.chaos.scene import Scene
from tests.chaos.stage import PARTITIONS, resident_mb
from tests.support.java_peer import now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.chaos.fault import Fault
    from tests.chaos.judge import DeliveryOutcome
    from tests.chaos.stage import Stage
    from tests.support.java_peer import JavaPeer
    from tests.support.kafka_admin import ReadRecord
    from tests.support.sidecar import Sidecar

_WARM_UP_SUCCESSES: Final = 5
_RECOVERED_SUCCESSES: Final = 3
_RECOVERY_TIMEOUT_S: Final = 90.0
_JAVA_KEY: Final = b"java"


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault did. Memory is the sidecar's, resident; None where its process was another one."""

    fault: str
    group: str
    #: The rules by which records were there twice, and how many by each.
    at_least_once: str
    callers: int
    requests: int
    acknowledged: int
    failed: int
    unanswered: int
    lost: int
    duplicated: int
    disordered: int
    misplaced: int
    altered: int
    denied: int
    strangers: int
    unattributed: int
    late: int
    answered_twice: int
    gap_ms: int | None
    java_gap_ms: int | None
    java_duplicated: int | None
    before_mb: float | None
    after_mb: float | None
    seconds: float
    withstood: bool
    sentences: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def play(stage: Stage, fault: Fault) -> Row:
    """The row of one fault. If a step of the fault itself waits in vain, the row has a sentence about it."""
    began_ms = now_ms()
    stage.heal()
    client = fault.route(stage)
    topic = stage.new_topic()
    with contextlib.ExitStack() as ends:
        if fault.own_sidecar:
            sidecar = ends.enter_context(stage.own_sidecar(client))
        else:
            sidecar = stage.shared_sidecar(client)
        java = (
            ends.enter_context(stage.java_peer(client, topic)) if client.has_java and stage.has_java else None
        )
        stage.trace.clear()
        load = Load(
            sidecar,
            topic,
            partitions=PARTITIONS,
            spool=fault.spool,
            cluster_id=stage.cluster.kafka.cluster_id,
            random=stage.random,
        )
        scene = Scene(stage, client, topic, sidecar, load)
        acted = _Act(fault, scene, java)
        acted.run()
        stage.heal()
        acted.end_the_load()
        if fault.spool:
            acted.wait_for_an_empty_spool()
        read = stage.cluster.kafka.read_back(topic)
    outcome = judge(
        load.history.attempts(),
        read,
        is_foreign=_is_javas,
        kept_since_ms=scene.kept_since_ms,
        seen=Circumstances(
            stage.trace,
            kills_brokers=fault.kills_brokers,
            kills_sidecar=fault.kills_sidecar,
            is_untraced=fault.route is by_their_own_addresses,
        ),
        lag=load.history.lag,
    )
    javas = Counter(record.value for record in read if _is_javas(record))
    acted.java_duplicated = sum(copies > 1 for copies in javas.values()) if java is not None else None
    return _row(fault, acted, outcome, (now_ms() - began_ms) / 1_000)


def _is_javas(record: ReadRecord) -> bool:
    return record.key is not None and record.key.startswith(_JAVA_KEY)


class _Act:
    """The load and what happens under it; its figures afterwards."""

    def __init__(self, fault: Fault, scene: Scene, java: JavaPeer | None) -> None:
        self._fault = fault
        self._scene = scene
        self._java = java
        self.callers = len(scene.load.names)
        self.sentences: list[str] = []
        self.gap_ms: int | None = None
        self.java_gap_ms: int | None = None
        self.java_duplicated: int | None = None
        self.before_mb: float | None = None
        self.after_mb: float | None = None

    @property
    def requests(self) -> int:
        return self._scene.load.requests

    def run(self) -> None:
        """All of it. An AssertionError of any step is a sentence; what the load has seen is judged anyway."""
        scene, load = self._scene, self._scene.load
        try:
            with load:
                self._warm_up()
                pid = scene.sidecar.process.pid
                self.before_mb = resident_mb(pid)
                injected_ms = now_ms()
                self._fault.inject(scene)
                load.wait_for_successes(now_ms(), each=_RECOVERED_SUCCESSES, timeout_s=_RECOVERY_TIMEOUT_S)
                recovered_ms = now_ms()
                self.after_mb = resident_mb(scene.sidecar.process.pid)
        except AssertionError as error:
            self._not_withstood(error)
            return
        self.gap_ms = load.longest_gap_ms(injected_ms, recovered_ms)
        if self._java is not None:
            self.java_gap_ms = self._java.longest_gap_ms(injected_ms, recovered_ms)

    def end_the_load(self) -> None:
        """Waits until open requests are answered, so that every record that can be stored has its attempt."""
        try:
            self._scene.load.join()
        except AssertionError as error:
            self._not_withstood(error)

    def _not_withstood(self, error: AssertionError) -> None:
        self.sentences.append(f"not withstood: {error}")

    def _warm_up(self) -> None:
        self._scene.load.wait_for_successes(self._scene.load.began_ms, each=_WARM_UP_SUCCESSES)
        java = self._java
        if java is not None:
            wait_until(
                lambda: java.acknowledged() >= _WARM_UP_SUCCESSES * PARTITIONS,
                what="successes of Java's client",
            )

    def wait_for_an_empty_spool(self) -> None:
        try:
            wait_until(
                lambda: _spooled(self._scene.sidecar) == 0,
                what="an empty spool",
                timeout_s=_RECOVERY_TIMEOUT_S,
            )
        except AssertionError as error:
            self._not_withstood(error)


def _spooled(sidecar: Sidecar) -> float | None:
    return sidecar.metric("pilotfish_spool_records")


def _row(fault: Fault, act: _Act, outcome: DeliveryOutcome, seconds: float) -> Row:
    gap = gap_sentence(act.gap_ms, act.java_gap_ms) if fault.judges_gap else None
    if gap is not None:
        act.sentences.append(gap)
    return Row(
        fault=fault.name,
        group=fault.group,
        at_least_once="; ".join(f"{count}: {rule.value}" for rule, count in outcome.rules.items()),
        callers=act.callers,
        requests=act.requests,
        acknowledged=outcome.acknowledged,
        failed=outcome.failed,
        unanswered=outcome.unanswered,
        duplicated=outcome.duplicated,
        **outcome.counts,
        gap_ms=act.gap_ms,
        java_gap_ms=act.java_gap_ms,
        java_duplicated=act.java_duplicated,
        before_mb=act.before_mb,
        after_mb=act.after_mb,
        seconds=seconds,
        withstood=not (act.sentences or outcome.broken_promises),
        sentences=(*act.sentences, *outcome.sentences),
    )
