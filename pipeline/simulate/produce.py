"""What a produce window says: a stock of bodies made once, to draw from. Latencies are log-normal.

Bodies are made for each kind of broker (quick, slow, in trouble) and each size of topic, so that a fleet of
thousands of partitions has believable histograms at the cost of a look-up.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from pipeline.event_v1 import bucket_of
from pipeline.simulate.lines import text

QUICK, SLOW, TROUBLED, LEADERLESS = range(4)

#: Half of all batches are acknowledged within so many microseconds.
_MEDIAN_US: Final = {QUICK: 2_500, SLOW: 22_000, TROUBLED: 180_000, LEADERLESS: 0}
_SPREAD: Final = {QUICK: 0.45, SLOW: 0.5, TROUBLED: 1.0, LEADERLESS: 0.0}
#: Records of a window, by the size of its topic.
_RECORDS: Final = (12, 80, 600)
_STOCK: Final = 1024
_ERRORS: Final = ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS")

SIZES: Final = range(len(_RECORDS))


def stock(seed: int) -> dict[tuple[int, int], list[str]]:
    """The ends of window lines by (kind of broker, size of topic), each list equally long."""
    source = random.Random(f"{seed} produce")
    return {
        (kind, size): [_body(source, kind, size) for _ in range(_STOCK)]
        for kind in (QUICK, SLOW, TROUBLED, LEADERLESS)
        for size in SIZES
    }


def _body(source: random.Random, kind: int, size: int) -> str:
    batches = max(round(source.lognormvariate(1.4, 0.6)), 1)
    latencies: Counter[int] = Counter()
    errors: Counter[str] = Counter()
    records = retries = 0
    for _ in range(batches):
        of_batch = max(round(source.lognormvariate(0, 0.5) * _RECORDS[size] / batches), 1)
        if kind == LEADERLESS or (kind == TROUBLED and source.random() < 0.08):
            errors["REQUEST_TIMED_OUT" if kind == LEADERLESS else source.choice(_ERRORS)] += of_batch
            retries += 3
            continue
        if kind == TROUBLED and source.random() < 0.6:
            retries += 1
        median_us = _MEDIAN_US[kind]
        latency_us = round(source.lognormvariate(0, _SPREAD[kind]) * median_us)
        if kind == QUICK and source.random() < 0.004:
            latency_us *= 12
        latencies[bucket_of(latency_us)] += of_batch
        records += of_batch
    return (
        f'"records":{records},"batches":{batches},"bytes":{records * source.randrange(180, 260)}'
        f',"retries":{retries},"errors":{text(dict(sorted(errors.items())))}'
        f',"latency_us":{text({str(bucket): latencies[bucket] for bucket in sorted(latencies)})}}}'
    )
