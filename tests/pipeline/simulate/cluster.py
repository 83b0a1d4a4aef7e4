"""Simulates the cluster: brokers fail and return, leaders move, replicas fall behind, topics change.

It behaves as a KRaft cluster. A broker that fails is fenced 9 s later (broker.session.timeout.ms), or after
half the length of the failure if that is shorter. It then leaves the ISR of each of its partitions. Each
partition that it led gets the first of the partition's other in-sync replicas as leader, and a new epoch. If
the broker was the last replica in sync, it stays in the ISR, and the partition has no leader. A broker that
is back joins the ISR when it has caught up. It leads its partitions again after the next check for preferred
leaders (leader.imbalance.check.interval.seconds, 300). A change of the ISR alone does not raise the epoch
(metadata version 3.6 and later).

`plan.incidents` adds others, four kinds in turn, each at a time of its own, so that they may overlap each
other and the failures above: a broker that flaps, two brokers that fail at once, a follower that is behind
for long, and a topic whose records are refused. No two outages of one broker are less than APART_US from each
other, unless they are of one incident.

Names and ids look as in a real fleet and depend only on the seed.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import random
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.pipeline.simulate.lines import REFUSALS
from tests.pipeline.simulate.plan import SECOND_US, Plan
from tests.pipeline.simulate.timeline import (
    BEHIND,
    BY_HAND,
    NO_LEADER,
    Failure,
    Life,
    PartitionChange,
    Refusal,
    Slot,
    State,
    Timeline,
    TopicChange,
)

#: Outages, shortages and refusals that are further apart than this are different incidents.
APART_US: Final = 600 * SECOND_US
_SESSION_TIMEOUT_US: Final = 9 * SECOND_US
_PREFERRED_CHECK_US: Final = 300 * SECOND_US
_REPLICATION_FACTOR: Final = 3
#: The share of failures that hit the last broker.
_SHAKY_SHARE: Final = 0.6
_MOST_FLAPS: Final = 12
_FLAP_EVERY_US: Final = 90 * SECOND_US
_LAGS_AN_HOUR: Final = 6
#: The shortest and the longest time, in seconds, until a replica of the busiest partition leaves its ISR, or
#: returns to it.
_HOT_PERIODS_S: Final = (20, 600)


_TOPICS: Final = (
    *("orders", "payments", "shipments", "invoices", "customers", "clicks"),
    *("sessions", "stock-levels", "audit", "returns", "prices", "carts"),
)
_SERVICES: Final = (
    *("checkout", "billing", "search", "inventory"),
    *("fraud-check", "newsletter", "shipping", "recommendations"),
)


def kafka_uuid(source: random.Random) -> str:
    """Returns the id of a cluster or topic, as Kafka writes it: 16 bytes as 22 characters of base64url."""
    return base64.urlsafe_b64encode(source.randbytes(16)).decode().rstrip("=")


def topics(count: int) -> list[str]:
    """Returns `count` names of topics."""
    return [*_TOPICS[:count], *(f"topic-{n:03d}" for n in range(len(_TOPICS) + 1, count + 1))]


def services(count: int) -> list[str]:
    """Returns `count` names of services."""
    return [*_SERVICES[:count], *(f"service-{n:02d}" for n in range(len(_SERVICES) + 1, count + 1))]


def timeline_of(plan: Plan) -> Timeline:
    """Returns the cluster's history: the same for the same plan."""
    return _Model(plan).run()


class _Action(NamedTuple):
    """A scheduled action; `order` decides between actions of the same time."""

    at_us: int
    order: int
    kind: str
    subject: int
    other: int


@dataclass
class _Copy:
    """The current state of a slot."""

    leader: int
    epoch: int
    isr: list[int]
    is_there: bool = False


