"""The type of a fault. Each module of faults has a list of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.scene import Scene
    from tests.chaos.stage import Client, Stage

    Injection = Callable[[Scene], None]
    Route = Callable[[Stage], Client]


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of docs/reliability.md.

    `name` says what happens. `inject` does it, holds it, mends it. `route` is how clients reach the brokers.
    `own_sidecar` has the fault harm a sidecar of its own, `spool` has one more caller, who is content with a
    202. `short` are those that `make test` plays. `kills_brokers` and `kills_sidecar` are evidence for the
    rules by which a record may be there twice (duplicates.py). `judges_gap` compares the longest time without
    success with Java's; a quota is no fault to compare by, since it lets one request with one batch of a
    partition pass in a second, and Java has fewer callers, who fill fewer batches.
    """

    name: str
    group: str
    inject: Injection
    route: Route
    kills_brokers: bool = False
    kills_sidecar: bool = False
    own_sidecar: bool = False
    spool: bool = False
    short: bool = False
    judges_gap: bool = True
