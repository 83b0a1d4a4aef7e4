"""Writes a fleet's events as files named as by sidecars, and the truth beside them.

Each sidecar is written separately, so processes share the work; none holds more than some seconds of one
sidecar's lines. The modification time of a file is the simulated time of its last line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, BinaryIO, Final

from tests.pipeline.simulate import cluster
from tests.pipeline.simulate.delivery import Delivery
from tests.pipeline.simulate.fleet import Boot, Member, fleet_of
from tests.pipeline.simulate.lines import stock
from tests.pipeline.simulate.plan import SECOND_US, Plan, PlanError
from tests.pipeline.simulate.sidecar import Scene, Sidecar
from tests.pipeline.simulate.truth import SidecarTruth, truth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: A sidecar closes a file after an hour even if it is not full.
_FILE_AGE_US: Final = 3_600 * SECOND_US
#: One process writes this many events in about the time that starting others takes.
_WORTH_PROCESSES: Final = 300_000
#: The delay of late lines.
_LATE_US: Final = 300 * SECOND_US


def simulate(plan: Plan) -> Iterator[bytes]:
    """Yields all lines of the fleet, with line ends: sidecar by sidecar, each in the order of its files."""
    scene, members = _scene(plan)
    for member in members:
        delivery = Delivery(plan, member.number)
        for _, arriving in delivery.arrived(Sidecar(scene, member).speak()):
            yield from (line + b"\n" for line in arriving)
        yield from (line + b"\n" for line in delivery.late_lines())


def write(
    plan: Plan,
    folder: Path,
    truth: Path,
    *,
    processes: int | None = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, object]:
    """Writes the folder and the file with the truth, and returns the truth.

    `processes`: None is one per processor, or one for a fleet that is written faster than processes start.
    `progress` is called with a line of text now and then. Raises PlanError for an impossible plan, or a
    folder that isn't empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise PlanError(f"{folder} is not empty: give another folder, or remove it.")
    folder.mkdir(parents=True, exist_ok=True)
    scene, members = _scene(plan)
    started = time.monotonic()
    reported: list[SidecarTruth] = []
    lines = 0
    if processes is None:
        processes = 1 if plan.events < _WORTH_PROCESSES else os.cpu_count() or 1
    for one in _written(plan, folder, len(members), processes):
        reported.append(one)
        lines += one.lines
        if progress is not None:
            spent = time.monotonic() - started
            progress(f"{len(reported):,} of {len(members):,} sidecars, {lines:,} lines, {spent:.0f} s")
    reported.sort(key=lambda one: one.number)
    whole = truth_of(plan, scene.timeline, members, reported)
    truth.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return whole


def to_stderr(text: str) -> None:
    """Writes a line that the next one overwrites."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


@lru_cache(maxsize=1)
def _scene(plan: Plan) -> tuple[Scene, list[Member]]:
    timeline = cluster.timeline_of(plan)
    return Scene(plan, timeline, stock(plan.seed), {}), fleet_of(plan, timeline)


def _written(plan: Plan, folder: Path, members: int, processes: int) -> Iterator[SidecarTruth]:
    if processes == 1:
        yield from (_write_sidecar(plan, folder, number) for number in range(members))
        return
    # Not fork: the caller may have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_write_sidecar, plan, folder, number) for number in range(members)]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_sidecar(plan: Plan, folder: Path, number: int) -> SidecarTruth:
    scene, members = _scene(plan)
    member = members[number]
    sidecar = Sidecar(scene, member)
    delivery = Delivery(plan, number)
    with ExitStack() as stack:
        files = _Files(plan, folder, member)
        stack.callback(files.discard)
        for said, arriving in delivery.arrived(sidecar.speak()):
            files.write(said.boot, said.at_us, arriving, delivery)
        files.close(delivery)
    return SidecarTruth(
        number,
        files.lines,
        files.bytes_written,
        tuple(sidecar.boots),
        tuple(delivery.rejected),
        delivery.duplicates,
        delivery.late,
    )


class _Files:
    """The files of one sidecar, one at a time; their names begin with a dot until they are complete."""

    def __init__(self, plan: Plan, folder: Path, member: Member) -> None:
        self._plan: Final = plan
        self._folder: Final = folder
        self._member: Final = member
        self._file: BinaryIO | None = None
        self._name = ""
        self._boot: Boot | None = None
        self._number = 0
        self._bytes = 0
        self._opened_us = 0
        self._last_us = 0
        self.lines = 0
        self.bytes_written = 0

    def write(self, boot: Boot, at_us: int, arriving: list[bytes], delivery: Delivery) -> None:
        if boot is not self._boot:
            self.close(delivery)
            self._boot, self._number = boot, 0
        if not arriving:
            return
        if self._file is not None and (
            self._bytes >= self._plan.file_bytes or at_us - self._opened_us >= _FILE_AGE_US
        ):
            self._finish()
        if self._file is None:
            self._open(at_us)
            if self._number > 1:
                arriving = delivery.late_lines() + arriving
        self._put(at_us, arriving)

    def close(self, delivery: Delivery) -> None:
        """Ends the boot's files; writes lines that are still held back to a separate file."""
        if self._file is not None:
            self._finish()
        late = delivery.late_lines() if self._boot is not None else []
        if late:
            self._open(self._last_us + _LATE_US)
            self._put(self._last_us + _LATE_US, late)
            self._finish()

    def discard(self) -> None:
        """Deletes an unfinished file."""
        if self._file is not None:
            self._file.close()
            (self._folder / f".{self._name}").unlink()

    def _open(self, at_us: int) -> None:
        assert self._boot is not None
        self._number += 1
        self._name = f"events-{self._member.sidecar_id}-{self._boot.boot_id:016x}-{self._number:06d}.jsonl"
        self._file = (self._folder / f".{self._name}").open("wb")
        self._bytes, self._opened_us = 0, at_us

    def _put(self, at_us: int, arriving: list[bytes]) -> None:
        assert self._file is not None
        data = b"\n".join(arriving) + b"\n"
        self._file.write(data)
        self._bytes += len(data)
        self._last_us = at_us
        self.lines += len(arriving)
        self.bytes_written += len(data)

    def _finish(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        hidden = self._folder / f".{self._name}"
        os.utime(hidden, ns=(self._last_us * 1_000, self._last_us * 1_000))
        hidden.rename(self._folder / self._name)
