"""The rows below the first, in the order of a fault analysis.

Lines aggregate the selected sidecars, by a label that separates causes (a reason, an error, a route), or
by pod where a single sidecar may differ. Descriptions say how to interpret a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from helm.dashboard.vocabulary import chosen, graph, mean, quantile, quantiles, rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana_foundation_sdk.builders import timeseries

    Panels = Sequence[timeseries.Panel]

_POD: Final = "{{pod}}"
_P99: Final = 'percentile="99"'


def metadata() -> Panels:
    """Is the metadata fresh, and what changes it?"""
    return (
        graph(
            "Age",
            "A sawtooth up to metadata.max.age.ms. A line that keeps rising: no broker answers.",
            (chosen("pilotfish_metadata_age_seconds"), _POD),
            (f"max({chosen('pilotfish_metadata_max_age_seconds')})", "metadata.max.age.ms"),
            unit="s",
        ),
        graph(
            "Refreshes by reason",
            "expired is normal; leader_error and disconnect come when brokers fail or move.",
            (rate("pilotfish_metadata_refreshes_total", 'outcome="success"', by=["reason"]), "{{reason}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Refreshes that failed",
            "no_node: no broker to ask. timeout: no broker answered. error: the answer was unusable.",
            (rate("pilotfish_metadata_refreshes_total", 'outcome!="success"', by=["outcome"]), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Time of a refresh",
            "From sending the request to applying the answer.",
            *quantiles("pilotfish_metadata_refresh_duration_seconds"),
            unit="s",
        ),
        graph(
            "Waits for metadata",
            "Waits for a topic that was not in memory. timeout: it does not exist, or no broker answers.",
            (rate("pilotfish_metadata_wait_seconds_count", by=["outcome"]), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Changes",
            "Partitions with another leader or epoch; times the client restarted from bootstrap.servers.",
            (rate("pilotfish_metadata_leader_changes_total"), "leader changes"),
            (rate("pilotfish_metadata_rebootstraps_total"), "rebootstraps"),
            unit="ops",
        ),
        graph(
            "Topics and partitions",
            "Topics in memory. A topic is added when it is asked for, and dropped when unused.",
            (f"max({chosen('pilotfish_metadata_topics')})", "topics"),
            (f"max({chosen('pilotfish_metadata_partitions')})", "partitions"),
        ),
        graph(
            "Partitions without a leader",
            "Records for them wait. If it stays above 0, check the brokers.",
            (chosen("pilotfish_metadata_leaderless_partitions"), _POD),
        ),
        graph(
            "Versions",
            "Updates applied, and requests for new topics. Requests without updates: no broker answers.",
            (f"sum(increase({chosen('pilotfish_metadata_update_version')}[$__rate_interval]))", "applied"),
            (
                f"sum(increase({chosen('pilotfish_metadata_request_version')}[$__rate_interval]))",
                "new topics asked for",
            ),
        ),
    )


def brokers() -> Panels:
    """Do connections hold, and how fast do brokers answer?"""
    return (
        graph(
            "Connections by state",
            "Of all sidecars. checking_api_versions and connecting last for moments.",
            (f"sum by (state) ({chosen('pilotfish_broker_connection_state')})", "{{state}}"),
            stacked=True,
        ),
        graph(
            "Connections that ended",
            "idle and local are normal; refused: no process listens; authentication: AuthenticationFailed.",
            (rate("pilotfish_broker_disconnects_total", by=["reason"]), "{{reason}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Reconnect backoff",
            "Until the next attempt: 0 if a connection is open, else up to reconnect.backoff.max.ms.",
            (
                f"max by (broker) ({chosen('pilotfish_broker_reconnect_backoff_seconds')})",
                "broker {{broker}}",
            ),
            unit="s",
        ),
        graph(
            "Requests in flight",
            "Without an answer yet. One broker far above the others is slow, or has more leaders.",
            (f"sum by (broker) ({chosen('pilotfish_broker_in_flight_requests')})", "broker {{broker}}"),
        ),
        graph(
            "Time of requests, p99",
            "From sending a request to its answer, by Kafka's name of the api.",
            (quantile(0.99, "pilotfish_request_duration_seconds", by=["api"]), "{{api}}"),
            unit="s",
        ),
        graph(
            "Produce requests by broker, p99",
            "If other requests are quick, a follower or the disk is slow. If not, the broker or its network.",
            (
                f"max by (broker) ({chosen('pilotfish_broker_produce_latency_seconds', _P99)})",
                "broker {{broker}}",
            ),
            (
                f"max by (broker) ({chosen('pilotfish_broker_other_latency_seconds', _P99)})",
                "broker {{broker}}, other requests",
            ),
            unit="s",
        ),
        graph(
            "Requests that failed",
            "As a whole: errors of single partitions are among those of records.",
            (rate("pilotfish_request_errors_total", by=["api", "error"]), "{{api}} {{error}}"),
            (rate("pilotfish_request_timeouts_total", by=["api"]), "{{api}} timed out"),
            unit="ops",
        ),
        graph(
            "Bytes sent",
            "Of requests, by broker.",
            (rate("pilotfish_network_sent_bytes_total", by=["broker"]), "broker {{broker}}"),
            unit="Bps",
            stacked=True,
        ),
        graph(
            "Bytes received",
            "Of answers, by broker.",
            (rate("pilotfish_network_received_bytes_total", by=["broker"]), "broker {{broker}}"),
            unit="Bps",
            stacked=True,
        ),
        graph(
            "Throttling",
            "Pauses that brokers asked for: a client quota is used up.",
            (rate("pilotfish_produce_throttle_seconds_sum"), "seconds of pause per second"),
            unit="s",
        ),
    )


def records() -> Panels:
    """Do records arrive, and how fast?"""
    return (
        graph(
            "Records acknowledged",
            "By pod: one that differs from the others is worth a look.",
            (rate("pilotfish_records_sent_total", by=["pod"]), _POD),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Records given up and sent again",
            "By Kafka's name of the cause. Sent again is no loss. If it lasts, records time out for it.",
            (rate("pilotfish_record_errors_total", by=["error", "cause"]) + " > 0", "{{error}}: {{cause}}"),
            (rate("pilotfish_record_retries_total", by=["error"]) + " > 0", "{{error}}, sent again"),
            unit="cps",
        ),
        graph(
            "Time of produce requests",
            "From the head of a request to its answer. Dots are requests that were traced.",
            *quantiles("pilotfish_produce_duration_seconds"),
            unit="s",
            exemplars=True,
        ),
        graph(
            "Produce requests by outcome",
            "partial: some of the records were acknowledged.",
            (rate("pilotfish_produce_duration_seconds_count", by=["outcome"]), "{{outcome}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Time in the queue",
            "From a batch's first record to sending it. Far above linger.ms: brokers do not keep up.",
            *quantiles("pilotfish_record_queue_duration_seconds"),
            unit="s",
        ),
        graph(
            "Size of batches",
            "Mean bytes of a batch as it was sent. Small ones cost brokers more for each record.",
            (mean("pilotfish_batch_size_bytes"), "bytes"),
            unit="bytes",
        ),
        graph(
            "Records in a batch",
            "Mean, and batches that a broker found too large.",
            (mean("pilotfish_batch_records"), "records"),
            (rate("pilotfish_batch_splits_total"), "batches split per second"),
        ),
        graph(
            "Compression",
            "Bytes sent per byte of records; 100 % without compression.",
            (mean("pilotfish_batch_compression_ratio"), "mean"),
            unit="percentunit",
        ),
        graph(
            "Records by topic",
            "Empty unless topic_metrics is on.",
            (rate("pilotfish_topic_records_sent_total", by=["topic"]), "{{topic}}"),
            (rate("pilotfish_topic_record_errors_total", by=["topic"]), "{{topic}} given up"),
            unit="cps",
        ),
    )


def buffer() -> Panels:
    """Is there room for new records?"""
    available = chosen("pilotfish_buffer_pool_available_bytes")
    return (
        graph(
            "buffer.memory in use",
            "Fills when brokers acknowledge more slowly than records come.",
            (f"{chosen('pilotfish_buffer_pool_size_bytes')} - {available}", _POD),
            (f"max({chosen('pilotfish_buffer_pool_size_bytes')})", "buffer.memory"),
            unit="bytes",
        ),
        graph(
            "Waits for memory",
            "Requests that wait now, and those that waited in vain, per second.",
            (f"sum({chosen('pilotfish_buffer_pool_waiters')})", "waiting"),
            (rate("pilotfish_buffer_exhausted_total"), "in vain per second"),
        ),
        graph(
            "Time of waits for memory, p99",
            "At most max.block.ms.",
            (quantile(0.99, "pilotfish_buffer_pool_wait_seconds"), "p99"),
            unit="s",
        ),
        graph(
            "Requests that wait",
            "For metadata, memory or acknowledgements; max_waiting_requests limits them, then there is 429.",
            (chosen("pilotfish_waiting_requests"), _POD),
        ),
        graph(
            "Bytes that wait",
            "Of bodies that are to be delivered; max_waiting_bytes limits them, then there is 429.",
            (chosen("pilotfish_waiting_bytes"), _POD),
            unit="bytes",
        ),
        graph(
            "Spool",
            "Records that wait on the disk, and dead letters, if there is a spool.",
            (chosen("pilotfish_spool_records"), f"{_POD}, waiting"),
            (chosen("pilotfish_spool_aside_records"), f"{_POD}, dead letters"),
        ),
        graph(
            "Records through the spool",
            "Spooled and delivered; the gap between the two is what waits.",
            (rate("pilotfish_spool_spooled_records_total"), "spooled"),
            (rate("pilotfish_spool_delivered_records_total"), "delivered"),
            unit="cps",
        ),
        graph(
            "Events",
            "Events of the event log, if there is one: written and lost, by sink.",
            (rate("pilotfish_events_written_total", by=["sink"]), "{{sink}}"),
            (rate("pilotfish_events_dropped_total", by=["sink"]), "{{sink}}, lost"),
            unit="cps",
        ),
    )


def http() -> Panels:
    """What do callers see?"""
    return (
        graph(
            "Requests by route",
            "Routes are templates; other: paths that are not served.",
            (rate("pilotfish_http_requests_total", by=["method", "route"]), "{{method}} {{route}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Answers by status",
            "499: the caller disconnected before the answer.",
            (rate("pilotfish_http_requests_total", by=["code"]), "{{code}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Time of requests, p99",
            "By route. Dots are requests that were traced.",
            (
                quantile(0.99, "pilotfish_http_request_duration_seconds", by=["method", "route"]),
                "{{method}} {{route}}",
            ),
            unit="s",
            exemplars=True,
        ),
        graph(
            "Requests in progress",
            "Worked on or waiting.",
            (chosen("pilotfish_http_requests_in_progress"), _POD),
        ),
        graph(
            "Connections",
            "Open ones, watchers of changes and streams of records among them.",
            (f"sum({chosen('pilotfish_http_connections')})", "connections"),
            (f"sum({chosen('pilotfish_watchers')})", "watchers"),
            (f"sum({chosen('pilotfish_produce_streams')})", "streams"),
        ),
        graph(
            "Connections ended by the sidecar",
            "Because the caller was too slow, was silent, had too many, or did not read its answers.",
            (rate("pilotfish_http_connections_ended_total", by=["reason"]), "{{reason}}"),
            unit="ops",
        ),
    )


def process() -> Panels:
    """Is the process itself well?"""
    return (
        graph(
            "Resident memory",
            "A steady rise over hours at a steady load is worth a report.",
            (chosen("process_resident_memory_bytes") + " and on (instance) pilotfish_build_info", _POD),
            unit="bytes",
        ),
        graph(
            "CPU",
            "Cores in use. Python uses one at most: at 1 the sidecar is at its limit.",
            (
                f"rate({chosen('process_cpu_seconds_total')}[$__rate_interval])"
                " and on (instance) pilotfish_build_info",
                _POD,
            ),
        ),
        graph(
            "File descriptors",
            "Open ones; most are connections.",
            (chosen("process_open_fds") + " and on (instance) pilotfish_build_info", _POD),
        ),
        graph(
            "Turns of the poll loop",
            "An idle sidecar has a few in a minute.",
            (
                f"rate({chosen('pilotfish_poll_loop_iteration_duration_seconds_count')}[$__rate_interval])",
                _POD,
            ),
            (rate("pilotfish_loop_failed_turns_total", by=["loop"]), "{{loop}}: ended with an exception"),
            unit="ops",
        ),
        graph(
            "Time of a turn",
            "Without its sleep. Meanwhile no connection is served: above a second, the process is starved.",
            *quantiles("pilotfish_poll_loop_iteration_duration_seconds"),
            unit="s",
        ),
        graph(
            "Up since",
            "A line that starts again is a restart.",
            (
                f"time() - {chosen('process_start_time_seconds')} and on (instance) pilotfish_build_info",
                _POD,
            ),
            unit="s",
        ),
    )
