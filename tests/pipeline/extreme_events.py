"""Events that event v1 allows and no cluster emits: the extremes of each field, alone and together.

    extreme_lines(drawn=400)    JSON lines: every field of every type at every extreme of its type, one at a
                                time; then so many events by a seed, of any mixture of extremes, of values
                                that are just allowed, of any values in between, and of ordinary ones

    python -m tests.pipeline.extreme_events [EVENTS [SEED]]    `make test-pipeline-hostile`: both stores make
                                                               every table of them

They share few names, partitions and instants, so that they meet in every group, window and join.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, ShortType, StringType

from pipeline import event_v1
from pipeline.job import Job
from pipeline.progress import Progress
from pipeline.sources import FilesSource
from pipeline.stores.formats import open_store
from pipeline.stores.store import KINDS
from pipeline.value_rules import NUMBERS
from tests.pipeline.event_lines import good
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final[dict[str, DataType]] = event_v1.COMMON | event_v1.FIELDS
_TIMES: Final = ("observed_at", "started_at")
#: When the lines arrived.
RECEIVED_S: Final = datetime.fromisoformat("2026-11-21T10:00:05Z").timestamp()
_BITS: Final[dict[type[DataType], int]] = {ShortType: 16, IntegerType: 32, LongType: 64}

#: Longer values are tried one at a time.
_SHORT_CHARS: Final = 1_000
_OF_A_FILE: Final = 50_000
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


def extreme_lines(drawn: int = 400, seed: int = 1) -> list[str]:
    """The lines; the same ones for the same seed."""
    return [_line(event) for event in (*_one_at_a_time(), *islice(hostile_events(seed), drawn))]


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))


def _one_at_a_time() -> Iterator[dict[str, Any]]:
    for kind in event_v1.OF_TYPE:
        for name in good(kind):
            if name in ("v", "type"):
                continue
            for value in (*extremes_of(name), *of_bounds(name)):
                yield good(kind) | {name: value}


def hostile_events(seed: int) -> Iterator[dict[str, Any]]:
    """Events of any type without end: all else than their place is ordinary, extreme, or just allowed."""
    chance = random.Random(f"hostile {seed}")
    kinds = sorted(event_v1.OF_TYPE)
    short = {
        name: [value for value in extremes_of(name) if len(str(value)) < _SHORT_CHARS]
        for name in _KINDS
        if name not in ("v", "type")
    }
    while True:
        kind = chance.choice(kinds)
        event = good(kind)
        keeps = chance.choice(("sense", "bounds", "anything"))
        for name in event:
            values = [event[name]] * 3
            if keeps != "sense" or name == "metadata_max_age_ms":
                values += [*of_bounds(name), *_between(chance, name)]
            if keeps == "anything" and name in short:
                values += short[name]
            event[name] = chance.choice(values)
        event |= _whereabouts(chance)
        if kind == event_v1.WINDOW and keeps == "bounds":
            event["latency_us"] = {chance.choice(("0", "3", "247")): event["records"]}
            event["errors"] = {"NONE": 10**15}
        if kind == event_v1.PARTITION and keeps != "anything":
            event["isr"] = event["replicas"][: chance.randint(0, 3)]
        yield event


def _between(chance: random.Random, name: str) -> list[int]:
    """Any value that bronze lets pass, where it is a number."""
    return [chance.randint(*NUMBERS[name])] if name in NUMBERS else []


def _whereabouts(chance: random.Random) -> dict[str, Any]:
    """The sidecar, the time and the place of an event: few of each, so that they meet."""
    second = chance.randrange(2_400)
    return {
        "sidecar_id": chance.choice("abcd"),
        "boot_id": chance.choice((1, 2, -(2**63), 2**63 - 1)),
        "observed_at": f"2026-11-21T{9 + second // 3600:02d}:{second // 60 % 60:02d}:00Z",
    }


def main(events: int = 100_000, seed: int = 1) -> int:
    """1 if a table of either store can't be made."""
    failed = 0
    with tempfile.TemporaryDirectory() as name, spark_of_the_session(Path(name) / "spark") as spark:
        folder = Path(name) / "events"
        folder.mkdir()
        hostile = hostile_events(seed)
        for number in range(0, events, _OF_A_FILE):
            lines = (_line(event) for event in islice(hostile, min(_OF_A_FILE, events - number)))
            file = folder / f"{number}.jsonl"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            os.utime(file, (RECEIVED_S, RECEIVED_S))
        for kind in KINDS:
            store = open_store(spark, f"{name}/{kind}", kind, to_write=True)
            progress = Progress(sys.stderr, lambda: 0.0, shows=False)
            source = FilesSource(str(folder), max_files_per_batch=20)
            summary = Job(spark, source, store, progress, stop=threading.Event()).run()
            rejected = sum(summary.rejects.values())
            print(f"{kind}: {summary.lines:,} lines, {rejected:,} rejects {summary.rejects}", flush=True)
            print(f"{kind}: {len(summary.rows)} tables, not made: {summary.failed or 'none'}", flush=True)
            failed += len(summary.failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
