"""Gold by Spark against gold by loops over the same events (oracle.py), for fleets that hypothesis draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline import tables
from tests.pipeline.oracle import Oracle
from tests.pipeline.whole_pipeline import in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipeline.whole_pipeline import ManyFleets, Row

_GOLD: dict[str, Callable[[Oracle], list[Row]]] = {
    tables.GOLD_LEADER_HISTORY: lambda oracle: oracle.leader_history,
    tables.GOLD_CURRENT_LEADER: lambda oracle: oracle.current_leader,
    tables.GOLD_CHURN: Oracle.churn,
    tables.GOLD_CHURN_BROKERS: Oracle.churn_brokers,
    tables.GOLD_FLAPPING: Oracle.flapping,
    tables.GOLD_URP: Oracle.urp,
    tables.GOLD_STALENESS: lambda oracle: oracle.staleness,
    tables.GOLD_STALENESS_SUMMARY: Oracle.staleness_summary,
    tables.GOLD_PRODUCE_SLO: Oracle.produce_slo,
    tables.GOLD_LEADER_SKEW: Oracle.leader_skew,
    tables.GOLD_DATA_QUALITY: Oracle.data_quality,
}

#: The tables that are tried on rows made by hand only, and why.
WITHOUT_ORACLE = {
    tables.GOLD_REJECTS: "it is made of rejected lines, which are no events: test_data_quality.py",
    tables.GOLD_INCIDENTS: "the simulator's own account is its oracle: test_incidents.py",
    tables.GOLD_ADVICE: "it is made of other gold tables, which have oracles: test_advice.py",
}


@pytest.mark.parametrize("table", _GOLD)
def test_a_gold_table_is_what_loops_over_the_same_events_give(table: str, many_fleets: ManyFleets) -> None:
    spark_says = many_fleets.tables.rows(table)
    oracle_says = _GOLD[table](many_fleets.oracle)
    assert len(oracle_says) > 5, "the fleets show next to nothing of this table"
    columns = list(spark_says[0])
    assert _rounded(spark_says) == _rounded(in_order([{c: row[c] for c in columns} for row in oracle_says]))


def _rounded(rows: list[Row]) -> list[Row]:
    """Shares to nine digits: they are quotients, taken in another order."""
    return in_order(
        [
            {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()}
            for row in rows
        ]
    )
