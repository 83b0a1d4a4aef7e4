"""All findings of a report, the most urgent first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.report import findings_of_brokers as of_brokers
from pipeline.report import findings_of_load as of_load
from pipeline.report import findings_of_sidecars as of_sidecars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from pipeline.report.finding import Finding
    from pipeline.report.view import ClusterView

_LOOKS: Final[tuple[Callable[[ClusterView], Iterator[Finding]], ...]] = (
    of_brokers.leaderless,
    of_brokers.conflicts,
    of_brokers.short_of_replicas,
    of_brokers.lost_leadership,
    of_brokers.flapping,
    of_load.slow_brokers,
    of_load.failing_topics,
    of_sidecars.held_back,
    of_sidecars.silent,
    of_sidecars.wrong_clocks,
    of_sidecars.lossy,
    of_load.skewed,
)


def findings_of(view: ClusterView) -> list[Finding]:
    """What is to be said of a cluster and its sidecars; nothing when all is well."""
    found = [finding for look in _LOOKS for finding in look(view)]
    return sorted(found, key=lambda finding: finding.grade)


def findings_of_tables(failed: Mapping[str, str]) -> list[Finding]:
    """What is to be said of tables that could not be made."""
    return list(of_sidecars.failed_tables(failed))


def findings_of_rejects(rejects: pd.DataFrame) -> list[Finding]:
    """What is to be said of lines that belong to no cluster."""
    return list(of_sidecars.unreadable(rejects))
