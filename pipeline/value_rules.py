"""Checks values of event v1: their range, and their consistency with other fields of the event.

    out_of_range     partition -7, epoch 2^31-1, a topic without a name, a hundred thousand replicas
    inconsistent     a window that ends before it starts, a histogram that does not add up to its records

The types of event v1 allow more than a cluster can have. Such a value would reach gold: a partition that does
not exist, a broker for each of a hundred thousand replicas, a sum beyond BIGINT. So the line is rejected,
with the reason and the field. Bounds are far above what any sidecar writes, but low enough that tables can
add and subtract accepted values. The arithmetic of silver and gold does not rely on this: bronze may already
contain older lines.

`metadata_max_age_ms` may have any value of its type: with Kafka's Long.MAX_VALUE a sidecar never refreshes by
itself. Gold only compares it, and divides by it.

SQL text, as all of bronze.py. The rules have no lambdas, so that checking a line is fast. The sum of a
histogram needs one, and is checked last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import event_v1
from pipeline.event_v1 import INCONSISTENT, OUT_OF_RANGE
from pipeline.json_faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable

#: A thousand lines per second for thirty years. A BIGINT holds the sum of nine million boots.
MOST_LINES: Final = 10**12
#: A petabyte, or thirty years in microseconds. A BIGINT holds the sum of nine thousand of them.
MOST_COUNT: Final = 10**15
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1

#: Minimum and maximum, both allowed. A boot's id may be any number: nothing is computed with it.
NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "seq": (1, MOST_LINES),
    # A whole cluster has at most two million replicas (KRaft).
    "partition": (0, 999_999),
    "leader": (0, _INT32),
    # An election per second for thirty years.
    "leader_epoch": (0, 10**9),
    "metadata_version": (0, MOST_COUNT),
    # Below 0: the address of a bootstrap server, by its position in the list.
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
    # A line may be dropped by both of its sinks.
    "dropped": (0, 2 * MOST_LINES),
    "metadata_max_age_ms": (0, _INT64),
}

#: Minimum and maximum number of characters. Kafka's limit for a topic's name; the others are names too.
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

#: Lists of brokers' ids. No partition has a thousand replicas.
LISTS: Final = ("isr", "replicas", "offline")
MOST_REPLICAS: Final = 1_000
#: Counts of records by error name, and by latency bucket (json_faults.py checks its keys).
COUNTS: Final = ("errors", "latency_us")
MOST_ERRORS: Final = 1_000
MOST_ERROR_CHARS: Final = 249


class _Rule(NamedTuple):
    """SQL that is true if the rule is broken, else null or false."""

    field: str
    is_broken: str
    reason: str


def breaks_a_rule(said: Callable[[str], str], read_as: Callable[[str], str]) -> str:
    """Returns the SQL of whether any rule is broken: true or false. `said` and `read_as` return the SQL of a
    field's value; `read_as` is for times.
    """
    return f"coalesce({' OR '.join(rule.is_broken for rule in _rules(said, read_as))}, false)"


def fault_of_values(said: Callable[[str], str], read_as: Callable[[str], str]) -> str:
    """Returns the SQL of struct<reason, detail> for the first broken rule; null if there is none."""
    cases = " ".join(
        f"WHEN {rule.is_broken} THEN {fault(rule.reason, _reported(rule.field, said))}"
        for rule in _rules(said, read_as)
    )
    return f"CASE {cases} END"


def fault_of_histogram(said: Callable[[str], str]) -> str:
    """Returns the SQL of struct<reason, detail> if a window's histogram does not add up to its records.

    Only for events that break no other rule: the sum of others may overflow. Otherwise null.
    """
    total = f"aggregate(map_values({said('latency_us')}), 0L, (sum, records) -> sum + records)"
    is_window = f"{said('type')} = '{event_v1.WINDOW}'"
    return f"""CASE WHEN {is_window} AND {total} <> {said("records")}
        THEN {fault(INCONSISTENT, _reported("latency_us", said))} END"""


def _reported(field: str, said: Callable[[str], str]) -> str:
    return f"'{field}: ' || CAST({said(field)} AS STRING)"


def _rules(said: Callable[[str], str], read_as: Callable[[str], str]) -> list[_Rule]:
    """Returns all rules; those about a single field come first."""
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
