"""A sidecar process under all faults at once does not grow; a planted leak is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.soak.allowances import growing
from tests.soak.sidecar_soak import live_through

if TYPE_CHECKING:
    from pathlib import Path


ROUNDS: Final = 6
ACTS: Final = 150
#: Something of every fourth act, between the parts of the rounds that are compared.
LEAST: Final = ROUNDS // 3 * ACTS / 4


def test_a_sidecar_keeps_nothing(tmp_path: Path) -> None:
    happened, rounds = live_through(tmp_path, 3, rounds=ROUNDS, acts=ACTS)
    assert growing(rounds, least=LEAST) == [], happened
    assert happened["200"] > 300, happened
    assert "level=error" not in (tmp_path / "sidecar.log").read_text()


def test_a_sidecar_that_keeps_one_object_a_request_is_found(tmp_path: Path) -> None:
    _, rounds = live_through(tmp_path, 3, rounds=ROUNDS, acts=ACTS, leak=True)
    assert "objects __main__.LeakedRequest" in [outcome.name for outcome in growing(rounds, least=LEAST)]
