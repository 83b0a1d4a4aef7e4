"""What a fault is, and the list that each of them is entered into by its module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.scene import Scene
    from tests.chaos.stage import Client, Stage

    Strike = Callable[[Scene], None]
    Route = Callable[[Stage], Client]


#: Of a producer's last five batches, by which a broker knows a repetition, it keeps the last over a kill. A
#: client with more of them on their way is told that its sequence is out of order, and begins a new epoch.
#: That is Kafka's (ProducerStateManager's snapshots), and Java's client does the same.
BROKERS_FORGET: Final = "a broker that was killed knows the last batch of a producer only"


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of docs/reliability.md.

    `name` says what happens. `strike` does it, holds it, mends it. `route` is how clients reach the brokers.
    `at_least_once` says why a record may be there twice; where it is empty it may not. `own_sidecar` has the
    fault harm a sidecar of its own, `spool` has one more caller, who is content with a 202. `short` are those
    that `make test` plays.
    """

    name: str
    group: str
    strike: Strike
    route: Route
    at_least_once: str = ""
    own_sidecar: bool = False
    spool: bool = False
    short: bool = False
