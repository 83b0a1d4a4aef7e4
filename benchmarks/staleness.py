"""Measures how long look-ups are wrong after a change, by route, by change and by how often they come.

    python -m benchmarks.staleness             20 topics for each route and change
    python -m benchmarks.staleness --rounds 1  5 of them

Three real brokers, and a sidecar for each kind of caller: busy (a look-up each 250 ms), sparse (each 10 s),
and quiet (one before the change, one after it). Each topic is looked up by one route. A change has happened
when each broker reports it: brokers learn of it one after another, and until then either answer is right.
What counts is the time from there until the last wrong answer was asked for; 0 if none was wrong. Not part
of `make bench`.
"""

from __future__ import annotations

import argparse
import heapq
import http.client
import json
import statistics
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.brokers import three_brokers
from benchmarks.measure import table
from benchmarks.sidecar import sidecar
from tests.support.partition_routes import ROUTES, LookUp, look_up, shows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.kraft import KraftCluster
    from tests.support.partition_routes import Seen

ROUNDS: Final = 4
#: The topics of a route in a round.
TOPICS: Final = 5
#: Seconds between the look-ups of a topic; None: only one before its change, and one after it.
CALLERS: Final = {"busy": 0.25, "each 10 s": 10.0, "quiet": None}
#: Sparse callers have looked up each topic by then, and what was created is older than each bound.
_SETTLE_S: Final = 12.0
#: Sparse callers look up each topic at least once more.
_WATCH_S: Final = 12.0
#: Leads each partition before the change, and is asked for by the route of one replica.
_MOVED_FROM, _MOVED_TO = 2, 3


class Change(NamedTuple):
    """What is done to a topic of three partitions, the partition that shows it, and what is right then."""

    make: Callable[[KraftCluster, str], None]
    partition: int
    is_right: Callable[[Seen], bool]


def _recreate(kafka: KraftCluster, topic: str) -> None:
    kafka.admin.delete_topic(topic)
    kafka.admin.create_topic(topic, partitions=5, replication_factor=3)


CHANGES: Final = {
    "deleted": Change(lambda kafka, topic: kafka.admin.delete_topic(topic), 0, lambda seen: not seen.exists),
    "made again": Change(_recreate, 4, lambda seen: seen.exists),
    "partition added": Change(
        lambda kafka, topic: kafka.admin.add_partitions(topic, total=5), 4, lambda seen: seen.exists
    ),
    "leader moved": Change(
        lambda kafka, topic: kafka.admin.elect_preferred_leaders(topic),
        0,
        lambda seen: seen.leader == _MOVED_TO,
    ),
}


@dataclass
class Watched:
    """A topic that one caller looks up by one route."""

    route: str
    asked: LookUp
    is_right: Callable[[Seen], bool]
    changed_s: float | None = None
    #: When each wrong answer was asked for.
    wrong_s: list[float] = field(default_factory=list)

    @property
    def stale_s(self) -> float:
        """Returns the time from the change to the last wrong answer; 0 without one."""
        assert self.changed_s is not None
        return max((asked_s - self.changed_s for asked_s in self.wrong_s), default=0.0)


@dataclass(frozen=True)
class Answer:
    """See partition_routes.Answer."""

    status_code: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Looks up topics, each as often as the others, in a thread of its own."""

    def __init__(self, port: int, pause_s: float | None, watched: Sequence[Watched]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._pause_s = pause_s
        self._watched = watched
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def looking_up(self) -> Iterator[None]:
        """Looks up each topic at once, and then at its times until the block ends."""
        for each in self._watched:
            self._look_up(each)
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()
        if self._pause_s is None:
            for each in self._watched:
                self._look_up(each)
        self._connection.close()

    def _run(self) -> None:
        if self._pause_s is None:
            return
        begun_s, apart_s = time.monotonic(), self._pause_s / len(self._watched)
        due = [(begun_s + number * apart_s, number) for number in range(len(self._watched))]
        while not self._ends.wait(max(due[0][0] - time.monotonic(), 0)):
            due_s, number = due[0]
            self._look_up(self._watched[number])
            heapq.heapreplace(due, (max(due_s + self._pause_s, time.monotonic()), number))

    def _look_up(self, watched: Watched) -> None:
        asked, asked_s = watched.asked, time.monotonic()
        body = None if asked.body is None else json.dumps(asked.body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(asked.method, asked.path, body, headers)
        answer = self._connection.getresponse()
        seen = asked.read(Answer(answer.status, answer.read()))
        if watched.changed_s is not None and asked_s > watched.changed_s and not watched.is_right(seen):
            watched.wrong_s.append(asked_s)


def one_round(kafka: KraftCluster, name: str, number: int) -> dict[str, list[Watched]]:
    """Makes one kind of change to the topics of each route; returns them by kind of caller."""
    change = CHANGES[name]
    topics = {
        f"{name.replace(' ', '-')}-{number}-{at}-{n}": route
        for at, route in enumerate(ROUTES)
        if shows(route, name)
        for n in range(TOPICS)
    }
    for topic in topics:
        kafka.admin.create_topic(topic, assignment=[(_MOVED_TO, _MOVED_FROM, 1)] * 3)
    if name == "leader moved":
        # Then another broker leads each partition than the one that would be preferred.
        kafka.stop(_MOVED_TO)
        kafka.restart(_MOVED_TO)
        for topic in topics:
            kafka.admin.wait_until_in_sync(topic, partitions=3)
    watched = {
        caller: [
            Watched(route, look_up(route, topic, change.partition, kafka.cluster_id), change.is_right)
            for topic, route in topics.items()
        ]
        for caller in CALLERS
    }
    with ExitStack() as stack:
        for caller, pause_s in CALLERS.items():
            one = stack.enter_context(sidecar(kafka.bootstrap_servers))
            stack.enter_context(Caller(one.port, pause_s, watched[caller]).looking_up())
        time.sleep(_SETTLE_S)
        for at, topic in enumerate(topics):
            change.make(kafka, topic)
            now_s = time.monotonic()
            for of_caller in watched.values():
                of_caller[at].changed_s = now_s
        time.sleep(_WATCH_S)
    for topic in topics if name != "deleted" else ():
        kafka.admin.delete_topic(topic)
    return watched


def main() -> None:
    """Prints a table for each change."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"each has {TOPICS} topics of each route")
    rounds = parser.parse_args().rounds
    head = ("route", "n", *(f"{caller}: {what}" for caller in CALLERS for what in ("median s", "worst s")))
    with three_brokers() as kafka:
        for name in CHANGES:
            found: dict[tuple[str, str], list[float]] = {}
            for number in range(rounds):
                for caller, watched in one_round(kafka, name, number).items():
                    for each in watched:
                        found.setdefault((each.route, caller), []).append(each.stale_s)
            rows = [
                (
                    route,
                    len(found[route, "busy"]),
                    *(
                        f"{figure(found[route, caller]):.2f}"
                        for caller in CALLERS
                        for figure in (statistics.median, max)
                    ),
                )
                for route in ROUTES
                if shows(route, name)
            ]
            table(f"wrong answers after a change: {name}", head, rows)


if __name__ == "__main__":
    main()
