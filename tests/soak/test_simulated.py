"""A producer does not grow in a simulated hour; a sink that keeps events is found."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

import pytest

from client_core import ProduceFinished
from tests.soak.allowances import growing
from tests.soak.simulated import live_through
from tests.support.hostile_runs import without_log

if TYPE_CHECKING:
    from client_core import Event

ROUNDS: Final = 9
MINUTES: Final = 4
#: Something of every fourth batch or so, between the parts of the rounds that are compared.
LEAST: Final = 150


@pytest.fixture(autouse=True)
def _spared() -> None:
    """What there is before a soak is not walked over after each of its rounds."""
    gc.collect()
    gc.freeze()


class Keeps:
    """Keeps one object for each batch that ended: the planted leak."""

    def __init__(self) -> None:
        self.kept: list[Event] = []

    def emit(self, event: Event, /) -> None:
        if isinstance(event, ProduceFinished):
            self.kept.append(event)


def test_an_hour_leaves_nothing_behind() -> None:
    with without_log():
        happened, rounds = live_through(11, rounds=ROUNDS, minutes=MINUTES)
    assert growing(rounds, least=LEAST) == [], happened
    assert happened["topics deleted"] > 50, happened
    assert min(happened[what] for what in ("outages", "brokers at new ports", "credentials changed")) > 0


def test_a_leak_of_one_object_a_batch_is_found() -> None:
    with without_log():
        _, rounds = live_through(6, Keeps(), rounds=6, minutes=1)
    grown = [outcome.name for outcome in growing(rounds, least=LEAST / MINUTES)]
    assert "objects client_core.events.ProduceFinished" in grown
