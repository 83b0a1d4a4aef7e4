"""Runs the plan of a seed, and judges it.

    outcome = run(plan_of(7))       Outcome: what was judged, which hard states were reached
                                    raises SimulationError where a rule is broken

The same plan runs in the same way each time: all randomness is the seed's, all time is simulated, all threads
take turns.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.testing.controller import TopicConfig
from service.admission.access import Access
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.spool.folder import SpoolFolder
from tests.simulation.brokers import ReplicatedBrokers
from tests.simulation.callers import Attempt, tokens_file_for, value_of
from tests.simulation.disk import SimulatedDisk
from tests.simulation.judge import GONE_AFTER_MS, Judge
from tests.simulation.plan import BUSY_MS, FORGOTTEN_MS, QUIET_MS, config_of
from tests.simulation.sidecar import Process
from tests.simulation.world import SimulatedClock, SimulationError, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.plan import FaultPlan, Plan, RequestPlan, TopicPlan

#: The part of the seeds whose brokers are older than 3.7.
_OLD_BROKERS: Final = 0.3
#: The last fault has ended by then.
_HEALED_MS: Final = BUSY_MS + 2_500
_START_AGAIN_MS: Final = 200
_SHORTEST_RETRY_MS: Final = 1
#: How often a spool may wait for spool_topic_wait_ms, one time after the other.
_MOST_WAITS: Final = 1_000
#: Of the states that a file system may leave after a power cut, how many are looked at.
_STATES: Final = 12
#: The number of the first request that is sent when all faults are over.
_FIRST_PROBE: Final = 1_000_000
#: The numbers of tries that are sent at the same time begin here, and the time between them.
_DOUBLES: Final = 100
_DOUBLED_MS: Final = 5


#: What the model calls an outcome.
_ANSWERS: Final = {"acknowledged": "ack", "spooled": "spooled", "no": "no", "unknown": "unknown"}


#: Of two that may end by themselves, and one that ends with somebody's help.
_NO_PRODUCER_ID: Final = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.NOT_COORDINATOR,
    Errors.CLUSTER_AUTHORIZATION_FAILED,
)


class Judged(NamedTuple):
    """What a run has judged."""

    requests: int
    records: int
    acknowledged: int
    retries: int
    faults: int
    steps: int
    simulated_ms: int
    reached: dict[str, int]


class _Stacks(logging.Handler):
    """A stack in the log of the product is a bug of it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], SimulationError):
            error = record.exc_info[1]
            self._world.failure = self._world.failure or SimulationError(
                "unexpected exception", f"{record.getMessage()}: {error!r}"
            )


