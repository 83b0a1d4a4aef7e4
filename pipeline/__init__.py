"""Turns a fleet's events into tables, a report and advice, on Apache Spark.

    raw lines ──▶ bronze (events, rejects) ──▶ silver (facts that merge) ──▶ gold (answers) ──▶ report, advice

Importable without the sidecar: the two share only event v1 (docs/events.md). Needs the distribution
pilotfish-pipeline and Java 17 or 21. The command is `pilotfish-pipeline`.
"""
