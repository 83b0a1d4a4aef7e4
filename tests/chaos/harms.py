"""Harms that begin, last and end: each is a fault by itself, and a part of combinations.

`begin` returns a function that ends it. A harm of a broker is one of the leader of partition 0 by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.fault import Injection
    from tests.chaos.scene import Scene
    from tests.support.faulty_proxy import FaultyProxy

    End = Callable[[], object]

#: request.timeout.ms is 30 s by default. Faults that must see it expire use this, for Java's client too.
SHORT_REQUEST_TIMEOUT: Final = {"request.timeout.ms": "2000"}


@dataclass(frozen=True, slots=True)
class Harm:
    """Something that is wrong for a while."""

    name: str
    begin: Callable[[Scene], End]

    def held(self, seconds: float) -> Injection:
        """The fault that is this harm alone, for so long."""

        def inject(scene: Scene) -> None:
            end = self.begin(scene)
            try:
                scene.hold(seconds)
            finally:
                end()

        return inject


def _of_proxies(
    name: str, harm: Callable[[FaultyProxy], object], which: Callable[[Scene], Sequence[FaultyProxy]]
) -> Harm:
    def begin(scene: Scene) -> End:
        harmed = which(scene)
        for proxy in harmed:
            harm(proxy)

        def end() -> None:
            for proxy in harmed:
                proxy.heal()

        return end

    return Harm(name, begin)


def on_all(name: str, harm: Callable[[FaultyProxy], object]) -> Harm:
    """On the way to every broker."""
    return _of_proxies(f"{name}, all brokers", harm, lambda scene: scene.proxies)


def on_leader(name: str, harm: Callable[[FaultyProxy], object]) -> Harm:
    """On the way to one broker, the leader of partition 0."""
    return _of_proxies(f"{name}, one leader", harm, lambda scene: [scene.proxy])


def _cut_off_and_refuse(proxy: FaultyProxy) -> None:
    proxy.refuse()


def _cut_off_and_swallow_new(proxy: FaultyProxy) -> None:
    proxy.blackhole()
    proxy.sever()


def _pause(which: Callable[[Scene], Sequence[int]]) -> Callable[[Scene], End]:
    def begin(scene: Scene) -> End:
        paused = which(scene)
        for broker_id in paused:
            scene.kafka.pause(broker_id)

        def end() -> None:
            for broker_id in paused:
                scene.kafka.resume(broker_id)

        return end

    return begin


def _pause_controller(scene: Scene) -> End:
    scene.kafka.pause_controller()
    return scene.kafka.resume_controller


def _kill_controller(scene: Scene) -> End:
    scene.kafka.kill_controller()
    return scene.kafka.restart_controller


def _kill_leader(scene: Scene) -> End:
    victim = scene.leader
    scene.kafka.kill(victim)
    return lambda: scene.kafka.restart(victim)


DELAY: Final = on_all("200 ms of latency, 100 ms of jitter", lambda p: p.delay(200, jitter_ms=100, seed=1))
SLOW_LEADER: Final = on_leader("a second of latency", lambda p: p.delay(1_000))
NARROW: Final = on_all("20 kB a second", lambda p: p.limit(20_000))
DRIBBLE: Final = on_all("packets of one byte", lambda p: p.dribble(1))
DRIBBLED_LEADER: Final = on_leader("packets of one byte", lambda p: p.dribble(1))
STALL: Final = on_all("nothing passes, connections stay", lambda p: p.stall())
STALLED_LEADER: Final = on_leader("nothing passes, connections stay", lambda p: p.stall())
REQUESTS_VANISH: Final = on_leader("half-open: requests vanish", lambda p: p.swallow(requests=True))
ANSWERS_VANISH: Final = on_leader("half-open: answers vanish", lambda p: p.swallow(answers=True))
ALL_VANISHES: Final = on_all("half-open: both ways vanish", lambda p: p.swallow(requests=True, answers=True))
#: Java's client sends less than the sidecar, and is cut off as often: after the same time, and few bytes.
_RESET_AFTER_S: Final = 0.7
RESET_ANSWERS: Final = on_all(
    "reset in the middle of answers, again and again",
    lambda p: p.reset_after_bytes(200, count_from_s=_RESET_AFTER_S),
)
RESET_REQUESTS: Final = on_all(
    "reset in the middle of requests, again and again",
    lambda p: p.reset_after_bytes(500, direction="requests", count_from_s=_RESET_AFTER_S),
)
REFUSING_LEADER: Final = on_leader("connections end and are refused", _cut_off_and_refuse)
ALL_REFUSE: Final = on_all("connections end and are refused", _cut_off_and_refuse)
UNANSWERED_CONNECTS: Final = on_leader(
    "connections end, new ones are never taken up", _cut_off_and_swallow_new
)

PAUSED_LEADER: Final = Harm("SIGSTOP of a leader, SIGCONT", _pause(lambda scene: [scene.leader]))
PAUSED_BROKERS: Final = Harm("SIGSTOP of all brokers, SIGCONT", _pause(lambda scene: scene.kafka.broker_ids))
PAUSED_CONTROLLER: Final = Harm("SIGSTOP of the controller, SIGCONT", _pause_controller)
KILLED_CONTROLLER: Final = Harm("kill -9 of the controller, back after that", _kill_controller)
KILLED_LEADER: Final = Harm("kill -9 of a leader, back at once after that", _kill_leader)
