"""The parts of a long run: each runs for its share of the time, counts, and reports its findings.

    run = fuzz(seed=1, minutes=10, say=print)

Decoders share half of the time. Each finding of a part is a line in its faults, and the part goes on: a run
ends only when its time is over. Findings are kept in the corpus (corpus.py), so that the suite replays them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import platform
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz import broker_lies, hostile_sidecar, http_sidecar
from tests.fuzz.corpus import ANSWERS, HTTP, PRODUCERS, SOCKETS, Finding, kind_of, smaller
from tests.fuzz.decoders import GROUPS
from tests.fuzz.ready_answers import compared
from tests.fuzz.results import Part, Run
from tests.fuzz.target import ended_when_stuck, try_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fuzz.target import Target

#: Parts of the time.
_DECODERS: Final = 0.5
_ANSWERS: Final = 0.05
_SIMULATED: Final = 0.15
_SOCKETS: Final = 0.1
_SIDECAR: Final = 0.1
#: How many inputs a decoder gets in a row, and how long one life of a sidecar is.
_IN_A_ROW: Final = 50
_LIFE_S: Final = 8
_HTTP: Final = 0.1
_READY: Final = 0.05
_READY_PART: Final = "look-ups with the table of ready answers and without it"
_REQUESTS_A_LIFE: Final = 300
_ANSWERS_PART: Final = "brokers' answers of every API at every version, spoilt"
_SIDECAR_PART: Final = "sidecars among lying brokers, healed by honest ones"
#: Of one kind of fault so many inputs are kept.
_KEPT_OF_A_KIND: Final = 3
_HTTP_PART: Final = "HTTP to a sidecar"
#: Seeds of different runs lie so far apart.
_SEEDS: Final = 1_000_000


def fuzz(seed: int, minutes: float, say: Callable[[str], object], target: str = "") -> Run:
    """Runs all parts, or those with `target` in their name or in a decoder's; it ends at its time alone.

    `say` hears of each part when it is over, and of each fault.
    """
    run = Run(seed, platform.python_version())
    with ended_when_stuck() as still_here:
        parts = list(_parts(seed, target, still_here))
        left = sum(share for share, _ in parts)
        until_s = time.monotonic() + minutes * 60
        for share, part in parts:
            # Time that a part exceeds or does not use is taken from or given to the others.
            seconds = max(until_s - time.monotonic(), 0.0) * share / left
            left -= share
            run.parts.append(_timed(part, seconds, say))
    return run


def _parts(
    seed: int, target: str, still_here: Callable[[], None]
) -> Iterator[tuple[float, Callable[[float], Part]]]:
    """Each part's share of the time, and what runs it for so many seconds."""
    for name, group in GROUPS.items():
        chosen = group if target in name else [one for one in group if target in one.name]
        if chosen:
            yield _DECODERS / len(GROUPS), partial(decoders, name, chosen, str(seed), still_here=still_here)
    first = seed * _SEEDS
    others: Sequence[tuple[str, float, Callable[[float], Part]]] = (
        (_ANSWERS_PART, _ANSWERS, partial(answers, first, still_here=still_here)),
        (_part_of(False), _SIMULATED, partial(producers, first, still_here=still_here, over_sockets=False)),
        (_part_of(True), _SOCKETS, partial(producers, first, still_here=still_here, over_sockets=True)),
        (_SIDECAR_PART, _SIDECAR, partial(sidecar_among_liars, first, still_here=still_here)),
        (_READY_PART, _READY, partial(ready_answers, first, still_here=still_here)),
        (_HTTP_PART, _HTTP, lambda seconds: http(seed, seconds)),
    )
    yield from ((share, part) for name, share, part in others if target in name)


def _timed(part: Callable[[float], Part], seconds: float, say: Callable[[str], object]) -> Part:
    began_s = time.monotonic()
    made = part(seconds)
    took_s = time.monotonic() - began_s
    made.seconds = round(took_s)
    for fault in made.faults:
        say(fault)
    rate = f"{made.inputs / max(took_s, 0.001):,.1f} {made.unit}/s"
    say(f"{made.name}: {made.inputs:,} {made.unit}, {len(made.faults)} faults, {made.seconds} s, {rate}")
    return made


