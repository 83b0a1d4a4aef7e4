"""Makes gold tables of the pipeline with duckdb, without Spark, from the same event files.

    python -m benchmarks.pipeline_duckdb EVENTS OUT

The six most used tables: leader history, current leader, churn by topic and by broker, produce latency and
errors, data quality. Straight from the lines to Parquet, in one process: no bronze, no checkpoint, nothing
incremental, no reason for a rejected line. It prints the row count of each table as JSON, so that the
benchmark can check that both made the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import duckdb

_COLUMNS: Final = {
    "v": "SMALLINT",
    "type": "VARCHAR",
    "cluster_id": "VARCHAR",
    "sidecar_id": "VARCHAR",
    "service": "VARCHAR",
    "boot_id": "BIGINT",
    "seq": "BIGINT",
    "observed_at": "TIMESTAMPTZ",
    "topic": "VARCHAR",
    "topic_id": "VARCHAR",
    "partition": "INTEGER",
    "leader": "INTEGER",
    "leader_epoch": "INTEGER",
    "broker": "INTEGER",
    "change": "VARCHAR",
    "started_at": "TIMESTAMPTZ",
    "records": "BIGINT",
    "batches": "BIGINT",
    "bytes": "BIGINT",
    "retries": "BIGINT",
    "errors": "MAP(VARCHAR, BIGINT)",
    "latency_us": "MAP(VARCHAR, BIGINT)",
    "dropped": "BIGINT",
}

#: Each reads those before it. `lead` and `lag` run over epochs, not over events, as in silver.
_STEPS: Final = {
    "events": """
        CREATE TABLE events AS
        SELECT * EXCLUDE (cluster_id), coalesce(cluster_id, '') AS cluster_id,
               coalesce(topic_id, topic) AS topic_key
        FROM read_json($files, columns = $columns, format = 'newline_delimited', ignore_errors = true,
                       maximum_object_size = 1048576)
        WHERE v = 1 AND sidecar_id IS NOT NULL AND boot_id IS NOT NULL AND seq IS NOT NULL
          AND observed_at BETWEEN '2020-01-01' AND now() + INTERVAL 1 HOUR AND type IS NOT NULL
    """,
    "epochs": """
        CREATE TABLE epochs AS
        SELECT cluster_id, topic_key, partition, leader_epoch, min(topic) AS topic, min(leader) AS leader,
               max(leader) AS leader_hi, min(observed_at) AS valid_from, max(observed_at) AS last_seen,
               arg_min(sidecar_id, (observed_at, sidecar_id)) AS first_observer,
               count(DISTINCT sidecar_id) AS observers
        FROM events WHERE type = 'metadata.partition' AND leader_epoch >= 0 GROUP BY ALL
    """,
    "gold_leader_history": """
        CREATE TABLE gold_leader_history AS
        SELECT *, lead(valid_from) OVER epochs_of AS valid_to,
               leader_epoch - lag(leader_epoch) OVER epochs_of - 1 AS missed_epochs,
               leader IS DISTINCT FROM lag(leader) OVER epochs_of AS is_leader_change,
               lag(leader) OVER epochs_of AS before, row_number() OVER epochs_of AS n,
               valid_from < lag(valid_from) OVER epochs_of AS is_clock_suspect,
               leader <> leader_hi AS is_conflict
        FROM epochs
        WINDOW epochs_of AS (PARTITION BY cluster_id, topic_key, partition ORDER BY leader_epoch)
    """,
    "gold_current_leader": """
        CREATE TABLE gold_current_leader AS
        SELECT cluster_id, topic, topic_key, partition, leader, leader_epoch, valid_from AS since, last_seen
        FROM gold_leader_history h WHERE valid_to IS NULL AND NOT EXISTS (
            SELECT 1 FROM events e WHERE e.type = 'metadata.topic' AND e.change IN ('gone', 'recreated')
            AND e.cluster_id = h.cluster_id AND e.topic_key = h.topic_key AND e.observed_at > h.valid_from)
    """,
    "gold_churn": """
        CREATE TABLE gold_churn AS
        SELECT cluster_id, date_trunc('hour', valid_from) AS hour, topic, count(*) AS elections,
               count(*) FILTER (is_leader_change) AS leader_changes, count(DISTINCT partition) AS partitions
        FROM gold_leader_history WHERE n > 1 GROUP BY ALL
    """,
    "gold_churn_brokers": """
        CREATE TABLE gold_churn_brokers AS
        SELECT cluster_id, hour, broker, sum(gained) AS gained, sum(lost) AS lost FROM (
            SELECT cluster_id, date_trunc('hour', valid_from) AS hour, leader AS broker,
                   1 AS gained, 0 AS lost
            FROM gold_leader_history WHERE n > 1 AND is_leader_change
            UNION ALL
            SELECT cluster_id, date_trunc('hour', valid_from), before, 0, 1
            FROM gold_leader_history WHERE n > 1 AND is_leader_change)
        WHERE broker IS NOT NULL GROUP BY ALL
    """,
    "windows": """
        CREATE TABLE windows AS
        SELECT DISTINCT ON (sidecar_id, boot_id, seq) cluster_id, date_trunc('hour', started_at) AS hour,
               topic, broker, records, batches, bytes, retries, errors, latency_us
        FROM events WHERE type = 'produce.window'
    """,
    "latency": """
        CREATE TABLE latency AS
        SELECT cluster_id, hour, topic, broker, bucket, sum(n) AS n,
               sum(sum(n)) OVER (PARTITION BY cluster_id, hour, topic, broker ORDER BY bucket) AS upto,
               sum(sum(n)) OVER (PARTITION BY cluster_id, hour, topic, broker) AS whole
        FROM (SELECT cluster_id, hour, topic, broker, unnest(map_keys(latency_us))::INTEGER AS bucket,
                     unnest(map_values(latency_us)) AS n FROM windows)
        GROUP BY cluster_id, hour, topic, broker, bucket
    """,
    "gold_produce_slo": """
        CREATE TABLE gold_produce_slo AS
        SELECT * FROM (
            SELECT cluster_id, hour, topic, broker, sum(records) AS records, sum(batches) AS batches,
                   sum(bytes) AS bytes, sum(retries) AS retries,
                   sum(list_sum(map_values(errors))) AS failed
            FROM windows GROUP BY ALL)
        LEFT JOIN (
            SELECT cluster_id, hour, topic, broker, min(bucket) FILTER (upto >= 0.5 * whole) AS p50_bucket,
                   min(bucket) FILTER (upto >= 0.95 * whole) AS p95_bucket,
                   min(bucket) FILTER (upto >= 0.99 * whole) AS p99_bucket
            FROM latency GROUP BY ALL) USING (cluster_id, hour, topic, broker)
    """,
    "gold_data_quality": """
        CREATE TABLE gold_data_quality AS
        SELECT sidecar_id, boot_id, max(cluster_id) AS cluster_id, max(service) AS service,
               min(observed_at) AS first_event, max(observed_at) AS last_event,
               count(DISTINCT seq) AS received, max(seq) - count(DISTINCT seq) AS missing,
               max(dropped) AS dropped_reported
        FROM events GROUP BY sidecar_id, boot_id
    """,
}


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(str(path) for path in folder.glob("*.jsonl"))
    with duckdb.connect(str(out / "scratch.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET preserve_insertion_order = false")
        rows: dict[str, int] = {}
        for name, step in _STEPS.items():
            uses = {"files": files, "columns": _COLUMNS} if name == "events" else None
            connection.execute(step, uses)
            if name.startswith("gold_"):
                connection.execute(f"COPY {name} TO '{out / name}.parquet' (FORMAT parquet)")
                counted = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
                assert counted is not None
                rows[name] = counted[0]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
