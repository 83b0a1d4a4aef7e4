"""Events that event v1 allows and no cluster emits: the extremes of each field, alone and together.

    extreme_lines()      JSON lines: every field of every type at every extreme of its type, one at a time;
                         then events that hypothesis draws, of any mixture of extremes, of values that are
                         just allowed, and of ordinary ones

They share few names, partitions and instants, so that they meet in every group, window and join.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, ShortType, StringType

from pipeline import event_v1
from pipeline.value_rules import NUMBERS
from tests.pipeline.event_lines import good
from tests.pipeline.fleets import examples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

_KINDS: Final[dict[str, DataType]] = event_v1.COMMON | event_v1.FIELDS
_TIMES: Final = ("observed_at", "started_at")
_BITS: Final[dict[type[DataType], int]] = {ShortType: 16, IntegerType: 32, LongType: 64}

_TEXTS: Final = ("", "x" * 100_000, "\u202e\x00<b>'\"\n", "null", "-1")
_INSTANTS: Final = (
    *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59.999999Z", "2026-11-21T10:59:59Z", "2026-11-21T10:00:00.000001Z"),
    *("2026-11-21T12:00:00+14:00", "2026-11-21T09:00:00Z", "2026-11-21T09:59:59.999999999Z"),
)


def extremes_of(name: str) -> list[Any]:
    """The extremes of a field's type; null where it may be missing."""
    kind = _KINDS[name]
    values: list[Any]
    match kind:
        case StringType() if name in _TIMES:
            values = [*_INSTANTS]
        case StringType():
            values = [*_TEXTS]
        case ArrayType():
            numbers = _numbers(kind.elementType)
            values = [[], *([number] for number in numbers), [1] * 100_000, numbers, [7, 7, 7]]
        case MapType():
            counts = _numbers(kind.valueType)
            keys = ("0", "3", "247", "99") if name == "latency_us" else ("", "x" * 5_000, "\u202e\n", "NONE")
            values = [{}, *({key: count} for key in keys for count in counts)]
            values += [dict.fromkeys(keys, counts[1]), {str(n): 1 for n in range(248)}]
        case _:
            values = _numbers(kind)
    return values


def _numbers(kind: DataType) -> list[int]:
    bits = _BITS[type(kind)]
    values = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -1, 0, 1, -7]
    return values + ([2**53 + 1, -(2**53) - 1, 10**15, 10**12] if bits == 64 else [])


def of_bounds(name: str) -> list[Any]:
    """The least and the greatest value of a field that bronze lets pass, where it is a number."""
    return [*NUMBERS[name]] if name in NUMBERS else []


def extreme_lines(drawn: int = 400) -> list[str]:
    """The lines; the same ones each time."""
    events = [*_one_at_a_time(), *examples_of(_mixtures(), drawn)]
    return [json.dumps(event, separators=(",", ":")) for event in events]


def _one_at_a_time() -> Iterator[dict[str, Any]]:
    for kind in event_v1.OF_TYPE:
        for name in good(kind):
            if name in ("v", "type"):
                continue
            for value in (*extremes_of(name), *of_bounds(name)):
                yield good(kind) | {name: value}


@st.composite
def _mixtures(draw: st.DrawFn) -> dict[str, Any]:
    """An event of any type: few sidecars and places; all else is ordinary, extreme, or just allowed."""
    kind = draw(st.sampled_from(sorted(event_v1.OF_TYPE)))
    event = good(kind)
    keeps = draw(st.sampled_from(["sense", "bounds", "anything"]))
    for name in event:
        values = [event[name]] * 3 + of_bounds(name)
        if keeps == "anything" and name not in ("v", "type"):
            values += [value for value in extremes_of(name) if len(str(value)) < 1_000]
        if keeps == "sense" and name != "metadata_max_age_ms":
            values = values[:3]
        event[name] = draw(st.sampled_from(values))
    event |= draw(_whereabouts())
    if kind == event_v1.WINDOW and keeps == "bounds":
        event["latency_us"] = {draw(st.sampled_from(["0", "3", "247"])): event["records"]}
        event["errors"] = {"NONE": 10**15}
    if kind == event_v1.PARTITION and keeps != "anything":
        event["isr"] = event["replicas"][: draw(st.integers(0, 3))]
    return event


def _whereabouts() -> SearchStrategy[dict[str, Any]]:
    """The sidecar, the time and the line number of an event: few of each, so that they meet."""
    seconds = st.integers(0, 2_400).map(lambda s: f"2026-11-21T{9 + s // 3600:02d}:{s // 60 % 60:02d}:00Z")
    return st.fixed_dictionaries(
        {
            "sidecar_id": st.sampled_from(["a", "b", "c", "d"]),
            "boot_id": st.sampled_from([1, 2, -(2**63), 2**63 - 1]),
            "observed_at": seconds,
        }
    )
