"""Several faults at once: harms drawn by a seed, begun one after the other, ended in another order.

The same seed gives the same combination. The name of a combination lists its harms.
"""

from __future__ import annotations

from itertools import chain, count
from random import Random
from typing import TYPE_CHECKING, Final

from tests.chaos import harms
from tests.chaos.fault import Fault
from tests.chaos.routes import by_proxies_with_short_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.fault import Injection
    from tests.chaos.harms import Harm
    from tests.chaos.scene import Scene

#: Those that can be begun in any order, and of whose proxies `heal` ends all at once.
_OF_BROKERS: Final = (
    harms.PAUSED_LEADER,
    harms.PAUSED_CONTROLLER,
    harms.KILLED_CONTROLLER,
    harms.KILLED_LEADER,
)
_OF_NETWORK: Final = (
    harms.DELAY,
    harms.NARROW,
    harms.DRIBBLED_LEADER,
    harms.STALLED_LEADER,
    harms.ANSWERS_VANISH,
    harms.REQUESTS_VANISH,
    harms.RESET_ANSWERS,
    harms.RESET_REQUESTS,
    harms.REFUSING_LEADER,
)


def combinations(how_many: int, seed: int) -> tuple[Fault, ...]:
    """Combinations of one harm of brokers and one to three of the network; none occurs twice."""
    random = Random(seed)
    faults: dict[str, Fault] = {}
    while len(faults) < how_many:
        drawn = [random.choice(_OF_BROKERS), *random.sample(_OF_NETWORK, random.randint(1, 3))]
        name = " + ".join(harm.name for harm in drawn)
        faults[name] = Fault(
            name,
            "combined",
            _at_once(drawn, random.randrange(2**32)),
            by_proxies_with_short_requests,
            kills_brokers=harms.KILLED_LEADER in drawn,
        )
    return tuple(faults.values())


def endless(seed: int) -> Iterator[Fault]:
    """Combinations without end."""
    return chain.from_iterable(combinations(20, seed + cycle) for cycle in count())


def _at_once(drawn: list[Harm], seed: int) -> Injection:
    def inject(scene: Scene) -> None:
        random = Random(seed)
        # A leader is looked for while there is one: those of brokers come last.
        ends = []
        for harm in reversed(drawn):
            ends.append(harm.begin(scene))
            scene.hold(random.uniform(0.2, 1.0))
        scene.hold(random.uniform(1.0, 3.0))
        random.shuffle(ends)
        for end in ends:
            end()
            scene.hold(random.uniform(0.0, 0.5))

    return inject
