"""The parts of a long run: each goes on for its share of the time, counts, and tells what it found.

    run = fuzz(seed=1, minutes=10, say=print)

Decoders share half of the time. Whatever a part finds is a line in its faults, and it goes on with the next.
A part of whole requests or processes is over when it has done what it was to do, maybe later than that.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz import broker_lies, hostile_sidecar, http_sidecar
from tests.fuzz.decoders import GROUPS
from tests.fuzz.results import Part, Run
from tests.fuzz.target import ended_when_stuck, try_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fuzz.target import Target

#: Parts of the time; what is left is for HTTP.
_DECODERS: Final = 0.5
_ANSWERS: Final = 0.05
_SIMULATED: Final = 0.15
_SOCKETS: Final = 0.1
_SIDECAR: Final = 0.1
#: How many inputs a decoder gets in a row, and how long one life of a sidecar is.
_IN_A_ROW: Final = 50
_LIFE_S: Final = 8
#: A minute's worth of what is counted, not timed.
_MUTATIONS_A_MINUTE: Final = 1_500
_CASES_A_MINUTE: Final = 4
#: Seeds of different runs lie so far apart.
_SEEDS: Final = 1_000_000


def fuzz(seed: int, minutes: float, say: Callable[[str], object]) -> Run:
    """Runs all parts; `say` hears of each when it is over, and of each fault."""
    run, seconds = Run(seed, platform.python_version()), minutes * 60
    first = seed * _SEEDS
    with ended_when_stuck() as still_here:
        parts = [
            *(
                lambda name=name, group=group: decoders(name, group, str(seed), seconds, still_here)
                for name, group in GROUPS.items()
            ),
            lambda: answers(first, seconds * _ANSWERS, still_here),
            lambda: producers(first, seconds * _SIMULATED, still_here, over_sockets=False),
            lambda: producers(first, seconds * _SOCKETS, still_here, over_sockets=True),
            lambda: sidecar_among_liars(first, seconds * _SIDECAR, still_here),
        ]
        for part in parts:
            run.parts.append(_timed(part, say))
    run.parts.append(_timed(lambda: http(seed, minutes), say))
    return run


def _timed(part: Callable[[], Part], say: Callable[[str], object]) -> Part:
    began_s = time.monotonic()
    made = part()
    made.seconds = round(time.monotonic() - began_s)
    for fault in made.faults:
        say(fault)
    say(f"{made.name}: {made.inputs:,} {made.unit}, {len(made.faults)} faults, {made.seconds} s")
    return made


def decoders(
    name: str, group: Sequence[Target], seed: str, seconds: float, still_here: Callable[[], None]
) -> Part:
    """Its targets in turn, so many inputs each, until its part of the decoders' time is over."""
    part = Part(name, "inputs", read=0, refused=0, notes={"decoders": len(group)})
    until_s = time.monotonic() + seconds * _DECODERS / len(GROUPS)
    tried: Counter[str] = Counter()
    first = 0
    while time.monotonic() < until_s:
        for target in group:
            still_here()
            found = try_inputs(target, seed, range(first, first + _IN_A_ROW))
            part.inputs += _IN_A_ROW
            tried.update(read=found.read, refused=found.refused)
            part.faults += found.faults
        first += _IN_A_ROW
    part.read, part.refused = tried["read"], tried["refused"]
    return part


def answers(first: int, seconds: float, still_here: Callable[[], None]) -> Part:
    """Spoilt answers of every type at every version."""
    part = Part("brokers' answers of every API at every version, spoilt", "answers")
    tried: Counter[str] = Counter()
    for seed in _seeds(first, seconds, still_here):
        try:
            tried += broker_lies.answers((seed,))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
    part.inputs, part.notes = tried.total(), dict(tried)
    return part


def producers(first: int, seconds: float, still_here: Callable[[], None], *, over_sockets: bool) -> Part:
    """Whole producers among brokers that lie."""
    where = "over sockets, half of them with SASL" if over_sockets else "in simulated time"
    part = Part(f"producers among lying brokers, {where}", "runs")
    survive = broker_lies.survived_over_sockets if over_sockets else broker_lies.survived
    spoilt: Counter[str] = Counter()
    for seed in _seeds(first, seconds, still_here):
        part.inputs += 1
        try:
            spoilt += survive((seed,))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
    part.notes = {f"answers to {api} spoilt": count for api, count in sorted(spoilt.items())}
    return part


def sidecar_among_liars(first: int, seconds: float, still_here: Callable[[], None]) -> Part:
    """Whole sidecars, one life after another."""
    part = Part("sidecars among lying brokers, healed by honest ones", "lives")
    spoilt = requests = most_mb = 0
    for seed in _seeds(first, seconds, still_here):
        part.inputs += 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                endured = hostile_sidecar.survive(seed, _LIFE_S, Path(folder))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
            continue
        spoilt += endured.spoilt.total()
        requests += endured.statuses.total()
        most_mb = max(most_mb, endured.most_mb)
    part.notes = {"requests": requests, "answers spoilt": spoilt, "MB at most": most_mb}
    return part


def http(seed: int, minutes: float) -> Part:
    """A sidecar's process under hostile HTTP."""
    part = Part("HTTP to a sidecar", "requests")
    mutations, cases = max(int(minutes * _MUTATIONS_A_MINUTE), 1), max(int(minutes * _CASES_A_MINUTE), 1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            endured = http_sidecar.endure(seed, mutations=mutations, cases=cases, folder=Path(folder))
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - that is what is looked for
        part.faults.append(f"seed {seed}: {error!r}")
        return part
    tried = {
        "shapes of attacks": endured.shapes,
        "bodies that strain": endured.bodies,
        "slow callers": endured.slow_callers,
        "mutated requests": endured.mutations,
        "cases of schemathesis": endured.cases,
    }
    before_mb, most_mb, after_mb = endured.memory_mb
    part.inputs = sum(tried.values())
    part.notes = {**tried, "MB before": before_mb, "MB at most": most_mb, "MB after": after_mb}
    return part


def _seeds(first: int, seconds: float, still_here: Callable[[], None]) -> Iterator[int]:
    """Seeds as long as there is time; one at least."""
    until_s, seed = time.monotonic() + seconds, first
    while seed == first or time.monotonic() < until_s:
        still_here()
        yield seed
        seed += 1