def decoders(
    name: str, group: Sequence[Target], seed: str, seconds: float, still_here: Callable[[], None]
) -> Part:
    """Its targets in turn, so many inputs each, until its part of the decoders' time is over."""
    part = Part(name, "inputs", read=0, refused=0, notes={"decoders": len(group)})
    until_s = time.monotonic() + seconds
    tried: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    first = 0
    while time.monotonic() < until_s:
        for target in group:
            still_here()
            found = try_inputs(target, seed, range(first, first + _IN_A_ROW))
            part.inputs += _IN_A_ROW
            tried.update(read=found.read, refused=found.refused)
            part.faults += found.faults
            for fault, data in zip(found.faults, found.broke, strict=True):
                kind = kind_of(fault.split(": ", 1)[1])  # behind the seed and the number
                if kept[kind] < _KEPT_OF_A_KIND:
                    part.findings.append(Finding(target.name, smaller(target, data), fault))
                kept[kind] += 1
        first += _IN_A_ROW
    part.read, part.refused = tried["read"], tried["refused"]
    return part


def answers(first: int, seconds: float, still_here: Callable[[], None]) -> Part:
    """Spoilt answers of every type at every version."""
    part = Part(_ANSWERS_PART, "answers")
    tried: Counter[str] = Counter()
    for seed in _seeds(first, seconds, still_here):
        try:
            tried += broker_lies.answers((seed,))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
            part.findings.append(Finding(ANSWERS, str(seed).encode(), repr(error)))
    part.inputs, part.notes = tried.total(), dict(tried)
    return part


def ready_answers(first: int, seconds: float, still_here: Callable[[], None]) -> Part:
    """Twin sidecars, one life after another."""
    part = Part(_READY_PART, "requests")
    tried: Counter[str] = Counter()
    for seed in _seeds(first, seconds, still_here):
        with tempfile.TemporaryDirectory() as folder:
            counts, findings = asyncio.run(compared(seed, _REQUESTS_A_LIFE, Path(folder)))
        tried += counts
        part.faults += findings
    part.inputs, part.notes = tried["requests"], {"answered at once": tried["ready"]}
    return part


def producers(first: int, seconds: float, still_here: Callable[[], None], *, over_sockets: bool) -> Part:
    """Whole producers among brokers that lie."""
    part = Part(_part_of(over_sockets), "runs")
    survive = broker_lies.survived_over_sockets if over_sockets else broker_lies.survived
    spoilt: Counter[str] = Counter()
    for seed in _seeds(first, seconds, still_here):
        part.inputs += 1
        try:
            spoilt += survive((seed,))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
            kind = SOCKETS if over_sockets else PRODUCERS
            part.findings.append(Finding(kind, str(seed).encode(), repr(error)))
    part.notes = {f"answers to {api} spoilt": count for api, count in sorted(spoilt.items())}
    return part


def _part_of(over_sockets: bool) -> str:
    where = "over sockets, half of them with SASL" if over_sockets else "in simulated time"
    return f"producers among lying brokers, {where}"


def sidecar_among_liars(first: int, seconds: float, still_here: Callable[[], None]) -> Part:
    """Whole sidecars, one life after another."""
    part = Part(_SIDECAR_PART, "lives")
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


def http(seed: int, seconds: float) -> Part:
    """A sidecar's process under hostile HTTP; where it ends before the time, another one."""
    faulthandler.cancel_dump_traceback_later()  # each request has a deadline of its own
    part, until_s = Part(_HTTP_PART, "requests"), time.monotonic() + seconds
    tried: Counter[str] = Counter()
    while not part.inputs or time.monotonic() < until_s:
        try:
            with tempfile.TemporaryDirectory() as folder:
                endured = http_sidecar.endure(seed, until_s=until_s, folder=Path(folder))
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - that is what is looked for
            part.faults.append(f"seed {seed}: {error!r}")
            break  # a sidecar that does not start, or does not end
        before_mb, most_mb, after_mb = endured.memory_mb
        tried.update(
            {
                "shapes of attacks": endured.shapes,
                "bodies that strain": endured.bodies,
                "slow callers": endured.slow_callers,
                "mutated requests": endured.mutations,
                "cases of schemathesis": endured.cases,
            }
        )
        part.inputs = tried.total()
        part.faults += [f"seed {seed}: {fault}" for fault in endured.faults]
        part.findings += [Finding(HTTP, fault.sent, str(fault)) for fault in endured.broke]
        part.notes = {**tried, "MB before": before_mb, "MB at most": most_mb, "MB after": after_mb}
        seed += 1
    return part


def _seeds(first: int, seconds: float, still_here: Callable[[], None]) -> Iterator[int]:
    """Seeds as long as there is time; one at least."""
    until_s, seed = time.monotonic() + seconds, first
    while seed == first or time.monotonic() < until_s:
        still_here()
        yield seed
        seed += 1