class Run:
    """One plan in its world."""

    def __init__(self, plan: Plan, folder: Path, *, story: bool = False, trace: bool = False) -> None:
        """`story`: what happened is kept for a person; `trace`: for the model of a record's delivery."""
        self.plan = plan
        self.world = World(plan.seed, story=story)
        self.random = Random(f"run {plan.seed}")
        self.brokers = ReplicatedBrokers(self.world, Random(f"brokers {plan.seed}"))
        self.brokers.are_old = Random(f"below min.insync.replicas {plan.seed}").random() < _OLD_BROKERS
        self.brokers.wire.trace = [] if trace else None
        for topic in plan.topics:
            self.world.at(topic.created_ms, self._created(topic.name))
            if topic.grows_ms is not None:
                self.world.at(topic.grows_ms, partial(self._grow, topic))
        self.clock = SimulatedClock(self.world)
        self.attempts: list[Attempt] = []
        self.retries = 0
        #: When the first fault of each kind began.
        self.began_ms: dict[str, int] = {}
        #: Topics that were deleted, and made again.
        self.deleted: set[str] = set()
        self._folder = folder / "spool"
        more: dict[str, Any] = {"spool_folder": str(self._folder)} if plan.has_spool else {}
        self.settings = Settings.model_validate({"kafka": dict(plan.kafka), **plan.settings, **more})
        self.access: Access | None = None
        if plan.callers_with_tokens:
            tokens = folder / "tokens.toml"
            tokens.write_text(tokens_file_for(plan.callers_with_tokens))
            self.access = Access(str(tokens), lambda _: None)
        self.disk: SimulatedDisk | None = None
        if plan.has_spool:
            SpoolFolder(self._folder, sync_folder=lambda _: None).close()
            self.disk = self._new_disk()
        self.judge = Judge(self)
        #: The sidecars, by their places. The first one has the spool.
        self.sidecars: list[Process | None] = [None] * plan.sidecars
        self.processes = 0
        self.lives: dict[int, Process] = {}
        self._to_come = len(plan.requests)
        for place in range(plan.sidecars):
            self._start(place)

    @property
    def process(self) -> Process | None:
        """The first sidecar."""
        return self.sidecars[0]

    def _created(self, name: str) -> Callable[[], None]:
        topic = next(topic for topic in self.plan.topics if topic.name == name)
        return lambda: self.brokers.create_topic(
            name, topic.partitions, config_of(topic), unclean=topic.unclean
        )

    def _new_disk(self) -> SimulatedDisk:
        disk = SimulatedDisk(self._folder, self.world, self.random, sync_ms=self.plan.sync_ms)
        disk.renamed = lambda path: self.judge.look_at_mark(path)
        disk.set_aside = lambda: self.judge.look_at_dead_letters()
        return disk

    # -- the sidecar's lives ---------------------------------------------------------------------------------

    def _start(self, place: int) -> None:
        running = self.sidecars[place]
        if running is not None and running.is_alive:
            return
        self.processes += 1
        number = self.processes  # another one may start while this one waits for its disk
        settings = self.settings if not place else self.settings.model_copy(update={"spool_folder": None})
        try:
            process = Process(
                self.world,
                self.brokers,
                None if place else self.disk,
                self.clock,
                settings,
                Random(f"process {self.plan.seed} {number}"),
                number,
                self.access,
            )
        except SettingsError as error:
            # It ends with an error, and is started again by whoever started it.
            self.world.log("sidecar", f"can't start: {error}")
            names = f"sidecar {number}", f"spool {number}"
            networks = self.brokers.networks
            networks[:] = [network for network in networks if network.name not in names]
            self.world.at(_START_AGAIN_MS, lambda: self._start(place))
            return
        self.sidecars[place] = self.lives[number] = process
        self.world.log(f"sidecar {number}", "starts")

    def _end(self, how: str, place: int, for_ms: int) -> None:
        process = self.sidecars[place]
        if process is None or not process.is_alive:
            return
        if how == "sigterm":
            process.terminate(lambda: self._ended(process, place, for_ms, by_itself=True))
            return
        self.world.log(f"sidecar {process.number}", "power cut" if how == "power cut" else "SIGKILL")
        process.kill("cut" if how == "power cut" and not place else "kill")
        if how == "power cut" and self.disk is not None and not place:
            if self.random.random() < 0.5:
                self.disk.cut_power()
            else:
                states = list(itertools.islice(self.disk.states(), _STATES))
                self.random.choice(states).leave()
            SpoolFolder(self._folder, sync_folder=lambda _: None).close()
            self.judge.look_again_at_mark(self._folder / "mark.json")
            self.disk = self._new_disk()
        self._ended(process, place, for_ms)

    def _ended(self, process: Process, place: int, for_ms: int, *, by_itself: bool = False) -> None:
        for attempt in self.attempts:
            if attempt.process is not process or attempt.is_over:
                continue
            was_whole = max(attempt.body_ms, attempt.since_ms) < process.drained_from_ms
            if by_itself and was_whole:
                raise SimulationError(
                    "answered", f"SIGTERM ended the sidecar before {attempt.name} was answered"
                )
            attempt.lose()
        self.world.at(for_ms, lambda: self._start(place))

    # -- callers ---------------------------------------------------------------------------------------------

    def _send(self, request: RequestPlan, number: int) -> None:
        """Sends a request, or sends it again: `number` of 0, or of 1 and up, or of _DOUBLES and up."""
        is_first = number == 0 or number >= _DOUBLES
        process = self.sidecars[request.sidecar if is_first else request.retry_sidecar]
        if process is None or not process.is_alive:  # connection refused
            self._perhaps_again(request, number)
            return
        if not number:
            self._to_come -= 1
            for double in range(request.doubles):
                self.world.at((double + 1) * _DOUBLED_MS, partial(self._send, request, _DOUBLES + double))
        attempt = Attempt(self.world, process, request, number)
        attempt.over = self._over
        self.attempts.append(attempt)
        self.retries += bool(number)
        for record in request.records:
            self.brokers.wire.note_one(value_of(record), "try", process.number, number)
            if process.has_forgotten(request.topic_of(record)):
                self.world.reach("a topic is used that was forgotten")
        attempt.begin()

    def _over(self, attempt: Attempt) -> None:
        for record, outcome in zip(attempt.request.records, attempt.outcomes(), strict=True):
            what = _ANSWERS[outcome.what] if not attempt.is_cut else "left"
            label = "answer", attempt.process.number, attempt.number, what
            self.brokers.wire.note_one(value_of(record), *label)
        try:
            self.judge.look_at_answer(attempt, self._before(attempt))
        except SimulationError as error:
            self.world.failure = self.world.failure or error
            return
        if attempt.is_cut:
            self.world.at(GONE_AFTER_MS, partial(self.judge.look_at_waits, attempt.process))
        if any(outcome.what in ("no", "unknown") for outcome in attempt.outcomes()):
            self._perhaps_again(attempt.request, attempt.number + 1)

    def _before(self, attempt: Attempt) -> list[Attempt]:
        """Returns the earlier tries of a request that were of the same process.

        None of them if one was under way when this one began: it may have got that one's answer.
        """
        tries = [
            other
            for other in itertools.takewhile(lambda other: other is not attempt, self.attempts)
            if other.request is attempt.request and other.process is attempt.process
        ]
        ended = [other for other in tries if other.is_over and other.over_ms <= attempt.since_ms]
        return ended if len(ended) == len(tries) else []

    def _perhaps_again(self, request: RequestPlan, number: int) -> None:
        if 0 < number <= request.retries:
            self._open_retries += 1

            def again() -> None:
                self._open_retries -= 1
                self._send(request, number)

            self.world.at(max(request.retry_after_ms, _SHORTEST_RETRY_MS), again)
        elif number == 0:
            self._to_come -= 1

    _open_retries = 0
    #: When all faults were over.
    healed_ms: int | None = None

    # -- faults ----------------------------------------------------------------------------------------------

    def _arm(self, fault: FaultPlan) -> None:
        """Begins a fault, now or at its moment."""
        if not fault.when:
            self._begin(fault)
        elif fault.when == "a request waits":
            self._when_one(lambda process: process.waits > 0, partial(self._begin, fault))
        elif fault.when == "a request waits for memory":
            self._when_one(_waits_for_memory, partial(self._begin, fault))
        else:
            waits = self.world.waits_for.setdefault(fault.when, [])
            waits.append(lambda broker_id: self._begin(fault._replace(target=broker_id or fault.target)))

    def _when_one(self, waits: Callable[[Process], bool], act: Callable[[], object]) -> None:
        """Acts as soon as this is true of a sidecar."""
        if self.healed_ms is not None:
            return
        if any(process is not None and process.is_alive and waits(process) for process in self.sidecars):
            act()
        else:
            self.world.at(1, lambda: self._when_one(waits, act))

    def _grow(self, topic: TopicPlan) -> None:
        if topic.grows_when_full:
            waits = partial(Process.waits_for_both, topic=topic.name)
            self._when_one(waits, partial(self._add_partition, topic.name))
        else:
            self._add_partition(topic.name)

    def _begin(self, fault: FaultPlan) -> None:
        if self.healed_ms is not None:
            return
        self.world.log("fault", str(fault))
        self.world.reach(f"fault: {fault.kind}")
        self.began_ms.setdefault(fault.kind, self.world.now_ms)
        if fault.when:
            self.world.reach(f"a fault when {fault.when}")
        if fault.then is not None:
            self.world.at(fault.then.at_ms, partial(self._begin, fault.then._replace(target=fault.target)))
        brokers, target = self.brokers, fault.target
        link = brokers.links[target]

        def ends(act: Callable[[], object]) -> None:
            def end() -> None:
                self.world.log("fault", f"{fault.kind} {target} is over")
                act()

            self.world.at(fault.for_ms, end)

        match fault.kind:
            case "kill broker":
                brokers.kill(target)
                ends(lambda: brokers.start(target))
            case "isolate broker":
                brokers.isolate(target)
                ends(lambda: brokers.rejoin(target))
            case "stuck broker":
                brokers.stick(target)
                ends(lambda: brokers.go_on(target))
            case "quota":
                brokers.throttle_ms[target] = self.random.choice((30, 200, 700))
                ends(lambda: brokers.throttle_ms.pop(target, None))
            case "slow replica":
                brokers.slow[target] = self.random.choice((30, 300, 1_000))
                ends(lambda: brokers.slow.pop(target, None))
            case "unknown error":
                brokers.unknown_errors[target] += 1
            case "move leader":
                places = list(brokers.places())
                if places:
                    brokers.move_leader(self.random.choice(places))
            case "stale metadata":
                if target not in brokers.isolated:
                    brokers.state.controller.freeze(target)
                    ends(lambda: brokers.thaw(target))
            case "forget producers":
                brokers.forget_producers()
            case "requests vanish":
                link.requests_pass = False
                ends(link.heal)
            case "answers vanish":
                link.answers_pass = False
                ends(link.heal)
            case "both ways vanish":
                link.requests_pass = link.answers_pass = False
                ends(link.heal)
            case "latency":
                link.delay_ms = self.random.choice((20, 150, 600))
                ends(link.heal)
            case "refused":
                link.refuses = True
                for network in brokers.networks:
                    network.broker_ended(target)
                ends(link.heal)
            case "cut connections":
                for network in brokers.networks:
                    network.cut_all()
            case "no right to write":
                topic = self.random.choice(self.plan.topics).name
                brokers.state.unwritable.add(topic)
                if fault.operation == "once":
                    brokers.writable_again = topic
                ends(lambda: brokers.state.unwritable.discard(topic))
            case "too large":
                topic_plan = self.random.choice(self.plan.topics)
                if brokers.state.controller.topic(topic_plan.name) is not None:
                    least = topic_plan.min_insync_replicas
                    small = TopicConfig(min_insync_replicas=least, max_message_bytes=300)
                    brokers.state.controller.set_config(topic_plan.name, small)
                    ends(partial(self._restore_config, topic_plan))
            case "delete topic":
                topic_plan = self.random.choice(self.plan.topics)
                if brokers.state.controller.topic(topic_plan.name) is not None:
                    self.deleted.add(topic_plan.name)
                    brokers.delete_topic(topic_plan.name)
                    ends(partial(self._make_again, topic_plan))
            case "no producer id":
                error = self.random.choice(_NO_PRODUCER_ID)
                brokers.wire.errors.add(error.name)
                brokers.state.init_producer_id_errors.extend([error.code] * self.random.randint(1, 3))
            case "requeue":
                first = self.sidecars[0]
                if first is not None and first.is_alive:
                    first.requeue(self.judge.put_back, of=target)
            case "clock jump":
                self.clock.wall_offset_ms += self.random.choice((-86_400_000, -60_000, 60_000, 5_400_000))
                self.clock.jumps += 1
            case "slow disk":
                disk = self.disk
                if disk is not None:
                    disk.sync_ms = 400
                    ends(lambda: setattr(disk, "sync_ms", self.plan.sync_ms))
            case "no dead letters":
                disk = self.disk
                if disk is not None:
                    disk.no_dead_letters = True
                    ends(lambda: setattr(disk, "no_dead_letters", False))
            case "no new files":
                disk = self.disk
                if disk is not None:
                    disk.no_new_files = True
                    ends(lambda: setattr(disk, "no_new_files", False))
            case "nothing":
                pass
            case "disk eio" | "disk enospc" | "disk short":
                if self.disk is not None:
                    self.disk.fail_next(fault.kind.removeprefix("disk "), fault.operation)
            case "sigkill" | "power cut" | "sigterm":
                self._end(fault.kind, target % self.plan.sidecars, fault.for_ms)
            case _:
                raise AssertionError(fault.kind)

    def _add_partition(self, topic: str) -> None:
        if any(process and process.waits_for_both(topic) for process in self.sidecars):
            self.world.reach("a partition came while some waited for it, and others for memory")
        self.brokers.add_partition(topic)

    def _restore_config(self, topic: TopicPlan) -> None:
        """Ends what changed a topic's config, unless the topic is deleted now."""
        if self.brokers.state.controller.topic(topic.name) is not None:
            self.brokers.state.controller.set_config(topic.name, config_of(topic))

    def _make_again(self, topic: TopicPlan) -> None:
        if any(process and process.waits_for_memory for process in self.sidecars):
            self.world.reach("a topic was made again while requests waited for memory")
        partitions = self.random.randint(1, topic.partitions)
        self.brokers.create_topic(topic.name, partitions, config_of(topic), unclean=topic.unclean)

    def _heal(self) -> None:
        self.world.log("fault", "all faults are over")
        self.healed_ms = self.world.now_ms
        self.brokers.heal()
        self.brokers.state.init_producer_id_errors.clear()
        self.brokers.unknown_errors.clear()
        for topic in self.plan.topics:
            self._restore_config(topic)
        self.clock.wall_offset_ms = SimulatedClock(self.world).wall_offset_ms
        self.clock.jumps += 1
        if self.disk is not None:
            self.disk.heal()
            self.disk.sync_ms = self.plan.sync_ms

    # -- the run ---------------------------------------------------------------------------------------------

    def execute(self) -> Judged:
        """Runs to the end. Raises SimulationError."""
        stacks = _Stacks(self.world)
        root = logging.getLogger()
        root.addHandler(stacks)
        try:
            return self._execute()
        finally:
            root.removeHandler(stacks)
            for process in self.sidecars:
                if process is not None:
                    process.kill()

    def _execute(self) -> Judged:
        world = self.world
        for request in self.plan.requests:
            world.at(request.at_ms, partial(self._send, request, 0))
        for fault in self.plan.faults:
            world.at(fault.at_ms, partial(self._arm, fault))
        world.run_until(lambda: False, _HEALED_MS)
        self._heal()
        if not world.run_until(self._is_settled, self._quiet_ms()):
            raise SimulationError("does not settle", self.judge.left())
        self._probe()
        # Answers and acknowledgements that nobody waits for any more.
        world.run_until(lambda: False, 2_000)
        self.judge.judge()
        return Judged(
            len(self.attempts),
            sum(len(attempt.request.records) for attempt in self.attempts),
            self.judge.acknowledged,
            self.retries,
            len(self.plan.faults),
            world.steps,
            world.elapsed_ms,
            world.reached,
        )

    def _probe(self) -> None:
        """Sends a record to each partition by each sidecar, now that all faults are over: it has to work."""
        where = itertools.product(range(self.plan.sidecars), self.brokers.places())
        probes = [
            self.plan.probe(number, sidecar, *place)
            for number, (sidecar, place) in enumerate(where, _FIRST_PROBE)
        ]
        self._to_come += len(probes)
        for probe in probes:
            self._send(probe, 0)
        if not self.world.run_until(self._is_settled, QUIET_MS):
            raise SimulationError("does not settle", self.judge.left())
        if self.world.failure is not None:
            raise self.world.failure
        for probe in probes:
            tries = [attempt for attempt in self.attempts if attempt.request is probe]
            (outcome,) = tries[-1].outcomes()
            if outcome.what != "acknowledged":
                raise SimulationError("works again", f"{tries[-1].name} has failed: {outcome}")

    def _quiet_ms(self) -> int:
        """Returns how long it may take to settle.

        Records that are refused alone may become dead letters one after the other, each after its wait.
        """
        spool = None if self.process is None else self.process.spool
        waits = 0 if spool is None else min(2 * spool.entries, _MOST_WAITS)
        return (FORGOTTEN_MS if self.deleted else QUIET_MS) + waits * self.settings.spool_topic_wait_ms

    def _is_settled(self) -> bool:
        if self._open_retries or self._to_come:
            return False
        if any(process is None or not process.is_alive or process.is_draining for process in self.sidecars):
            return False
        if not all(attempt.is_over for attempt in self.attempts):
            return False
        return not self.judge.left()


def _waits_for_memory(process: Process) -> bool:
    return process.waits_for_memory


def run(plan: Plan, *, keep: list[Run] | None = None, story: bool = False, trace: bool = False) -> Judged:
    """Runs a plan in a folder of its own, and judges it. `keep` receives the run. Raises SimulationError."""
    with tempfile.TemporaryDirectory(prefix="pilotfish-simulation-") as folder:
        one = Run(plan, Path(folder), story=story, trace=trace)
        if keep is not None:
            keep.append(one)
        return one.execute()
