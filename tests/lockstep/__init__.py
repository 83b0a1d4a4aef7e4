"""Kafka's own Java producer and ours, driven by the same random steps and compared after each (LOCK-01).

    make lockstep SEEDS=50
    .venv/bin/python -m tests.lockstep --mode default --seed 7 --trace      one trace, with its first difference

java/Lockstep.java runs the classes of Kafka's jar; `our_side.py` runs ours. Both have a network without sockets and
a virtual clock. A step is a poll that would sleep: until then each side does what it does, with as many turns as it
likes. `steps.py` draws what happens next, `brokers.py` answers, `comparison.py` compares, and `deviations.py` has the
declared deviations. docs/decisions/0015-lockstep-deviations.md says why each exists.
"""
