"""Ready look-ups are answered as by the routes, seen from outside; `make fuzz` compares more of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.fuzz.ready_answers import compared

if TYPE_CHECKING:
    from pathlib import Path

#: With tokens, with spans, over all: 5 has neither, 20 has tokens, 24 has spans.
_SEEDS = (5, 20, 24)
_REQUESTS = 120


def test_a_look_up_is_answered_alike_with_the_table_and_without_it(tmp_path: Path) -> None:
    for seed in _SEEDS:
        counts, findings = asyncio.run(compared(seed, _REQUESTS, tmp_path))
        assert not findings, "\n".join(findings)
        assert counts["ready"] >= _REQUESTS // 20, seed
