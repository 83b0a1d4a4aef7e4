"""Measures how costs grow with the cluster and with the number of waiting requests.

The exponent is the slope of least squares of log(time) over log(size): 0 is constant, 1 is linear. A look-up
must not grow; a refresh may grow linearly with the topics, and not faster.

    known topics        100 to 100,000, three partitions each. In process: the CPU of a look-up of ten of them
                        in the prepared table, of a first refresh and of one with the same bytes, and the
                        snapshot's memory. Over HTTP: wrk requests ten of them, and then each in turn; the
                        sidecar's memory
    waiting requests    10 to 10,000 produces and look-ups, half and half, that wait for a topic that does not
                        exist. Meanwhile: the time of a look-up in the prepared table, and of one record's
                        round trip to a broker (acks=1, linger 0; a fake broker in this process)

`--quick` leaves the largest sizes out, runs one round, and records nothing.
"""

from __future__ import annotations

import logging
import sys
from itertools import pairwise
from math import log
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from benchmarks.growth_http import ask_sidecars
from benchmarks.growth_topics import measure_topics
from benchmarks.growth_waiting import measure_waiting
from benchmarks.measure import ROUNDS, goal, report, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.measure import Goal

TOPICS: Final = (100, 1_000, 10_000, 100_000)
#: The size that the largest cluster is compared with.
FEW_TOPICS: Final = 10
WAITING: Final = (10, 100, 1_000, 10_000)
#: The exponent of linear growth, as the peer of an exponent.
PROPORTION: Final = 1.0

#: Figure → size → its values, one for each round.
Figures = dict[str, dict[int, list[float]]]


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    # Hidden: the missing topic is requested all the time, and each answer logs a warning.
    logging.disable(logging.WARNING)
    rounds = 1 if quick else ROUNDS
    topics, waiting = (TOPICS[:-1], WAITING[:-1]) if quick else (TOPICS, WAITING)
    in_process = _medians(measure_topics((FEW_TOPICS, *topics), rounds))
    over_http = _medians(ask_sidecars((FEW_TOPICS, *topics), rounds))
    crowded = _medians(measure_waiting(waiting, rounds))
    _print("known topics, in process", in_process, topics)
    _print("known topics, over HTTP, 16 connections", over_http, topics)
    _print("waiting requests", crowded, waiting)
    goals = [
        _grows("look-up, in process, over known topics", in_process["look-up, CPU us"], topics, 0.1),
        _grows("look-up, HTTP, over known topics", over_http["look-up, us"], topics, 0.1),
        _grows("look-up, in process, over waiting requests", crowded["look-up, us"], waiting, 0.1),
        _grows("produce, p50, over waiting requests", crowded["produce, p50 us"], waiting, 0.1),
        _grows("first refresh, over known topics", in_process["first refresh, CPU ms"], topics, 1.1),
        _grows("refresh again, over known topics", in_process["refresh again, CPU ms"], topics, 1.1),
        _as_fast("in process", in_process["look-up, CPU us"], topics[-1]),
        _as_fast("HTTP", over_http["look-up, us"], topics[-1]),
        _as_fast("HTTP, each topic in turn", over_http["look-up of each in turn, us"], topics[-1]),
    ]
    if quick:
        table("goals, not recorded", ("goal", "ratio"), [(g.name, g.ratio) for g in goals])
    else:
        report(goals)


def exponent(figures: Mapping[int, float], sizes: Sequence[int]) -> float:
    """Returns the slope of least squares of log(figure) over log(size)."""
    xs, ys = [log(size) for size in sizes], [log(figures[size]) for size in sizes]
    mean_x, mean_y = fmean(xs), fmean(ys)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - mean_x) ** 2 for x in xs)


def _medians(figures: Figures) -> dict[str, dict[int, float]]:
    return {
        name: {size: median(values) for size, values in of_size.items()} for name, of_size in figures.items()
    }


def _print(title: str, figures: Mapping[str, Mapping[int, float]], sizes: Sequence[int]) -> None:
    """Prints a column for each size, and the exponent over `sizes`."""
    every = sorted({size for of_size in figures.values() for size in of_size})
    assert all(a < b for a, b in pairwise(every))
    table(
        title,
        ("figure", *(f"{size:,}" for size in every), "exponent"),
        [
            (
                name,
                *(of_size.get(size, "") for size in every),
                exponent(of_size, sizes) if len(of_size) > 2 else "",
            )
            for name, of_size in figures.items()
        ],
    )


def _grows(what: str, figures: Mapping[int, float], sizes: Sequence[int], at_most: float) -> Goal:
    found = exponent(figures, sizes)
    return goal(f"growth, {what}, exponent", ours=found, peer=PROPORTION, at_most=at_most)


def _as_fast(how: str, us: Mapping[int, float], most: int) -> Goal:
    """Compares look-ups/s with the most topics known to those with few."""
    return goal(
        f"growth, look-ups/s with {most:,} topics against {FEW_TOPICS}, {how}",
        ours=1e6 / us[most],
        peer=1e6 / us[FEW_TOPICS],
        at_least=0.9,
    )


if __name__ == "__main__":
    main()
