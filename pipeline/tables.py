"""The names of all tables."""

from __future__ import annotations

from typing import Final

BRONZE_EVENTS: Final = "bronze_events"
BRONZE_REJECTS: Final = "bronze_rejects"

SILVER_EPOCH_SIGHTS: Final = "silver_epoch_sights"
SILVER_LEADER_EPOCHS: Final = "silver_leader_epochs"
SILVER_ISR_OBS: Final = "silver_isr_obs"
SILVER_TOPIC_ENDS: Final = "silver_topic_ends"
SILVER_PRODUCE_WINDOWS: Final = "silver_produce_windows"
SILVER_SIDECARS: Final = "silver_sidecars"
SILVER_REFRESHES: Final = "silver_refreshes"
SILVER_SEQS: Final = "silver_seqs"

GOLD_LEADER_HISTORY: Final = "gold_leader_history"
GOLD_CURRENT_LEADER: Final = "gold_current_leader"
GOLD_CHURN: Final = "gold_churn"
GOLD_CHURN_BROKERS: Final = "gold_churn_brokers"
GOLD_FLAPPING: Final = "gold_flapping"
GOLD_URP: Final = "gold_urp"
GOLD_STALENESS: Final = "gold_staleness"
GOLD_STALENESS_SUMMARY: Final = "gold_staleness_summary"
GOLD_PRODUCE_SLO: Final = "gold_produce_slo"
GOLD_LEADER_SKEW: Final = "gold_leader_skew"
GOLD_DATA_QUALITY: Final = "gold_data_quality"
GOLD_REJECTS: Final = "gold_rejects"
GOLD_INCIDENTS: Final = "gold_incidents"
GOLD_ADVICE: Final = "gold_advice"
