"""The silver tables. Their rows are facts; rows with the same key can be merged into one.

In SILVER each table comes after its source.
"""

from __future__ import annotations

from typing import Final

from pipeline.silver.partitions import EPOCH_SIGHTS, ISR_OBS, LEADER_EPOCHS, TOPIC_ENDS
from pipeline.silver.sidecars import PRODUCE_WINDOWS, REFRESHES, SEQS, SIDECARS
from pipeline.silver.silver_table import Merge, SilverTable

SILVER: Final[tuple[SilverTable, ...]] = (
    EPOCH_SIGHTS,
    LEADER_EPOCHS,
    ISR_OBS,
    TOPIC_ENDS,
    PRODUCE_WINDOWS,
    SIDECARS,
    REFRESHES,
    SEQS,
)

__all__ = ["SILVER", "Merge", "SilverTable"]
