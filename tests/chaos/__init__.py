"""Faults under load on a real Kafka, and checks that all promises were kept.

    faults_*.py    what is done to brokers, network, credentials and the sidecar itself, a function each
    stage.py       brokers behind steerable proxies, a sidecar, Kafka's own Java client beside it
    dialects.py    each way to produce over HTTP
    callers.py     open-loop callers of every dialect
    trace.py       what went over the wire to the brokers
    history.py     what each caller asked for and was answered
    judge.py       history against what an independent consumer reads back: pure
    duplicates.py  which rule allows a record to be there twice: pure
    play.py        one fault from warm-up to outcome: a Row
    report.py      docs/reliability.md, from the rows of a whole run

`make chaos` plays all of them and writes the page; `make test` plays a few (tests/kafka/test_chaos.py).
"""
