"""A short form of `make lockstep`, and of what each side loses or doubles alone (LOCK-01)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lockstep.alone import Account, java_alone, ours_alone
from tests.lockstep.campaign import ALL, UNDECLARED, Sides, explain, run_modes
from tests.lockstep.modes import MODES, Mode
from tests.lockstep.traces import run_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka]

_DEFAULT = MODES[0]
_PLAIN = next(mode for mode in MODES if mode.name == "plain, acks all")
_SEEDS = range(4)


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with Sides() as both:
        yield both


@pytest.mark.behaviour("LOCK-01")
def test_ours_is_kafkas_producer_but_for_the_declared_deviations(sides: Sides) -> None:
    counts = run_modes(sides.shadowed(), (_DEFAULT, _PLAIN), _SEEDS, limit=150, shadows=ALL)
    assert [each.differences for count in counts.values() for each in count.ended] == []
    assert sum(count.equal_steps for count in counts.values()) > len(_SEEDS) * 150  # aborts end some


@pytest.mark.behaviour("LOCK-01")
def test_no_time_passes_behind_an_abort(sides: Sides) -> None:
    """Kafka's thread has ended by then. A turn would raise for a batch that was in flight and has expired."""
    mode = next(mode for mode in MODES if mode.name == "idempotent, linger 0, small batches")
    counts = run_modes(sides.shadowed(), (mode,), range(88_800_000, 88_800_001), limit=300, shadows=ALL)
    assert [each.differences for each in counts[mode.name].ended] == []


@pytest.mark.behaviour("LOCK-01")
def test_each_first_difference_to_kafkas_own_classes_has_a_declared_reason(sides: Sides) -> None:
    counts = run_modes(sides.plain(), (_DEFAULT, _PLAIN), _SEEDS, limit=150)
    java = sides.shadowed()
    reasons = {explain(java, mode, ended) for mode in (_DEFAULT, _PLAIN) for ended in counts[mode.name].ended}
    assert UNDECLARED not in reasons
    assert any("window" in reason for reason in reasons)


def test_a_difference_is_found(sides: Sides) -> None:
    """A linger that only one side has ends each trace."""
    other = Mode("a linger of ours", {"linger.ms": "7"})
    java = sides.plain()
    begin = java.begin

    def begin_with_default_linger(settings: dict[str, object]) -> dict[str, object]:
        return begin({**settings, "config": {"client.id": "lockstep", "bootstrap.servers": "127.0.0.1:9092"}})

    java.begin = begin_with_default_linger  # type: ignore[method-assign, assignment]
    assert run_trace(java, other, 1).differences


def test_alone_ours_loses_and_doubles_nothing_where_kafkas_does(sides: Sides) -> None:
    java, seeds = sides.plain(), range(8, 13)
    ours = sum((ours_alone(_DEFAULT, seed) for seed in seeds), Account())
    theirs = sum((java_alone(java, _DEFAULT, seed) for seed in seeds), Account())
    assert (ours.lost, ours.doubled, ours.out_of_order, ours.failed) == ([], [], [], 0)
    assert theirs.failed + len(theirs.doubled) + len(theirs.out_of_order) > 0
