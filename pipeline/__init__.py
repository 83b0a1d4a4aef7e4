"""What a fleet of sidecars saw, on Apache Spark: events in, tables, a report and advice out.

    raw lines ──▶ bronze (events, rejects) ──▶ silver (facts that merge) ──▶ gold (answers) ──▶ report, advice

Importable without the sidecar: event v1 (docs/events.md) is all that the two have in common. Needs the
distribution pilotfish-pipeline and Java 17 or 21. The command is `pilotfish-pipeline`.
"""
