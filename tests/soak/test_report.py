"""The last soak as Markdown: what was measured, what it may vary by, and whether it grows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.soak.report import RESULTS, soak_table

if TYPE_CHECKING:
    from pathlib import Path


def measured(settled: float, later: float, *, grows: bool = False) -> dict[str, Any]:
    return {"settled": settled, "later": later, "allowed": 2.0, "grows": grows}


def results(**sidecar: Any) -> dict[str, Any]:
    """A soak of a few numbers."""
    happened = {
        "topics made": 1_500,
        "topics deleted": 1_480,
        "brokers at new ports": 10,
        "certificates changed": 11,
        "spans": 4_200,
    }
    lived = {"produce requests": 7_000, "topics deleted": 90, "outages": 2}
    return {
        "date": "2026-11-22",
        "machine": "a machine",
        "seed": 7,
        "minutes": 10.0,
        "sidecar": {
            "rounds": 10,
            "acts a round": 400,
            "happened": happened,
            "judged": 900,
            "measures": {"threads": measured(6, 6), "rss_bytes": measured(50 * 2**20, 51 * 2**20)},
            "grows": [],
            **sidecar,
        },
        "simulated": {
            "rounds": 8,
            "simulated minutes": 180,
            "happened": lived,
            "judged": 200,
            "measures": {"our objects": measured(1_800, 1_810)},
            "grows": [],
        },
    }


def table_of(folder: Path, found: dict[str, Any]) -> str:
    path = folder / "results.json"
    path.write_text(json.dumps(found))
    return soak_table(path)


def test_a_row_tells_what_was_held_and_what_it_may_vary_by(tmp_path: Path) -> None:
    table = table_of(tmp_path, results())
    assert "| a sidecar: threads | 6 | 6 | 2 | no |" in table
    assert "| a sidecar: memory (RSS), MB | 50.0 | 51.0 | 0.0 | no |" in table
    assert "| a client in simulated time: objects of our own types | 1,800 | 1,810 | 2 | no |" in table


def test_what_grows_catches_the_eye(tmp_path: Path) -> None:
    grown = results(measures={"threads": measured(6, 9, grows=True)}, grows=["threads"])
    table = table_of(tmp_path, grown)
    assert "| a sidecar: threads | 6 | 9 | 2 | **yes** |" in table
    assert "900 numbers judged, 1 grow" in table


def test_it_says_what_they_lived_through(tmp_path: Path) -> None:
    table = table_of(tmp_path, results())
    assert "seed 7" in table
    assert "4,000 requests" in table
    assert "certificates changed on both sides 11 times, 4,200 spans sent" in table
    assert "Simulated: 3 hours" in table


def test_of_the_soak_that_is_told_in_the_docs_nothing_grew() -> None:
    found = json.loads(RESULTS.read_text())
    assert found["minutes"] >= 5
    assert not found["sidecar"]["grows"] + found["simulated"]["grows"]
    assert "**yes**" not in soak_table()
