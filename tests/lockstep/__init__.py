"""Drives Kafka's producer and ours by the same random steps, and compares them after each (LOCK-01).

    make lockstep SEEDS=50
    .venv/bin/python -m tests.lockstep --mode default --seed 7      one trace, with its first difference

java/Lockstep.java runs the classes of Kafka's jar; `our_side.py` runs ours. Both have a network without
sockets and a virtual clock. A step is a poll that would sleep: until then each side takes the turns it likes.
`steps.py` draws what happens next, `brokers.py` answers, `comparison.py` compares, and `shadows.py` has the
declared deviations. docs/decisions/0015-lockstep-deviations.md has their reasons.
"""
