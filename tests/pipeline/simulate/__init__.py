"""Simulates a fleet for tests of the pipeline: events of many sidecars over a small model of a cluster.

    plan ──▶ cluster (true history) ──▶ fleet (the sidecars) ──▶ sidecar (what each sees and reports)
                                                                        │
              folder (files named as by sidecars, the truth) ◀── delivery (late, duplicate, broken) ◀─┘

The same plan gives the same bytes, on any machine and with any number of processes. It needs neither Spark
nor Kafka; `python -m tests.pipeline.simulate --help` describes the command.
"""

from tests.pipeline.simulate.folder import simulate, write
from tests.pipeline.simulate.plan import Plan, PlanError, plan_for

__all__ = ["Plan", "PlanError", "plan_for", "simulate", "write"]
