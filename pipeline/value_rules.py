"""What a value of event v1 may be: its range, and its sense beside other fields of the same event.

    out_of_range     partition -7, epoch 2^31-1, a topic without a name, a hundred thousand replicas
    inconsistent     a window that ends before it starts, a histogram that does not add up to its records

The types of event v1 allow more than a cluster can have. Such a value would pass into gold: a partition that
does not exist, a broker for each of a hundred thousand replicas, a sum that no BIGINT holds. So the line is
rejected, with the reason and the field. Bounds are far beyond what any sidecar writes, but so low that a
table can add up and subtract what passes. The arithmetic of silver and gold does not rely on this: older
lines may be in bronze already.

`metadata_max_age_ms` may be all that its type holds: with Kafka's Long.MAX_VALUE a sidecar never refreshes
by itself. Gold cuts that to what it can compute with (gold/clocks.py).

SQL text, as all of bronze.py. The rules have no lambdas, so that each line can be looked at quickly; the sum
of a histogram needs one, and is looked at last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import event_v1
from pipeline.event_v1 import INCONSISTENT, OUT_OF_RANGE
from pipeline.json_faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable

#: A thousand lines a second for thirty years. Nine million boots can be added up.
MOST_LINES: Final = 10**12
#: A petabyte, or thirty years in microseconds: nine thousand of them can be added up.
MOST_COUNT: Final = 10**15
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1

#: Least and greatest, both allowed. A boot's id is any number: nothing is computed with it.
NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "seq": (1, MOST_LINES),
    # A whole cluster has two million replicas at most (KRaft).
    "partition": (0, 999_999),
    "leader": (0, _INT32),
    # An election a second for thirty years.
    "leader_epoch": (0, 10**9),
    "metadata_version": (0, MOST_COUNT),
    # Below 0: the address of a bootstrap server, by its place in the list.
    "broker": (-10_000, _INT32),
    "partitions": (0, _INT32),
    "topics": (0, _INT32),
    "changed": (0, _INT32),
    "duration_us": (0, MOST_COUNT),
    "records": (0, MOST_COUNT),
    "batches": (0, MOST_COUNT),
    "bytes": (0, MOST_COUNT),
    "retries": (0, MOST_COUNT),
    "uptime_ms": (0, MOST_COUNT),
    # Per sink, and there are two.
    "dropped": (0, 2 * MOST_LINES),
    "metadata_max_age_ms": (0, _INT64),
}

#: Fewest and most characters. Kafka's limit for a topic's name; the others are names as well.
TEXTS: Final[dict[str, tuple[int, int]]] = {
    "cluster_id": (0, 1_000),
    "sidecar_id": (1, 1_000),
    "service": (0, 1_000),
    "topic": (1, 249),
    "topic_id": (1, 1_000),
    "reason": (0, 1_000),
    "change": (0, 1_000),
    "outcome": (0, 1_000),
    "state": (0, 1_000),
    "version": (0, 1_000),
}

#: Brokers' ids. Nobody replicates a partition a thousand times.
LISTS: Final = ("isr", "replicas", "offline")
MOST_REPLICAS: Final = 1_000
#: Records by the name of an error, and by the bucket of their latency (its keys: json_faults.py).
COUNTS: Final = ("errors", "latency_us")
MOST_ERRORS: Final = 1_000
MOST_ERROR_CHARS: Final = 249


class _Rule(NamedTuple):
    """SQL that is true where the rule is broken; null or false else."""

    field: str
    is_broken: str
    reason: str


def breaks_a_rule(said: Callable[[str], str], read_as: Callable[[str], str]) -> str:
    """Whether any of the rules is broken, as SQL: true, false or null. `said` and `read_as` give a field's
    value as SQL, the latter one that is a time.
    """
    return f"coalesce({' OR '.join(rule.is_broken for rule in _rules(said, read_as))}, false)"


def fault_of_values(said: Callable[[str], str], read_as: Callable[[str], str]) -> str:
    """struct<reason, detail> for the first rule that is broken; null if none is."""
    cases = " ".join(
        f"WHEN {rule.is_broken} THEN {fault(rule.reason, _reported(rule.field, said))}"
        for rule in _rules(said, read_as)
    )
    return f"CASE {cases} END"


def fault_of_histogram(said: Callable[[str], str]) -> str:
    """struct<reason, detail> for a window whose histogram has not all of its records, or more; else null.

    Only for events that break no other rule: the sum of others may overflow.
    """
    total = f"aggregate(map_values({said('latency_us')}), 0L, (sum, records) -> sum + records)"
    is_window = f"{said('type')} = '{event_v1.WINDOW}'"
    return f"""CASE WHEN {is_window} AND {total} <> {said("records")}
        THEN {fault(INCONSISTENT, _reported("latency_us", said))} END"""


def _reported(field: str, said: Callable[[str], str]) -> str:
    return f"'{field}: ' || CAST({said(field)} AS STRING)"


def _rules(said: Callable[[str], str], read_as: Callable[[str], str]) -> list[_Rule]:
    """All rules, those about one field first."""
    rules = [
        _Rule(name, f"{said(name)} < {least}L OR {said(name)} > {most}L", OUT_OF_RANGE)
        for name, (least, most) in NUMBERS.items()
    ]
    for name, (fewest, most) in TEXTS.items():
        too_short = f"{said(name)} = '' OR " if fewest else ""
        rules.append(_Rule(name, f"{too_short}length({said(name)}) > {most}", OUT_OF_RANGE))
    for name in LISTS:
        is_wrong = f"size({said(name)}) > {MOST_REPLICAS} OR array_min({said(name)}) < 0"
        rules.append(_Rule(name, is_wrong, OUT_OF_RANGE))
    for name in COUNTS:
        values = f"map_values({said(name)})"
        is_wrong = f"array_min({values}) < 0L OR array_max({values}) > {MOST_COUNT}L"
        rules.append(_Rule(name, is_wrong, OUT_OF_RANGE))
    names = f"map_keys({said('errors')})"
    longest = f"octet_length(array_join({names}, '')) > {MOST_ERRORS * MOST_ERROR_CHARS}"
    is_wrong = f"size({names}) > {MOST_ERRORS} OR array_contains({names}, '') OR {longest}"
    rules.append(_Rule("errors", is_wrong, OUT_OF_RANGE))
    is_of_window = f"{said('type')} = '{event_v1.WINDOW}'"
    rules.append(_Rule("broker", f"({is_of_window} AND {said('broker')} < 0)", OUT_OF_RANGE))
    rules += [
        _Rule("started_at", f"{read_as('started_at')} > {read_as('observed_at')}", INCONSISTENT),
        _Rule("isr", f"size(array_except({said('isr')}, {said('replicas')})) > 0", INCONSISTENT),
        _Rule("dropped", f"shiftright({said('dropped')}, 1) > {said('seq')}", INCONSISTENT),
    ]
    return rules
