"""Profiles the sidecar under load with py-spy: where look-ups and produces spend their time.

    python -m benchmarks.profile [LOAD ...]

Sampled is the holder of the interpreter's lock, which excludes all other threads of the process. Printed are
the shares of the packages, and the functions with the largest own time. The stacks are kept as text and as a
flame graph, in `.cache/profile`.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.load import load
from benchmarks.measure import table
from benchmarks.produce_http import SETTINGS, Contestant
from benchmarks.sidecar import Sidecar, sidecar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER: Final = Path(".cache/profile")
SECONDS: Final = 6
#: Samples per second.
RATE: Final = 500
_MOST_FUNCTIONS: Final = 25
_OURS: Final = ("client_core", "service")


@dataclass(frozen=True, slots=True)
class Work:
    """A load: records per request, 0 for a look-up, and the number of connections."""

    records: int
    connections: int


LOADS: Final = {
    "look-up": Work(0, 16),
    "produce-1x1": Work(1, 1),
    "produce-1x16": Work(1, 16),
    "produce-1x64": Work(1, 64),
    "produce-1000x4": Work(1_000, 4),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Where a look-up and a produce spend their time.")
    arguments.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(LOADS)}; all of them")
    given = arguments.parse_args()
    unknown = [name for name in given.loads if name not in LOADS]
    if unknown:
        arguments.error(f"no such load: {', '.join(unknown)}; there are {', '.join(LOADS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scripts = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = stack.enter_context(three_brokers())
        ours = stack.enter_context(sidecar(brokers.bootstrap_servers, SETTINGS, [TOPIC]))
        ours.get(f"/v1/topics/{TOPIC}")
        for name in given.loads or LOADS:
            _profile(name, LOADS[name], ours, scripts)


def _profile(name: str, work: Work, ours: Sidecar, scripts: Path) -> None:
    path, script = f"/v1/topics/{TOPIC}/partitions/0", None
    if work.records:
        path = f"/v1/topics/{TOPIC}/records"
        script = Contestant(f"{ours.url}{path}", ours.pid).script(scripts, work.records)

    def under_load(seconds: int, watching: subprocess.Popen[bytes] | None = None) -> float:
        loaded = load(
            f"{ours.url}{path}", ours.pid, connections=work.connections, seconds=seconds, script=script
        )
        if watching is not None:
            _, said = watching.communicate(timeout=60)
            if watching.returncode:
                raise SystemExit(f"py-spy ended with {watching.returncode}: {said.decode()}")
        return loaded.sample.per_wall_s

    under_load(1)
    stacks, graph = FOLDER / f"{name}.txt", FOLDER / f"{name}.svg"
    under_load(SECONDS + 2, _watch(ours.pid, "raw", stacks))
    under_load(SECONDS + 2, _watch(ours.pid, "flamegraph", graph))
    rate = under_load(2)
    samples = list(_samples(stacks.read_text().splitlines()))
    total = sum(count for _, count in samples)
    if not total:
        raise SystemExit(f"py-spy saw nothing run while {path} was under load")
    print(f"\n== {name}: {rate:,.0f} requests/s unwatched; {stacks} and {graph}")
    _print_rooms(samples, total)
    _print_functions(samples, total)


def _watch(pid: int, form: str, out: Path) -> subprocess.Popen[bytes]:
    py_spy = Path(sys.executable).with_name("py-spy")
    command = [str(py_spy), "record", "--gil", "--function", "--threads", "--rate", str(RATE)]
    command += ["--duration", str(SECONDS), "--format", form, "--output", str(out), "--pid", str(pid)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _samples(lines: Iterable[str]) -> Iterable[tuple[Sequence[str], int]]:
    """Yields stacks of `function (file)`, outermost first, and how often each was sampled."""
    for line in lines:
        stack, _, count = line.rpartition(" ")
        yield [frame for frame in stack.split(";") if not frame.startswith("thread (")], int(count)


def _room(frame: str) -> str:
    """Returns the package, such as `client_core/network` or `service/produce`, or the library's name."""
    path = frame.rpartition("(")[2].rstrip(")")
    parts = path.partition(":")[0].split("/")
    if parts[0] in _OURS:
        return "/".join(parts[:2]).removesuffix(".py")
    return parts[0].removesuffix(".py")


def _print_rooms(samples: Sequence[tuple[Sequence[str], int]], total: int) -> None:
    """Prints the shares by package; time in libraries that a package called is added in brackets."""
    alone, with_libraries = Counter[str](), Counter[str]()
    for stack, count in samples:
        rooms = [_room(frame) for frame in stack]
        alone[rooms[-1]] += count
        with_libraries[next((room for room in reversed(rooms) if room.startswith(_OURS)), rooms[-1])] += count
    table(
        "rooms, % of the samples",
        ("room", "by itself", "with what it calls of libraries"),
        [
            (room, 100 * alone[room] / total, 100 * count / total)
            for room, count in with_libraries.most_common()
            if count > total / 200
        ],
    )


def _print_functions(samples: Sequence[tuple[Sequence[str], int]], total: int) -> None:
    by_itself, within = Counter[str](), Counter[str]()
    for stack, count in samples:
        by_itself[stack[-1]] += count
        for frame in set(stack):
            within[frame] += count
    table(
        "functions, % of the samples",
        ("function", "by itself", "with all it calls"),
        [
            (frame, 100 * count / total, 100 * within[frame] / total)
            for frame, count in by_itself.most_common(_MOST_FUNCTIONS)
        ],
    )


if __name__ == "__main__":
    main()
