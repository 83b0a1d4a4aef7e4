"""The gold tables. GOLD maps each name to its function, in order of dependency.

Data quality is the first: its findings about clocks decide whose times the other tables compare.

All are pure functions of other tables: no action, no clock ("now" is the time of the fleet's latest event).
The order of input rows does not change the result. docs/pipeline-tables.md says what each table answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline import tables
from pipeline.gold.advice import advice
from pipeline.gold.churn import churn, churn_brokers, flapping
from pipeline.gold.data_quality import data_quality, rejects
from pipeline.gold.incidents import incidents
from pipeline.gold.leader_history import current_leader, leader_history
from pipeline.gold.leader_skew import leader_skew
from pipeline.gold.produce_slo import produce_slo
from pipeline.gold.staleness import staleness, staleness_summary
from pipeline.gold.under_replicated import urp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.gold.read import GoldTable

GOLD: Final[Mapping[str, GoldTable]] = {
    tables.GOLD_DATA_QUALITY: data_quality,
    tables.GOLD_LEADER_HISTORY: leader_history,
    tables.GOLD_CURRENT_LEADER: current_leader,
    tables.GOLD_CHURN: churn,
    tables.GOLD_CHURN_BROKERS: churn_brokers,
    tables.GOLD_FLAPPING: flapping,
    tables.GOLD_URP: urp,
    tables.GOLD_STALENESS: staleness,
    tables.GOLD_STALENESS_SUMMARY: staleness_summary,
    tables.GOLD_PRODUCE_SLO: produce_slo,
    tables.GOLD_LEADER_SKEW: leader_skew,
    tables.GOLD_REJECTS: rejects,
    tables.GOLD_INCIDENTS: incidents,
    tables.GOLD_ADVICE: advice,
}

__all__ = ["GOLD"]