class _Model:
    """The model: the scheduled actions, and what has happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.random: Final = random.Random(f"{plan.seed} cluster")
        self.brokers: Final = list(range(1, plan.brokers + 1))
        self.lives: Final[list[Life]] = []
        self.slots: Final[list[Slot]] = []
        self.copies: Final[list[_Copy]] = []
        self.partitions_at_first: Final[list[int]] = []
        self.down: Final[set[int]] = set()
        self.changes: Final[list[PartitionChange]] = []
        self.topic_changes: Final[list[TopicChange]] = []
        self.failures: Final[list[Failure]] = []
        self.refusals: Final[list[Refusal]] = []
        self._due: Final[list[_Action]] = []
        self._order: Final = itertools.count()

    def run(self) -> Timeline:
        plan = self.plan
        cluster_id = kafka_uuid(self.random)
        for topic in topics(plan.topics):
            self._plan(plan.start_us, "created", self._new_life(topic, plan.partitions))
        if plan.churn > 0:
            self._plan_failures()
            self._plan_topics()
            self._plan_lags()
            self._plan_flapping()
        self._plan_incidents()
        self._pass_time()
        return Timeline(
            cluster_id,
            self.brokers[1 % plan.brokers],
            self.lives,
            self.slots,
            self.changes,
            self.topic_changes,
            sorted(self.failures, key=lambda failure: failure.down_us),
            self.refusals,
        )

    # -- scheduling ------------------------------------------------------------------------------------------

    def _plan(self, at_us: int, kind: str, subject: int, other: int = 0) -> None:
        heapq.heappush(self._due, _Action(at_us, next(self._order), kind, subject, other))

    def _new_life(self, topic: str, partitions: int, grows_to: int | None = None) -> int:
        most = grows_to or partitions
        life = len(self.lives)
        self.lives.append(Life(topic, kafka_uuid(self.random), len(self.slots), most))
        # One topic in ten has a single replica: it has no leader while its broker is away.
        copies = 1 if life % 10 == 9 else min(_REPLICATION_FACTOR, len(self.brokers))
        shift = self.random.randrange(len(self.brokers))
        for partition in range(most):
            replicas = tuple(self.brokers[(shift + partition + n) % len(self.brokers)] for n in range(copies))
            self.slots.append(Slot(life, partition, replicas))
            self.copies.append(_Copy(replicas[0], 0, list(replicas)))
        self.partitions_at_first.append(partitions)
        return life

    def _plan_failures(self) -> None:
        """Divides the time into equal parts, and schedules one failure in each part.

        So each failure is over before the next one.
        """
        plan = self.plan
        count = max(round(plan.churn * plan.hours), 1)
        part_us = (plan.end_us - plan.start_us) // count
        shaky = self.brokers[-1]
        for number in range(count):
            is_shaky = number == 0 or self.random.random() < _SHAKY_SHARE
            broker = shaky if is_shaky else self.random.choice(self.brokers)
            down_us = plan.start_us + number * part_us + round(part_us * self.random.uniform(0.25, 0.4))
            away_us = round(min(self.random.uniform(30, 240) * SECOND_US, part_us * 0.3))
            caught_up_us = round(min(self.random.uniform(3, 20) * SECOND_US, part_us * 0.05))
            self._plan_failure(broker, down_us, away_us, caught_up_us)
        for at_us in range(plan.start_us + _PREFERRED_CHECK_US, plan.end_us, _PREFERRED_CHECK_US):
            self._plan(at_us, "preferred", 0)

    def _plan_failure(self, broker: int, down_us: int, away_us: int, caught_up_us: int) -> None:
        self.failures.append(Failure(broker, down_us, down_us + away_us))
        self._plan(down_us + min(_SESSION_TIMEOUT_US, away_us // 2), "fenced", broker)
        self._plan(down_us + away_us, "back", broker)
        self._plan(down_us + away_us + caught_up_us, "caught_up", broker)

    def _plan_incidents(self) -> None:
        """Schedules the incidents of `plan.incidents`, with random numbers of their own."""
        plan = self.plan
        source = random.Random(f"{plan.seed} incidents")
        count = round(plan.incidents * plan.hours)
        kinds = [self._flaps, self._two_at_once, self._behind, self._refused]
        first = source.randrange(len(kinds))
        span_us = plan.end_us - plan.start_us
        for number in range(count):
            at_us = plan.start_us + round(span_us * (0.04 + 0.86 * (number + source.random()) / count))
            kinds[(first + number) % len(kinds)](source, at_us)

    def _broker_for(self, source: random.Random, from_us: int, to_us: int) -> int | None:
        """Returns a broker that is up from long before until long after; None if there is none."""
        busy = {
            failure.broker
            for failure in self.failures
            if failure.down_us < to_us + 2 * APART_US and failure.back_us > from_us - 2 * APART_US
        }
        free = [broker for broker in self.brokers if broker not in busy]
        return source.choice(free) if free else None

    def _flaps(self, source: random.Random, at_us: int) -> None:
        outages = [(source.uniform(20, 50), source.uniform(30, 100)) for _ in range(source.randrange(3, 7))]
        lasts_us = round(sum(map(sum, outages)) * SECOND_US)
        broker = self._broker_for(source, at_us, at_us + lasts_us)
        if broker is None:
            return
        for away_s, up_s in outages:
            self._plan_failure(broker, at_us, round(away_s * SECOND_US), 3 * SECOND_US)
            at_us += round((away_s + up_s) * SECOND_US)

    def _two_at_once(self, source: random.Random, at_us: int) -> None:
        for _ in range(2):
            away_us = round(source.uniform(90, 400) * SECOND_US)
            broker = self._broker_for(source, at_us, at_us + away_us)
            if broker is not None:
                self._plan_failure(broker, at_us, away_us, round(source.uniform(3, 20) * SECOND_US))
            at_us += round(source.uniform(0, 80) * SECOND_US)

    def _behind(self, source: random.Random, at_us: int) -> None:
        # Not the busiest partition, whose follower falls behind anyway.
        slot = source.randrange(1, self.plan.topics * self.plan.partitions)
        self._plan(at_us, "lagged", slot, round(source.uniform(900, 2_400)))

    def _refused(self, source: random.Random, at_us: int) -> None:
        to_us = at_us + round(source.uniform(240, 900) * SECOND_US)
        life, error = source.randrange(self.plan.topics), source.choice(REFUSALS)
        self.refusals.append(Refusal(life, error, at_us, min(to_us, self.plan.end_us)))

    def _plan_topics(self) -> None:
        """Schedules topics that grow, end, begin, or are re-created."""
        plan = self.plan
        span_us = plan.end_us - plan.start_us
        if plan.topics < 4:
            return
        for number in range(max(plan.topics // 20, 1)):
            third = plan.topics - 1 - 3 * number
            offset_us = round(span_us * 0.02 * number / plan.topics)
            self._plan(plan.start_us + round(span_us * 0.6) + offset_us, "deleted", third)
            again = third - 1
            if again < 2:
                break
            ends_us = plan.start_us + round(span_us * 0.5) + offset_us
            self._plan(ends_us, "deleted", again)
            # Half of them at once, half after a pause in which a refresh may happen.
            pause_us = (2 if number % 2 == 0 else 400) * SECOND_US
            next_life = self._new_life(self.lives[again].name, plan.partitions)
            self._plan(ends_us + pause_us, "created", next_life)
            fresh = self._new_life(f"campaign-{number + 1}", plan.partitions, 2 * plan.partitions)
            self._plan(plan.start_us + round(span_us * 0.3) + offset_us, "created", fresh)
            self._plan(plan.start_us + round(span_us * 0.45) + offset_us, "grew", fresh)

    def _plan_lags(self) -> None:
        """Schedules replicas that fall behind: some at random, one of the busiest partition repeatedly."""
        plan = self.plan
        for _ in range(round(_LAGS_AN_HOUR * plan.hours)):
            slot = self.random.randrange(plan.topics * plan.partitions)
            at_us = self.random.randrange(plan.start_us, plan.end_us)
            self._plan(at_us, "lagged", slot, round(self.random.uniform(30, 300)))
        if plan.skew <= 0:
            return
        others_an_hour = plan.topics * plan.partitions / 2 * (1.2 * plan.churn + 1 / plan.hours)
        least_s, most_s = _HOT_PERIODS_S
        period_s = 3600 / max(plan.skew / (1 - plan.skew) * others_an_hour, 1)
        period_us = round(min(max(period_s, least_s), most_s) * SECOND_US)
        # Not in the moment of an election: a leader that falls behind then looks as if it had failed.
        for at_us in range(plan.start_us + period_us + 7 * SECOND_US, plan.end_us, 2 * period_us):
            self._plan(at_us, "lagged", 0, period_us // SECOND_US)

    def _plan_flapping(self) -> None:
        """Schedules a flapping leader for a partition of the second topic, in the second half."""
        plan = self.plan
        if plan.topics < 2 or len(self.brokers) < 2:
            return
        room_us = round((plan.end_us - plan.start_us) * 0.2)
        flaps = min(max(room_us // _FLAP_EVERY_US, 4), _MOST_FLAPS)
        every_us = min(room_us // flaps, _FLAP_EVERY_US)
        first_us = plan.start_us + round((plan.end_us - plan.start_us) * 0.7)
        for number in range(flaps):
            self._plan(first_us + number * every_us, "moved", plan.partitions + 1 % plan.partitions)

    # -- execution -------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        while self._due:
            action = heapq.heappop(self._due)
            if action.at_us <= self.plan.end_us:
                getattr(self, f"_{action.kind}")(action)

    def _set(
        self, at_us: int, slot: int, cause: str, *, leader: int | None = None, isr: list[int] | None = None
    ) -> None:
        copy = self.copies[slot]
        if leader is not None and leader != copy.leader:
            copy.leader = leader
            copy.epoch += 1
        if isr is not None:
            copy.isr = isr
        self._report(at_us, slot, cause)

    def _report(self, at_us: int, slot: int, cause: str) -> None:
        copy = self.copies[slot]
        offline = tuple(broker for broker in self.slots[slot].replicas if broker in self.down)
        state = State(copy.leader, copy.epoch, tuple(copy.isr), offline)
        self.changes.append(PartitionChange(at_us, slot, state, cause))

    def _begin(self, at_us: int, slot: int, cause: str) -> None:
        """Adds a partition of a new life; its replicas on brokers that are away are not in sync."""
        copy = self.copies[slot]
        copy.is_there = True
        replicas = self.slots[slot].replicas
        copy.isr = [broker for broker in replicas if broker not in self.down] or [replicas[0]]
        copy.leader = copy.isr[0] if copy.isr[0] not in self.down else NO_LEADER
        self._report(at_us, slot, cause)

    def _created(self, action: _Action) -> None:
        life = self.lives[action.subject]
        partitions = self.partitions_at_first[action.subject]
        self.topic_changes.append(TopicChange(action.at_us, action.subject, partitions))
        for slot in range(life.first_slot, life.first_slot + partitions):
            self._begin(action.at_us, slot, "created")

    def _grew(self, action: _Action) -> None:
        life = self.lives[action.subject]
        self.topic_changes.append(TopicChange(action.at_us, action.subject, life.most_partitions))
        before = life.first_slot + self.partitions_at_first[action.subject]
        for slot in range(before, life.first_slot + life.most_partitions):
            self._begin(action.at_us, slot, "grew")

    def _deleted(self, action: _Action) -> None:
        life = self.lives[action.subject]
        self.topic_changes.append(TopicChange(action.at_us, action.subject, None))
        for slot in range(life.first_slot, life.first_slot + life.most_partitions):
            self.copies[slot].is_there = False

    def _with_copies_on(self, broker: int) -> list[int]:
        return [
            number
            for number, slot in enumerate(self.slots)
            if broker in slot.replicas and self.copies[number].is_there
        ]

    def _fenced(self, action: _Action) -> None:
        broker = action.subject
        self.down.add(broker)
        for slot in self._with_copies_on(broker):
            copy = self.copies[slot]
            isr = [replica for replica in copy.isr if replica != broker] or copy.isr
            elected = (isr[0] if isr[0] != broker else NO_LEADER) if copy.leader == broker else None
            self._set(action.at_us, slot, f"broker {broker} failed", leader=elected, isr=isr)

    def _back(self, action: _Action) -> None:
        broker = action.subject
        self.down.discard(broker)
        for slot in self._with_copies_on(broker):
            copy = self.copies[slot]
            is_awaited = copy.leader == NO_LEADER and broker in copy.isr
            leader = broker if is_awaited else None
            self._set(action.at_us, slot, f"broker {broker} came back", leader=leader)
            for other in self.slots[slot].replicas if is_awaited else ():
                # They are up, and had no leader to catch up with.
                self._plan(action.at_us + 3 * SECOND_US, "rejoined", slot, other)

    def _caught_up(self, action: _Action) -> None:
        broker = action.subject
        for slot in self._with_copies_on(broker) if broker not in self.down else ():
            self._join(action.at_us, slot, broker)

    def _join(self, at_us: int, slot: int, broker: int) -> None:
        copy = self.copies[slot]
        if broker not in copy.isr and broker not in self.down and copy.leader != NO_LEADER:
            isr = [b for b in self.slots[slot].replicas if b in copy.isr or b == broker]
            self._set(at_us, slot, f"broker {broker} caught up", isr=isr)

    def _preferred(self, action: _Action) -> None:
        for number, slot in enumerate(self.slots):
            copy = self.copies[number]
            first = slot.replicas[0]
            if copy.is_there and copy.leader != first and first in copy.isr and first not in self.down:
                self._set(action.at_us, number, "preferred leader elected", leader=first)

    def _lagged(self, action: _Action) -> None:
        """Removes the last follower from the ISR for `other` seconds."""
        slot = action.subject
        copy = self.copies[slot]
        followers = [broker for broker in copy.isr if broker != copy.leader]
        if copy.is_there and followers:
            isr = [broker for broker in copy.isr if broker != followers[-1]]
            self._set(action.at_us, slot, f"broker {followers[-1]} {BEHIND}", isr=isr)
            self._plan(action.at_us + action.other * SECOND_US, "rejoined", slot, followers[-1])

    def _rejoined(self, action: _Action) -> None:
        if self.copies[action.subject].is_there:
            self._join(action.at_us, action.subject, action.other)

    def _moved(self, action: _Action) -> None:
        slot = action.subject
        copy = self.copies[slot]
        others = [b for b in copy.isr if b != copy.leader and b not in self.down]
        if copy.is_there and others:
            self._set(action.at_us, slot, BY_HAND, leader=others[0])
