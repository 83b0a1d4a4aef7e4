"""The model keeps its promises in every state, and the simulated product does what the model allows."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.simulation.callers import value_of
from tests.simulation.delivery_model import (
    Bounds,
    Label,
    State,
    broken,
    explored,
    followed,
    may_end,
)
from tests.simulation.drawing import plan_of
from tests.simulation.run import Run, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.plan import Plan, RequestPlan

#: Small worlds: one try with all faults of the network, two tries, keys, a sidecar that ends, the spool.
WORLDS = {
    "one try": (State(), Bounds(clients=1, tries=1, writes=2, kills=0, submissions=1)),
    "two sidecars": (State(), Bounds(clients=2, tries=1, writes=2, submissions=1, under_way=1)),
    "a key": (
        State(keyed=True),
        Bounds(clients=1, tries=2, writes=2, kills=0, forgets=False, submissions=2, under_way=1),
    ),
    "a spool": (
        State(spooled=True),
        Bounds(clients=1, tries=1, writes=2, kills=0, forgets=False, submissions=2, under_way=1),
    ),
    "a spool that starts again": (
        State(spooled=True),
        Bounds(clients=2, tries=1, writes=1, forgets=False, submissions=2, under_way=1),
    ),
}
#: 34,000 states.
TWO_TRIES = (
    State(),
    Bounds(clients=1, tries=2, writes=2, kills=0, forgets=False, submissions=2, under_way=1),
)
#: Seeds whose traces are followed.
SEEDS = range(600, 624)
#: Seeds of which those are run that are needed to reach every kind of step.
KIND_SEEDS = range(600, 664)
KINDS = {
    "try",
    "submit",
    "spool",
    "send",
    "store",
    "known",
    "refuse",
    "fail",
    "ok",
    "bad",
    "answer",
    "kill",
    "cut",
    "forget",
    "mark",
    "aside",
    "requeue",
}
#: A record that was spooled, and is on its way to a broker.
SPOOLED: list[Label] = [("try", 1, 0), ("answer", 1, 0, "spooled"), ("spool", 1), ("send", 1, "w")]
ACKED: list[Label] = [("store", "w"), ("ok", 1, "w")]


def _goes_on(state: State, bounds: Bounds) -> bool:
    """Returns whether a sidecar is there, and what is spooled may be sent once more within the bounds."""
    writes = {one.write for one in state.submissions} - {None}
    has_room = len(state.submissions) < bounds.submissions and len(writes) < bounds.writes
    return len(state.dead) < bounds.clients and (has_room or not state.spooled)


@pytest.mark.parametrize("world", WORLDS)
def test_every_state_keeps_the_promises_and_can_come_to_an_end(world: str) -> None:
    _check(*WORLDS[world])


def test_two_tries_without_a_key_keep_the_promises_too() -> None:
    _check(*TWO_TRIES)


def _check(start: State, bounds: Bounds) -> None:
    steps = explored(start, bounds)
    assert len(steps) > 500
    assert [(broken(state), state) for state in steps if broken(state)] == []
    before: dict[State, list[State]] = defaultdict(list)
    for state, following in steps.items():
        for _, after in following:
            before[after].append(state)
    can_end = {state for state in steps if may_end(state)}
    open_ones = list(can_end)
    while open_ones:
        for state in before[open_ones.pop()]:
            if state not in can_end:
                can_end.add(state)
                open_ones.append(state)
    stuck = [state for state in steps if state not in can_end and _goes_on(state, bounds)]
    assert stuck == []


def _plans() -> Iterator[Plan]:
    return (plan for seed in KIND_SEEDS if (plan := plan_of(seed)).is_idempotent)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_simulated_run_is_a_path_of_the_model(seed: int) -> None:
    plan = plan_of(seed)
    if not plan.is_idempotent:
        plan = plan.as_idempotent()
    for value, (request, path) in _paths(plan).items():
        states = {State(keyed=request.has_key, spooled=request.form == "spool")}
        for at, label in enumerate(path):
            following = followed(states, label)
            assert following, (value, label, path[: at + 1], states)
            states = following


@pytest.mark.parametrize(
    ("path", "may_be"),
    [
        ([*SPOOLED, *ACKED, ("mark", 1)], True),
        ([*SPOOLED, ("mark", 1)], False),
        ([*SPOOLED, ("store", "w"), ("mark", 1)], False),
        ([*SPOOLED, *ACKED, ("mark", 1), ("mark", 1)], False),
        ([*SPOOLED, *ACKED, ("mark", 1), ("spool", 1)], False),
        ([*SPOOLED, *ACKED, ("mark", 1), ("kill", 1), ("spool", 2)], False),
        ([*SPOOLED, *ACKED, ("mark", 1), ("cut", 1), ("spool", 2)], True),
        ([*SPOOLED, *ACKED, ("kill", 1), ("mark", 2)], False),
        ([*SPOOLED, ("refuse", "w"), ("bad", 1, "w"), ("aside", 1)], True),
        ([*SPOOLED, ("refuse", "w"), ("bad", 1, "w"), ("mark", 1)], False),
        ([*SPOOLED, ("refuse", "w"), ("bad", 1, "w"), ("aside", 1), ("requeue",), ("spool", 1)], True),
    ],
)
def test_the_mark_passes_what_its_own_sidecar_knows_to_be_done(path: list[Label], may_be: bool) -> None:
    states = {State(spooled=True)}
    for label in path:
        states = followed(states, label)
    assert bool(states) == may_be


def _paths(plan: Plan) -> dict[bytes, tuple[RequestPlan, list[Label]]]:
    """Of each record the request, and the labels in order."""
    kept: list[Run] = []
    run(plan, keep=kept, trace=True)
    paths: dict[bytes, tuple[RequestPlan, list[Label]]] = {
        value_of(record): (attempt.request, [])
        for attempt in kept[0].attempts
        for record in attempt.request.records
    }
    for value, label in kept[0].brokers.wire.trace or ():
        for _, path in [paths[value]] if value is not None else paths.values():
            if label != ("forget",) or label not in path:
                path.append(label)
    return paths


def test_seeds_reach_every_kind_of_step() -> None:
    kinds: set[object] = set()
    for plan in _plans():
        kinds |= {label[0] for _, path in _paths(plan).values() for label in path}
        if kinds == KINDS:
            break
    assert kinds == KINDS
