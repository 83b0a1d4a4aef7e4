"""The first row: shows at a glance whether the sidecars are healthy. Each red number has an alert.

Each number is the worst of the selected sidecars. An empty one has no data: no certificate, no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from helm.dashboard.vocabulary import GREEN, ORANGE, RED, chosen, rate, stat_panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana_foundation_sdk.builders import stat

_DAY_S: Final = 24 * 60 * 60

_REFRESHED: Final = chosen("pilotfish_metadata_last_refresh_success_timestamp_seconds")
_ERRORS: Final = rate("pilotfish_record_errors_total")
_SENT: Final = rate("pilotfish_records_sent_total")
_SIDECARS: Final = f"count({chosen('pilotfish_build_info')})"


def panels() -> Sequence[stat.Panel]:
    """Returns twelve numbers."""
    return (
        stat_panel(
            "Sidecars",
            "How many are scraped.",
            _SIDECARS,
            below=RED,
            steps=[(1, GREEN)],
            no_value="none",
        ),
        stat_panel(
            "Alerts that fire",
            "Of this chart's rules; docs/alerts.md says what to do for each.",
            f"""count({chosen("ALERTS", 'component="pilotfish"', 'alertstate="firing"')}) or vector(0)""",
            steps=[(1, RED)],
        ),
        stat_panel(
            "Metadata age",
            "The highest, relative to metadata.max.age.ms: refreshed at 100 %, MetadataStale fires at 200 %.",
            f"max({chosen('pilotfish_metadata_age_seconds')}"
            f" / {chosen('pilotfish_metadata_max_age_seconds')})",
            unit="percentunit",
            steps=[(1.2, ORANGE), (2, RED)],
        ),
        stat_panel(
            "Without metadata",
            "Sidecars that no broker has answered yet.",
            f"{_SIDECARS} - (count({_REFRESHED}) or vector(0))",
            steps=[(1, RED)],
        ),
        stat_panel(
            "Without a broker",
            "Sidecars that can't connect to any broker. After 30 s NoBrokerConnected fires.",
            f"count({chosen('pilotfish_brokers_unreachable_seconds')} > 0) or vector(0)",
            steps=[(1, ORANGE)],
        ),
        stat_panel(
            "Records given up",
            "The share of records that were not acknowledged. Above 1 % ProduceErrors fires.",
            f"{_ERRORS} / ({_ERRORS} + {_SENT})",
            unit="percentunit",
            steps=[(0.0001, ORANGE), (0.01, RED)],
        ),
        stat_panel(
            "Records/s",
            "Acknowledged by the brokers.",
            _SENT,
            unit="cps",
        ),
        stat_panel(
            "Produce p99",
            "From the head of a produce request to its answer, including failed ones.",
            f"histogram_quantile(0.99, {rate('pilotfish_produce_duration_seconds_bucket', by=['le'])})",
            unit="s",
            steps=[(1, ORANGE), (30, RED)],
        ),
        stat_panel(
            "Buffer in use",
            "The fullest buffer.memory. At 100 % produce requests wait for up to max.block.ms.",
            f"max(1 - {chosen('pilotfish_buffer_pool_available_bytes')}"
            f" / {chosen('pilotfish_buffer_pool_size_bytes')})",
            unit="percentunit",
            steps=[(0.7, ORANGE), (0.95, RED)],
        ),
        stat_panel(
            "Refused requests",
            "The share answered with 429 or 503. Above 5 % RequestsRefused fires.",
            f"""({rate("pilotfish_http_requests_total", 'code=~"429|503"')} or vector(0))"""
            f" / {rate('pilotfish_http_requests_total')}",
            unit="percentunit",
            steps=[(0.005, ORANGE), (0.05, RED)],
        ),
        stat_panel(
            "Poll loop age",
            "Since the last turn of the I/O thread. An idle one sleeps for up to request.timeout.ms.",
            f"max({chosen('pilotfish_poll_loop_age_seconds')})",
            unit="s",
            steps=[(45, ORANGE), (60, RED)],
        ),
        stat_panel(
            "Certificate expires in",
            "Until the first one expires; empty if there is none.",
            f"min({chosen('pilotfish_tls_certificate_expiry_timestamp_seconds')}) - time()",
            unit="s",
            below=RED,
            steps=[(_DAY_S, ORANGE), (7 * _DAY_S, GREEN)],
        ),
    )
