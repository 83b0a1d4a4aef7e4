"""The measures, the rule and the report of a soak.

An inventory counts objects by type, and the items in our own containers. The rule finds what grows and not
what varies. The report is Markdown.
"""

from __future__ import annotations

import gc
import json
import os
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.producer.accumulator.topic_queues import WaitingQueues
from client_core.producer.sender.batch_settlement import InFlightBatches
from tests.soak.allowances import allowance_of, growing, with_totals
from tests.soak.growth import FEWEST_ROUNDS, Allowance, judge, slope
from tests.soak.inventory import take_inventory
from tests.soak.process_sizes import sizes_of
from tests.soak.report import RESULTS, soak_table
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from pathlib import Path

SOME: Final = Allowance(absolute=40, part=0.05)
_SENDER: Final = "client_core.producer.sender"

# -- growth --------------------------------------------------------------------------------------------------


def test_the_rule_finds_what_grows_and_not_what_varies() -> None:
    for name, values, allowance, grows in (
        ("fills up during the warm-up", [0, 500, 900, 1_000, 1_000, 1_001, 1_000, 999, 1_000], SOME, False),
        ("shrinks", [900 - 100 * n for n in range(9)], SOME, False),
        ("one round out of line", [100, 100, 100, 100, 100, 100, 100, 100, 9_000], SOME, False),
        ("one more without an allowance", [6, 6, 6, 6, 7, 7], Allowance(0), True),
        ("no more without an allowance", [6, 6, 6, 6, 6, 6], Allowance(0), False),
    ):
        assert judge(name, values, allowance).grows is grows, name


def test_a_leak_is_found_through_the_noise_and_noise_is_none() -> None:
    for seed in range(20):
        random = Random(seed)
        noise = [1_000 + random.randint(-20, 20) for _ in range(12)]
        assert not judge("noise", noise, SOME).grows, seed
        assert judge("leak", [value + 20 * n for n, value in enumerate(noise)], SOME).grows, seed


@given(st.integers(6, 60), st.integers(1, 50))
def test_a_leak_of_more_than_the_allowance_in_a_part_of_the_rounds_is_found(rounds: int, more: int) -> None:
    per_round = (40 + more) / (rounds // 3)
    assert judge("leak", [per_round * n for n in range(rounds)], Allowance(40)).grows


def test_too_few_rounds_are_not_judged() -> None:
    with pytest.raises(ValueError, match="5 rounds are too few"):
        judge("short", [1] * (FEWEST_ROUNDS - 1), SOME)


def test_the_slope_is_that_of_most_pairs() -> None:
    assert slope([1, 3, 5, 7, 500, 11]) == 2


def test_a_measure_missing_in_a_round_counts_as_zero() -> None:
    rounds = [{"objects other.Leak": 300.0 * n} if n else {} for n in range(6)]
    assert [outcome.name for outcome in growing(rounds)] == ["objects other.Leak"]


def test_our_own_types_are_allowed_less_than_others_and_what_has_a_bound_may_fill_it() -> None:
    ours, others = allowance_of("objects client_core.cluster.Node"), allowance_of("objects builtins.dict")
    assert ours.absolute < others.absolute
    bounded = f"length {_SENDER}.transaction_manager.TransactionManager._partitions"
    assert allowance_of(bounded) == Allowance(500)


def test_totals_tell_ours_from_the_rest() -> None:
    measured = {"objects service.a.B": 3.0, "objects builtins.dict": 4.0, "length service.a.B._c": 5.0}
    totals = with_totals(measured)
    assert (totals["all objects"], totals["our objects"], totals["our lengths"]) == (7, 3, 5)


# -- the inventory -------------------------------------------------------------------------------------------


class Kept:
    """Something to be counted."""


@pytest.fixture
def spared() -> None:
    """What there is before is not counted, nor walked over."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("spared")
def test_objects_are_counted_by_type_and_containers_of_ours_are_measured_all_instances_together() -> None:
    of_batches = f"{_SENDER}.batch_settlement.InFlightBatches._batches"
    of_queues = f"{WaitingQueues.__module__}.WaitingQueues.topics"
    before = take_inventory()
    kept = [Kept() for _ in range(7)]
    batches = [InFlightBatches(1_000) for _ in range(2)]
    for number, one in enumerate(batches):
        one._batches.update({("orders", n): [] for n in range(number + 3)})  # type: ignore[misc]
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("orders", b"a")
    found = take_inventory()
    assert found.objects[f"{__name__}.Kept"] == len(kept)
    # None of them is the rig's, whose batch is not sent yet.
    assert found.containers[of_batches] - before.containers.get(of_batches, 0) == 3 + 4
    assert found.containers[of_queues] == before.containers.get(of_queues, 0) + 1, "in slots"
    kept.clear()
    assert f"{__name__}.Kept" not in take_inventory().objects


def test_the_system_reports_the_sizes_of_a_process() -> None:
    sizes = sizes_of(os.getpid())
    assert sizes.rss_bytes >= sizes.uss_bytes > 0
    assert sizes.rss_bytes >= sizes.anonymous_bytes > 0
    assert min(sizes.threads, sizes.descriptors) > 0


# -- the report ----------------------------------------------------------------------------------------------


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


def test_a_row_of_the_results_table_has_the_growth_and_the_noise_and_below_it_are_the_circumstances(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, results())
    assert "| a sidecar: threads | 6 | 6 | 2 | no |" in table
    assert "| a sidecar: memory (RSS), MB | 50.0 | 51.0 | 0.0 | no |" in table
    assert "| a client in simulated time: objects of our own types | 1,800 | 1,810 | 2 | no |" in table
    assert "seed 7" in table
    assert "4,000 requests" in table
    assert "Simulated: 3 hours" in table


def test_growth_is_highlighted(tmp_path: Path) -> None:
    grown = results(measures={"threads": measured(6, 9, grows=True)}, grows=["threads"])
    table = table_of(tmp_path, grown)
    assert "| a sidecar: threads | 6 | 9 | 2 | **yes** |" in table
    assert "900 numbers judged, 1 grow" in table


def test_the_soak_in_the_docs_shows_no_growth() -> None:
    found = json.loads(RESULTS.read_text())
    assert found["minutes"] >= 5
    assert not found["sidecar"]["grows"] + found["simulated"]["grows"]
    assert "**yes**" not in soak_table()
