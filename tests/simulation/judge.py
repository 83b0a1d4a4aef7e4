"""The rules of a run: during it, and when all faults are over and nothing is left to do.

    late                answered later than timeout_ms, or than max_block_ms where that was waited for
    answered            once, by whole and true JSON
    untrue              a record has not the key, the partition or the time that it should have
    lost                an acknowledged or spooled record is not in the log, or not at its offset
    written no          a record of which that was said was stored by that process
    stored twice        more often than callers asked for it, and no rule explains it
    order               acknowledged records of one partition, in the order in which they were submitted
    mark                the spool's mark passes a record that no broker has acknowledged
    dead letter         for a reason that there was not, or before spool_topic_wait_ms
    memory              something is held when nothing is under way, or for a caller that has left
    starved             a request waited in vain for memory that no record used
    gave up             failed of a cause that there was not: no broker gave that error, no time was over, all
                        brokers had answered for long, or SIGTERM had left it more time
    never sent          "unknown" was said of a record that was not on its way
    retries             sent more often than `retries` allows
    works again         a record that is sent when all faults are over is acknowledged, in one of a few tries
    metrics             a request or a replay is not counted once, under the status of its answer
    unexpected exception    the product logged a stack

Which copies of a record are explained is in copies.py, where "stored twice" and "written no" are judged; the
rule "sequence" is in brokers.py and sequences.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from client_core.error_codes import Errors
from service.spool.dead_letters import dead_letters_in
from tests.simulation.brokers import shown
from tests.simulation.callers import value_of
from tests.simulation.copies import forgot, is_in_a_log, judge_copies, reason_of
from tests.simulation.sequences import judge_sequences
from tests.simulation.wire import identity_of
from tests.simulation.world import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from client_core import ProducerRecord
    from client_core.testing.partition_log import StoredRecord
    from tests.simulation.brokers import ReplicatedBrokers
    from tests.simulation.callers import Attempt, Outcome
    from tests.simulation.copies import Tries
    from tests.simulation.plan import RecordPlan
    from tests.simulation.run import Run
    from tests.simulation.sidecar import Process

    #: A record's copies: the partition of each, and what is there.
    Copies = list[tuple[tuple[str, int], StoredRecord]]

#: How late an answer may be.
_SLACK_MS: Final = 50
#: For how long something may wait for a caller who has left: the seed may let the loop of events run late.
GONE_AFTER_MS: Final = 100
#: More than a record can be sent again in a run.
_MOST_RETRIES: Final = 1_000
#: For how long clients may feel a fault that is over.
_RECOVERED_AFTER_MS: Final = 3_000
#: The fault that makes a reason for dead letters; a topic or a partition may be missing from the start.
_REFUSED_BY: Final = {"forbidden": "no right to write", "too_large": "too large", "invalid": "clock jump"}
_OF_TOPICS: Final = frozenset({"topic_gone", "partition_gone"})
#: How near a new epoch is to a leader that moves.
_AMID_MS: Final = 500
#: Errors that the client has by itself.
_TIMED_OUT: Final = "REQUEST_TIMED_OUT"
_OWN_ERRORS: Final = frozenset({_TIMED_OUT, "NETWORK_EXCEPTION"})
#: How a failure reads whose reason is that the producer is closed.
_CLOSED: Final = ("Producer closed", "Producer is closed")


class Judge:
    """The judge of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._world = run.world
        self._brokers = run.brokers
        self._plan = run.plan
        #: The value of each spooled record, by its number; and how far the mark has been looked at.
        self._spooled: dict[int, tuple[str, bytes]] = {}
        self._mark: tuple[int, dict[str, int]] = (1, {})
        #: The last number of each spooled value: the same may have been put back.
        self._entries: dict[bytes, int] = {}
        #: The dead letters that were judged.
        self._seen_aside: set[tuple[Path, int]] = set()
        self.acknowledged = 0

    # -- during the run --------------------------------------------------------------------------------------

    def put_back(self, first: int, records: Sequence[ProducerRecord]) -> None:
        """Notes dead letters that are entries of the spool again, from this number on."""
        for sequence, record in enumerate(records, first):
            self._note_entry(sequence, record.topic, identity_of(record))

    def _note_entry(self, sequence: int, topic: str, value: bytes) -> None:
        self._spooled[sequence] = topic, value
        self._entries[value] = max(self._entries.get(value, 0), sequence)
        self._note_passed(sequence)
        self._check_mark(sequence)

    def look_at_answer(self, attempt: Attempt, before: Sequence[Attempt]) -> None:
        """Judges when and how a request was answered, as soon as it is over.

        `before`: the tries before it, of the same process.
        """
        if attempt.is_cut:
            return
        if attempt.starts != 1 or attempt.answered_ms is None:
            raise SimulationError("answered", f"{attempt.name} got {attempt.starts} answers")
        if not attempt.is_in_order:
            raise SimulationError("answered", f"the lines of {attempt.name} are in another order")
        request = attempt.request
        times_ms = zip(attempt.began_ms(), attempt.ended_ms(), strict=False)  # a stream may end early
        took_ms = max((ended_ms - began_ms for began_ms, ended_ms in times_ms), default=0)
        if took_ms > request.timeout_ms + _SLACK_MS:
            raise SimulationError(
                "late", f"{attempt.name} was answered after {took_ms} ms; timeout_ms is {request.timeout_ms}"
            )
        outcomes = attempt.outcomes()
        if attempt.status == 422 and not any(outcome.error for outcome in outcomes):
            raise SimulationError("answered", f"the key of {attempt.name} was used by nobody else")
        # Its time counts from the head, but nothing can be refused before the body is there.
        known = [one for earlier in before for one in earlier.outcomes()]
        if attempt.is_replayed and known and all(one.what == "no" for one in known):
            raise SimulationError("answered", f"{attempt.name} got an answer again that said: not written")
        body_took_ms = 0 if request.form == "ndjson" else attempt.body_ms - attempt.since_ms
        waits_ms = max(min(request.max_block_ms, request.timeout_ms), body_took_ms) + _SLACK_MS
        waited_only = all(one.phase in ("metadata", "buffer") for one in outcomes)
        if waited_only and took_ms > waits_ms and not attempt.is_replayed:
            raise SimulationError(
                "late", f"{attempt.name} waited {took_ms} ms; max_block_ms is {request.max_block_ms}"
            )
        for record, outcome in zip(request.records, outcomes, strict=True):
            if outcome.what == "spooled":
                assert outcome.offset is not None
                self._note_entry(outcome.offset, request.topic_of(record), value_of(record))
        if attempt.status == 504 and request.has_key:
            self._judge_joined(attempt)
        self._judge_failures(attempt, outcomes)
        self._note_hard_states(attempt, outcomes)

    def _judge_joined(self, attempt: Attempt) -> None:
        """A try waits in vain only while no other one under its key has been acknowledged."""
        for other in self._run.attempts:
            if other.request is not attempt.request or other.process is not attempt.process:
                continue
            is_known = other.status in (200, 202) and not other.is_cut
            if is_known and attempt.body_ms <= other.over_ms < attempt.over_ms - _SLACK_MS:
                raise SimulationError(
                    "late", f"{attempt.name} was answered 504, and {other.name} was {other.status} before"
                )

    def _is_in_vain(self, attempt: Attempt, record: RecordPlan, outcome: Outcome) -> bool:
        """Returns whether a record was given up though all has worked for so long that it must be written.

        A topic that was made again may not have its partition. A record that brokers refuse as out of order,
        because they forgot its producer and took a later one first, can't be written any more.
        """
        request, healed_ms = attempt.request, self._run.healed_ms
        if healed_ms is None or request.timeout_ms < _RECOVERED_AFTER_MS or outcome.phase != "delivery":
            return False
        if request.topic_of(record) in self._run.deleted:
            return False
        if outcome.error != _TIMED_OUT or self._world.now_ms - healed_ms <= _RECOVERED_AFTER_MS:
            return False
        if Errors.OUT_OF_ORDER_SEQUENCE_NUMBER.name not in outcome.detail:
            return True
        client, value = attempt.process.producer.network.name, value_of(record)
        places = [place for place in self._brokers.places() if place[0] == request.topic_of(record)]
        return not any(True for place in places for _ in overtaken_ms(self._brokers, client, place, value))

    def _judge_failures(self, attempt: Attempt, outcomes: list[Outcome]) -> None:
        """Each failure must have had its cause."""
        if attempt.is_replayed:
            return
        process = attempt.process
        # With other failures it is answered later than it had none: there may be memory again.
        waited_only = all(outcome.phase == "buffer" for outcome in outcomes)
        for record, outcome in zip(attempt.request.records, outcomes, strict=True):
            if outcome.what in ("acknowledged", "spooled"):
                continue
            if outcome.detail.startswith(_CLOSED):
                left_ms = process.drained_from_ms + self._run.settings.drain_timeout_ms - self._world.now_ms
                if not process.is_draining or left_ms > _SLACK_MS:
                    raise SimulationError(
                        "gave up", f"{attempt.name} failed {left_ms} ms before drain_timeout_ms: {outcome}"
                    )
            elif self._is_in_vain(attempt, record, outcome):
                raise SimulationError("gave up", f"{attempt.name} failed though brokers answer: {outcome}")
            elif outcome.phase == "delivery" and outcome.error not in self._known_errors:
                raise SimulationError("gave up", f"{attempt.name} failed by what no broker said: {outcome}")
            elif waited_only and not process.has_batches:
                raise SimulationError("starved", f"{attempt.name}: no batch holds memory, but {outcome}")
        if process.stray_bytes:
            raise SimulationError(
                "memory", f"{attempt.name}: {process.stray_bytes} bytes are held by no batch"
            )

    @property
    def _known_errors(self) -> set[str]:
        return {"", *_OWN_ERRORS, *self._brokers.wire.errors}

    def look_at_waits(self, process: Process) -> None:
        """Judges that nobody waits in a producer for a caller who has left."""
        if not process.is_alive or process.is_draining:
            return
        now_ms = self._world.now_ms
        stay = 0
        for attempt in self._run.attempts:
            if attempt.process is not process or attempt.request.form == "spool":
                continue
            if attempt.is_over and attempt.over_ms <= now_ms - GONE_AFTER_MS:
                # Records of a stream, or under a key, are delivered, also if their caller has left.
                ends_ms = max(attempt.began_ms()) + attempt.request.timeout_ms + _SLACK_MS
                stays = attempt.request.has_key or attempt.request.form == "ndjson"
                if not stays or now_ms > ends_ms:
                    continue
            if attempt.request.form == "ndjson":
                return  # it may have any number of requests
            stay += len({attempt.request.topic_of(record) for record in attempt.request.records})
        if process.waits > stay:
            raise SimulationError("memory", f"{process.waits} requests wait, {stay} have callers")

    def _note_hard_states(self, attempt: Attempt, outcomes: list[Outcome]) -> None:
        if attempt.is_replayed:
            self._world.reach("an answer was replayed")
            if any(outcome.what == "unknown" for outcome in outcomes):
                self._world.reach("a key was used again while its outcome was unknown")
        for phase in {outcome.phase for outcome in outcomes if outcome.phase}:
            self._world.reach(f"a request failed in phase {phase}")
        if attempt.status == 207:
            self._world.reach("a request was acknowledged in part")
        if attempt.status in (408, 429):
            self._world.reach(f"a request was answered {attempt.status}")
        if attempt.status == 503 and attempt.request.form == "spool":
            self._world.reach("the spool refused a request")

    def look_again_at_mark(self, path: Path) -> None:
        """Takes the mark that a power cut has left; it may have lost the last one."""
        self._mark = 1, {}
        if path.exists():
            found = msgspec.json.decode(path.read_bytes())
            self._mark = found["done"], found["behind"]

    def look_at_mark(self, path: Path) -> None:
        """Judges a mark that is put into place."""
        if path.name != "mark.json":
            return
        found = msgspec.json.decode(path.read_bytes())
        if found["behind"]:
            self._world.reach("a mark with topics that are behind")
        before = self._mark
        self._mark = found["done"], found["behind"]
        for sequence in self._spooled:
            if self._is_done(sequence, before):
                continue
            self._note_passed(sequence)
            self._check_mark(sequence)

    def _note_passed(self, sequence: int) -> None:
        """Adds to the trace that the mark has passed an entry, if it is kept."""
        wire, process = self._brokers.wire, self._run.process
        if wire.trace is None or process is None or not self._is_done(sequence, self._mark):
            return
        _, value = self._spooled[sequence]
        is_aside = value in wire.requeued or value in self._dead_letters()
        wire.note_one(value, "aside" if is_aside else "mark", process.number)

    def _is_done(self, sequence: int, mark: tuple[int, dict[str, int]]) -> bool:
        done, behind = mark
        topic, _ = self._spooled[sequence]
        return sequence < done and sequence < behind.get(topic, done)

    def _check_mark(self, sequence: int) -> None:
        if not self._is_done(sequence, self._mark):
            return
        _, value = self._spooled[sequence]
        if self._entries[value] > sequence:
            return  # the later one is on the disk
        if not (self._is_committed(value) or self._is_excused(value) or value in self._dead_letters()):
            raise SimulationError(
                "mark", f"it passes {shown(value)}, number {sequence}, which is acknowledged by no broker"
            )

    def _is_committed(self, value: bytes) -> bool:
        committed_to = self._brokers.committed_to
        appends = self._brokers.wire.appends.get(value, ())
        return any(append.offset < committed_to.get(append.place, 0) for append in appends)

    def _is_excused(self, value: bytes) -> bool:
        """Returns whether Kafka may have lost a record that it had acknowledged."""
        if value in self._brokers.lost_by_kafka:
            return True
        return self._plan.kafka["acks"] == "1" and value in self._brokers.truncated

    def look_at_dead_letters(self) -> None:
        """Judges those that are new. A process that starts again begins its waits again."""
        disk, process = self._run.disk, self._run.process
        assert disk is not None
        assert process is not None
        for file in dead_letters_in(disk.folder):
            for one in file.records:
                if (file.path, one.sequence) in self._seen_aside:
                    continue
                self._seen_aside.add((file.path, one.sequence))
                self._world.reach(f"a dead letter: {one.reason}")
                kind = _REFUSED_BY.get(one.reason)
                began_ms = 0 if one.reason in _OF_TOPICS else self._run.began_ms.get(kind or "")
                if began_ms is None:
                    raise SimulationError("dead letter", f"there was no reason for: {one}")
                began_ms = max(began_ms, process.started_ms)
                if self._world.now_ms - began_ms < self._run.settings.spool_topic_wait_ms:
                    raise SimulationError(
                        "dead letter", f"too early, {self._world.now_ms - began_ms} ms: {one}"
                    )

    def _dead_letters(self) -> set[bytes]:
        if self._run.disk is None:
            return set()
        return {
            identity_of(one.entry.record)
            for file in dead_letters_in(self._run.disk.folder)
            for one in file.records
            if one.entry is not None
        }

    def left(self) -> str:
        """Returns what is under way or held yet; nothing when all is done."""
        open_ones = [attempt.name for attempt in self._run.attempts if not attempt.is_over]
        held: dict[str, object] = {"requests that are not answered": open_ones[:5]}
        for place, process in enumerate(self._run.sidecars):
            if process is None or not process.is_alive:
                return f"sidecar {place} does not run"
            process.check()
            held.update((f"{what} of sidecar {place}", much) for what, much in process.held().items())
        return ", ".join(f"{what}: {much}" for what, much in held.items() if much)

    # -- at the end ------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judges the logs and what is held. Raises SimulationError."""
        left = self.left()
        if left:
            raise SimulationError("memory", left)
        stored = self._brokers.committed()
        dead = self._dead_letters()
        tries: dict[int, list[tuple[Attempt, list[Outcome]]]] = defaultdict(list)
        for attempt in self._run.attempts:
            tries[attempt.request.number].append((attempt, attempt.outcomes()))
        by_value: dict[bytes, Tries] = {}
        for number in sorted(tries):
            for index, record in enumerate(tries[number][0][0].request.records):
                value = value_of(record)
                of_record = [(attempt, outcomes[index]) for attempt, outcomes in tries[number]]
                by_value[value] = of_record
                self._judge_truth(record, stored.get(value, []))
                topic = tries[number][0][0].request.topic_of(record)
                self._judge_stored(topic, value, of_record, stored.get(value, []), dead)
                judge_copies(self._run, value, of_record)
                self._judge_sending(index, value, of_record)
        self._judge_retries()
        judge_sequences(self._run, by_value)
        self._judge_metrics()
        self._note_epochs()
        self._judge_order(tries)
        self._judge_order_of_spool(stored, tries)

    def _judge_metrics(self) -> None:
        """Judges the counters of the processes that live: each request counts once, as it was answered."""
        for process in self._run.sidecars:
            if process is None:
                continue
            tries = [attempt for attempt in self._run.attempts if attempt.process is process]
            answers = Counter(str(attempt.status) for attempt in tries if not attempt.is_cut)
            replays = sum(attempt.is_replayed for attempt in tries if not attempt.is_cut)
            # What was counted of a request whose caller has left, nobody knows.
            cut = sum(attempt.is_cut for attempt in tries)
            counted = process.counted()
            counted_replays = counted.pop("replays", 0)
            if not replays <= counted_replays <= replays + cut:
                raise SimulationError("metrics", f"{counted_replays} replays are counted of {replays}")
            if counted.total() != len(tries) or answers - counted:
                raise SimulationError(
                    "metrics", f"{dict(counted)} are counted of {dict(answers)} and {cut} that were cut"
                )

    def _judge_retries(self) -> None:
        """A record is sent once, and `retries` times more. The parts of a batch begin to count anew."""
        retries = int(self._plan.kafka["retries"])
        if retries > _MOST_RETRIES:
            return
        wire = self._brokers.wire
        of_parts = {
            value
            for refusal in wire.refusals
            if refusal.error is Errors.MESSAGE_TOO_LARGE
            for value in refusal.values
        }
        for process in self._run.lives.values():
            submitted = Counter(process.producer.submitted)
            for value, times in wire.times_sent(process.producer.network.name).items():
                if times > submitted[value] * (retries + 1) and value not in of_parts:
                    raise SimulationError(
                        "retries", f"{shown(value)} was sent {times} times; retries is {retries}"
                    )

    def _note_epochs(self) -> None:
        epochs: dict[str, set[tuple[int | None, int | None]]] = defaultdict(set)
        for appends in self._brokers.wire.appends.values():
            for append in appends:
                epochs[append.client].add((append.producer_id, append.producer_epoch))
        for client, of_client in epochs.items():
            if len(of_client) > 1:
                self._world.reach("a producer began a new epoch")
                self._note_moves_amid_epochs(client)
        if any(client.startswith("spool") for client in epochs) and len(self._run.lives) > 1:
            self._world.reach("a spool went on after a restart")

    def _note_moves_amid_epochs(self, client: str) -> None:
        """Two batches of a partition are in flight, its leader moves, and a new epoch begins."""
        wire = self._brokers.wire
        of_client = [one for appends in wire.appends.values() for one in appends if one.client == client]
        begun_ms: dict[tuple[int | None, int | None], int] = {}
        for one in of_client:
            epoch = one.producer_id, one.producer_epoch
            begun_ms[epoch] = min(one.sent_ms, begun_ms.get(epoch, one.sent_ms))
        for epoch_ms in sorted(begun_ms.values())[1:]:
            in_flight: dict[tuple[str, int], set[bytes]] = defaultdict(set)
            for one in of_client:
                acked_ms = wire.acked_ms.get((client, one.place, one.batch))
                if one.sent_ms < epoch_ms and (acked_ms is None or acked_ms > epoch_ms):
                    in_flight[one.place].add(one.batch)
            for place, batches in in_flight.items():
                moved_ms = self._brokers.moved_ms.get(place, ())
                if len(batches) > 1 and any(abs(at_ms - epoch_ms) < _AMID_MS for at_ms in moved_ms):
                    self._world.reach("two batches in flight, a leader that moves, and a new epoch")
                    return

    def _judge_stored(
        self,
        topic: str,
        value: bytes,
        tries: list[tuple[Attempt, Outcome]],
        found: Copies,
        dead: set[bytes],
    ) -> None:
        if self._is_excused(value):
            return
        at = [(place, stored.offset) for place, stored in found]
        for attempt, outcome in tries:
            if outcome.what == "acknowledged":
                self.acknowledged += 1
                place = topic, outcome.partition
                if (place, outcome.offset) not in at:
                    raise SimulationError(
                        "lost",
                        f"{shown(value)} was acknowledged at {place} {outcome.offset}, and is at {at}",
                    )
            elif outcome.what == "spooled":
                self.acknowledged += 1
                if not found and value not in dead:
                    raise SimulationError("lost", f"{shown(value)} was spooled, and is nowhere")
                if value in dead:
                    self._world.reach("a dead letter")
            if value not in dead:  # for its time, perhaps
                self._judge_time(attempt, outcome, found)

    def _judge_sending(self, index: int, value: bytes, tries: Tries) -> None:
        """A record that was never sent was not written; and none is first sent after its deadline."""
        wire = self._brokers.wire
        by_life: dict[int, list[tuple[Attempt, Outcome]]] = defaultdict(list)
        for attempt, outcome in tries:
            if attempt.request.form != "spool":
                by_life[attempt.process.number].append((attempt, outcome))
        appends = wire.appends.get(value, ())
        for number, mine in by_life.items():
            client = f"sidecar {number}"
            until_ms = max(attempt.began_ms()[index] + attempt.request.timeout_ms for attempt, _ in mine)
            stored_ms = [append.sent_ms for append in appends if append.client == client]
            # What was appended for a caller who has left is delivered.
            is_cut = any(attempt.is_cut for attempt, _ in mine)
            if stored_ms and min(stored_ms) > until_ms + _SLACK_MS and not is_cut:
                first_ms = wire.first_sent_ms(client, value)
                if first_ms is not None and first_ms > until_ms + _SLACK_MS:
                    raise SimulationError(
                        "late", f"{shown(value)} was first sent {first_ms - until_ms} ms after its deadline"
                    )
            for attempt, outcome in mine:
                if outcome.what == "unknown" and outcome.error and attempt.answered_ms is not None:
                    first_ms = wire.first_sent_ms(client, value)
                    if first_ms is None or first_ms > attempt.answered_ms:
                        raise SimulationError("never sent", f"{attempt.name}: {shown(value)}: {outcome}")

    def _judge_truth(self, record: RecordPlan, found: Copies) -> None:
        """Each copy has the key, and is in the partition, that its caller asked for; empty is not null."""
        key = None if record.key is None else record.key.encode()
        for (_, partition), stored in found:
            is_whole = stored.value if record.size else stored.value == b""
            if stored.key != key or record.partition not in (None, partition) or not is_whole:
                raise SimulationError("untrue", f"{record} was stored as {stored}")

    def _judge_time(self, attempt: Attempt, outcome: Outcome, found: Copies) -> None:
        """A record without a timestamp has the time at which it was accepted, between request and answer."""
        if (
            outcome.what not in ("acknowledged", "spooled")
            or attempt.is_replayed
            or attempt.answered_ms is None
        ):
            return
        since_ms, until_ms = attempt.since_wall_ms, attempt.answered_wall_ms
        if attempt.clock_jumped:
            return
        times_ms = [stored.timestamp_ms for _, stored in found]
        if found and not any(since_ms <= time_ms <= until_ms for time_ms in times_ms):
            raise SimulationError(
                "untrue",
                f"{attempt.name} was accepted from {since_ms} to {until_ms}, and stored of {times_ms}",
            )
        # A broker that knew the batch already answers with the time of the last record of it.
        known_ms = {*times_ms, *self._brokers.times_of_known_batches_ms}
        if outcome.what == "acknowledged" and outcome.timestamp_ms not in known_ms:
            raise SimulationError(
                "untrue", f"{attempt.name} was answered {outcome}, and stored of {times_ms}"
            )

    def _judge_order(self, tries: dict[int, list[tuple[Attempt, list[Outcome]]]]) -> None:
        """Compares the offsets of acknowledged records with the order in which they were submitted.

        Records without key and partition may go elsewhere, while the leader of theirs is lost, unless their
        topic has one partition. A record is where it was first stored, if copies.py explains that it was
        stored again.
        """
        if not self._plan.is_idempotent and self._plan.kafka["max.in.flight.requests.per.connection"] != "1":
            return
        small = {
            topic.name for topic in self._plan.topics if topic.partitions == 1 and topic.grows_ms is None
        }
        for process in self._run.lives.values():
            client = process.producer.network.name
            last: dict[tuple[str, int], tuple[int, bytes]] = {}
            acknowledged: dict[bytes, tuple[tuple[str, int], int]] = {}
            for of_request in tries.values():
                mine = [one for one in of_request if one[0].process is process]
                if len(mine) != 1:
                    continue  # which of several tries was submitted when is not known
                attempt, outcomes = mine[0]
                for record, outcome in zip(attempt.request.records, outcomes, strict=True):
                    is_keyed = record.key is not None or record.partition is not None
                    is_keyed = is_keyed or attempt.request.topic_of(record) in small
                    if outcome.what == "acknowledged" and is_keyed and not self._is_excused(value_of(record)):
                        assert outcome.offset is not None
                        place = attempt.request.topic_of(record), outcome.partition
                        acknowledged[value_of(record)] = (
                            place,
                            self._first_offset(process, place, value_of(record), outcome.offset),
                        )
            for value in process.producer.submitted:
                known = acknowledged.get(value)
                if known is None:
                    continue
                place, offset = known
                before = last.get(place)
                if before is not None and before[0] >= offset:
                    if came_first_where_all_was_forgotten(self._brokers, client, place, value, before[1]):
                        self._world.reach("a later batch came first where the producer had expired")
                        continue
                    raise SimulationError(
                        "order",
                        f"{shown(value)} is at {offset} of {place}, behind {shown(before[1])} at {before[0]}",
                    )
                last[place] = offset, value

    def _first_offset(self, process: Process, place: tuple[str, int], value: bytes, offset: int) -> int:
        """Returns the offset of a record, or of its first copy, if a second one is explained."""
        client = process.producer.network.name
        appends = [
            append
            for append in self._brokers.wire.appends.get(value, ())
            if append.client == client and append.place == place
        ]
        # What a leader that was cut off dropped is not there, though another copy may be.
        was_dropped = value in self._brokers.truncated
        first = next((one for one in appends if not was_dropped or is_in_a_log(self._run, value, one)), None)
        if first is None:
            return offset
        is_copy = any(
            append.offset == offset
            and (
                forgot(self._run, first, append)
                if append.write == first.write
                else reason_of(self._run, value, first, append)
            )
            for append in appends
        )
        return first.offset if is_copy else offset

    def _judge_order_of_spool(
        self,
        stored: dict[bytes, Copies],
        tries: dict[int, list[tuple[Attempt, list[Outcome]]]],
    ) -> None:
        """Compares the first copies of spooled records with the order of their numbers.

        In a topic that grows or is made again a record that is sent again may go to another partition.
        """
        grow = {topic.name for topic in self._plan.topics if topic.grows_ms is not None} | self._run.deleted
        dead = self._dead_letters()  # a restart may deliver one that the mark has not passed
        once = {
            value_of(record)
            for of_request in tries.values()
            if len(of_request) == 1
            for record in of_request[0][0].request.records
            if record.key is not None or record.partition is not None
        }
        by_place: dict[tuple[str, int], list[tuple[int, int, bytes]]] = defaultdict(list)
        for sequence, (topic, value) in sorted(self._spooled.items()):
            if topic in grow or self._is_excused(value) or value in dead:
                continue
            if value not in stored or value not in once or value in self._brokers.wire.requeued:
                continue
            place, first = min(stored[value], key=_offset_of)
            by_place[place].append((sequence, first.offset, value))
        for place, records in by_place.items():
            for (_, before, one), (_, behind, other) in pairwise(records):
                if before >= behind:
                    raise SimulationError(
                        "order", f"spooled {shown(other)} is at {behind} of {place}, {shown(one)} at {before}"
                    )


