"""Ready look-ups are answered as by the routes, seen from outside; `make fuzz` compares more of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.fuzz.ready_answers import compared

if TYPE_CHECKING:
    from pathlib import Path

#: Among them are sidecars with tokens, with allowed origins and with spans.
_SEEDS = range(4)
_REQUESTS = 100


def test_a_look_up_is_answered_alike_with_the_table_and_without_it(tmp_path: Path) -> None:
    ready = 0
    for seed in _SEEDS:
        counts, findings = asyncio.run(compared(seed, _REQUESTS, tmp_path))
        assert not findings, "\n".join(findings)
        ready += counts["ready"]
    assert ready >= 20
