"""Silver: facts that merge. SILVER has its tables in an order in which each stands behind its source."""

from __future__ import annotations

from typing import Final

from pipeline.silver.epochs import EPOCH_SIGHTS, LEADER_EPOCHS
from pipeline.silver.isr import ISR_OBS
from pipeline.silver.produce_windows import PRODUCE_WINDOWS
from pipeline.silver.sidecars import SEQS, SIDECARS
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.silver.topic_ends import TOPIC_ENDS

SILVER: Final[tuple[SilverTable, ...]] = (
    EPOCH_SIGHTS,
    LEADER_EPOCHS,
    ISR_OBS,
    TOPIC_ENDS,
    PRODUCE_WINDOWS,
    SIDECARS,
    SEQS,
)

__all__ = ["SILVER", "Merge", "SilverTable"]