def _offset_of(copy: tuple[tuple[str, int], StoredRecord]) -> int:
    return copy[1].offset


def came_first_where_all_was_forgotten(
    brokers: ReplicatedBrokers, client: str, place: tuple[str, int], value: bytes, earlier: bytes
) -> bool:
    """Returns whether brokers that no longer knew the producer got a later batch first.

    They accept any sequence then, and the client can't know. So an earlier batch that is still on its way, to
    a leader that hangs, is refused and written behind it.
    """
    later_ms, earlier_ms = (_stored_ms(brokers, client, place, [one]) for one in (value, earlier))
    return any(
        first_ms <= min(later_ms) and first_ms < min(earlier_ms)
        for first_ms in overtaken_ms(brokers, client, place, earlier)
    )


def overtaken_ms(
    brokers: ReplicatedBrokers, client: str, place: tuple[str, int], value: bytes
) -> Iterator[int]:
    """Yields when brokers that had forgotten the producer took another record, though this one was sent."""
    sent_ms = brokers.wire.first_sent_ms(client, value)
    all_ms = _stored_ms(brokers, client, place, brokers.wire.appends)
    own_ms = _stored_ms(brokers, client, place, [value])
    for expired_ms in brokers.expired_ms:
        first_ms = min((at_ms for at_ms in all_ms if at_ms >= expired_ms), default=None)
        if first_ms is not None and sent_ms is not None and sent_ms <= first_ms and first_ms not in own_ms:
            yield first_ms


def _stored_ms(
    brokers: ReplicatedBrokers, client: str, place: tuple[str, int], values: Iterable[bytes]
) -> list[int]:
    appends = (append for one in values for append in brokers.wire.appends.get(one, ()))
    return [append.at_ms for append in appends if (append.client, append.place) == (client, place)]
