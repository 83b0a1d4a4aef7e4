"""A fleet to try the pipeline on: the events of any number of sidecars over a small model of a cluster.

    plan ──▶ cluster (what truly happens) ──▶ fleet (who watches) ──▶ sidecar (what each sees and says)
                                                                        │
              folder (files as a sidecar names them, the truth) ◀── delivery (late, twice, broken) ◀─┘

The same plan gives the same bytes, on any machine and with any number of processes. Nothing here needs Spark
or Kafka; `python -m pipeline.simulate --help` is the command.
"""

from pipeline.simulate.folder import simulate, write
from pipeline.simulate.plan import Plan, PlanError, plan_for

__all__ = ["Plan", "PlanError", "plan_for", "simulate", "write"]
